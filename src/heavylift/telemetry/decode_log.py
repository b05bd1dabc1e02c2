"""How fast an engine decoded, from the lines in which it says so now and then. Pure.

A line counts when it is one of three that follow one another with as many sequences running, none
waiting and no prompt computed: then tokens per second over sequences is the time of a token, and
nothing else went on. Lengths are told by what the cache holds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from heavylift.facts.log_schema import LogBook
from heavylift.records.speed import AnchorPoint

_IN_A_ROW: Final = 3
"""Lines before one is taken for settled."""


def decode_points(
    lines: Iterable[str], book: LogBook, engine: str, *, kv_tokens: float | None
) -> tuple[AnchorPoint, ...]:
    """A point for each number of sequences that decoded undisturbed for a while.

    `kv_tokens` is the pool of one replica, where lines tell only its share. A point's prompt is
    what a sequence held, all of it cached: nothing was computed of it.
    """
    name = book.writer(engine)
    patterns = [re.compile(each.pattern) for each in book.decodes if each.engine == name]
    times = defaultdict[int, list[float]](list)
    held = defaultdict[int, list[float]](list)
    for group in _settled(_looks(lines, patterns)):
        for look in group:
            tokens = _held(look, kv_tokens)
            running = int(look["running"] or 0)
            if tokens is not None:
                times[running].append(running / float(look["rate"] or 0))
                held[running].append(tokens / running)
    return tuple(
        AnchorPoint(
            concurrency=running,
            input_tokens=round(median(held[running])),
            output_tokens=1,
            cached_ratio=1.0,
            tpot_s=median(times[running]),
        )
        for running in sorted(times)
    )


def _looks(
    lines: Iterable[str], patterns: Sequence[re.Pattern[str]]
) -> Iterable[Mapping[str, str | None]]:
    for line in lines:
        for pattern in patterns:
            if match := pattern.search(line):
                yield match.groupdict()


def _settled(
    looks: Iterable[Mapping[str, str | None]],
) -> Iterable[list[Mapping[str, str | None]]]:
    """Runs of lines that say the same, without those at either end, which saw it begin or end."""
    run: list[Mapping[str, str | None]] = []
    for look in (*looks, {}):
        undisturbed = bool(look) and _quiet(look)
        if undisturbed and (not run or run[-1].get("running") == look.get("running")):
            run.append(look)
            continue
        if len(run) >= _IN_A_ROW:
            yield run[1:-1]
        run = [look] if undisturbed else []


def _quiet(look: Mapping[str, str | None]) -> bool:
    nothing = all(not float(look.get(name) or 0) for name in ("waiting", "prompt_rate"))
    return nothing and float(look["rate"] or 0) > 0 and int(look["running"] or 0) > 0


def _held(look: Mapping[str, str | None], kv_tokens: float | None) -> float | None:
    """Tokens in the cache: as told, or the told share of the pool."""
    if look.get("tokens"):
        return float(look["tokens"] or 0)
    share = look.get("usage")
    return None if share is None or kv_tokens is None else float(share) / 100 * kv_tokens
