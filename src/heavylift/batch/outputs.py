"""The files of a batch, kept in step with its journal.

The order of a group commit: lines are written to the files, the files are synced, the journal's
transaction names the outcomes and the new ends of the files and is synced in its turn. Whatever
stops the machine in between leaves bytes behind a file's recorded end and never an outcome without
its bytes; the next opening cuts the files back to their recorded ends.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from heavylift.batch import lines
from heavylift.batch.records import Claim, Counts, Settled, State
from heavylift.batch.store import Journal
from heavylift.errors import HeavyliftError

OUTPUT: Final = "output.jsonl"
ERRORS: Final = "errors.jsonl"
REQUESTS: Final = "requests.jsonl"
FAILED: Final = "failed.jsonl"
"""The requests of failed rows, ready to be an input again."""

FILE_OF: Final = {State.OK: OUTPUT, State.FAILED: ERRORS}
_NAMES: Final = (OUTPUT, ERRORS, REQUESTS)
_NEW: Final = ".new"
_COPY_BYTES: Final = 2**20
_TWINS_AT_ONCE: Final = 256

Sync = Callable[[int], None]


class Files:
    """The three growing files of a batch, at their recorded ends."""

    def __init__(self, folder: Path, sync: Sync) -> None:
        self._folder = folder
        self._sync = sync
        self._descriptors: dict[str, int] = {}
        self._dirty: set[str] = set()
        self.sizes: dict[str, int] = {}

    def open(self, sizes: dict[str, int]) -> None:
        """Open all, made if need be, and cut each back to its recorded end."""
        for name in _NAMES:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self._folder / name, flags, 0o600)
            self._descriptors[name] = descriptor
            self.sizes[name] = sizes.get(name, 0)
            if os.fstat(descriptor).st_size > self.sizes[name]:
                os.ftruncate(descriptor, self.sizes[name])
                self._sync(descriptor)
        sync_folder(self._folder)

    def close(self) -> None:
        """Close all."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def append(self, name: str, rows: Sequence[bytes]) -> list[int]:
        """Where each line lies, once it is written; not yet synced."""
        if not rows:
            return []
        at = self.sizes[name]
        places = []
        for row in rows:
            places.append(at)
            at += len(row)
        write_all(self._descriptors[name], b"".join(rows), self.sizes[name])
        self.sizes[name] = at
        self._dirty.add(name)
        return places

    def read(self, name: str, at: int, size: int) -> bytes:
        """A line."""
        return os.pread(self._descriptors[name], size, at)

    def sync(self) -> None:
        """Everything appended is on disk when this returns."""
        for name in sorted(self._dirty):
            self._sync(self._descriptors[name])
        self._dirty.clear()


class Ledger:
    """The journal and the files of a batch as one: what `record` has returned for is on disk."""

    def __init__(self, folder: Path, journal: Journal, *, sync: Sync = os.fdatasync) -> None:
        """`sync` is how a file is synced; a test puts its own in between."""
        self.folder = folder
        self.journal = journal
        self._files = Files(folder, sync)
        self._sync = sync
        self._spool = -1
        self.counts = Counts()

    @contextlib.contextmanager
    def opened(self, *, dedupe: bool) -> Iterator[Ledger]:
        """The ledger with its files in step with the journal, ready for a run."""
        with explained(self.folder):
            step_into_line(self.folder, self.journal, self._sync)
            self.journal.begin_run(dedupe=dedupe)
            self._files.open(self.journal.sizes())
            spool = self.folder / spool_name(self.journal)
            self._spool = os.open(spool, os.O_RDONLY | os.O_CLOEXEC)
            self.counts = self.journal.counts()
        try:
            yield self
        finally:
            self._files.close()
            os.close(self._spool)

    def record(
        self,
        settled: Sequence[Settled],
        *,
        want: int = 0,
        unsent: Sequence[int] = (),
        broken_off: Sequence[int] = (),
    ) -> list[tuple[Claim, bytes]]:
        """One group commit; the rows claimed in it, with their lines. Raises BAT010 when the disk
        is full or fails: nothing of this call counts then.
        """
        with explained(self.folder):
            placed: list[tuple[Settled, int]] = []
            for state, name in FILE_OF.items():
                rows = [row for row in settled if row.state is state]
                placed += zip(
                    rows, self._files.append(name, [row.line for row in rows]), strict=True
                )
            self._files.append(REQUESTS, [row.log for row in settled])
            self._files.sync()
            claims = self.journal.commit(
                placed, self._files.sizes, want=want, unsent=unsent, broken_off=broken_off
            )
            self._count(settled, claims, len(unsent) + len(broken_off))
            return self._with_lines(claims)

    def _count(self, settled: Sequence[Settled], claims: list[Claim], back: int) -> None:
        counts = self.counts
        ok = sum(row.state is State.OK for row in settled)
        self.counts = replace(
            counts,
            pending=counts.pending - len(claims) + back,
            sent=counts.sent + len(claims) - len(settled) - back,
            ok=counts.ok + ok,
            failed=counts.failed + len(settled) - ok,
            prompt_tokens=counts.prompt_tokens + sum(row.prompt_tokens for row in settled),
            completion_tokens=counts.completion_tokens
            + sum(row.completion_tokens for row in settled),
        )

    def _with_lines(self, claims: list[Claim]) -> list[tuple[Claim, bytes]]:
        if not claims:
            return []
        # Rows are claimed in the order of the file, so one read mostly covers them all.
        first, last = claims[0].at, claims[-1].at + claims[-1].size
        if last - first <= 2 * sum(claim.size for claim in claims) + _COPY_BYTES:
            block = os.pread(self._spool, last - first, first)
            return [
                (claim, block[claim.at - first : claim.at - first + claim.size]) for claim in claims
            ]
        return [(claim, os.pread(self._spool, claim.size, claim.at)) for claim in claims]

    def settle_twins(self) -> None:
        """Give every twin the outcome of its first, under its own name."""
        while twins := self.journal.twins(_TWINS_AT_ONCE):
            settled = []
            for seq, custom_id, state, at, size, reason in twins:
                kind = State(state)
                first = msgspec.json.decode(self._files.read(FILE_OF[kind], at, size))
                line = msgspec.json.encode({**first, "custom_id": custom_id}) + b"\n"
                log = {
                    "custom_id": custom_id,
                    "status": kind.name.lower(),
                    "same_as": first["custom_id"],
                }
                settled.append(
                    Settled(
                        seq=seq,
                        state=kind,
                        line=line,
                        log=msgspec.json.encode(log) + b"\n",
                        attempts=0,
                        reason=reason,
                    )
                )
            self.record(settled)
        self.counts = self.journal.counts()


def spool_name(journal: Journal) -> str:
    """The name of the spooled input. Raises BAT003 when no input has been taken in."""
    name = journal.get("spool", str)
    if name is None:
        raise HeavyliftError("BAT003", {"path": "input"})
    return name


# --- bringing files and journal into step --------------------------------------------------------


def step_into_line(folder: Path, journal: Journal, sync: Sync = os.fdatasync) -> None:
    """Make the files what the journal says, after whatever happened to them.

    Finishes a replacement that was broken off, opens rows again whose lines are gone, drops lines
    that belong to no row.
    """
    for name in _NAMES:
        _finish_swap(folder, journal, name)
    for state, name in FILE_OF.items():
        path = folder / name
        found = path.stat().st_size if path.exists() else 0
        recorded = journal.sizes().get(name, 0)
        if found < recorded:
            journal.reopen_beyond(state, found)
        if found < recorded or journal.output_bytes(state) != recorded:
            rewrite(folder, journal, state, sync)
    log = folder / REQUESTS
    found = log.stat().st_size if log.exists() else 0
    if found < journal.sizes().get(REQUESTS, 0):
        journal.commit((), {REQUESTS: found})


def rewrite(folder: Path, journal: Journal, state: State, sync: Sync = os.fdatasync) -> None:
    """Write the output file of `state` anew: the lines of its rows, in the order of the input."""
    name = FILE_OF[state]
    fresh = folder / f"{name}{_NEW}"
    size = 0
    with _reader(folder / name) as old, create(fresh) as new:
        for _, _, _, at, length in journal.in_order(state):
            new.write(os.pread(old, length, at))
            size += length
        new.flush()
        sync(new.fileno())
    sync_folder(folder)
    journal.move(_new_places(journal, state), name, size)
    _finish_swap(folder, journal, name)


def _new_places(journal: Journal, state: State) -> Iterator[tuple[int, int]]:
    at = 0
    for seq, _, _, _, length in journal.in_order(state):
        yield at, seq
        at += length


def _finish_swap(folder: Path, journal: Journal, name: str) -> None:
    mark = f"swap {name}"
    fresh = folder / f"{name}{_NEW}"
    if not journal.get(mark, bool):
        fresh.unlink(missing_ok=True)
        return
    if fresh.exists():
        fresh.replace(folder / name)
        sync_folder(folder)
    journal.put(**{mark: None})


def write_failed(folder: Path, journal: Journal) -> None:
    """Write `failed.jsonl`: the requests of the failed rows, as they were taken in."""
    fresh = folder / f"{FAILED}{_NEW}"
    with _reader(folder / spool_name(journal)) as spool, create(fresh) as new:
        for _, at, size, _, _ in journal.in_order(State.FAILED):
            new.write(os.pread(spool, size, at))
        new.flush()
        os.fsync(new.fileno())
    fresh.replace(folder / FAILED)
    sync_folder(folder)


# --- files ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _reader(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def create(path: Path) -> BinaryIO:
    """A new file that only its owner can read, open for writing; requests are nobody else's."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb", buffering=_COPY_BYTES)


def write_all(descriptor: int, data: bytes, at: int) -> None:
    """Write all of `data` at `at`: a single call may write less."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view = view[written:]
        at += written


def sync_folder(folder: Path) -> None:
    """The names in a folder are on disk when this returns."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Raises BAT010 for a disk that is full or fails, in place of what the libraries raise."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as problem:
        detail = getattr(problem, "strerror", None) or str(problem)
        params = {"path": str(folder), "detail": detail}
        raise HeavyliftError("BAT010", params) from problem


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises BAT015, with the path, for a file or folder that the system does not let us write."""
    try:
        yield
    except OSError as problem:
        detail = problem.strerror or str(problem)
        params = {"path": str(path), "detail": detail}
        raise HeavyliftError("BAT015", params) from problem


def ids(path: Path, end: int) -> Iterator[tuple[int, int, str | None]]:
    """Place, size and `custom_id` of every line of an output before `end`; None = not a line of
    ours.
    """
    at = 0
    with path.open("rb") as file:
        for text in file:
            if at >= end:
                return
            try:
                name: str | None = lines.ID.decode(text).custom_id
            except (msgspec.DecodeError, UnicodeDecodeError):
                name = None
            yield at, len(text), name
            at += len(text)


def spooled(folder: Path, journal: Journal, rows: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The spooled lines at these places and sizes."""
    with _reader(folder / spool_name(journal)) as spool:
        for at, size in rows:
            yield os.pread(spool, size, at)
