"""The doctor's screen: groups with counts, what is wrong with its remedy, the rest with -v."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from heavylift.cli.cells import left, wrap
from heavylift.cli.doctor import GROUPS, ShownFinding, ShownReport
from heavylift.cli.output import WIDTH, glyphs
from heavylift.cli.text import listed, text

_STYLE: Final = {
    "ok": "green",
    "info": "",
    "warn": "yellow",
    "fail": "bold red",
    "unknown": "dim",
}
_ORDER: Final = ("fail", "warn", "unknown", "info", "ok")
_INDENT: Final = " " * 12
_ALL_HOSTS: Final = "*"
_EVIDENCE_LINES: Final = 3


def lines(report: ShownReport) -> Iterator[Text | str]:
    """The screen, line by line."""
    yield text(
        "doctor.title",
        hosts=", ".join(report.hosts),
        taken_at=", ".join(sorted(set(report.taken_at))),
    )
    if report.target is None:
        yield text("doctor.no_target")
    else:
        yield text("doctor.target", target=report.target)
    for group in GROUPS:
        found = [each for each in report.findings if each.applies and each.group == group]
        if found:
            yield ""
            yield _heading(group, found)
            yield from _group(report, found)
    if report.verbose:
        yield from _skipped(report)
    yield ""
    key = "doctor.verdict.fail" if report.failed else "doctor.verdict.none"
    style = "bold red" if report.failed else ""
    yield Text(text(key, **report.counts), style=style)


def _heading(group: str, found: list[ShownFinding]) -> str:
    title = text(f"doctor.group.{group}")
    counted = [
        text("doctor.count", count=count, word=text(f"doctor.word.{word}"))
        for word in _ORDER
        if (count := sum(finding.severity == word for finding in found))
    ]
    counts = " · ".join(counted)
    return f"{title}{' ' * max(2, WIDTH - cell_len(title) - cell_len(counts))}{counts}"


def _group(report: ShownReport, found: list[ShownFinding]) -> Iterator[Text | str]:
    several = len(report.hosts) > 1
    for severity in _ORDER:
        chosen = [finding for finding in found if finding.severity == severity]
        if report.verbose or severity in ("fail", "warn"):
            for finding in chosen:
                yield from _finding(finding, several=several, verbose=report.verbose)
        elif severity == "unknown" and chosen:
            yield from _unknown(chosen, several=several)


def _finding(finding: ShownFinding, *, several: bool, verbose: bool) -> Iterator[Text | str]:
    word = text(f"doctor.word.{finding.severity}")
    host = ""
    if several:
        name = text("doctor.all_hosts") if finding.subject == _ALL_HOSTS else finding.subject
        host = f"  [{name}]"
    yield Text.assemble(
        "  ",
        (f"{glyphs()[finding.severity]} {left(word, 8)}", _STYLE[finding.severity]),
        f"{finding.title}{host}",
        (f"  {finding.id}", "dim"),
    )
    yield from _wrapped(finding.message)
    yield from _evidence(finding, verbose=verbose)
    if finding.fix is not None:
        yield from _wrapped(text("doctor.fix", fix=finding.fix))
    if not verbose:
        return
    if finding.source is not None:
        yield from _wrapped(text("doctor.source", source=f"{finding.source} ({finding.as_of})"))
    if finding.severity in ("fail", "warn"):
        for url in finding.references:
            yield f"{_INDENT}{text('doctor.see', url=url)}"


def _evidence(finding: ShownFinding, *, verbose: bool) -> Iterator[str]:
    """The lines a finding rests on; without -v the first few, each cut to one line."""
    if verbose:
        for line in finding.evidence:
            yield from _wrapped(f"| {line}")
        return
    for line in finding.evidence[:_EVIDENCE_LINES]:
        yield next(_wrapped(f"| {line}"))
    more = len(finding.evidence) - _EVIDENCE_LINES
    if more > 0:
        yield f"{_INDENT}| {text('doctor.more', count=more)}"


def _unknown(chosen: list[ShownFinding], *, several: bool) -> Iterator[Text | str]:
    """Unknown checks, by reason: one missing tool explains many."""
    by_reason: dict[str, list[str]] = {}
    for finding in chosen:
        where = f" [{finding.subject}]" if several else ""
        names = by_reason.setdefault(f"{finding.message}{where}", [])
        if finding.title not in names:
            names.append(finding.title)
    word = text("doctor.word.unknown")
    for reason, titles in by_reason.items():
        head = titles[0] if len(titles) == 1 else f"{len(titles)} ×"
        glyph = f"{glyphs()['unknown']} {left(word, 8)}"
        yield Text.assemble("  ", (glyph, _STYLE["unknown"]), head)
        if len(titles) > 1:
            yield from _wrapped(listed(titles))
        yield from _wrapped(reason)


def _skipped(report: ShownReport) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for skip in report.not_applicable:
        names = by_reason.setdefault(skip.message, [])
        if skip.id not in names:
            names.append(skip.id)
    if by_reason:
        yield ""
        yield text("doctor.not_applicable", count=len(report.not_applicable))
    for reason, names in by_reason.items():
        yield from _wrapped(text("label", name=reason, words=", ".join(names)), "  ")


def _wrapped(words: str, indent: str = _INDENT) -> Iterator[str]:
    """The words on lines of 80 cells, indented. A word longer than a line is cut over lines."""
    return wrap(" ".join(words.split()), indent)
