"""Recorded traffic, line by line: Mooncake's JSON lines, Azure's and BurstGPT's CSV, ServeGen's.

A trace is never held whole. Names of equal prompt blocks (`hash_ids`) are kept, so a prefix cache
meets what it would have met.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.simulate.request import Request

_NAMES_PER_PASS: Final = 1 << 40
"""Further than any name of a trace: a repeated trace shares no prefix with itself."""


class TraceFormat(StrEnum):
    """Who wrote a trace, by its columns."""

    MOONCAKE = "mooncake"
    AZURE = "azure"
    BURSTGPT = "burstgpt"
    SERVEGEN = "servegen"


@dataclass(frozen=True, slots=True)
class _Columns:
    """Names of the columns in lower case, and how a time is read, to seconds."""

    time: str
    input: str
    output: str
    seconds: Callable[[Any], float]


def _milliseconds(value: Any) -> float:
    return float(value) / 1000.0


def _day_time(value: Any) -> float:
    # Azure gives seven digits of a second; a datetime has six.
    head, dot, fraction = str(value).strip().partition(".")
    digits = fraction[:6] if fraction[:6].isdigit() else ""
    return datetime.fromisoformat(f"{head}{dot if digits else ''}{digits}").timestamp()


_FORMATS: Final = {
    TraceFormat.MOONCAKE: _Columns("timestamp", "input_length", "output_length", _milliseconds),
    TraceFormat.AZURE: _Columns("timestamp", "contexttokens", "generatedtokens", _day_time),
    TraceFormat.BURSTGPT: _Columns("timestamp", "request tokens", "response tokens", float),
    TraceFormat.SERVEGEN: _Columns("timestamp", "input_tokens", "output_tokens", float),
}


def read_trace(lines: Iterable[str], path: str) -> Iterator[Request]:
    """The requests of a trace, in order; times are seconds after the first.

    A line that is earlier than the one before counts at the time of that one. Answers of no token
    (requests that failed) are left out. Raises USE061 with the line that cannot be read, USE090 for
    columns of no known format, USE071 for a trace without requests.
    """
    numbered = enumerate(lines, 1)
    first = next(((n, line) for n, line in numbered if line.strip()), None)
    if first is None:
        raise HeavyliftError("USE071", {"path": path})
    head = first[1].lstrip("\ufeff").lstrip()
    rows: Iterator[tuple[int, Mapping[str, Any]]]
    if head.startswith("{"):
        rows = _json_rows(itertools.chain([(first[0], head)], numbered), path)
        first_row = next(rows, None)
        if first_row is None:
            raise HeavyliftError("USE071", {"path": path})
        names: Iterable[str] = first_row[1]
        rows = itertools.chain([first_row], rows)
    else:
        names = [name.strip().lower() for name in next(csv.reader([head]))]
        rows = _csv_rows(numbered, list(names))
    yield from _requests(rows, _format_of(names, path), path)


def _format_of(names: Iterable[str], path: str) -> _Columns:
    held = set(names)
    for columns in _FORMATS.values():
        if {columns.time, columns.input, columns.output} <= held:
            return columns
    formats = "; ".join(f"{f.value}: {c.time}, {c.input}, {c.output}" for f, c in _FORMATS.items())
    raise HeavyliftError("USE090", {"path": path, "formats": formats})


def _json_rows(
    numbered: Iterable[tuple[int, str]], path: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise _unreadable(path, number, str(error)) from error
        # ServeGen keeps the sizes of a request in a part of their own.
        inner = row.get("data")
        merged = {**row, **inner} if isinstance(inner, dict) else row
        yield number, {str(key).strip().lower(): value for key, value in merged.items()}


def _csv_rows(
    numbered: Iterable[tuple[int, str]], names: list[str]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in numbered:
        if line.strip():
            yield number, dict(zip(names, next(csv.reader([line])), strict=False))


def _requests(
    rows: Iterable[tuple[int, Mapping[str, Any]]], columns: _Columns, path: str
) -> Iterator[Request]:
    start: float | None = None
    latest = 0.0
    block: int | None = None
    for number, row in rows:
        try:
            at_s = columns.seconds(row[columns.time])
            size, answer = int(float(row[columns.input])), int(float(row[columns.output]))
            names = [int(name) for name in row.get("hash_ids") or ()]
        except KeyError as error:
            raise _unreadable(path, number, f"{error.args[0]}?") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise _unreadable(path, number, str(error)) from error
        start = at_s if start is None else start
        latest = max(latest, at_s - start)
        if answer < 1:
            continue
        size = max(1, size)
        if len(names) > 1 and block is None:
            block = _block_tokens(size, len(names))
        whole = names if block is None else names[: size // block]
        segments = tuple((name, block) for name in whole) if block is not None else ()
        yield Request(latest, size, answer, segments)
    if start is None:
        raise HeavyliftError("USE071", {"path": path})


def _block_tokens(size: int, names: int) -> int:
    """Tokens of a block: the power of two at which so many blocks hold such a prompt."""
    block = 1
    while block * names < size:
        block *= 2
    return block


def _unreadable(path: str, line: int, detail: str) -> HeavyliftError:
    return HeavyliftError("USE061", {"path": path, "line": line, "detail": detail})


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceFigures:
    """What a trace holds in all."""

    requests: int
    span_s: float
    input_tokens: float
    output_tokens: float
    longest_tokens: int

    @property
    def rate_per_s(self) -> float:
        """Requests per second as recorded."""
        return (self.requests - 1) / self.span_s if self.span_s > 0 else 0.0


def figures_of(requests: Iterable[Request]) -> TraceFigures:
    """Counts and means of a trace, in one pass."""
    count, given, made, longest, last = 0, 0, 0, 0, 0.0
    for request in requests:
        count += 1
        given += request.input_tokens
        made += request.output_tokens
        longest = max(longest, request.input_tokens + request.output_tokens)
        last = request.arrival_s
    return TraceFigures(
        requests=count,
        span_s=last,
        input_tokens=given / max(1, count),
        output_tokens=made / max(1, count),
        longest_tokens=longest,
    )


class Replay:
    """A trace `times` as fast as recorded, again from its start when it is over.

    `opened()` gives its requests anew.
    """

    def __init__(
        self, opened: Callable[[], Iterable[Request]], figures: TraceFigures, times: float
    ) -> None:
        self._opened = opened
        self._figures = figures
        self._times = times

    def arrivals(self) -> Iterator[Request]:
        """The requests, endless."""
        whole = self._figures.span_s + 1 / (self._figures.rate_per_s or 1.0)
        for turn in itertools.count():
            for request in self._opened():
                request.arrival_s = (request.arrival_s + turn * whole) / self._times
                if turn:
                    shift = turn * _NAMES_PER_PASS
                    request.segments = tuple((n + shift, size) for n, size in request.segments)
                yield request

    def follow(self, request: Request, finished_s: float) -> Request | None:  # noqa: ARG002
        """Nothing: what was recorded comes when it came."""
        return None
