"""The result of a verification."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.cells import left, wrap
from heavylift.cli.output import glyphs
from heavylift.cli.screens.served import served_line
from heavylift.cli.text import evidence, keys, text
from heavylift.verify.records import CheckResult, Status, Verification

_GLYPH = {
    Status.PASS: "ok",
    Status.WARN: "warn",
    Status.FAIL: "fail",
    Status.SKIPPED: "info",
    Status.UNKNOWN: "unknown",
}


def lines(record: Verification) -> Iterator[str]:
    """What was verified, a line per check, what was seen where one did not pass, the verdict."""
    yield served_line(record.subject)
    if record.subject.is_quantised:
        yield f"{glyphs()['warn']} {text('served.warn_quantised')}"
    for check in record.checks:
        yield check_line(check)
        if check.status in (Status.FAIL, Status.WARN, Status.UNKNOWN):
            for seen in check.evidence[:2]:
                yield from wrap(evidence(" ".join(seen.split())), "    ", most=3)
    yield verdict_line(record)


def check_line(check: CheckResult) -> str:
    """One check in one line: status, id, rate with its interval, names of what went wrong."""
    word = text(f"verify.status.{check.status}")
    rate = ""
    if check.rate is not None and check.interval is not None:
        interval = f"[{check.interval.low:.2f}, {check.interval.high:.2f}]"
        rate = f"{check.rate:.2f} {interval} n={check.trials}"
    reasons = ", ".join(f"{name} {count}" for name, count in check.reasons.items())
    mark = glyphs()[_GLYPH[check.status]]
    return f"{mark} {left(word, 8)}{check.id:<27}{rate:<26} {reasons}".rstrip()


def verdict_line(record: Verification) -> str:
    """The verdict with the counts behind it."""
    counts = {
        f"{status.value}_count": sum(check.status is status for check in record.checks)
        for status in Status
    }
    word = text(f"verify.verdict.{record.verdict}")
    mark = glyphs()[_GLYPH[record.verdict]]
    return f"{mark} {text('verify.summary', word=word, seconds=f'{record.seconds:.1f}', **counts)}"


def title(check: CheckResult) -> str:
    """What the check asks, in words: the catalogue's, the file's own, else its id."""
    key = f"verify.check.{check.id}"
    if key in keys():
        return text(key)
    group = check.id.partition(".")[0]
    if f"verify.group.{group}" in keys() and check.title is None:
        return text(f"verify.group.{group}", id=check.id)
    return check.title or check.id
