"""Which files of a model on a hub are fetched: its weights in one form, and what is beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from heavylift.checkpoint import gguf_parts
from heavylift.checkpoint.hub_settings import HubId
from heavylift.checkpoint.listing import ListedFile
from heavylift.checkpoint.read import SHARD_SUFFIX
from heavylift.errors import HeavyliftError

# Other forms of the same weights, and what only a training needs.
_OTHER_WEIGHTS: Final = (
    SHARD_SUFFIX,
    gguf_parts.SUFFIX,
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".h5",
    ".msgpack",
    ".onnx",
    ".onnx_data",
    ".npz",
    ".tflite",
    ".mlmodel",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Files to fetch: `weights`, and `others` such as the config, the tokenizer, the licence."""

    weights: tuple[ListedFile, ...]
    others: tuple[ListedFile, ...]

    @property
    def files(self) -> tuple[ListedFile, ...]:
        """All of them, small ones first: a mistake in them shows before a terabyte is here."""
        return (*self.others, *self.weights)

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights."""
        return _bytes(self.weights)

    @property
    def total_bytes(self) -> int:
        """Bytes of everything."""
        return _bytes(self.files)


def select(model: HubId, listed: Iterable[ListedFile]) -> Selection:
    """The files of a model, or of the part of it that is meant.

    Raises HUB015 for a list that names a path out of its folder, CKPT022 when there are no weights
    of a form that is read here, CKPT029 and CKPT031 as reading the part does.
    """
    files = tuple(listed)
    for file in files:
        pure = PurePosixPath(file.path)
        if pure.is_absolute() or ".." in pure.parts or "\0" in file.path or "\\" in file.path:
            raise HeavyliftError("HUB015", {"id": model.id, "path": ascii(file.path)[:80]})
    by_path = {file.path: file for file in files}
    weights = tuple(by_path[path] for path in _weights(model, list(by_path)) if path in by_path)
    if not weights:
        raise HeavyliftError("CKPT022", {"path": model.id})
    chosen = {file.path for file in weights}
    others = tuple(
        file
        for file in files
        if file.path not in chosen and not file.path.lower().endswith(_OTHER_WEIGHTS)
    )
    return Selection(weights=weights, others=others)


def _weights(model: HubId, paths: list[str]) -> list[str]:
    shards = [path for path in paths if path.endswith(SHARD_SUFFIX) and "/" not in path]
    if model.part is None and shards:
        return shards
    if model.part is not None and model.part in paths and model.part.endswith(SHARD_SUFFIX):
        return [model.part]
    found = gguf_parts.find(paths, model.part or "")
    if len(found) != 1:
        if not found and model.part is None:
            return []
        held = found or gguf_parts.find(paths, "")
        raise HeavyliftError(
            "CKPT029" if found else "CKPT031",
            {
                "path": model.id,
                "part": model.part or "",
                "count": len(found),
                "names": ", ".join(held[:20]),
            },
        )
    return gguf_parts.parts_of(found[0])


def _bytes(files: Iterable[ListedFile]) -> int:
    return sum(file.size or 0 for file in files)
