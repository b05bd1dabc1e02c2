"""From sightings to ranked causes. Pure: the rules are here, the knowledge is in the facts.

Confidence follows rules, each named in the answer:
  names / points / hints / leftover
                           what the strongest line of the cause says of it: 0.90, 0.65, 0.30, 0.10
  more_lines               another kind of line speaks for the same cause: +0.03 each, twice at most
  information              the line is marked so, or tells that the program went on: × 0.25
  explained_by             a cause is present that usually has this effect: -0.30
  other_engine             the line is another engine's than the log's: the symptom is left out
Equal confidences are ordered by how many kinds of lines speak, then by the earliest line: the first
failure, not the last error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from heavylift.diagnose.scan import LogReading, Sighting
from heavylift.facts.symptom_schema import (
    CauseFacts,
    ConsequenceFacts,
    Strength,
    SymptomFacts,
)
from heavylift.records.diagnosis import Cause, Consequence, Diagnosis, Evidence, RunContext

BASE: Final[Mapping[Strength, float]] = {
    Strength.NAMES: 0.90,
    Strength.POINTS: 0.65,
    Strength.HINTS: 0.30,
    Strength.LEFTOVER: 0.10,
}
_TELLING: Final = (Strength.NAMES, Strength.POINTS)
_MORE_LINES: Final = 0.03
_MOST_MORE_LINES: Final = 2
_INFORMATION: Final = 0.25
_EXPLAINED: Final = 0.30
RECOGNISED_FROM: Final = 0.5
_MOST_CAUSES: Final = 8
_MOST_ALSO: Final = 4
_MOST_ERRORS: Final = 5


@dataclass(frozen=True, slots=True)
class _Candidate:
    facts: CauseFacts
    sightings: tuple[Sighting, ...]
    confidence: float
    rules: tuple[str, ...]

    @property
    def kinds(self) -> int:
        """How many kinds of lines speak for it."""
        return len({_facts(each).id for each in self.sightings})

    @property
    def best(self) -> Sighting:
        """The earliest of the strongest sightings; of one line the one that knows its area."""
        return min(
            self.sightings,
            key=lambda each: (
                -_strength(each),
                _when(each),
                _facts(each).area is None,
            ),
        )


def diagnose(readings: Iterable[LogReading], language: str = "en") -> Diagnosis:
    """The causes that the logs of one run speak for, the likeliest first."""
    readings = tuple(readings)
    if len(readings) == 1:
        # One log is in order as it stands; times would only reorder what lines without one say.
        for sighting in (*readings[0].sightings, *readings[0].consequences):
            sighting.time = ""
    context = _context(readings)
    found = _by_cause(readings, context, with_aftermath=False)
    if not _tells(found):
        # Where hints are all there is, what is left over after the failure says as much.
        found = _by_cause(readings, context, with_aftermath=True)
    candidates = _explained([_candidate(facts, sightings) for facts, sightings in found.values()])
    candidates.sort(key=lambda each: (-each.confidence, -each.kinds, _when(each.best)))
    causes = tuple(_cause(each, context, language) for each in candidates[:_MOST_CAUSES])
    recognised = bool(causes) and causes[0].confidence >= RECOGNISED_FROM
    return Diagnosis(
        recognised=recognised,
        causes=causes,
        consequences=_consequences(readings, causes[0] if recognised else None, language),
        root=_root(candidates),
        errors=tuple(each for reading in readings for each in reading.errors)[:_MOST_ERRORS],
        context=context,
        files=tuple(reading.file for reading in readings),
        lines=sum(reading.lines for reading in readings),
        bytes=sum(reading.bytes for reading in readings),
        not_text=tuple(reading.file for reading in readings if not reading.is_text),
    )


def _facts(sighting: Sighting) -> SymptomFacts:
    what = sighting.pattern.what
    if not isinstance(what, SymptomFacts):
        raise TypeError(what)
    return what


def _when(sighting: Sighting) -> tuple[str, int]:
    """Order of sightings: by the time the line takes part in, then by number."""
    return sighting.time, sighting.evidence.number


def _by_cause(
    readings: tuple[LogReading, ...], context: RunContext, *, with_aftermath: bool
) -> dict[str, tuple[CauseFacts, list[Sighting]]]:
    """Sightings that count, by cause. The aftermath is leftovers on lines that are consequences:
    they are asked only when nothing else speaks.
    """
    seen = {_facts(each).id for reading in readings for each in reading.sightings}
    found: dict[str, tuple[CauseFacts, list[Sighting]]] = {}
    for reading in readings:
        aftermath = {each.evidence.number for each in reading.consequences}
        for sighting in reading.sightings:
            cause = sighting.pattern.cause
            if cause is None or not _applies(sighting, context, seen):
                continue
            leftover = _facts(sighting).weight is Strength.LEFTOVER
            if with_aftermath or not (leftover and sighting.evidence.number in aftermath):
                found.setdefault(cause.id, (cause, []))[1].append(sighting)
    return found


def _tells(found: Mapping[str, tuple[CauseFacts, list[Sighting]]]) -> bool:
    """True when a line names or points to a cause."""
    return any(
        _facts(each).weight in _TELLING for _, sightings in found.values() for each in sightings
    )


def _applies(sighting: Sighting, context: RunContext, seen: set[str]) -> bool:
    symptom = _facts(sighting)
    if sighting.is_information and symptom.weight is Strength.LEFTOVER:
        return False
    if symptom.phases and sighting.phase not in symptom.phases:
        return False
    if not _within(symptom, context.engine_version):
        return False
    if symptom.beside and seen.isdisjoint(symptom.beside):
        return False
    return not symptom.engines or context.engine in symptom.engines


def _within(symptom: SymptomFacts, version: str | None) -> bool:
    """True when a version is in the symptom's bounds, or either is not known."""
    if version is None:
        return True
    here = _numbered(version)
    return (symptom.since is None or _numbered(symptom.since) <= here) and (
        symptom.until is None or here < _numbered(symptom.until)
    )


def _numbered(version: str) -> tuple[int, ...]:
    """`0.29.1rc1` as (0, 29, 1): what stands behind the numbers does not order releases here."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()


def _candidate(facts: CauseFacts, sightings: list[Sighting]) -> _Candidate:
    strongest = max(sightings, key=_strength)
    weight = _facts(strongest).weight
    confidence = _strength(strongest)
    rules: list[str] = [weight.value]
    if strongest.is_information:
        rules.append("information")
    kinds = {_facts(each).id for each in sightings if _facts(each).weight in _TELLING}
    more = min(max(len(kinds) - 1, 0), _MOST_MORE_LINES)
    if more:
        rules.append("more_lines")
    return _Candidate(facts, tuple(sightings), confidence + more * _MORE_LINES, tuple(rules))


def _strength(sighting: Sighting) -> float:
    """What one line says of its cause."""
    base = BASE[_facts(sighting).weight]
    return base * _INFORMATION if sighting.is_information else base


def _explained(candidates: list[_Candidate]) -> list[_Candidate]:
    """Causes that another, no weaker one usually has as its effect are set back."""
    by_id = {each.facts.id: each for each in candidates}
    effects = {
        effect
        for each in candidates
        if each.confidence >= RECOGNISED_FROM
        for effect in each.facts.explains
        if effect in by_id and by_id[effect].confidence <= each.confidence + _EXPLAINED
    }
    return [
        replace(each, confidence=each.confidence - _EXPLAINED, rules=(*each.rules, "explained_by"))
        if each.facts.id in effects
        else each
        for each in candidates
    ]


def _cause(candidate: _Candidate, context: RunContext, language: str) -> Cause:
    best = candidate.best
    symptom = _facts(best)
    others = sorted((each for each in candidate.sightings if each is not best), key=_when)
    also = {each.evidence.line: each.evidence for each in others}
    also.pop(best.evidence.line, None)
    numbers: dict[str, float] = {}
    for sighting in (*others, best):
        numbers.update(sighting.numbers)
    return Cause(
        cause_class=candidate.facts.id,
        area=symptom.area or candidate.facts.area,
        title=_words(candidate.facts.title, language),
        confidence=round(max(candidate.confidence, 0.0), 2),
        rules=candidate.rules,
        phase=best.phase,
        symptom=symptom.id,
        evidence=best.evidence,
        also=tuple(also.values())[:_MOST_ALSO],
        fix=_words(symptom.fix or candidate.facts.fix, language),
        source=symptom.reference or symptom.source,
        next_command=_filled(candidate.facts.hint_command, context),
        numbers=numbers,
    )


def _filled(command: str | None, context: RunContext) -> str | None:
    """The command with the model the log names, where it names one."""
    model = context.settings.get("model")
    if command is None or model is None or not re.fullmatch(r"[\w./:@-]+", model):
        return command
    return command.replace("MODEL", model)


def _words(by_language: Mapping[str, str], language: str) -> str:
    return by_language.get(language) or by_language["en"]


def _root(candidates: list[_Candidate]) -> Evidence | None:
    """The earliest line that names or points to a cause."""
    telling = [
        sighting
        for each in candidates
        for sighting in each.sightings
        if _facts(sighting).weight in _TELLING
    ]
    return min(telling, key=_when).evidence if telling else None


def _consequences(
    readings: tuple[LogReading, ...], cause: Cause | None, language: str
) -> tuple[Consequence, ...]:
    first: dict[str, Consequence] = {}
    for reading in readings:
        for sighting in reading.consequences:
            facts = sighting.pattern.what
            if isinstance(facts, ConsequenceFacts) and facts.id not in first:
                first[facts.id] = Consequence(
                    id=facts.id,
                    title=_words(facts.title, language),
                    evidence=sighting.evidence,
                    of=cause.cause_class if cause else None,
                )
    return tuple(first.values())


def _context(readings: tuple[LogReading, ...]) -> RunContext:
    """What the logs tell of the run; where several do, the first that tells it."""
    settings: dict[str, str] = {}
    for reading in reversed(readings):
        settings.update(reading.settings)
    return RunContext(
        engine=next((each.engine for each in readings if each.engine), None),
        engine_version=next(
            (each.engine_version for each in readings if each.engine_version), None
        ),
        phase=readings[-1].phase if readings else "unknown",
        settings=settings,
    )
