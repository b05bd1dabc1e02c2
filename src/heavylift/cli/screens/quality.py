"""The result of a comparison of quality."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.cells import left, right, wrap
from heavylift.cli.output import glyphs
from heavylift.cli.screens.served import served_line
from heavylift.cli.text import text
from heavylift.quality.records import Comparison, Contrast, Verdict
from heavylift.records.served_model import ServedModel

_GLYPH = {
    Verdict.EQUIVALENT: "ok",
    Verdict.BETTER: "ok",
    Verdict.WORSE: "fail",
    Verdict.NOT_ENOUGH_DATA: "unknown",
}


def lines(record: Comparison) -> Iterator[str]:
    """Both sides, what could be seen, a line per group, the noise floor, the verdict in words."""
    yield side_line("quality.reference", record.reference)
    yield side_line("quality.candidate", record.candidate)
    if record.candidate.is_quantised:
        yield f"{glyphs()['warn']} {text('served.warn_quantised')}"
    beforehand = f"{record.detectable_beforehand:.1%}"
    words = text("quality.beforehand", margin=f"{record.margin:.1%}", effect=beforehand)
    yield from wrap(words)
    group, *columns = text("quality.headers").split("|")
    widths = (6, 8, 8, 9, 18, 8, 8)
    aligned = zip(columns, widths, strict=True)
    yield f"  {left(group, 10)}" + "".join(right(column, width) for column, width in aligned)
    for contrast in record.contrasts:
        yield _line(contrast)
    if record.noise_floor is not None:
        floor = record.noise_floor
        yield text(
            "quality.floor",
            difference=_points(floor.difference),
            discordance=f"{floor.discordance:.1%}",
        )
    if record.same_text is not None and record.same_text_floor is not None:
        yield text(
            "quality.same_text",
            share=f"{record.same_text:.1%}",
            floor=f"{record.same_text_floor:.1%}",
        )
    for line in divergence_lines(record):
        yield from wrap(line, "", "  ")
    for contrast in record.contrasts[:1]:
        for key, failures in (
            ("quality.reference", contrast.reference_failures),
            ("quality.candidate", contrast.candidate_failures),
        ):
            if failures:
                listed = ", ".join(f"{name} {count}" for name, count in failures.items())
                yield text("quality.failures", side=text(f"{key}_word"), listed=listed)
    verdict = f"{glyphs()[_GLYPH[record.verdict]]} {verdict_words(record)}"
    yield from wrap(verdict, "", "  ")


def side_line(key: str, side: ServedModel) -> str:
    """One side: model, variant, engine, version, release, where."""
    return f"{text(f'{key}_word')}: {served_line(side)}"


def divergence_lines(record: Comparison) -> Iterator[str]:
    """How far the predictions of the same tokens lie apart, or why that is not known."""
    found = record.divergence
    if found is None:
        if record.divergence_missing not in (None, "not_asked", "files"):
            yield text(f"quality.divergence_missing.{record.divergence_missing}")
        return
    yield text(
        "quality.divergence_line",
        positions=found.positions,
        prompts=found.prompts,
        agreement=f"{found.top1_agreement:.1%}",
        low=f"{found.top1_interval.low:.1%}",
        high=f"{found.top1_interval.high:.1%}",
    )
    for key, spread in (("forward", found.forward), ("backward", found.backward)):
        yield text(
            f"quality.divergence_{key}",
            mean=f"{spread.mean:.4f}",
            low=f"{spread.interval.low:.4f}",
            high=f"{spread.interval.high:.4f}",
            median=f"{spread.median:.4f}",
            p99=f"{spread.p99:.3f}",
            max=f"{spread.max:.3f}",
        )
    if found.floor_mean is not None:
        yield text("quality.divergence_floor", mean=f"{found.floor_mean:.4f}")
    change = found.probability_change_rms
    if change is not None:
        yield text("quality.divergence_change", points=f"{100 * change:.2f}")
    uncovered = max(found.uncovered_reference_mean, found.uncovered_candidate_mean)
    most = max(found.uncovered_reference_max, found.uncovered_candidate_max)
    yield text(
        "quality.divergence_uncovered",
        top=found.top,
        mean=f"{uncovered:.1%}",
        max=f"{most:.1%}",
    )


def verdict_words(record: Comparison) -> str:
    """The verdict as a sentence with its numbers."""
    whole = record.contrasts[0]
    worst = min(record.contrasts, key=lambda contrast: contrast.difference)
    shown = worst if record.verdict is Verdict.WORSE else whole
    return text(
        f"quality.verdict.{record.verdict}",
        group=text(f"quality.group.{shown.group}") if _is_known(shown.group) else shown.group,
        difference=_points(shown.difference),
        low=_points(shown.interval.low),
        high=_points(shown.interval.high),
        margin=f"{record.margin:.1%}",
        more=shown.more_items,
    )


def _is_known(group: str) -> bool:
    return group in ("all", "facts", "logic", "code", "chinese", "summary")


def _line(contrast: Contrast) -> str:
    interval = f"[{_points(contrast.interval.low)}, {_points(contrast.interval.high)}]"
    mark = glyphs()[_GLYPH[contrast.verdict]]
    return (
        f"{mark} {contrast.group:<10}{contrast.items:>6}{contrast.reference_rate:>8.1%}"
        f"{contrast.candidate_rate:>8.1%}{_points(contrast.difference):>9}{interval:>18}"
        f"{contrast.adjusted_p_value:>8.3f}{contrast.minimum_detectable_effect:>8.1%}"
    )


def _points(share: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{share * 100:+.1f}"
