"""The HTML report of a comparison of quality."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.pages import page
from heavylift.cli.screens.quality import divergence_lines, side_line, verdict_words
from heavylift.cli.text import text
from heavylift.quality.records import Comparison, Contrast, Verdict

_STYLE = {
    Verdict.EQUIVALENT: "ok",
    Verdict.BETTER: "ok",
    Verdict.WORSE: "fail",
    Verdict.NOT_ENOUGH_DATA: "warn",
}


def render(record: Comparison) -> str:
    """The page."""
    return page.document(text("quality.title"), _parts(record))


def _parts(record: Comparison) -> Iterator[str]:
    yield page.paragraph(side_line("quality.reference", record.reference))
    yield page.paragraph(side_line("quality.candidate", record.candidate))
    yield page.paragraph(text("bench.made", at=record.started_at, version=record.heavylift_version))
    if record.candidate.is_quantised:
        yield page.paragraph(text("served.warn_quantised"), "warn")
    yield page.paragraph(verdict_words(record), _STYLE[record.verdict])
    effect = f"{record.detectable_beforehand:.1%}"
    yield page.paragraph(text("quality.beforehand", margin=f"{record.margin:.1%}", effect=effect))
    rows = [_row(contrast.group, contrast) for contrast in record.contrasts]
    if record.noise_floor is not None:
        rows.append(_row(text("quality.floor_word"), record.noise_floor))
    yield page.table(text("quality.page_headers").split("|"), rows, words=(10,))
    yield from _failures(record)
    lines = list(divergence_lines(record))
    if lines:
        yield page.heading(text("quality.divergence_title"))
        for line in lines:
            yield page.paragraph(line)
    if record.same_text is not None and record.same_text_floor is not None:
        yield page.paragraph(
            text(
                "quality.same_text",
                share=f"{record.same_text:.1%}",
                floor=f"{record.same_text_floor:.1%}",
            )
        )


def _row(name: str, contrast: Contrast) -> tuple[str, ...]:
    interval, equivalence = contrast.interval, contrast.equivalence_interval
    return (
        name,
        str(contrast.items),
        f"{contrast.reference_rate:.1%}",
        f"{contrast.candidate_rate:.1%}",
        f"{100 * contrast.difference:+.1f}",
        f"[{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]",
        f"[{100 * equivalence.low:+.1f}, {100 * equivalence.high:+.1f}]",
        f"{contrast.adjusted_p_value:.3f}",
        f"{contrast.minimum_detectable_effect:.1%}",
        str(contrast.more_items),
        text(f"quality.word.{contrast.verdict}"),
    )


def _failures(record: Comparison) -> Iterator[str]:
    """Answers that could not be graded, by kind, of each group and side."""
    rows = [
        (contrast.group, text(f"{key}_word"), name, str(count))
        for contrast in record.contrasts[1:]
        for key, failures in (
            ("quality.reference", contrast.reference_failures),
            ("quality.candidate", contrast.candidate_failures),
        )
        for name, count in failures.items()
    ]
    if rows:
        yield page.heading(text("quality.failures_title"))
        yield page.table(text("quality.failure_headers").split("|"), rows, words=(1, 2))
