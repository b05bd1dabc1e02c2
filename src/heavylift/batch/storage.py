"""Places that may be no local folder: object stores and mounts, through fsspec."""

from __future__ import annotations

import uuid
from pathlib import Path, PurePosixPath
from typing import Any

from heavylift.errors import HeavyliftError


class Storage:
    """A folder by its path or URL (`s3://…`, `gs://…`, `/data/…`).

    Raises BAT002 when fsspec or the package for this kind of URL is missing. Its methods raise
    BAT016 with the address when the other side does not do what it was asked for.
    """

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra
        except ImportError as problem:
            raise HeavyliftError("BAT002", {"package": "fsspec", "extra": "ray"}) from problem
        self.url = url
        try:
            self._files, self._root = url_to_fs(url)
        except ImportError as problem:
            package = problem.name or str(problem)
            raise HeavyliftError("BAT002", {"package": package, "extra": "ray"}) from problem
        except ValueError as problem:
            raise _failed(url, problem) from problem

    def at(self, name: str) -> str:
        """Where a file of that name lies, as the file system takes it."""
        return str(PurePosixPath(self._root) / name) if name else self._root

    def names(self) -> list[str]:
        """The files in it, or the file it is, by name, in order; none when there is nothing."""
        try:
            if self._files.isfile(self._root):
                return [PurePosixPath(self._root).name]
            if not self._files.isdir(self._root):
                return []
            found = self._files.ls(self._root, detail=True)
        except OSError as problem:
            raise _failed(self.url, problem) from problem
        return sorted(PurePosixPath(entry["name"]).name for entry in found if _is_file(entry))

    def is_file(self) -> bool:
        """True when the address is that of one file."""
        try:
            found: bool = self._files.isfile(self._root)
        except OSError as problem:
            raise _failed(self.url, problem) from problem
        return found

    def fingerprint(self, name: str) -> str:
        """A word that changes when the file is written to, as far as the other side tells."""
        path = self._root if self.is_file() else self.at(name)
        try:
            entry: dict[str, Any] = self._files.info(path)
        except OSError as problem:
            raise _failed(path, problem) from problem
        marks = ("size", "ETag", "etag", "md5Hash", "mtime", "LastModified", "updated", "version")
        return " ".join(f"{mark}={entry[mark]}" for mark in marks if entry.get(mark) is not None)

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file; None when there is none."""
        try:
            return bytes(self._files.cat_file(self.at(name)))
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise _failed(self.at(name), problem) from problem

    def get(self, name: str, target: Path) -> None:
        """Copy a file to a local path."""
        source = self._root if self.is_file() else self.at(name)
        try:
            self._files.get_file(source, str(target))
        except OSError as problem:
            raise _failed(source, problem) from problem

    def put(self, source: Path, name: str) -> None:
        """Copy a local file here; it appears whole under its name, or not at all."""
        target = self.at(name)
        # A store puts an object at once; a mounted folder shows a file while it grows.
        fresh = f"{target}.{uuid.uuid4().hex}.new"
        try:
            self._files.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
            self._files.put_file(str(source), fresh)
            self._files.mv(fresh, target)
        except OSError as problem:
            raise _failed(target, problem) from problem


def _is_file(entry: dict[str, Any]) -> bool:
    kind: str = entry["type"]
    return kind == "file"


def _failed(address: str, problem: Exception) -> HeavyliftError:
    detail = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
    return HeavyliftError("BAT016", {"address": address, "detail": detail})
