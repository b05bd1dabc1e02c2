"""A batch folder from end to end: run it, cancel it, say where it stands."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec

from heavylift.batch import intake, routes, schema
from heavylift.batch.audit import audit
from heavylift.batch.lane import MemoryOf, Row
from heavylift.batch.outputs import Ledger, explained, rewrite, step_into_line, write_failed
from heavylift.batch.records import Audit, Ended, Progress, Settings, Shape, State, Status
from heavylift.batch.store import CANCELLED, JOURNAL, Journal, open_journal
from heavylift.batch.worker import LIMIT, Worker
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.state.db import writer_lock
from heavylift.wire.failures import Failure


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


# --- running -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """One run of a batch folder. `worker` is there while it runs, to be asked to stop."""

    folder: Path
    journal: Journal
    settings: Settings
    key: str | None = None
    on_progress: Callable[[Progress], None] | None = None
    memory_of: MemoryOf | None = None
    make_ledger: Callable[[Path, Journal], Ledger] = Ledger
    worker: Worker | None = None
    _began_at: float = field(default_factory=time.monotonic)

    async def run(self) -> Ended:
        """Send what is left and close the books. Raises as `Worker.run`."""
        self._began_at = time.monotonic()
        stopped = await self._send()
        return await asyncio.to_thread(self._close, stopped)

    def give_up(self, stopped: str) -> Ended:
        """Close the books with nothing sent."""
        return self._close(stopped)

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
                metric_names=Catalog().metric_names(),
                key=self.key,
                checks=_checks(self.journal.get("shape", Shape)),
                on_progress=self.on_progress,
                memory_of=self.memory_of,
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
            endpoints=self.settings.endpoints,
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


def run_whole(
    folder: Path,
    settings: Settings,
    source: intake.Source | None,
    *,
    key: str | None,
    signals: Sequence[int] = (),
    on_progress: Callable[[Progress], None] | None = None,
    on_wait: Callable[[], None] = lambda: None,
    memory_of: MemoryOf | None = None,
) -> Ended:
    """A batch folder from its input to its audit: take in, check, send, close. No source: what the
    folder already holds. A folder into which nothing was ever taken does not stay.

    Raises as `intake.take_in`, `intake.check_lengths` and `Worker.run`.
    """
    path = str(folder) if source is None else source.path
    try:
        with held(folder, must_exist=False) as journal:
            if source is not None:
                intake.take_in(folder, journal, source)
            journal.put(settings=settings)
            batch = Run(
                folder, journal, settings, key=key, on_progress=on_progress, memory_of=memory_of
            )
            if journal.counts().left and asyncio.run(intake.all_silent(settings, key, on_wait)):
                return batch.give_up(Failure.TIMEOUT_FIRST_BYTE)
            intake.check_lengths(folder, journal, settings, key=key, path=path)
            return run(batch, signals)
    finally:
        remove_if_empty(folder)


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
