"""The HTML report of a verification."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.pages import page, svg
from heavylift.cli.screens.served import served_line
from heavylift.cli.screens.verify import title, verdict_line
from heavylift.cli.text import evidence, text
from heavylift.verify.records import CheckResult, Status, Verification

_STYLE = {Status.PASS: "ok", Status.WARN: "warn", Status.FAIL: "fail", Status.UNKNOWN: "warn"}


def render(record: Verification) -> str:
    """The page."""
    return page.document(text("verify.title", model=record.subject.model), _parts(record))


def _parts(record: Verification) -> Iterator[str]:
    yield page.paragraph(served_line(record.subject))
    made = text("bench.made", at=record.started_at, version=record.heavylift_version)
    yield page.paragraph(made)
    if record.subject.is_quantised:
        yield page.paragraph(text("served.warn_quantised"), "warn")
    yield page.paragraph(verdict_line(record), _STYLE.get(record.verdict, ""))
    yield page.table(
        text("verify.page_headers").split("|"), map(_row, record.checks), words=(1, 2, 5, 6)
    )
    ladder = [check for check in record.checks if "prefill_tokens_per_s" in check.figures]
    if ladder:
        yield page.heading(text("verify.ladder"))
        yield page.table(text("verify.ladder_headers").split("|"), map(_rung, ladder))
        yield svg.plot(
            [
                svg.Series(
                    name="TTFT",
                    points=[
                        (check.figures["prompt_tokens"], check.figures["ttft_s"])
                        for check in ladder
                    ],
                )
            ],
            x_label=text("verify.axis.tokens"),
            y_label=text("bench.axis.s"),
            title=text("verify.ladder"),
        )


def _row(check: CheckResult) -> tuple[str, ...]:
    interval = check.interval
    return (
        check.id,
        text(f"verify.status.{check.status}"),
        title(check),
        "" if check.rate is None else f"{check.rate:.3f}",
        "" if interval is None else f"[{interval.low:.3f}, {interval.high:.3f}]",
        ", ".join(f"{name} × {count}" for name, count in check.reasons.items()),
        "\n".join(map(evidence, check.evidence[:2])),
    )


def _rung(check: CheckResult) -> tuple[str, ...]:
    figures = check.figures
    return (
        check.id,
        f"{figures['prompt_tokens']:.0f}",
        f"{figures['ttft_s']:.3f}",
        f"{figures['prefill_tokens_per_s']:.0f}",
        f"{figures['kv_use_ratio']:.0%}" if "kv_use_ratio" in figures else "",
    )
