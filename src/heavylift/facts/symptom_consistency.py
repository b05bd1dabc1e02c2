"""How the books of symptoms must agree: ids, references, texts, regexes, anchors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from heavylift.facts.defects import Defect
from heavylift.facts.symptom_schema import (
    CauseFacts,
    ConsequenceFacts,
    LogMark,
    SymptomBook,
    SymptomFacts,
    WalkFacts,
)

PHASES: Final = ("unknown", "start", "load", "profile", "capture", "serving")
"""Where a run may stand when something fails."""

# Digits do not count in anchors: something to look for must be left without them.
_FEWEST_LETTERS: Final = 2


class _Names:
    """What may be referred to, and how often each was given."""

    def __init__(self, books: tuple[SymptomBook, ...]) -> None:
        causes = [cause for book in books for cause in book.causes]
        self.causes = Counter(cause.id for cause in causes)
        self.symptoms = Counter(symptom.id for cause in causes for symptom in cause.symptoms)


def symptom_defects(books: Iterable[SymptomBook]) -> Iterator[Defect]:
    """Every defect of the books and between them. Empty = sound."""
    books = tuple(books)
    names = _Names(books)
    for book in books:
        file = f"symptoms/{book.id}.toml"
        for cause in book.causes:
            yield from _cause_defects(f"{file}: {cause.id}", cause, names)
        for consequence in book.consequences:
            yield from _consequence_defects(f"{file}: {consequence.id}", consequence)
        for mark in book.marks:
            yield from _mark_defects(f"{file}: {mark.id}", mark)
        for number in book.numbers:
            yield from _regex_defects(f"{file}: {number.id}", number.regex)
        for walk in book.walks:
            yield from _walk_defects(f"{file}: {walk.id}", walk, names)


def _cause_defects(where: str, cause: CauseFacts, names: _Names) -> Iterator[Defect]:
    yield from _once(where, cause.id, names.causes)
    yield from _cause_names(where, cause.explains, names)
    yield from _words_defects(f"{where}.title", cause.title)
    yield from _words_defects(f"{where}.fix", cause.fix)
    for symptom in cause.symptoms:
        yield from _symptom_defects(f"{where}.{symptom.id}", symptom, names)


def _symptom_defects(where: str, symptom: SymptomFacts, names: _Names) -> Iterator[Defect]:
    yield from _once(where, symptom.id, names.symptoms)
    yield from _anchor_defects(where, symptom.anchors)
    yield from _regex_defects(where, symptom.regex)
    yield from _phase_names(where, symptom.phases)
    for other in symptom.beside:
        if other not in names.symptoms:
            yield Defect(where, "unknown_symptom", other)
    if symptom.fix:
        yield from _words_defects(f"{where}.fix", symptom.fix)


def _consequence_defects(where: str, consequence: ConsequenceFacts) -> Iterator[Defect]:
    yield from _words_defects(f"{where}.title", consequence.title)
    yield from _anchor_defects(where, consequence.anchors)
    yield from _regex_defects(where, consequence.regex)


def _mark_defects(where: str, mark: LogMark) -> Iterator[Defect]:
    yield from _anchor_defects(where, mark.anchors)
    for regex in (mark.version, *mark.settings.values()):
        yield from _regex_defects(where, regex)
    if mark.phase is not None:
        yield from _phase_names(where, (mark.phase,))


def _walk_defects(where: str, walk: WalkFacts, names: _Names) -> Iterator[Defect]:
    yield from _words_defects(f"{where}.title", walk.title)
    for step in walk.steps:
        yield from _words_defects(where, step.text)
        yield from _cause_names(where, step.causes, names)


def _cause_names(where: str, causes: Iterable[str], names: _Names) -> Iterator[Defect]:
    for cause in causes:
        if cause not in names.causes:
            yield Defect(where, "unknown_cause", cause)


def _phase_names(where: str, phases: Iterable[str]) -> Iterator[Defect]:
    for phase in phases:
        if phase not in PHASES:
            yield Defect(where, "unknown_phase", phase)


def _once(where: str, name: str, given: Mapping[str, int]) -> Iterator[Defect]:
    if given[name] > 1:
        yield Defect(where, "shared_name", name)


def _words_defects(where: str, words: Mapping[str, str]) -> Iterator[Defect]:
    if not words.get("en"):
        yield Defect(where, "missing", "en")


def _anchor_defects(where: str, anchors: Iterable[str]) -> Iterator[Defect]:
    for anchor in anchors:
        words = re.findall(r"[a-z]+", re.sub(r"[0-9]", "", anchor))
        if anchor != anchor.lower() or max(map(len, words), default=0) < _FEWEST_LETTERS:
            yield Defect(where, "anchor", anchor)


def _regex_defects(where: str, regex: str) -> Iterator[Defect]:
    try:
        re.compile(regex, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        yield Defect(where, "regex", str(error))
