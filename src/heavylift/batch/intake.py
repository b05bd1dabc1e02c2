"""Taking an input in: into the journal and the spool, checked whole before anything is sent."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.batch import inputs, lines
from heavylift.batch.inputs import Draft, Format
from heavylift.batch.outputs import (
    ERRORS,
    OUTPUT,
    REQUESTS,
    create,
    spool_name,
    spooled,
    sync_folder,
)
from heavylift.batch.records import Defect, Settings, Shape
from heavylift.batch.store import Intake, Journal
from heavylift.errors import HeavyliftError, Scalar
from heavylift.wire.client import Client, Endpoint, Limits
from heavylift.wire.failures import Failure

_DEFECTS_KEPT: Final = 10_000
_TOKENIZE_AT_ONCE: Final = 16

_AT_ONCE_S: Final = 0.5
_NO_ANSWER: Final = frozenset(
    {Failure.CONNECT, Failure.TIMEOUT_CONNECT, Failure.TIMEOUT_FIRST_BYTE}
)

ASKING: Final = Limits(connect_s=5.0, first_byte_s=30.0, gap_s=30.0)
"""Questions before the run are short; a server that does not answer them is not waited for."""


class InputError(HeavyliftError):
    """BAT006: rows that cannot be sent. `problems` are the first ten thousand of them."""

    def __init__(self, path: str, problems: tuple[Defect, ...], count: int) -> None:
        super().__init__("BAT006", {"path": path, "count": count})
        self.problems = problems


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What is to be taken in: a path or `-`, how it is to be read, and into which shape.

    `skip_invalid`: rows that cannot be sent are counted as skipped. `replace`: answers of rows
    that are no longer there may be thrown away.
    """

    path: str
    format: Format | None = None
    shape: Shape
    skip_invalid: bool = False
    replace: bool = False


def take_in(folder: Path, journal: Journal, source: Source) -> None:
    """Bring the journal to the input as it is now; nothing when it has not changed.

    Raises InputError when rows cannot be sent, BAT007 when answers would be thrown away,
    USE030 when the input is an output of this batch.
    """
    if Path(source.path).absolute() in {
        (folder / n).absolute() for n in (OUTPUT, ERRORS, REQUESTS)
    }:
        raise HeavyliftError("USE030", {"path": source.path})
    digest = _digest(source)
    if digest is not None and journal.get("source", str) == digest:
        return
    number = (journal.get("generation", int) or 0) + 1
    old = journal.get("spool", str)
    name = f"input.{number}.jsonl"
    try:
        with journal.intake() as intake:
            _spool(folder / name, source, intake)
            if not source.replace:
                _refuse_loss(folder, source, intake)
            intake.put(
                generation=number,
                spool=name,
                source=digest,
                shape=source.shape,
                invalid=source.skip_invalid,
            )
    except BaseException:
        (folder / name).unlink(missing_ok=True)
        raise
    if old is not None:
        (folder / old).unlink(missing_ok=True)


def _refuse_loss(folder: Path, source: Source, intake: Intake) -> None:
    orphans = intake.orphans()
    if orphans:
        params: dict[str, Scalar] = {"path": source.path, "folder": str(folder), "count": orphans}
        raise HeavyliftError("BAT007", params)


def _digest(source: Source) -> str | None:
    found = inputs.fingerprint(source.path)
    if found is None:
        return None
    asked = msgspec.json.encode((source.format, source.shape, source.skip_invalid))
    return hashlib.sha256(found.encode() + asked).hexdigest()


def _spool(path: Path, source: Source, intake: Intake) -> None:
    """Write the rows to the spool and take them in, reading the source once."""
    problems: list[Defect] = []
    count = rows = at = 0
    with create(path) as spool:
        for item in inputs.read(source.path, source.format, source.shape):
            rows += 1
            if isinstance(item, Draft):
                line = lines.input_line(item.custom_id, item.url, item.body)
                earlier = intake.add(item, at, len(line))
                if earlier is None:
                    spool.write(line)
                    at += len(line)
                    continue
                detail = f"{item.custom_id} ({earlier})"
                item = Defect(line=item.line, problem="duplicate", detail=detail)  # noqa: PLW2901 - the row is a defect from here on
            intake.skip(item.line)
            count += 1
            if len(problems) < _DEFECTS_KEPT:
                problems.append(item)
        spool.flush()
        os.fsync(spool.fileno())
    sync_folder(path.parent)
    if not rows:
        raise HeavyliftError("BAT008", {"path": source.path})
    if problems and not source.skip_invalid:
        raise InputError(source.path, tuple(problems), count)


async def all_silent(
    settings: Settings, key: str | None, on_wait: Callable[[], None] = lambda: None
) -> bool:
    """True when an endpoint takes connections, and nothing answers for as long as a first endpoint
    is waited for. Rows cannot tell: an answer may take an hour, a word on one's health does not.
    `on_wait` is called when it is not over at once.
    """
    timer = asyncio.get_running_loop().call_later(_AT_ONCE_S, on_wait)
    asked = [asyncio.create_task(_health(url, settings, key)) for url in settings.endpoints]
    silent = False
    try:
        for answer in asyncio.as_completed(asked):
            failure = await answer
            if failure not in _NO_ANSWER:
                return False
            # Where nobody listens yet the run itself waits.
            silent = silent or failure is not Failure.CONNECT
    finally:
        timer.cancel()
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return silent


async def _health(url: str, settings: Settings, key: str | None) -> Failure | None:
    limits = Limits(connect_s=settings.clocks.connect_s, first_byte_s=None)
    async with Client(Endpoint.parse(url, key), limits=limits) as client:
        try:
            async with asyncio.timeout(settings.patience.first_s):
                return await client.health()
        except TimeoutError:
            return Failure.TIMEOUT_FIRST_BYTE


def check_lengths(
    folder: Path, journal: Journal, settings: Settings, *, key: str | None, path: str
) -> None:
    """Refuse rows that cannot fit the endpoint's context, where it counts tokens for us; once for
    an input.

    Only rows with more bytes than the context has tokens are looked at: a token has at least one.
    Raises InputError, unless invalid rows are to be skipped.
    """
    spool = spool_name(journal)
    if journal.get("measured", str) == spool:
        return
    problems = asyncio.run(_too_long(folder, journal, settings.endpoints[0], key))
    if problems and not journal.get("invalid", bool):
        journal.put(source=None)  # taken in and measured again next time, whatever was changed
        found = tuple(problem for _, problem in problems)
        raise InputError(path, found, len(found))
    journal.skip_invalid(seq for seq, _ in problems)
    journal.put(measured=spool)


async def _too_long(
    folder: Path, journal: Journal, endpoint: str, key: str | None
) -> list[tuple[int, Defect]]:
    async with Client(Endpoint.parse(endpoint, key), limits=ASKING) as client:
        try:
            cards = await client.models()
        except HeavyliftError:
            return []  # the server does not say; it will refuse the rows itself
        limits = {card.id: card.context_tokens for card in cards if card.context_tokens}
        found: list[tuple[int, Defect]] = []
        after = 0
        while limits and (
            rows := journal.longer_than(min(limits.values()), after, _TOKENIZE_AT_ONCE)
        ):
            after = rows[-1][0]
            texts = spooled(folder, journal, [row[2:] for row in rows])
            try:
                measured = await asyncio.gather(*(_excess(client, text, limits) for text in texts))
            except HeavyliftError:
                return found  # it does not count after all
            for (seq, line, *_), detail in zip(rows, measured, strict=True):
                if detail is not None:
                    found.append((seq, Defect(line=line, problem="too_long", detail=detail)))
        return found


async def _excess(client: Client, text: bytes, limits: dict[str, int]) -> str | None:
    """How much longer a row is than its model's context; None when it fits or nobody can say."""
    row = lines.INPUT.decode(text)
    body = msgspec.json.decode(row.body)
    limit = limits.get(body["model"])
    tokens = None if limit is None else await client.tokenize(body["model"], asked_text(body))
    if limit is None or tokens is None or len(tokens) <= limit:
        return None
    return f"{row.custom_id}: {len(tokens)} > {limit}"


def asked_text(body: dict[str, Any]) -> str:
    """All text that a body asks with, whatever the route; pictures are left out."""
    asked = body.get("messages") or body.get("prompt") or body.get("input") or ""
    return "\n".join(_texts(asked))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, dict):
        for name in ("content", "text"):
            if name in value:
                yield from _texts(value[name])
