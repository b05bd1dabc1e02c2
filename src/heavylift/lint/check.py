"""Lint: from a pasted text to findings and the mended text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from heavylift.lint.case import Case, Hints, Library
from heavylift.lint.command import Command, Document
from heavylift.lint.commands import CommandReader
from heavylift.lint.finding import RANK, LintFinding
from heavylift.lint.layout import laid_out, repaired
from heavylift.lint.mend import drafted, written
from heavylift.lint.reading import read
from heavylift.lint.rules import container, memory, model, names, pairs, settings, shape, sums
from heavylift.records.finding import Severity

SCHEMA: Final = 1
_OWN: Final = "heavylift"
"""The source of what needs none but the text itself: how a shell reads it, and sums."""

_RULES: Final[tuple[Callable[[Case], Iterator[LintFinding]], ...]] = (
    shape.shape,
    names.names,
    model.model,
    container.container,
    settings.settings,
    sums.sums,
    memory.memory,
    pairs.pairs,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was found in a text. `engines` are those its commands start; none = no command was
    recognised. `mended` is the text with every edit applied: in its own lines where that is sure,
    else its commands alone; empty where there is neither a command nor a finding.
    """

    form: str
    engines: tuple[str, ...]
    models: tuple[str, ...]
    findings: tuple[LintFinding, ...]
    mended: str
    schema: int = SCHEMA

    @property
    def is_clean(self) -> bool:
        """True when nothing is above a remark."""
        return all(finding.severity is Severity.INFO for finding in self.findings)


def lint(text: str, library: Library, hints: Hints | None = None) -> Report:
    """Everything wrong with the commands of a text. No text raises."""
    reader = CommandReader(library.engines, library.tables)

    def again(changed: str) -> Document:
        return read(changed, reader)

    document = repaired(again(text), again)
    cases = _cases(document, library, hints)
    by_case = [tuple(_found(case)) for case in cases]
    drafts = [
        drafted(case.command, case.table, [edit for each in found for edit in each.mend])
        for case, found in zip(cases, by_case, strict=True)
    ]
    alone = "\n\n".join(map(written, drafts))
    in_place = laid_out(document, drafts, alone, again)
    mended = alone if in_place is None else in_place
    findings = _unique([*shape.copying(document), *(each for found in by_case for each in found)])
    engines = _names(case.engine.title if case.engine else None for case in cases)
    return Report(
        form=document.form,
        engines=engines,
        models=_names(case.model.title if case.model else case.model_name for case in cases),
        findings=findings,
        # What is no command of an engine is not written as one.
        mended=mended if engines or findings else "",
    )


def cases(text: str, library: Library, hints: Hints | None = None) -> tuple[Case, ...]:
    """The commands of a text, each with what it is judged by. No text raises."""
    document = read(text, CommandReader(library.engines, library.tables))
    return _cases(document, library, hints)


def _cases(document: Document, library: Library, hints: Hints | None) -> tuple[Case, ...]:
    given = hints or Hints()
    return tuple(
        Case(
            replace(command, comments=document.comments),
            library,
            replace(given, version=given.version or _pinned(command, document)),
            tuple(each for each in document.commands if each is not command),
        )
        for command in document.commands
    )


def _pinned(command: Command, document: Document) -> str | None:
    """The version that the text installs (`pip install vllm==0.30.0`) for what it then starts; an
    image has its own.
    """
    if document.text is None or command.engine is None or command.container is not None:
        return None
    package = re.escape(command.engine.id).replace(r"\-", "[-_]")
    pins = set(re.findall(rf"(?<![\w.-]){package}(?:\[[\w,-]*\])?==(\d[\w.]*)", document.text))
    return pins.pop() if len(pins) == 1 else None


def _found(case: Case) -> Iterator[LintFinding]:
    for rule in _RULES:
        yield from rule(case)


def _unique(findings: list[LintFinding]) -> tuple[LintFinding, ...]:
    """Without repeats (a command per node repeats them), the gravest first."""
    seen: dict[tuple[str, str], LintFinding] = {}
    for each in findings:
        finding = each if each.source is not None else replace(each, source=_OWN)
        key = (finding.code, finding.subject)
        if key not in seen or RANK[finding.severity] < RANK[seen[key].severity]:
            seen[key] = finding
    return tuple(sorted(seen.values(), key=lambda finding: RANK[finding.severity]))


def _names(given: Iterator[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in given if name))
