"""An engine's log as it grows: phases, progress, the address, memory terms, figures. Pure.

The words are facts; this module only looks for them. Lines come from any rank, with the prefixes
that engines and containers put before them, and progress bars end in carriage returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from heavylift.facts.log_schema import LogBook, LogTerm
from heavylift.records.receipt import MeasuredTerm
from heavylift.telemetry.values import printed_number
from heavylift.units import GIB, MIB

_UNITS: Final[Mapping[str, int]] = {"GiB": GIB, "MiB": MIB}
_ANY_HOST: Final = re.compile(r"//(?:0\.0\.0\.0|\[::\]|\*)(?=[:/]|$)")
_DIGITS: Final = re.compile(r"\d+")
_ADDRESS: Final = "heavylift-address:"
"""What a submitted job's stand-in writes: where the scheduler has put it."""

_MOST_KINDS: Final = 5000
"""Kinds of lines kept apart: a start has hundreds, and a log of months must not fill the memory."""


@dataclass(frozen=True, slots=True)
class _Phase:
    phase: str
    anchors: tuple[str, ...]
    progress: re.Pattern[str] | None
    unit: str | None


class EngineWords:
    """What is looked for in the log of one engine."""

    def __init__(self, book: LogBook, engine: str) -> None:
        """An engine that the book does not know has no words: nothing is found."""
        name = book.writer(engine)
        self.phases = tuple(
            _Phase(
                each.phase,
                each.anchors,
                None if each.progress is None else re.compile(each.progress),
                each.unit,
            )
            for each in book.phases
            if each.engine == name
        )
        self.terms = tuple(
            (each, re.compile(each.pattern)) for each in book.terms if each.engine == name
        )
        self.figures = tuple(
            (each, re.compile(each.pattern)) for each in book.figures if each.engine == name
        )
        self.versions = tuple(
            re.compile(each.pattern) for each in book.versions if each.engine == name
        )
        self.ranks = tuple(re.compile(each.pattern) for each in book.ranks if each.engine == name)
        self.addresses = tuple(
            re.compile(each.pattern) for each in book.addresses if each.engine == name
        )


class LogReader:
    """Follows one log. What is known so far stands in its attributes."""

    def __init__(self, words: EngineWords) -> None:
        self._words = words
        self._rest = b""
        self._kinds: set[str] = set()
        self._terms: dict[tuple[str, str, int], MeasuredTerm] = {}
        self._alternatives = {
            number for number, (facts, _) in enumerate(words.terms) if facts.alternative
        }
        self.version: str | None = None
        self.replica_figures: dict[str, dict[str, float]] = {}
        self.phase: str | None = None
        self.done: int | None = None
        self.total: int | None = None
        self.unit: str | None = None
        self.address: str | None = None
        self.figures: dict[str, float] = {}
        self.news = 0
        """Lines unlike any before but for their numbers, and steps of progress: what an engine that
        only repeats that it waits does not write.
        """

    def feed(self, block: bytes) -> None:
        """Take what was added to the log; a line may come in several pieces."""
        *whole, self._rest = re.split(rb"[\r\n]", self._rest + block)
        for line in whole:
            if line:
                self._line(line.decode("utf-8", "replace"))

    def measured_terms(self) -> tuple[MeasuredTerm, ...]:
        """A term per device, patterns of one term added up; an alternative where no other is."""
        sums: dict[tuple[str, str], MeasuredTerm] = {}
        plain = {key[:2] for key in self._terms if key[2] not in self._alternatives}
        for (term, device, number), entry in self._terms.items():
            if number in self._alternatives and ((term, device) in plain or (term, device) in sums):
                continue
            before = sums.get((term, device))
            sums[term, device] = entry if before is None else _added(before, entry)
        return tuple(sums.values())

    def _line(self, line: str) -> None:
        kind = _DIGITS.sub("0", line)
        if kind not in self._kinds and len(self._kinds) < _MOST_KINDS:
            self._kinds.add(kind)
            self.news += 1
        self._note_phase(line)
        if line.startswith(_ADDRESS):
            self.address = line.removeprefix(_ADDRESS).strip()
        for pattern in self._words.addresses:
            if match := pattern.search(line):
                # An engine that listens on every interface is asked on loopback.
                self.address = _ANY_HOST.sub("//127.0.0.1", match["url"]).rstrip("/")
        self._note_figures(line)
        for number, (term, pattern) in enumerate(self._words.terms):
            if match := pattern.search(line):
                self._note_term(number, term, match, line)

    def _note_figures(self, line: str) -> None:
        for facts, pattern in self._words.figures:
            if match := pattern.search(line):
                number = printed_number(match["value"])
                if number is None:
                    continue
                self.figures[facts.figure] = value = float(number)
                if facts.adds_up:
                    replica = self._device(line).partition(".")[0]
                    self.replica_figures.setdefault(facts.figure, {})[replica] = value
        for pattern in self._words.versions:
            if self.version is None and (match := pattern.search(line)):
                self.version = match["version"]

    def _note_phase(self, line: str) -> None:
        for each in self._words.phases:
            found = None if each.progress is None else each.progress.search(line)
            if found is None and not any(mark in line for mark in each.anchors):
                continue
            if self.phase != each.phase:
                self.phase, self.unit = each.phase, each.unit
                self.done = self.total = None
                self.news += 1
            counts = (
                None
                if found is None
                else (printed_number(found["done"]), printed_number(found["total"]))
            )
            if counts is not None and None not in counts:
                done, total = (int(each or 0) for each in counts)
                self.news += (done, total) != (self.done, self.total)
                self.done, self.total = done, total
            return

    def _note_term(self, number: int, facts: LogTerm, match: re.Match[str], line: str) -> None:
        key = (facts.term, self._device(line), number)
        if facts.keep == "first" and key in self._terms:
            return
        size = printed_number(match["size"])
        if size is None:
            return
        scale = _UNITS[facts.unit]
        step = Decimal(1).scaleb(-len(match["size"].partition(".")[2]))
        self._terms[key] = MeasuredTerm(
            term=facts.term,
            device=key[1],
            bytes=round(size * scale),
            resolution_bytes=round(step * scale),
            line=line.strip(),
        )

    def _device(self, line: str) -> str:
        """`dp0.pp1.tp3`, as far as the line names its rank; the first where it names none."""
        for pattern in self._words.ranks:
            if match := pattern.search(line):
                groups = match.groupdict()
                outer = [f"{name}{groups[name]}" for name in ("dp", "pp") if groups.get(name)]
                return ".".join([*outer, f"tp{printed_number(groups.get('rank') or '0') or 0}"])
        return "tp0"


def read(lines: Iterable[str], words: EngineWords) -> LogReader:
    """A whole log, read."""
    reader = LogReader(words)
    for line in lines:
        reader.feed(f"{line}\n".encode())
    return reader


def _added(one: MeasuredTerm, other: MeasuredTerm) -> MeasuredTerm:
    return MeasuredTerm(
        term=one.term,
        device=one.device,
        bytes=one.bytes + other.bytes,
        resolution_bytes=one.resolution_bytes + other.resolution_bytes,
        line=f"{one.line}\n{other.line}",
    )
