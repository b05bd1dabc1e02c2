"""Whether a checkpoint's files are what was published: sizes, index, headers, then every byte.

What is cheap comes first, so that a missing shard is known before a terabyte is read. Files are
hashed several at once, each by one thread: SHA-256 is sequential within a file, and Python lets go
of its lock while it hashes. A file that was hashed and has not changed since is not read again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from heavylift.checkpoint.defects import Defect, shown
from heavylift.checkpoint.listing import ListedFile
from heavylift.checkpoint.read import read_checkpoint
from heavylift.checkpoint.safetensors import LFS_POINTER_START
from heavylift.errors import HeavyliftError
from heavylift.records.inspection import FoundDefect
from heavylift.records.integrity import GOOD, CheckedFile, FileState, Integrity
from heavylift.units import MIB

_CHUNK_BYTES: Final = 4 * MIB
_MOST_WORKERS: Final = 32
_LOOK_EVERY_S: Final = 0.5
_SHA256_LETTERS: Final = 64
_METADATA_LIMIT_BYTES: Final = 4096
_DOWNLOADS: Final = Path(".cache/huggingface/download")
_NO_CHECKPOINT: Final = "CKPT022"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileIdentity:
    """What tells a file from what it was before: place, inode, bytes and time of the last write."""

    path: str
    inode: int
    size: int
    mtime_ns: int


class Digests(Protocol):
    """Digests of earlier runs."""

    def get(self, identity: FileIdentity) -> str | None:
        """The SHA-256 of exactly this file, None when it was never read or has changed."""

    def put(self, identity: FileIdentity, sha256: str) -> None:
        """Keep a digest."""


class NoDigests:
    """Remembers nothing."""

    def get(self, identity: FileIdentity) -> str | None:  # noqa: ARG002 - of the protocol
        """Nothing."""
        return None

    def put(self, identity: FileIdentity, sha256: str) -> None:
        """Nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far it is: bytes hashed and to be hashed in this run, and seconds since its start."""

    done_bytes: int
    total_bytes: int
    seconds: float

    @property
    def seconds_left(self) -> float | None:
        """At the speed so far; None before there is one."""
        if not self.done_bytes or self.seconds <= 0:
            return None
        return (self.total_bytes - self.done_bytes) * self.seconds / self.done_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class _Job:
    """A file to be hashed."""

    path: Path
    identity: FileIdentity
    file: CheckedFile


def check(
    folder: Path,
    listed: tuple[ListedFile, ...],
    digests: Digests,
    *,
    clock: Callable[[], float],
    progress: Callable[[Progress], None],
    workers: int | None = None,
) -> Integrity:
    """Every file of a folder against the list, and against what a hub's client left beside it.

    Raises CKPT021 when there is no such folder, CKPT025 when it may not be read. Interrupted, it
    has kept the digests of the files that were done.
    """
    if not folder.is_dir():
        raise HeavyliftError("CKPT021", {"path": str(folder)})
    present = {str(path.relative_to(folder)): path for path in _files(folder)}
    wanted, origins = _expectations(folder, present, listed)
    started = clock()
    found, jobs, kept_bytes = _look(folder, present, wanted, digests)
    read_bytes = 0
    if jobs:
        hashed = _hash_all(jobs, digests, clock, progress, workers)
        found |= hashed
        read_bytes = sum(job.identity.size for job in jobs)
    seconds = clock() - started
    files = tuple(_judged(found[path], wanted) for path in sorted(found))
    defects = tuple(_header_defects(folder))
    compared = [file for file in files if file.expected is not None]
    return Integrity(
        where=str(folder),
        files=files,
        defects=defects,
        compared=len(compared),
        compared_with=tuple(sorted({origins[file.path] for file in compared})),
        bytes_read=read_bytes,
        bytes_kept=kept_bytes,
        seconds=seconds,
        bytes_per_s=read_bytes / seconds if read_bytes and seconds > 0 else None,
        sound=all(file.state in GOOD for file in files) and all(each.remark for each in defects),
    )


# --- what there is, and what there should be -----------------------------------------------------


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder, without hidden folders and without following links to folders."""

    def refuse(error: OSError) -> None:
        raise HeavyliftError("CKPT025", {"path": str(folder), "reason": error.strerror})

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(parent, name)


def _expectations(
    folder: Path, present: Mapping[str, Path], listed: tuple[ListedFile, ...]
) -> tuple[dict[str, ListedFile], dict[str, str]]:
    """What each file should be, by its path, and who says so."""
    wanted: dict[str, ListedFile] = {}
    origins: dict[str, str] = {}
    basenames = Counter(PurePosixPath(file.path).name for file in listed)
    for file in listed:
        pure = PurePosixPath(file.path)
        path = str(pure)
        inside = not pure.is_absolute() and ".." not in pure.parts
        # Lists made elsewhere carry the folder they were made in.
        if path not in present and basenames[pure.name] == 1 and pure.name in present:
            path, inside = pure.name, True
        if inside and not any(part.startswith(".") for part in PurePosixPath(path).parts):
            wanted[path] = replace(file, path=path)
            origins[path] = "list"
    for path, place in present.items():
        if path in wanted and wanted[path].sha256 is not None:
            continue
        digest, origin = _left_by_a_client(folder, path, place)
        if digest is not None:
            size = wanted[path].size if path in wanted else None
            wanted[path] = ListedFile(path=path, size=size, sha256=digest)
            origins[path] = origin
    return wanted, origins


def _left_by_a_client(folder: Path, path: str, place: Path) -> tuple[str | None, str]:
    """The digest that a hub's client noted: the name of a blob in its cache, or a note of its
    download.
    """
    if place.is_symlink():
        target = place.resolve()
        if target.parent.name == "blobs" and _is_digest(target.name):
            return target.name, "hub_cache"
    note = folder / _DOWNLOADS / f"{path}.metadata"
    try:
        with note.open("rb") as file:
            lines = file.read(_METADATA_LIMIT_BYTES).decode("ascii", "replace").split("\n")
    except OSError:
        return None, ""
    etag = lines[1].strip() if len(lines) > 1 else ""
    return (etag, "hub_download") if _is_digest(etag) else (None, "")


def _is_digest(text: str) -> bool:
    return len(text) == _SHA256_LETTERS and all(letter in "0123456789abcdef" for letter in text)


def _look(
    folder: Path,
    present: Mapping[str, Path],
    wanted: Mapping[str, ListedFile],
    digests: Digests,
) -> tuple[dict[str, CheckedFile], list[_Job], int]:
    """All that is known without reading: files with their states, files to hash, bytes kept."""
    found: dict[str, CheckedFile] = {}
    jobs: list[_Job] = []
    kept_bytes = 0
    sizes = {file.size for file in wanted.values() if file.size is not None}
    for path in sorted({*present, *wanted}):
        file = CheckedFile(
            path=path,
            state=FileState.RECORDED,
            expected=wanted[path].sha256 if path in wanted else None,
            expected_bytes=wanted[path].size if path in wanted else None,
        )
        looked, identity = _look_at(folder, present.get(path), file)
        # A file that is as long as another one of the list may have been put in its place.
        may_be_swapped = looked.bytes in sizes and looked.state in _WRONG_LENGTH
        if identity is None or (looked.state is not FileState.RECORDED and not may_be_swapped):
            found[path] = looked
            continue
        kept = digests.get(identity)
        if kept is not None:
            found[path] = replace(looked, sha256=kept, kept=True)
            kept_bytes += identity.size
            continue
        jobs.append(_Job(path=present[path], identity=identity, file=looked))
    return found, jobs, kept_bytes


_WRONG_LENGTH: Final = frozenset({FileState.TRUNCATED, FileState.TOO_LONG})


def _look_at(
    folder: Path, place: Path | None, file: CheckedFile
) -> tuple[CheckedFile, FileIdentity | None]:
    """A file's size and first bytes; its identity when it can be hashed."""
    if place is None:
        return replace(file, state=FileState.MISSING), None
    try:
        opened = _open(folder, place)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        broken = isinstance(error, FileNotFoundError)  # a link that leads nowhere
        state = FileState.MISSING if broken else FileState.UNREADABLE
        return replace(file, state=state, detail=reason), None
    try:
        identity = _identity(place, opened)
        start = os.pread(opened, len(LFS_POINTER_START), 0)
    finally:
        os.close(opened)
    file = replace(file, bytes=identity.size)
    if start == LFS_POINTER_START:
        return replace(file, state=FileState.POINTER), None
    if file.expected_bytes is not None and identity.size != file.expected_bytes:
        short = identity.size < file.expected_bytes
        file = replace(file, state=FileState.TRUNCATED if short else FileState.TOO_LONG)
    return file, identity


def _open(folder: Path, place: Path) -> int:
    """A descriptor of a regular file. Links may lead to a hub cache's blobs and nowhere else."""
    if place.is_symlink():
        target, home = place.resolve(), folder.resolve()
        if not (target.is_relative_to(home) or target.parent.name == "blobs"):
            raise OSError(0, "link_outside", str(place))
    opened = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(0, "not_a_file", str(place))
    return opened


def _identity(place: Path, opened: int) -> FileIdentity:
    status = os.fstat(opened)
    return FileIdentity(
        path=str(place.resolve()),
        inode=status.st_ino,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )


def _judged(file: CheckedFile, wanted: Mapping[str, ListedFile]) -> CheckedFile:
    """The state of a file whose digest is known, by what it should be."""
    if file.sha256 is None or file.state not in {FileState.RECORDED, *_WRONG_LENGTH}:
        return file
    if file.expected is not None and file.sha256 == file.expected:
        return replace(file, state=FileState.OK)
    owner = next(
        (
            each.path
            for each in wanted.values()
            if each.sha256 == file.sha256 and each.path != file.path
        ),
        None,
    )
    if owner is not None and file.path in wanted:
        return replace(file, state=FileState.SWAPPED, detail=owner)
    if file.expected is not None and file.state is FileState.RECORDED:
        return replace(file, state=FileState.DIFFERS)
    return file


def _header_defects(folder: Path) -> Iterable[FoundDefect]:
    """What is wrong with index and headers; nothing for a folder that holds no weights."""
    try:
        defects: tuple[Defect, ...] = read_checkpoint(folder).defects
    except HeavyliftError as error:
        if error.code == _NO_CHECKPOINT:
            return
        yield FoundDefect(
            path=str(folder), problem="not_read", detail=shown(error.code), remark=False
        )
        return
    for defect in defects:
        yield FoundDefect(
            path=defect.path, problem=defect.problem, detail=defect.detail, remark=defect.is_remark
        )


# --- hashing -------------------------------------------------------------------------------------


class _Stop(Exception):  # noqa: N818 - no error: the reader was told to stop
    """The run was interrupted."""


def _hash_all(
    jobs: list[_Job],
    digests: Digests,
    clock: Callable[[], float],
    progress: Callable[[Progress], None],
    workers: int | None,
) -> dict[str, CheckedFile]:
    """Hashes the files, the largest first, and keeps every digest as soon as it is known."""
    stop = threading.Event()
    done = [0] * len(jobs)
    started = clock()
    total = sum(job.identity.size for job in jobs)
    order = sorted(range(len(jobs)), key=lambda number: -jobs[number].identity.size)
    found: dict[str, CheckedFile] = {}
    count = min(workers or os.cpu_count() or 1, _MOST_WORKERS, len(jobs))
    with ThreadPoolExecutor(max_workers=count) as pool:
        try:
            running: dict[Future[str | FileState], _Job] = {
                pool.submit(_hash, jobs[number], stop, done, number): jobs[number]
                for number in order
            }
            while running:
                finished, _ = wait(running, _LOOK_EVERY_S, FIRST_COMPLETED)
                for future in finished:
                    job = running.pop(future)
                    found[job.file.path] = _with_digest(job, future.result(), digests)
                progress(
                    Progress(done_bytes=sum(done), total_bytes=total, seconds=clock() - started)
                )
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return found


def _with_digest(job: _Job, outcome: str | FileState, digests: Digests) -> CheckedFile:
    if isinstance(outcome, FileState):
        return replace(job.file, state=outcome)
    digests.put(job.identity, outcome)
    return replace(job.file, sha256=outcome)


def _hash(job: _Job, stop: threading.Event, done: list[int], number: int) -> str | FileState:
    """The SHA-256 of a file, or why there is none. Raises `_Stop` when told to stop."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(_CHUNK_BYTES, max(job.identity.size, 1))))
    try:
        opened = os.open(job.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return FileState.UNREADABLE
    try:
        while count := os.preadv(opened, [buffer], done[number]):
            if stop.is_set():
                raise _Stop
            digest.update(buffer[:count])
            done[number] += count
        after = _identity(job.path, opened)
    except OSError:
        return FileState.UNREADABLE
    finally:
        os.close(opened)
    if after != job.identity or done[number] != job.identity.size:
        return FileState.CHANGED
    return digest.hexdigest()
