"""A batch folder from end to end: take an input in, run it, cancel it, say where it stands."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.batch import inputs, lines, routes, schema
from heavylift.batch.audit import audit
from heavylift.batch.inputs import Draft, Format
from heavylift.batch.outputs import (
    ERRORS,
    OUTPUT,
    REQUESTS,
    Ledger,
    explained,
    rewrite,
    spool_name,
    spooled,
    step_into_line,
    sync_folder,
    write_failed,
)
from heavylift.batch.records import (
    Audit,
    Defect,
    Ended,
    Estimate,
    Progress,
    Settings,
    Shape,
    State,
    Status,
)
from heavylift.batch.store import CANCELLED, JOURNAL, Intake, Journal, open_journal
from heavylift.batch.worker import LIMIT, Row, Worker
from heavylift.errors import HeavyliftError, Scalar
from heavylift.state.db import writer_lock
from heavylift.wire.client import Client, Endpoint, Limits

_DEFECTS_KEPT: Final = 10_000
_BUFFER_BYTES: Final = 2**20
_BYTES_PER_TOKEN: Final = 4
"""A rough mean over English text, only where no server counts; the estimate says so."""
_SAMPLE_ROWS: Final = 64
_TOKENIZE_AT_ONCE: Final = 16
_ASKING: Final = Limits(connect_s=5.0, first_byte_s=30.0, gap_s=30.0)
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


@contextlib.contextmanager
def held(folder: Path, *, must_exist: bool = True) -> Iterator[Journal]:
    """The journal of a batch folder, with the sole right to write to it.

    Raises STA005 while another process has it, BAT003 when there is no batch.
    """
    if must_exist and not (folder / JOURNAL).is_file():
        raise HeavyliftError("BAT003", {"path": str(folder)})
    with (
        explained(folder),
        writer_lock(folder / JOURNAL),
        open_journal(folder, must_exist=must_exist) as journal,
    ):
        yield journal


def remove_if_empty(folder: Path) -> None:
    """Take away a journal into which nothing was ever taken, and its folder if nothing else is."""
    path = folder / JOURNAL
    if not path.is_file():
        return
    with open_journal(folder) as journal:
        if journal.get("spool", str) is not None:
            return
    for name in (JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm", f"{JOURNAL}.writer"):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: other things of the user's
        folder.rmdir()


# --- taking in -----------------------------------------------------------------------------------


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
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb", buffering=_BUFFER_BYTES) as spool:
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
    async with Client(Endpoint.parse(endpoint, key), limits=_ASKING) as client:
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


# --- running -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """One run of a batch folder. `worker` is there while it runs, to be asked to stop."""

    folder: Path
    journal: Journal
    settings: Settings
    key: str | None = None
    on_progress: Callable[[Progress], None] | None = None
    make_ledger: Callable[[Path, Journal], Ledger] = Ledger
    worker: Worker | None = None
    _began_at: float = 0.0

    async def run(self) -> Ended:
        """Send what is left and close the books. Raises as `Worker.run`."""
        self._began_at = time.monotonic()
        stopped = await self._send()
        return await asyncio.to_thread(self._close, stopped)

    def _close(self, stopped: str | None) -> Ended:
        """What is done after the last answer: marks, order, the failed requests, the audit."""
        with explained(self.folder):
            if stopped == CANCELLED or (stopped or "").startswith(LIMIT):
                self.journal.skip_the_rest(str(stopped))
            if self.settings.keep_order and stopped is None and not self._is_in_order():
                rewrite(self.folder, self.journal, State.OK)
            write_failed(self.folder, self.journal)
            return self._ended(stopped)

    async def _send(self) -> str | None:
        ledger = self.make_ledger(self.folder, self.journal)
        with ledger.opened(dedupe=self.settings.dedupe):
            if ledger.counts.left == 0:
                return None
            self.worker = Worker(
                ledger,
                self.settings,
                key=self.key,
                checks=_checks(self.journal.get("shape", Shape)),
                on_progress=self.on_progress,
            )
            stopped = await self.worker.run()
            if stopped is None:
                ledger.settle_twins()
            return stopped

    def _is_in_order(self) -> bool:
        places = (at for *_, at, _ in self.journal.in_order(State.OK))
        return all(earlier < later for earlier, later in pairwise(places))

    def _ended(self, stopped: str | None) -> Ended:
        counts = self.journal.counts()
        return Ended(
            folder=str(self.folder),
            audit=audit(self.folder, self.journal),
            reasons=self.journal.reasons(),
            stopped=stopped,
            elapsed_s=time.monotonic() - self._began_at,
            prompt_tokens=counts.prompt_tokens,
            completion_tokens=counts.completion_tokens,
            cost_usd=self.settings.budget.cost_usd(counts.prompt_tokens, counts.completion_tokens),
        )


def run(run: Run, signals: Sequence[int] = ()) -> Ended:
    """The run, for code without an event loop; the first of the signals drains, a second breaks
    off.
    """

    async def main() -> Ended:
        def stop() -> None:
            if run.worker is not None:
                run.worker.stop("signal")

        for signal in signals:
            asyncio.get_running_loop().add_signal_handler(signal, stop)
        return await run.run()

    return asyncio.run(main())


def _checks(shape: Shape | None) -> Callable[[Row], schema.Check | None]:
    """Which check a row's answers must pass: that of the schema its own body states."""
    cached: dict[bytes, schema.Check] = {}
    everywhere = None if shape is None or shape.schema is None else schema.checker(shape.schema)

    def check(row: Row) -> schema.Check | None:
        if everywhere is not None:
            return everywhere
        if row.url != routes.CHAT or b'"json_schema"' not in row.body:
            return None
        wanted = schema.asked_by(msgspec.json.decode(row.body))
        if wanted is None:
            return None
        name = msgspec.json.encode(wanted)
        if name not in cached:
            cached[name] = schema.checker(wanted)
        return cached[name]

    return check


# --- the rest ------------------------------------------------------------------------------------


def running(folder: Path) -> int | None:
    """The process that runs this batch; None = none does."""
    # The lock is tried only where its file names a living process: trying it for no reason could
    # turn away a run that begins in this very moment.
    try:
        named = (folder / f"{JOURNAL}.writer").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if not named.isdigit() or not Path("/proc", named).exists():
        return None
    try:
        with writer_lock(folder / JOURNAL):
            return None
    except HeavyliftError as error:
        if error.code != "STA005":
            raise
        return int(named)


def status(folder: Path) -> Status:
    """Where the batch stands. Raises BAT003 when there is none."""
    with open_journal(folder, must_exist=True) as journal, journal.snapshot():
        counts = journal.counts()
        settings = journal.get("settings", Settings)
        cost = None
        if settings is not None:
            cost = settings.budget.cost_usd(counts.prompt_tokens, counts.completion_tokens)
        return Status(
            folder=str(folder),
            counts=counts,
            reasons=journal.reasons(),
            running=running(folder),
            cost_usd=cost,
            cancelled=journal.get("cancelled", bool) is True,
        )


def audited(folder: Path) -> Audit:
    """The audit of a batch folder, of one moment. Raises BAT003 when there is no batch, or no
    input was ever taken in whole: nothing is not a sound batch.
    """
    with open_journal(folder, must_exist=True) as journal, journal.snapshot():
        return audit(folder, journal)


def cancel(folder: Path) -> Status:
    """Ask the run of this folder to stop at once, or, where none runs, skip what is left."""
    with open_journal(folder, must_exist=True) as journal:
        journal.put(cancelled=True)
    if running(folder) is None:
        with held(folder) as journal:
            journal.skip_the_rest(CANCELLED)
    return status(folder)


def retry_failed(folder: Path) -> int:
    """How many failed rows were made pending again; their lines leave `errors.jsonl`."""
    with held(folder) as journal:
        count = journal.reopen_failed()
        step_into_line(folder, journal)
        return count


# --- before sending ------------------------------------------------------------------------------


def estimate(source: Source, settings: Settings, *, key: str | None, answers: int) -> Estimate:
    """What the batch would use, from a sample. `answers` rows of it are really sent and their
    answers thrown away; with 0 none is. Raises as `take_in`.
    """
    folder = Path(tempfile.mkdtemp(prefix="heavylift-batch-"))
    try:
        with open_journal(folder) as journal:
            take_in(folder, journal, source)
            return asyncio.run(_estimate(folder, journal, settings, key, answers))
    finally:
        shutil.rmtree(folder)


async def _estimate(
    folder: Path, journal: Journal, settings: Settings, key: str | None, answers: int
) -> Estimate:
    rows = journal.counts().pending
    places = journal.sample(max(_SAMPLE_ROWS, answers))
    sample = [lines.INPUT.decode(text) for text in spooled(folder, journal, places)]
    bodies = [msgspec.json.decode(row.body) for row in sample]
    async with Client(Endpoint.parse(settings.endpoints[0], key)) as client:
        counted = await _count_tokens(client, bodies)
        bytes_seen = sum(size for _, size in places)
        prompt = journal.input_bytes() / _BYTES_PER_TOKEN
        if counted is not None and bytes_seen:
            prompt = counted / bytes_seen * journal.input_bytes()
        limits = [
            routes.token_limit(row.url, body) for row, body in zip(sample, bodies, strict=True)
        ]
        stated = [limit for limit in limits if limit is not None]
        known = Estimate(
            rows=rows,
            prompt_tokens=round(prompt),
            counted=counted is not None,
            completion_tokens_max=(
                round(sum(stated) / len(stated) * rows) if len(stated) == len(limits) else None
            ),
        )
        return (
            known if answers == 0 else await _with_answers(client, known, sample, settings, answers)
        )


async def _count_tokens(client: Client, bodies: list[dict[str, Any]]) -> int | None:
    total = 0
    for body in bodies:
        try:
            tokens = await client.tokenize(body["model"], asked_text(body))
        except HeavyliftError:
            return None
        if tokens is None:
            return None
        total += len(tokens)
    return total


async def _with_answers(
    client: Client,
    known: Estimate,
    sample: list[lines.InputLine],
    settings: Settings,
    answers: int,
) -> Estimate:
    chosen = sample[:: max(1, len(sample) // answers)][:answers]
    room = asyncio.Semaphore(_TOKENIZE_AT_ONCE)

    async def ask(row: lines.InputLine) -> tuple[float, routes.Reading]:
        async with room:
            reply = await client.post(row.url, bytes(row.body))
        if reply.failure is not None:
            raise HeavyliftError(
                "WIRE003",
                {
                    "url": client.endpoint.base_url,
                    "status": reply.status,
                    "failure": reply.failure,
                },
            )
        return reply.latency.e2e_s or 0.0, routes.read(row.url, reply.body)

    seen = await asyncio.gather(*map(ask, chosen))
    prompt = sum(reading.prompt_tokens for _, reading in seen) / len(seen) * known.rows
    completion = sum(reading.completion_tokens for _, reading in seen) / len(seen) * known.rows
    slot_s = sum(seconds for seconds, _ in seen) / len(seen) * known.rows
    at_once = min(settings.concurrency, _TOKENIZE_AT_ONCE, known.rows)
    return Estimate(
        rows=known.rows,
        prompt_tokens=round(prompt) or known.prompt_tokens,
        counted=known.counted or bool(prompt),
        completion_tokens_max=known.completion_tokens_max,
        sampled=len(seen),
        completion_tokens=round(completion),
        hours=slot_s / at_once / 3600,
        cost_usd=settings.budget.cost_usd(round(prompt), round(completion)),
    )
