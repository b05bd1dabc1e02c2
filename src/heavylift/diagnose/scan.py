"""Reading one log, block by block, into sightings: flat memory, most lines never looked at twice.

A log repeats itself. Lines that differ only in numbers and ids share a sketch; a sketch whose line
held no anchor is remembered and passed over from then on, so that a healthy gigabyte costs little
more than cutting it into lines. A line of a new sketch is cut into words, and only words that
belong to an anchor lead further.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from heavylift.diagnose.symptoms import (
    Anchor,
    CompiledSymptoms,
    Pattern,
    normal_form,
    sketch,
)
from heavylift.facts.symptom_schema import (
    ConsequenceFacts,
    LogMark,
    SymptomFacts,
)
from heavylift.records.diagnosis import Evidence
from heavylift.telemetry.values import printed_number

UNKNOWN: Final = "unknown"

_LONGEST_LINE: Final = 4_000
_LONGEST_EVIDENCE: Final = 300
_SHORTEST_SKETCH: Final = 12
_MOST_SEEN_BYTES: Final = 32_000_000
# What a remembered sketch takes beside its text.
_OVERHEAD_BYTES: Final = 100
_MOST_WORDS: Final = 200_000
# One kind of line needs no more witnesses than this; later ones are only counted.
_MOST_SIGHTINGS: Final = 8
_MOST_ERRORS: Final = 5
# A larger part of zero bytes is no text.
_MOST_ZEROS: Final = 0.01
# Lines that wait for a frame below them; no mark reaches farther.
_FARTHEST_REACH: Final = 40
# While a run is profiled or its graphs are captured it executes steps too: those frames say more.
_WEAKEST_PHASE: Final = "serving"

_RANK: Final = re.compile(
    r"\b(?:rank|tp|dp|pp|ep|worker|vllmworker)[-_ =:]{0,2}(?:tp)?(\d{1,4})\b", re.IGNORECASE
)
_TIME: Final = re.compile(
    r"(?:\d{4}[-/])?(\d{2}[-/]\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,6})?)"
    r"|\b([A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2})"
)


# Three options on a line make a command, six settings an echo of them: it names what was asked for,
# not what went wrong.
_OPTION: Final = re.compile(r"(?:^|\s)--[a-z]", re.IGNORECASE)
_SETTING: Final = re.compile(r"\b\w+=[^,()\s]+,")
_FEWEST_OPTIONS: Final = 3
_FEWEST_SETTINGS: Final = 6
# A field of a tool's report that counts none of something, or is not there to be counted.
_EMPTY_FIELD: Final = re.compile(r"^[|\s]*[\w /.()-]+?\s*:\s*(?:0|N/A)[|\s]*$")
_TROUBLE: Final = re.compile(
    r"error|exception|fail|cannot|could not|unrecognized|invalid|unsupported|assert|fatal|denied",
    re.IGNORECASE,
)


# Programs mark lines that tell of no trouble: Python's and C++'s loggers, llama.cpp, Go's slog. A
# program that falls back goes on, whatever it says it lacks.
_INFORMATION: Final = re.compile(
    r"^(?:\([^)]*\)|\[[^\]]*\]|[\d:.,T -])*+(?:INFO|DEBUG)\b"
    r"|^\S+ [ID] |\blevel=(?:INFO|DEBUG)\b|\bNCCL INFO\b"
    r"|(?i:\bf[ae]ll(?:ing)?[- ]?back\b|\bwill use default\b|\bis disabled because\b)"
    r"|^(?:\([^)]*\)|\[[^\]]*\]|[\d:.,T -])*+(?i:WARN(?:ING)?\b.*\b(?:is|are|will be) "
    r"(?:not available|unavailable|disabled|ignored|skipped|turned off)\b)"
)


@dataclass(slots=True)
class Sighting:
    """A line that matched: what it matched, where, in which phase; counted when it repeats."""

    pattern: Pattern
    evidence: Evidence
    time: str
    frame_phase: str = ""
    frame_distance: int = 0
    is_information: bool = False
    """The program that wrote the line marked it as no trouble."""
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def phase(self) -> str:
        """The phase that frames around the line tell; what the log announced before may be old."""
        return self.frame_phase or UNKNOWN

    def see_frame(self, phase: str, distance: int) -> None:
        """Take the phase of a frame, unless a nearer or a more telling one was seen."""
        telling = phase != _WEAKEST_PHASE
        was_telling = self.frame_phase not in ("", _WEAKEST_PHASE)
        if telling != was_telling and self.frame_phase:
            taken = telling
        else:
            taken = not self.frame_phase or distance < self.frame_distance
        if taken:
            self.frame_phase, self.frame_distance = phase, distance


@dataclass(slots=True)
class _HotSketch:
    """What lines of a sketch are still asked for: marks always, the rest until it is settled."""

    marks: tuple[LogMark, ...]
    once: list[LogMark]
    open: list[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class LogReading:
    """What was found in one log."""

    file: str
    sightings: tuple[Sighting, ...]
    consequences: tuple[Sighting, ...]
    errors: tuple[Evidence, ...]
    engine: str | None
    engine_version: str | None
    phase: str
    settings: dict[str, str]
    lines: int
    bytes: int
    is_text: bool = True


class Scanner:
    """Takes the blocks of one log in order; `reading` says what was found."""

    def __init__(self, symptoms: CompiledSymptoms, file: str) -> None:
        self._symptoms = symptoms
        self._file = file
        self._quiet: set[bytes] = set()
        self._quiet_bytes = 0
        self._zeros = 0
        self._hot: dict[bytes, _HotSketch] = {}
        self._hot_bytes = 0
        self._anchors: dict[bytes, tuple[Anchor, ...]] = {}
        self._found: dict[int, list[Sighting]] = {}
        self._waiting: deque[Sighting] = deque()
        self._frames: dict[tuple[str, int], int] = {}
        self._errors: list[Evidence] = []
        self._phase = UNKNOWN
        self._engine: dict[str, int] = {}
        self._version: str | None = None
        self._settings: dict[str, str] = {}
        self._lines = 0
        self._bytes = 0

    def feed(self, block: bytes) -> None:
        """Read a block of whole lines."""
        if b"\r" in block:
            block = block.replace(b"\r", b"\n")
        sketches = sketch(block).split(b"\n")
        if not block or block.endswith(b"\n"):
            sketches.pop()
        kinds = set(sketches)
        lines: list[bytes] = []
        if any(len(each) < _SHORTEST_SKETCH for each in kinds):
            lines = block.split(b"\n")
            sketches = _with_short_lines(sketches, lines)
            kinds = set(sketches)
        new = kinds.difference(self._quiet, self._hot)
        if new:
            lines = lines or block.split(b"\n")
            self._learn(_first_lines(new, sketches, lines))
        hot = kinds.intersection(self._hot)
        if hot:
            lines = lines or block.split(b"\n")
            for at in [at for at, each in enumerate(sketches) if each in hot]:
                self._look(self._hot[sketches[at]], lines[at], self._lines + at + 1)
        self._lines += len(sketches)
        self._bytes += len(block)
        self._zeros += block.count(0)

    def reading(self) -> LogReading:
        """What was found so far."""
        found = [sighting for each in self._found.values() for sighting in each]
        found.sort(key=lambda sighting: sighting.evidence.number)
        return LogReading(
            file=self._file,
            sightings=tuple(s for s in found if isinstance(s.pattern.what, SymptomFacts)),
            consequences=tuple(s for s in found if isinstance(s.pattern.what, ConsequenceFacts)),
            errors=tuple(self._errors),
            engine=max(self._engine, key=self._engine.__getitem__) if self._engine else None,
            engine_version=self._version,
            phase=self._phase,
            settings=dict(self._settings),
            lines=self._lines,
            bytes=self._bytes,
            is_text=self._zeros <= _MOST_ZEROS * self._bytes,
        )

    # --- sketches --------------------------------------------------------------------------------

    def _learn(self, first_lines: dict[bytes, bytes]) -> None:
        """Sort new sketches, each with the first line of it, by whether that holds an anchor."""
        if self._quiet_bytes > _MOST_SEEN_BYTES:
            self._quiet.clear()
            self._quiet_bytes = 0
        if self._hot_bytes > _MOST_SEEN_BYTES:
            self._hot.clear()
            self._hot_bytes = 0
        normals = normal_form(b"\n".join(each[:_LONGEST_LINE] for each in first_lines.values()))
        watched = self._watched_words(normals)
        for each, normal in zip(first_lines, normals.split(b"\n"), strict=True):
            patterns = self._patterns_in(normal, watched.intersection(normal.split()))
            if patterns:
                self._hot[each] = self._hot_sketch(patterns)
                self._hot_bytes += len(each) + _OVERHEAD_BYTES
            else:
                self._quiet.add(each)
                self._quiet_bytes += len(each) + _OVERHEAD_BYTES

    def _watched_words(self, normals: bytes) -> set[bytes]:
        """The words of a text that may belong to an anchor; each is looked up once."""
        words = set(normals.split())
        if len(self._anchors) > _MOST_WORDS:
            self._anchors.clear()
        for word in words.difference(self._anchors):
            self._anchors[word] = self._symptoms.anchors_at(word)
        return {word for word in words if self._anchors[word]}

    def _patterns_in(self, normal: bytes, watched: set[bytes]) -> tuple[int, ...]:
        """Indices of the patterns with an anchor in a line, given the watched words it holds."""
        if not watched:
            return ()
        padded = b" " + normal + b" "
        found: set[int] = set()
        for word in watched:
            for anchor in self._anchors[word]:
                if anchor.stands_in(padded):
                    found.update(anchor.patterns)
        return tuple(sorted(found))

    # --- lines -----------------------------------------------------------------------------------

    def _hot_sketch(self, patterns: tuple[int, ...]) -> _HotSketch:
        marks: list[LogMark] = []
        once: list[LogMark] = []
        asked: list[int] = []
        for index in patterns:
            what = self._symptoms.patterns[index].what
            if not isinstance(what, LogMark):
                asked.append(index)
            elif what.phase is not None:
                marks.append(what)
            else:
                once.append(what)
        return _HotSketch(tuple(marks), once, asked)

    def _look(self, hot: _HotSketch, raw: bytes, number: int) -> None:
        if hot.open or hot.once:
            line = raw[:_LONGEST_LINE].decode("utf-8", "replace")
            while hot.once:
                self._learn_once(hot.once.pop(), line, number)
            echo = _is_echo(line)
            for index in tuple(hot.open):
                if not self._ask(index, line, number, echo=echo):
                    hot.open.remove(index)
        for mark in hot.marks:
            self._mark_phase(mark, number)

    def _ask(self, index: int, line: str, number: int, *, echo: bool) -> bool:
        """Test one line with one pattern; False when its sketch need not be asked again."""
        pattern = self._symptoms.patterns[index]
        if echo and pattern.cause is not None:
            return pattern.by_digits
        known = self._found.setdefault(index, [])
        if len(known) >= _MOST_SIGHTINGS and not pattern.by_digits:
            _count_one_more(known[0])
            return True
        match = pattern.regex.search(line)
        if match is None:
            return pattern.by_digits
        if len(known) >= _MOST_SIGHTINGS:
            _count_one_more(known[0])
        else:
            known.append(self._sighting(pattern, match, line, number))
        return True

    def _sighting(self, pattern: Pattern, match: re.Match[str], line: str, number: int) -> Sighting:
        rank = _RANK.search(line)
        time = _TIME.search(line)
        sighting = Sighting(
            pattern=pattern,
            evidence=Evidence(
                line=_shortened(line, match),
                number=number,
                file=self._file,
                rank=rank[1] if rank else None,
            ),
            time=(time[1] or time[2]).replace("/", "-").replace("T", " ") if time else "",
            is_information=_INFORMATION.search(line) is not None,
        )
        sighting.numbers = _numbers(match)
        if pattern.cause is not None:
            for _, regex in self._symptoms.numbers:
                printed = regex.search(line)
                if printed:
                    sighting.numbers.update(_numbers(printed))
        for (phase, reach), at in self._frames.items():
            if number - at <= reach:
                sighting.see_frame(phase, number - at)
        self._waiting.append(sighting)
        return sighting

    def _learn_once(self, mark: LogMark, line: str, number: int) -> None:
        """What the first line of a sketch tells for all of them."""
        if mark.trouble and len(self._errors) < _MOST_ERRORS and not _INFORMATION.search(line):
            self._errors.append(
                Evidence(line=_shortened(line, None), number=number, file=self._file)
            )
        if mark.engine:
            self._engine[mark.engine] = self._engine.get(mark.engine, 0) + 1
        if mark.version and self._version is None:
            found = re.search(mark.version, line, re.IGNORECASE)
            if found:
                self._version = next((each for each in found.groups() if each), None)
        for name, regex in mark.settings.items():
            setting = re.search(regex, line, re.IGNORECASE)
            if setting:
                self._settings.setdefault(name, setting["value"])

    def _mark_phase(self, mark: LogMark, number: int) -> None:
        phase = mark.phase or UNKNOWN
        if not mark.reach:
            self._phase = phase
            return
        self._frames[phase, mark.reach] = number
        while self._waiting and number - self._waiting[0].evidence.number > _FARTHEST_REACH:
            self._waiting.popleft()
        for sighting in self._waiting:
            distance = number - sighting.evidence.number
            if distance <= mark.reach:
                sighting.see_frame(phase, distance)


def _with_short_lines(sketches: list[bytes], lines: list[bytes]) -> list[bytes]:
    """The sketches, short ones replaced by their lines: too little is left of them to tell them
    from others.
    """
    return [
        each if len(each) >= _SHORTEST_SKETCH else b"\x00" + line.lower()
        for each, line in zip(sketches, lines, strict=False)
    ]


def _first_lines(
    wanted: set[bytes], sketches: list[bytes], lines: list[bytes]
) -> dict[bytes, bytes]:
    """The first line of each wanted sketch."""
    found: dict[bytes, bytes] = {}
    for each, line in zip(sketches, lines, strict=False):
        if each in wanted and each not in found:
            found[each] = line
    return found


def _count_one_more(sighting: Sighting) -> None:
    sighting.evidence = replace(sighting.evidence, count=sighting.evidence.count + 1)


def _is_echo(line: str) -> bool:
    """True for a command line or a listing of settings without a word of trouble, and for a field
    of a report that has nothing to tell.
    """
    if _EMPTY_FIELD.match(line):
        return True
    listed = (
        len(_OPTION.findall(line)) >= _FEWEST_OPTIONS
        or len(_SETTING.findall(line)) >= _FEWEST_SETTINGS
    )
    return listed and not _TROUBLE.search(line)


def _numbers(match: re.Match[str]) -> dict[str, float]:
    """The named groups that were found and are numbers."""
    printed = {
        name: printed_number(value)
        for name, value in match.groupdict().items()
        if value is not None
    }
    return {name: float(value) for name, value in printed.items() if value is not None}


def _shortened(line: str, match: re.Match[str] | None) -> str:
    """The line as evidence; of a long one the part around the match."""
    line = line.strip()
    if len(line) <= _LONGEST_EVIDENCE:
        return line
    middle = match.start() if match else 0
    start = max(0, min(middle - _LONGEST_EVIDENCE // 3, len(line) - _LONGEST_EVIDENCE))
    return line[start : start + _LONGEST_EVIDENCE]
