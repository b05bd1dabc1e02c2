"""When requests are sent, and traces that say so. Pure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from heavylift.bench.records import Load, LoadKind
from heavylift.errors import HeavyliftError
from heavylift.stats import Chance
from heavylift.wire.failures import UNDECODABLE


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """One request of a trace: when (seconds after the first), and how large, where stated.

    `blocks` are names of prompt parts of equal size: equal names are equal text, so that a trace
    keeps its sharing of prefixes. `turns` are the user's texts of a recorded conversation.
    """

    at_s: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    blocks: tuple[int, ...] = ()
    turns: tuple[str, ...] = ()


def times(load: Load, chance: Chance) -> Iterator[float]:
    """When each request of an open loop is due, in seconds after the start. Endless.

    Formula (Poisson): gaps of −ln(1 − u) / rate.
    """
    rate = load.rate_per_s or 0.0
    if rate <= 0:
        raise ValueError(load)
    at_s = 0.0
    while True:
        yield at_s
        at_s += -math.log1p(-chance()) / rate if load.kind is LoadKind.POISSON else 1.0 / rate


# Names of the columns in published traces, in lower case.
_TIME: Final = ("timestamp", "time", "arrival_time", "request_time")
_INPUT: Final = ("input_length", "contexttokens", "input_tokens", "prompt_tokens", "request tokens")
_OUTPUT: Final = (
    "output_length",
    "generatedtokens",
    "output_tokens",
    "completion_tokens",
    "response tokens",
)
_USERS: Final = ("human", "user")


def parse_trace(text: str, path: str) -> tuple[Arrival, ...]:
    """The arrivals of a trace: CSV with a header, a JSON object per line, or a JSON list of them.

    Times are milliseconds when `timestamp` is a whole number (as Mooncake's traces have it),
    seconds when it is a fraction, or a date (as Azure's). Conversations without times
    (`conversations` or `messages`) all arrive at 0: use them with a rate or a closed loop.
    Raises USE061 with the line that cannot be read, USE076 with one that states no size, USE071
    for a trace without any.
    """
    reader = {"{": _json_rows, "[": _json_list}.get(text.lstrip()[:1])
    rows = _csv_rows(text) if reader is None else reader(text, path)
    arrivals = [_arrival(row, path, line) for line, row in rows]
    if not arrivals:
        raise HeavyliftError("USE071", {"path": path})
    first = min(arrival.at_s for arrival in arrivals)
    moved = (replace(arrival, at_s=arrival.at_s - first) for arrival in arrivals)
    return tuple(sorted(moved, key=lambda arrival: arrival.at_s))


def _json_rows(text: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, row in enumerate(text.splitlines(), 1):
        if not row.strip():
            continue
        try:
            yield line, msgspec.json.decode(row, type=dict[str, Any])
        except UNDECODABLE as problem:
            raise _unreadable(path, line, str(problem)) from problem


def _json_list(text: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        yield from enumerate(msgspec.json.decode(text, type=list[dict[str, Any]]), 1)
    except UNDECODABLE as problem:
        raise _unreadable(path, 1, str(problem)) from problem


def _csv_rows(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    yield from enumerate(csv.DictReader(io.StringIO(text)), 2)


def _arrival(row: dict[str, Any], path: str, line: int) -> Arrival:
    fields = {str(key).strip().lower(): value for key, value in row.items()}
    turns = _turns(fields.get("conversations", fields.get("messages")))
    try:
        arrival = Arrival(
            at_s=_time_s(_first(fields, _TIME)),
            input_tokens=_count(_first(fields, _INPUT)),
            output_tokens=_count(_first(fields, _OUTPUT)),
            blocks=tuple(int(name) for name in fields.get("hash_ids", ())),
            turns=turns,
        )
    except (ValueError, TypeError) as problem:
        raise _unreadable(path, line, str(problem)) from problem
    if arrival.input_tokens is None and not turns:
        names = ", ".join((*_INPUT, "conversations"))
        raise HeavyliftError("USE076", {"path": path, "line": line, "names": names})
    return arrival


def _first(fields: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if fields.get(name) not in (None, "")), None)


def _time_s(value: Any) -> float:
    if value is None:
        return 0.0
    if isinstance(value, int) or (isinstance(value, str) and value.strip().isdigit()):
        return int(value) / 1000.0
    try:
        return float(value)
    except ValueError:
        # Azure's traces give seven digits of a second; a datetime has six.
        head, dot, fraction = str(value).strip().partition(".")
        return datetime.fromisoformat(f"{head}{dot}{fraction[:6]}").timestamp()


def _count(value: Any) -> int | None:
    return None if value is None else max(1, int(float(value)))


def _turns(listed: Any) -> tuple[str, ...]:
    """The user's texts of a conversation in either of the two usual forms."""
    if not isinstance(listed, list):
        return ()
    said = (
        message.get("value", message.get("content"))
        for message in listed
        if isinstance(message, dict) and message.get("from", message.get("role")) in _USERS
    )
    return tuple(text for text in said if isinstance(text, str) and text.strip())


def _unreadable(path: str, line: int, detail: str) -> HeavyliftError:
    return HeavyliftError("USE061", {"path": path, "line": line, "detail": detail})
