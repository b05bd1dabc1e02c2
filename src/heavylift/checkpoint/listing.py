"""Lists of files with sizes and digests, in the forms that people have them in.

Read are the replies of hubs (a tree of files, a model's description, ModelScope's file list) and
what `sha256sum` writes. A list is a stranger's: names with a path out of the folder are dropped by
whoever opens files, not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.units import MIB

LIST_LIMIT_BYTES: Final = 16 * MIB
"""The longest list that is read."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)
_SUM_LINE: Final = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-fA-F]{64})[ \t]+\*?(?P<name>.+)")
_TAG_LINE: Final = re.compile(r"SHA256 \((?P<name>.+)\) = (?P<digest>[0-9a-fA-F]{64})")


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedFile:
    """A file as a list names it: bytes and SHA-256, None where the list does not state them."""

    path: str
    size: int | None = None
    sha256: str | None = None


def parse_list(raw: bytes, path: str) -> tuple[ListedFile, ...]:
    """The files of a list in any of the known forms; `path` only names it in errors.

    Raises CKPT030 when it is none of them, or names no file.
    """
    if raw[:3] == b"\xef\xbb\xbf":
        raw = raw[3:]
    found = hub_files(raw) if raw.lstrip()[:1] in (b"[", b"{") else _sums(raw)
    if not found:
        raise HeavyliftError("CKPT030", {"path": path})
    return tuple(found)


def hub_files(raw: bytes) -> list[ListedFile]:
    """The files in a hub's reply; none when the reply is of another kind."""
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    found = [_entry(entry) for entry in _entries(document)]
    return [entry for entry in found if entry is not None]


def _entries(document: Any) -> Iterable[Any]:
    if isinstance(document, list):
        return document
    if not isinstance(document, Mapping):
        return ()
    data = document.get("Data")
    for table in (document, data if isinstance(data, Mapping) else {}):
        for key in ("siblings", "Files", "files"):
            if isinstance(table.get(key), list):
                files: list[Any] = table[key]
                return files
    return ()


def _entry(entry: Any) -> ListedFile | None:
    """One file; None for a folder, or what is no entry."""
    if not isinstance(entry, Mapping) or entry.get("type", entry.get("Type")) in (
        "directory",
        "tree",
    ):
        return None
    path = _first(entry, ("path", "rfilename", "Path"), str)
    if not path:
        return None
    lfs = entry.get("lfs")
    tables: list[Mapping[str, Any]] = [*([lfs] if isinstance(lfs, Mapping) else []), entry]
    size = next((s for t in tables if (s := _first(t, ("size", "Size"), int)) is not None), None)
    # A file outside LFS has the identity git gives it, which is another digest: it is passed over.
    digests = (
        _first(table, ("sha256", "Sha256", *(("oid",) if table is lfs else ())), str)
        for table in tables
    )
    digest = next((d.removeprefix("sha256:") for d in digests if d), None)
    return ListedFile(
        path=path,
        size=None if size is None or size < 0 else size,
        sha256=digest.lower() if digest and _SHA256.fullmatch(digest) else None,
    )


def _first(table: Mapping[str, Any], names: Iterable[str], kind: type) -> Any:
    return next((table[name] for name in names if type(table.get(name)) is kind), None)


def _sums(raw: bytes) -> list[ListedFile]:
    """What sha256sum writes, plain or with --tag. One odd line, and it is no such list."""
    found = []
    for line in raw.decode("utf-8", "surrogateescape").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = _SUM_LINE.fullmatch(line) or _TAG_LINE.fullmatch(line)
        if match is None:
            return []
        name = match["name"]
        if match.groupdict().get("escaped"):
            name = name.replace("\\n", "\n").replace("\\\\", "\\")
        found.append(ListedFile(path=name.removeprefix("./"), sha256=match["digest"].lower()))
    return found
