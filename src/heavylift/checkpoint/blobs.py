"""GGUF files without the name of one: a store of blobs, and the manifests that lead into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from heavylift.checkpoint import gguf, gguf_parts
from heavylift.checkpoint.config_text import ConfigTextError, decoded
from heavylift.checkpoint.defects import Defect
from heavylift.checkpoint.files import LocalFiles
from heavylift.units import MIB

_MANIFEST_LIMIT_BYTES: Final = MIB
_MOST_LAYERS: Final = 100
_MANIFESTS: Final = "manifests"
_BLOBS: Final = "blobs"


def gguf_at(path: Path) -> Path | None:
    """The GGUF file that a path means: the file itself, by its name or its first letters, or the
    largest one that a manifest of a store lists. None where it means none.
    """
    if not path.is_file():
        return None
    if path.name.endswith(gguf_parts.SUFFIX) or _start(path, len(gguf.MAGIC)) == gguf.MAGIC:
        return path
    found = [blob for blob in _listed(path) if _start(blob, len(gguf.MAGIC)) == gguf.MAGIC]
    return max(found, key=lambda blob: blob.stat().st_size, default=None)


def _start(path: Path, count: int) -> bytes:
    opened = LocalFiles(path.parent).open(path.name)
    if isinstance(opened, Defect):
        return b""
    try:
        return opened.read(count, 0)
    finally:
        opened.close()


def _listed(manifest: Path) -> list[Path]:
    """The blobs that a manifest lists, as far as the store beside it has them."""
    store = next((each.parent for each in manifest.parents if each.name == _MANIFESTS), None)
    if store is None:
        return []
    try:
        document = decoded(_start(manifest, _MANIFEST_LIMIT_BYTES))
    except ConfigTextError:
        return []
    layers = document.get("layers")
    digests = [_digest(each) for each in layers[:_MOST_LAYERS]] if isinstance(layers, list) else []
    # A digest is a name in the store and nothing else: it leads nowhere.
    paths = [store / _BLOBS / digest for digest in digests if digest]
    return [path for path in paths if path.is_file()]


def _digest(layer: Any) -> str:
    stated = layer.get("digest") if isinstance(layer, dict) else None
    name = stated.replace(":", "-") if isinstance(stated, str) else ""
    return name if name.replace("-", "").isalnum() else ""
