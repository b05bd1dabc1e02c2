"""Traces as they are published, line by line. Pure.

Mooncake's JSON lines, Azure's and BurstGPT's CSV, ServeGen's requests as CSV or JSON, and
conversations as ShareGPT has them. A trace is never held whole, but for one that is a JSON list.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError

_TIME: Final = ("timestamp", "time", "arrival_time", "request_time")
_INPUT: Final = ("input_length", "contexttokens", "input_tokens", "prompt_tokens", "request tokens")
_OUTPUT: Final = (
    "output_length",
    "generatedtokens",
    "output_tokens",
    "completion_tokens",
    "response tokens",
)
_CONVERSATION: Final = ("conversations", "messages")
_USERS: Final = ("human", "user")
_IN_MILLISECONDS: Final = "input_length"
"""Who names prompts so (Mooncake) counts milliseconds; all others seconds, or they give dates."""

_EPOCH_MILLISECONDS: Final = 1e11
"""As seconds, this would be in the year 5138: a number beyond it counts milliseconds since 1970."""

_DATE: Final = re.compile(r"(?P<head>.{10,19}?)(?:\.(?P<part>\d+))?(?P<zone>Z|[+-]\d\d:?\d\d)?")
_UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

FORMATS: Final = (
    "mooncake: timestamp, input_length, output_length; azure: TIMESTAMP, ContextTokens,"
    " GeneratedTokens; burstgpt: Timestamp, Request tokens, Response tokens; servegen: timestamp,"
    " input_tokens, output_tokens"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """One request of a trace: when, in seconds, and how large, in tokens; None = not stated.

    `blocks` are names of prompt parts of equal size: equal names are equal text, so that a trace
    keeps its sharing of prefixes. `turns` are the user's texts of a recorded conversation. `line`
    is where it stands.
    """

    at_s: float | None
    input_tokens: int | None = None
    output_tokens: int | None = None
    blocks: tuple[int, ...] = ()
    turns: tuple[str, ...] = ()
    line: int = 0


def read_arrivals(lines: Iterable[str], path: str) -> Iterator[Arrival]:
    """The requests of a trace in the order of its lines; times as they stand there, to seconds.

    Requests answered with no token (they failed) are left out. Raises USE061 with the line that
    cannot be read, USE071 for a trace without requests.
    """
    numbered = enumerate(lines, 1)
    first = next(((n, line) for n, line in numbered if line.strip()), None)
    if first is None:
        raise HeavyliftError("USE071", {"path": path})
    start, head = first[0], first[1].lstrip("\ufeff").lstrip()
    rows: Iterator[tuple[int, Mapping[str, Any]]]
    if head.startswith("{"):
        rows = _json_rows(_again((start, head), numbered), path)
    elif head.startswith("["):
        rows = _json_list("".join([head, *(line for _, line in numbered)]), path)
    else:
        rows = _csv_rows(start, _again((start, head), numbered), path)
    found = False
    for number, row in rows:
        arrival = _arrival(row, path, number)
        if arrival.output_tokens != 0:
            found = True
            yield arrival
    if not found:
        raise HeavyliftError("USE071", {"path": path})


def unreadable(path: str, line: int, detail: str) -> HeavyliftError:
    """The error for a line that is no request."""
    return HeavyliftError("USE061", {"path": path, "line": line, "detail": detail})


def without_size(path: str, line: int) -> HeavyliftError:
    """The error for a line that does not say how long the prompt is."""
    names = ", ".join((*_INPUT, _CONVERSATION[0]))
    return HeavyliftError("USE076", {"path": path, "line": line, "names": names})


def block_tokens(input_tokens: int, names: int) -> int:
    """Tokens of a block: the power of two at which so many blocks hold such a prompt."""
    block = 1
    while block * names < input_tokens:
        block *= 2
    return block


def _again(
    first: tuple[int, str], numbered: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, str]]:
    yield first
    yield from numbered


def _json_rows(
    numbered: Iterable[tuple[int, str]], path: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            yield number, msgspec.json.decode(line, type=dict[str, Any])
        except _UNDECODABLE as error:
            raise unreadable(path, number, str(error)) from error


def _json_list(text: str, path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        yield from enumerate(msgspec.json.decode(text, type=list[dict[str, Any]]), 1)
    except _UNDECODABLE as error:
        raise unreadable(path, 1, str(error)) from error


def _csv_rows(
    start: int, numbered: Iterable[tuple[int, str]], path: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(line for _, line in numbered)
    names: list[str] | None = None
    try:
        for cells in reader:
            if names is None:
                names = cells
            elif cells:
                yield start + reader.line_num - 1, dict(zip(names, cells, strict=False))
    except csv.Error as error:
        raise unreadable(path, start + reader.line_num - 1, str(error)) from error


def _arrival(row: Mapping[str, Any], path: str, line: int) -> Arrival:
    # ServeGen keeps the sizes of a request in a part of their own.
    inner = row.get("data")
    merged = {**row, **inner} if isinstance(inner, dict) else row
    fields = {str(key).strip().lower(): value for key, value in merged.items()}
    thousandths = fields.get(_IN_MILLISECONDS) not in (None, "")
    try:
        return Arrival(
            at_s=_time_s(_first(fields, _TIME), thousandths=thousandths),
            input_tokens=_count(_first(fields, _INPUT), 1),
            output_tokens=_count(_first(fields, _OUTPUT), 0),
            blocks=tuple(int(name) for name in fields.get("hash_ids") or ()),
            turns=_turns(_first(fields, _CONVERSATION)),
            line=line,
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise unreadable(path, line, str(error)) from error


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if fields.get(name) not in (None, "")), None)


def _time_s(value: Any, *, thousandths: bool) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return _date_s(str(value).strip())
    if not math.isfinite(number):
        raise ValueError(value)
    return number / 1000 if thousandths or number > _EPOCH_MILLISECONDS else number


def _date_s(value: str) -> float:
    # Azure gives seven digits of a second; a datetime has six.
    match = _DATE.fullmatch(value)
    if match is None:
        raise ValueError(value)
    at = datetime.fromisoformat(match["head"] + (match["zone"] or ""))
    whole = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    return whole + float(f"0.{match['part'] or 0}")


def _count(value: Any, least: int) -> int | None:
    return None if value is None else max(least, int(float(value)))


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
