"""Reads the headers of a checkpoint: shards with or without an index, one file, or GGUF.

Only headers are read, shard by shard, so that memory does not grow with the checkpoint: 1.56 TB in
96 files cost 76 MB of reading. Nothing a checkpoint brings is ever run.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.checkpoint import gguf_parts, grouping, safetensors
from heavylift.checkpoint.blobs import gguf_at
from heavylift.checkpoint.config_text import CONFIG
from heavylift.checkpoint.defects import CheckpointError, Defect, at_most, shown
from heavylift.checkpoint.files import Files, LocalFiles, OpenFile, is_file_name
from heavylift.checkpoint.grouping import HeaderGroup, TensorKey
from heavylift.checkpoint.safetensors import HeaderTable
from heavylift.errors import HeavyliftError
from heavylift.units import MIB

INDEX_SUFFIX: Final = ".safetensors.index.json"
SHARD_SUFFIX: Final = ".safetensors"
INDEX_LIMIT_BYTES: Final = 128 * MIB
"""The longest index that is read; that of 497,220 tensors has 57 MiB."""

INDEX_ENTRIES_LIMIT: Final = 1_000_000
SHARDS_LIMIT: Final = 10_000
"""Twice the tensors and a hundred times the shards of Kimi K3: more in one index is an attack."""

TENSORS_LIMIT: Final = 2_000_000
KINDS_LIMIT: Final = 250_000
"""More tensors, or more that no group takes, are no model: Kimi K3 has 497,220 in 3,180 kinds.
They would cost a gigabyte of memory to list.
"""

_START_BYTES: Final = 512
_PICKLED: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Ends of names of weights in Python's pickle."""

_NAMED: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardFile:
    """One safetensors file. `file_bytes` is its size on disk; `header_bytes` include the length."""

    name: str
    tensors: int
    tensor_bytes: int
    header_bytes: int
    file_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """What the headers of a checkpoint say, and every defect found on the way.

    `ignored` are safetensors files in the folder that its index does not name. `index_total_bytes`
    is the index's own sum; None without an index or where it states none. `where` is the folder,
    file or hub id. `metadata` are single values of a GGUF header, `by_layer` its short lists of
    whole numbers.
    """

    where: str
    files: tuple[ShardFile, ...]
    groups: tuple[HeaderGroup, ...]
    defects: tuple[Defect, ...]
    ignored: tuple[str, ...] = ()
    index_total_bytes: int | None = None
    file_format: str = "safetensors"
    metadata: Mapping[str, gguf_parts.Value] = field(default_factory=dict)
    by_layer: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def tensors(self) -> int:
        """Tensors in all files."""
        return sum(each.count for each in self.groups)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, without headers."""
        return sum(each.bytes for each in self.groups)

    @property
    def file_bytes(self) -> int:
        """Bytes of all files on disk, headers included."""
        return sum(file.file_bytes for file in self.files)

    def require_sound(self) -> None:
        """Raises `CheckpointError` (CKPT020) with all defects when there is one that counts.

        A defect that is a mere remark, such as a wrong sum in an index, does not.
        """
        if not all(defect.is_remark for defect in self.defects):
            raise CheckpointError(self.where, self.defects)


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]
    metadata: Any = None

    def total(self) -> Any:
        """What the index states as its sum, of whatever type; None when it states nothing."""
        return self.metadata.get("total_size") if isinstance(self.metadata, dict) else None


class _Listing:
    """What an index promises: which shard holds which tensors."""

    def __init__(self, shard_of: dict[str, str]) -> None:
        self.shard_of = shard_of
        self.tensors_of: dict[str, set[str]] = {}
        # By runs, because indexes list a shard's tensors together: a set per shard then fills at
        # C speed and stays in the processor's cache, where one big table would not.
        for shard, run in groupby(shard_of.items(), key=itemgetter(1)):
            self.tensors_of.setdefault(shard, set()).update(map(itemgetter(0), run))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Contents:
    """What belongs to a checkpoint before any shard is opened. No `listing` = there is no index."""

    shards: tuple[str, ...]
    listing: _Listing | None = None
    index_name: str = ""
    total_bytes: int | None = None
    ignored: tuple[str, ...] = ()
    defects: tuple[Defect, ...] = ()


def read_checkpoint(path: Path) -> Checkpoint:
    """The headers under `path`: a folder, a file, a `.safetensors.index.json`, or a manifest of a
    store of blobs. The folder's config.json stands for the folder.

    Raises CKPT021 when there is no such path, and what `read_files` raises.
    """
    if path.is_dir():
        return read_files(LocalFiles(path))
    if not path.exists():
        raise HeavyliftError("CKPT021", {"path": str(path)})
    if path.name == CONFIG:
        return read_files(LocalFiles(path.parent))
    found = gguf_at(path)
    if found is not None and not found.name.endswith(gguf_parts.SUFFIX):
        # In a store of blobs every model is a file of its own.
        blob = gguf_parts.GgufModel(names=(found.name,), others=())
        return _of_gguf(LocalFiles(found.parent), blob, str(path))
    return read_files(LocalFiles(path.parent), path.name)


def read_files(files: Files, start: str = "") -> Checkpoint:
    """The headers of a checkpoint: all of `files`, or what the one named `start` belongs to.

    A folder with safetensors is read as such; GGUF files beside them are another form of it.
    Raises CKPT022 when there is no checkpoint, CKPT034 when it is one that is never opened, CKPT023
    when there are several indexes, CKPT024 when the index cannot be understood, CKPT025 when the
    folder may not be read, CKPT028 when there are more tensors than any model has, CKPT029 when
    there are several GGUF models. All other defects are collected in the result.
    """
    with _collector_paused():
        names = sorted(files.names())
        where = str(Path(files.where) / start) if start else files.where
        has_safetensors = any(name.endswith((SHARD_SUFFIX, INDEX_SUFFIX)) for name in names)
        if start.endswith(gguf_parts.SUFFIX) or (not start and not has_safetensors):
            return _read_gguf(files, names, start, where)
        return _read(files, _contents(files, names, start), where)


def _read_gguf(files: Files, names: list[str], start: str, where: str) -> Checkpoint:
    model = gguf_parts.choose(names, start, where)
    if model is None:
        raise _no_checkpoint(names, where)
    return _of_gguf(files, model, where)


def _no_checkpoint(names: list[str], where: str) -> HeavyliftError:
    """That there is none; of weights that run code when they are read, that they are not opened."""
    pickled = [name for name in names if name.endswith(_PICKLED)]
    if not pickled:
        return HeavyliftError("CKPT022", {"path": where})
    listed = ", ".join(map(shown, pickled[:_NAMED]))
    return HeavyliftError("CKPT034", {"path": where, "names": listed})


def _of_gguf(files: Files, model: gguf_parts.GgufModel, where: str) -> Checkpoint:
    read = gguf_parts.read(files, model)
    return Checkpoint(
        where=where,
        files=tuple(
            ShardFile(
                name=part.name,
                tensors=part.tensors,
                tensor_bytes=part.tensor_bytes,
                header_bytes=part.header_bytes,
                file_bytes=part.file_bytes,
            )
            for part in read.parts
        ),
        groups=grouping.group(read.tallied),
        defects=read.defects,
        ignored=model.others,
        file_format="gguf",
        metadata=read.metadata,
        by_layer=read.by_layer,
    )


def _read(files: Files, contents: _Contents, where: str) -> Checkpoint:
    defects = list(contents.defects)
    shards: list[ShardFile] = []
    tallied: Counter[TensorKey] = Counter()
    seen: dict[str, str] = {}
    tensors = 0
    for name in contents.shards:
        read = _read_shard(files, name)
        defects += read.defects
        if read.file is None:
            continue
        shards.append(read.file)
        tallied.update(read.tallied)
        tensors += read.file.tensors
        if tensors > TENSORS_LIMIT or len(tallied) > KINDS_LIMIT:
            raise HeavyliftError(
                "CKPT028", {"path": where, "tensors": tensors, "kinds": len(tallied)}
            )
        if contents.listing is not None:
            defects += at_most(_index_differences(name, read.table, contents.listing))
        elif len(contents.shards) > 1:
            defects += at_most(_repeated(name, read.table, seen))
    groups = grouping.group(tallied)
    total = sum(each.bytes for each in groups)
    if contents.total_bytes not in (None, total) and len(shards) == len(contents.shards):
        defects.append(
            Defect(
                file=contents.index_name,
                problem="total_differs",
                observed=contents.total_bytes,
                expected=total,
            )
        )
    return Checkpoint(
        where=where,
        files=tuple(shards),
        groups=groups,
        defects=tuple(defects),
        ignored=contents.ignored,
        index_total_bytes=contents.total_bytes,
    )


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection inside.

    The tables of half a million tensors make it run a thousand times and find nothing, because
    they hold no cycles: a seventh of the time of reading (measured, 1.09 s against 0.91 s).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# --- what belongs to it --------------------------------------------------------------------------


def _contents(files: Files, names: list[str], start: str) -> _Contents:
    if start.endswith(INDEX_SUFFIX):
        return _indexed(files, names, start)
    if start.endswith(SHARD_SUFFIX):
        return _Contents(shards=(start,))
    where = files.where
    if start:
        raise HeavyliftError("CKPT022", {"path": str(Path(where) / start)})
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    if len(indexes) > 1:
        raise HeavyliftError("CKPT023", {"path": where, "names": ", ".join(indexes)})
    if indexes:
        return _indexed(files, names, indexes[0])
    return _Contents(shards=tuple(name for name in names if name.endswith(SHARD_SUFFIX)))


def _indexed(files: Files, names: list[str], index_name: str) -> _Contents:
    index = _read_index(files, index_name)
    total, total_defects = _total(index.total(), index_name)
    listing = _Listing(index.weight_map)
    if len(listing.tensors_of) > SHARDS_LIMIT:
        where = str(Path(files.where) / index_name)
        raise HeavyliftError("CKPT033", {"path": where, "shards": len(listing.tensors_of)})
    # A name with a path in it could point anywhere; such a shard is reported, never opened.
    outside = sorted(name for name in listing.tensors_of if not is_file_name(name))
    present = {name for name in names if name.endswith(SHARD_SUFFIX)}
    return _Contents(
        shards=tuple(sorted(listing.tensors_of.keys() - outside)),
        listing=listing,
        index_name=index_name,
        total_bytes=total,
        ignored=tuple(sorted(present - listing.tensors_of.keys())),
        defects=(
            *at_most(
                Defect(file=index_name, problem="path_outside", observed=name) for name in outside
            ),
            *total_defects,
        ),
    )


def _total(stated: Any, index_name: str) -> tuple[int | None, tuple[Defect, ...]]:
    """The stated sum as a number. Some tools write it as a fraction; other things are a remark."""
    if stated is None or (type(stated) is int and stated >= 0):
        return stated, ()
    if isinstance(stated, float) and stated >= 0 and stated.is_integer():
        return int(stated), ()
    return None, (Defect(file=index_name, problem="bad_total", observed=repr(stated)[:80]),)


def _read_index(files: Files, name: str) -> _Index:
    opened = files.open(name)
    where = str(Path(files.where) / name)
    if isinstance(opened, Defect):
        raise CheckpointError(where, (opened,))
    try:
        if opened.size > INDEX_LIMIT_BYTES:
            raise HeavyliftError("CKPT024", {"path": where, "bytes": opened.size})
        raw = opened.read(opened.size, 0)
        # Counted before anything is made of it; names with colons in them are rare.
        if raw.count(b":") > INDEX_ENTRIES_LIMIT:
            raise HeavyliftError("CKPT024", {"path": where, "bytes": opened.size})
        return msgspec.json.decode(raw, type=_Index)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HeavyliftError("CKPT024", {"path": where, "bytes": opened.size}) from error
    finally:
        opened.close()


# --- one shard -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _ShardRead:
    """A shard's header; `file` is None when there was none to be read."""

    defects: tuple[Defect, ...]
    file: ShardFile | None = None
    table: HeaderTable = field(default_factory=HeaderTable)
    tallied: Mapping[TensorKey, int] = field(default_factory=dict)


def _read_shard(files: Files, name: str) -> _ShardRead:
    opened = files.open(name)
    if isinstance(opened, Defect):
        return _ShardRead(defects=(opened,))
    try:
        return _read_open_shard(opened, name)
    finally:
        opened.close()


def _read_open_shard(opened: OpenFile, name: str) -> _ShardRead:
    file_bytes = opened.size
    length = safetensors.header_length(opened.read(_START_BYTES, 0), file_bytes, name)
    if isinstance(length, Defect):
        return _ShardRead(defects=(length,))
    raw = opened.read(length, safetensors.LENGTH_BYTES)
    table, entry_defects = safetensors.decode_header(raw, name)
    tallied = grouping.tally(table)
    defects = [*entry_defects, *safetensors.layout_defects(table, name)]
    if not grouping.lengths_agree(tallied):
        defects += safetensors.length_defects(table, name)
    header_bytes = safetensors.LENGTH_BYTES + length
    needed = header_bytes + table.data_bytes
    # With entries left out, the header no longer says where the data should end.
    if file_bytes != needed and not entry_defects:
        problem = "file_truncated" if file_bytes < needed else "trailing_bytes"
        defects.append(Defect(file=name, problem=problem, observed=file_bytes, expected=needed))
    file = ShardFile(
        name=name,
        tensors=len(table.names),
        tensor_bytes=sum(key[-1] * count for key, count in tallied.items()),
        header_bytes=header_bytes,
        file_bytes=file_bytes,
    )
    return _ShardRead(defects=tuple(defects), file=file, table=table, tallied=tallied)


def _index_differences(shard: str, table: HeaderTable, listing: _Listing) -> Iterator[Defect]:
    promised, present = listing.tensors_of[shard], set(table.names)
    if promised == present:
        return
    for tensor in sorted(present - promised):
        place = listing.shard_of.get(tensor)
        if place is None:
            yield Defect(file=shard, problem="tensor_not_listed", tensor=tensor)
        else:
            yield Defect(file=shard, problem="tensor_elsewhere", tensor=tensor, observed=place)
    for tensor in sorted(promised - present):
        yield Defect(file=shard, problem="tensor_missing", tensor=tensor)


def _repeated(shard: str, table: HeaderTable, seen: dict[str, str]) -> Iterator[Defect]:
    """Tensors that an earlier file of the folder has too. Adds this file's names to `seen`."""
    for tensor in table.names:
        first = seen.setdefault(tensor, shard)
        if first != shard:
            yield Defect(file=shard, problem="tensor_repeated", tensor=tensor, observed=first)
