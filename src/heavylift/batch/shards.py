"""A batch in shards: each file of the input is a batch of its own, run by whoever has a hand free.

The place of the whole (a folder that all machines see, or a bucket) holds `batch.json`, which says
what was asked, and a folder per finished shard with its outputs and its audit. A shard runs in a
work folder on a local disk, where its journal lies, and is published when it adds up; a published
shard is not run again.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, Self

import msgspec

from heavylift.batch import job
from heavylift.batch.inputs import STDIN, Format
from heavylift.batch.intake import Source
from heavylift.batch.outputs import ERRORS, FAILED, OUTPUT, REQUESTS, ids
from heavylift.batch.records import Audit, Counts, Ended, Settings, Status
from heavylift.batch.storage import Storage
from heavylift.errors import HeavyliftError, Scalar

MANIFEST: Final = "batch.json"
AUDIT: Final = "audit.json"
_SHARDS: Final = "shards"
_OUTPUTS: Final = (OUTPUT, ERRORS)
_PUBLISHED: Final = (*_OUTPUTS, REQUESTS, FAILED)
_SUFFIXES: Final = frozenset({".jsonl", ".ndjson", ".json", ".csv", ".parquet"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What a batch in shards was asked: how rows are made and sent, and the shards by name, each
    with a mark that changes with its file and with the shape of the rows.
    """

    source: Source
    settings: Settings
    shards: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One shard to run, as it travels to a worker. `needs_key`: the variable that `settings` names
    must be set where it runs; its value does not travel.
    """

    name: str
    mark: str
    out: str
    work: str
    source: Source
    settings: Settings
    needs_key: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What is published of a shard beside its outputs: how it ended, and of which input."""

    mark: str
    ended: Ended


def survey(source: Source, settings: Settings) -> Manifest:
    """The shards of an input: a file, or every file of rows in a folder or below an address.

    Raises USE032 for standard input and folders of documents, BAT008 when there is no shard.
    """
    if source.path == STDIN or source.format is Format.DOCUMENTS:
        raise HeavyliftError("USE032", {"path": source.path})
    place = Storage(source.path)
    names = [name for name in place.names() if PurePosixPath(name).suffix.lower() in _SUFFIXES]
    if not names:
        raise HeavyliftError("BAT008", {"path": source.path})
    asked = msgspec.json.encode((source.format, source.shape, source.skip_invalid))
    marks = {name: _digest(place.fingerprint(name).encode() + asked) for name in names}
    return Manifest(source=source, settings=settings, shards=marks)


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def is_sharded(out: str) -> bool:
    """True when a batch in shards lies there. Without fsspec only a local one is seen."""
    if "://" not in out:
        return (Path(out) / MANIFEST).is_file()
    return Storage(out).read(MANIFEST) is not None


def manifest_of(out: str) -> Manifest:
    """What the batch there was asked. Raises BAT003 without one, BAT017 for a broken one."""
    found = Storage(out).read(MANIFEST)
    if found is None:
        raise HeavyliftError("BAT003", {"path": out})
    try:
        return msgspec.json.decode(found, type=Manifest)
    except msgspec.DecodeError as problem:
        params = {"path": Storage(out).at(MANIFEST), "detail": str(problem)}
        raise HeavyliftError("BAT017", params) from problem


def tasks(manifest: Manifest, out: str, work: str, *, workers: int, needs_key: bool) -> list[Task]:
    """The shards that are not yet published, with the limits shared out among the workers.

    Raises BAT018 when shards were answered there that the input has no more, unless they may be
    replaced.
    """
    place = Storage(out)
    if place.read(MANIFEST) is not None and not manifest.source.replace:
        gone = sorted(set(manifest_of(out).shards) - set(manifest.shards))
        if any(published(place, name) for name in gone):
            params: dict[str, Scalar] = {"path": out, "name": gone[0], "count": len(gone)}
            raise HeavyliftError("BAT018", params)
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / MANIFEST
        local.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        place.put(local, MANIFEST)
    done = finished(manifest, out)
    settings = _shared_out(manifest.settings, workers)
    return [
        Task(
            name=name,
            mark=mark,
            out=out,
            work=work,
            source=manifest.source,
            settings=settings,
            needs_key=needs_key,
        )
        for name, mark in manifest.shards.items()
        if name not in done
    ]


def _shared_out(settings: Settings, workers: int) -> Settings:
    def part(cap: float | None) -> float | None:
        return None if cap is None else cap / workers

    return replace(
        settings,
        concurrency=max(1, settings.concurrency // workers),
        requests_per_minute=part(settings.requests_per_minute),
        tokens_per_minute=part(settings.tokens_per_minute),
    )


def run_shard(task: Task, key: str | None, run: Callable[..., Ended] = job.run_whole) -> Published:
    """Run one shard where it is, and publish it when it adds up.

    Raises BAT019 when a key is needed and not set here, else as `job.run_whole`.
    """
    if task.needs_key and key is None:
        raise HeavyliftError("BAT019", {"variable": task.settings.key_env})
    # The same place has the same journals: of a changed shard only the changed rows are sent.
    folder = Path(task.work) / _digest(task.out.encode()) / task.name
    folder.mkdir(parents=True, exist_ok=True)
    found = Published(
        mark=task.mark, ended=run(folder, task.settings, _local(task, folder), key=key)
    )
    if found.ended.audit.sound:
        _publish(task, folder, found)
    return found


def _local(task: Task, folder: Path) -> Source:
    """The shard as a file of this machine: itself where it is one, else a copy that stays beside
    the journal, so that a second run does not take it for another input.
    """
    shape = replace(task.source.shape, id_prefix=f"{task.name}:")
    path = task.source.path
    if "://" not in path:
        local = Path(path) if Path(path).is_file() else Path(path) / task.name
    else:
        suffix = PurePosixPath(task.name).suffix
        local = folder / f"source-{task.mark}{suffix}"
        if not local.exists():
            fresh = local.with_name(f"{local.name}.new")
            Storage(path).get(task.name, fresh)
            fresh.replace(local)
    return replace(task.source, path=str(local), shape=shape)


def _publish(task: Task, folder: Path, found: Published) -> None:
    place = Storage(task.out)
    for name in _PUBLISHED:
        if (folder / name).exists():
            place.put(folder / name, f"{_SHARDS}/{task.name}/{name}")
    audit = folder / AUDIT
    audit.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    # Last: what has an audit is whole.
    place.put(audit, f"{_SHARDS}/{task.name}/{AUDIT}")


def published(place: Storage, name: str) -> Published | None:
    """What was published of a shard; None when nothing was, or nothing that can be read."""
    found = place.read(f"{_SHARDS}/{name}/{AUDIT}")
    if found is None:
        return None
    try:
        return msgspec.json.decode(found, type=Published)
    except msgspec.DecodeError:
        return None


# --- the whole -----------------------------------------------------------------------------------


def finished(manifest: Manifest, out: str) -> dict[str, Ended]:
    """The shards that are published as the input is now, by name."""
    place = Storage(out)
    found = {name: published(place, name) for name in manifest.shards}
    return {
        name: shard.ended
        for name, shard in found.items()
        if shard is not None and shard.mark == manifest.shards[name]
    }


def ended(out: str, manifest: Manifest, ran: dict[str, Ended], elapsed_s: float) -> Ended:
    """One ending for the whole, of what is published and what just `ran`. `stopped` is the first
    reason of a shard that did not finish.
    """
    ends = tuple((finished(manifest, out) | ran).values())
    prompt, completion = _tokens(ends)
    return Ended(
        folder=out,
        endpoints=manifest.settings.endpoints,
        audit=audited(out),
        reasons=_reasons(ends),
        stopped=next((end.stopped for end in ends if end.stopped is not None), None),
        elapsed_s=elapsed_s,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost_usd=manifest.settings.budget.cost_usd(prompt, completion),
    )


def status(out: str) -> Status:
    """Where the whole stands, from what is published. Raises BAT003 when there is no batch."""
    manifest = manifest_of(out)
    ends = tuple(finished(manifest, out).values())
    prompt, completion = _tokens(ends)
    counts = Counts(
        input=sum(end.audit.input for end in ends),
        ok=sum(end.audit.ok for end in ends),
        failed=sum(end.audit.failed for end in ends),
        skipped=sum(end.audit.skipped for end in ends),
        resent=sum(end.audit.resent for end in ends),
        prompt_tokens=prompt,
        completion_tokens=completion,
    )
    return Status(
        folder=out,
        counts=counts,
        reasons=_reasons(ends),
        running=None,
        cost_usd=manifest.settings.budget.cost_usd(prompt, completion),
        cancelled=False,
        shards_left=len(manifest.shards) - len(ends),
    )


def audited(out: str) -> Audit:
    """The audit of the whole, read from the published lines themselves: every name once over all
    shards, and as many of each state as the shards' own audits say. Raises BAT003 when there is no
    batch.
    """
    manifest = manifest_of(out)
    place = Storage(out)
    done = finished(manifest, out)
    ok = failed = short = 0
    with _Names() as names:
        for name, end in done.items():
            found = [names.new(_custom_ids(place, f"{_SHARDS}/{name}/{file}")) for file in _OUTPUTS]
            ok += found[0]
            failed += found[1]
            short += max(0, end.audit.ok - found[0]) + max(0, end.audit.failed - found[1])
        return Audit(
            input=sum(end.audit.input for end in done.values()),
            ok=ok,
            failed=failed,
            skipped=sum(end.audit.skipped for end in done.values()),
            missing=short,
            duplicates=names.repeated,
            resent=sum(end.audit.resent for end in done.values()),
            unrecorded_bytes=0,
            shards_left=len(manifest.shards) - len(done),
        )


def _tokens(ends: Iterable[Ended]) -> tuple[int, int]:
    ends = tuple(ends)
    return sum(end.prompt_tokens for end in ends), sum(end.completion_tokens for end in ends)


def _reasons(ends: Iterable[Ended]) -> dict[str, int]:
    found = Counter[str]()
    for end in ends:
        found.update(end.reasons)
    return dict(found.most_common())


def _custom_ids(place: Storage, name: str) -> Iterator[str | None]:
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / PurePosixPath(name).name
        try:
            place.get(name, local)
        except HeavyliftError:
            return  # no such output: no row ended so, or it is missing, which the counts show
        for _, _, custom_id in ids(local, local.stat().st_size):
            yield custom_id


class _Names:
    """Which names were seen, on disk: as many rows as there are, in flat memory."""

    def __init__(self) -> None:
        self.repeated = 0

    def __enter__(self) -> Self:
        self._db = sqlite3.connect("")
        self._db.execute("CREATE TABLE seen (id TEXT PRIMARY KEY) WITHOUT ROWID")
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def new(self, names: Iterable[str | None]) -> int:
        """How many of the names were not seen before; the others, and lines without one, are
        counted as repeated.
        """
        count = 0
        for name in names:
            done = self._db.execute("INSERT OR IGNORE INTO seen VALUES (?)", (name,))
            if name is not None and done.rowcount:
                count += 1
            else:
                self.repeated += 1
        return count
