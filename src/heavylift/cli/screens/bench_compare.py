"""Two benchmarks side by side."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.bench.records import Comparison
from heavylift.cli.cells import left, right, wrap
from heavylift.cli.output import glyphs
from heavylift.cli.screens.served import served_line
from heavylift.cli.text import text


def lines(record: Comparison) -> Iterator[str]:
    """One line per metric: both values, the difference with its interval, and the word for it."""
    yield text("bench.compared", a=record.a, b=record.b)
    for name, target in (("A", record.target_a), ("B", record.target_b)):
        if target is not None:
            yield f"{name}: {served_line(target)}"
            if target.is_quantised:
                yield f"{glyphs()['warn']} {text('served.warn_quantised')}"
    if record.loads:
        yield from wrap(text("bench.compared_loads", loads=", ".join(record.loads)))
    key = "bench.paired" if record.pairs else "bench.unpaired"
    yield text(key, pairs=record.pairs)
    metric, a, b, difference, interval = text("bench.compare_headers").split("|")
    yield f"  {left(metric, 9)}{a:>10}{b:>10}{right(difference, 9)}  {interval}"
    words = {True: ("fail", "worse"), False: ("ok", "better"), None: ("info", "no_difference")}
    for change in record.changes:
        mark, word = words[change.is_worse]
        bounds = f"[{change.low * 1e3:+.1f}, {change.high * 1e3:+.1f}]"
        yield (
            f"{glyphs()[mark]} {change.metric:<9}{change.a * 1e3:>10.1f}{change.b * 1e3:>10.1f}"
            f"{change.difference * 1e3:>+9.1f}  {bounds:<20} {text(f'bench.{word}')}"
        )
    errors = record.errors
    mark, word = words[errors.is_worse]
    yield f"{glyphs()[mark]} " + text(
        "bench.compared_errors",
        failed_a=record.requests_a.failed,
        all_a=record.requests_a.ok + record.requests_a.failed,
        failed_b=record.requests_b.failed,
        all_b=record.requests_b.ok + record.requests_b.failed,
        low=f"{errors.low:+.1%}",
        high=f"{errors.high:+.1%}",
        word=text(f"bench.{word}"),
    )
