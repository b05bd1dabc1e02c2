"""Where the files of a checkpoint lie: the one door through which a reader sees them.

A local folder is here, a hub is in `hub`. Whoever reads headers does not know which of the two it
reads.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol

from heavylift.checkpoint.defects import Defect
from heavylift.errors import HeavyliftError


class OpenFile(Protocol):
    """A file that can be read in any place. `size` is its length in bytes."""

    @property
    def size(self) -> int:
        """Bytes of the whole file."""

    def read(self, count: int, offset: int) -> bytes:
        """`count` bytes from `offset`, fewer only at the end of the file."""

    def close(self) -> None:
        """Give it back."""


class Files(Protocol):
    """The files beside one another that make a checkpoint."""

    @property
    def where(self) -> str:
        """The folder or the hub's id, as a person writes it."""

    def names(self) -> list[str]:
        """Names of the files, in no order."""

    def open(self, name: str) -> OpenFile | Defect:
        """The file of that name, or what speaks against opening it."""


class LocalFiles:
    """The regular files of a folder. Links that lead out of it are not followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def where(self) -> str:
        """The folder."""
        return str(self.folder)

    def names(self) -> list[str]:
        """Names of everything in the folder. Raises CKPT025 when it may not be read."""
        try:
            return [path.name for path in self.folder.iterdir()]
        except OSError as error:
            raise HeavyliftError(
                "CKPT025", {"path": str(self.folder), "reason": error.strerror}
            ) from error

    def open(self, name: str) -> LocalFile | Defect:
        """The regular file `name`, or what speaks against opening it."""
        path = self.folder / name
        if path.is_symlink() and not _link_stays(self.folder, path):
            return Defect(file=name, problem="link_outside", observed=str(path.readlink()))
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer for ever.
            opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return Defect(file=name, problem="file_missing")
        except OSError as error:
            return Defect(file=name, problem="file_unreadable", observed=error.strerror)
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            os.close(opened)
            return Defect(file=name, problem="not_a_file")
        return LocalFile(opened, status.st_size)


class LocalFile:
    """An open file of this machine."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size

    def read(self, count: int, offset: int) -> bytes:
        """`count` bytes from `offset`, fewer only at the end of the file."""
        pieces: list[bytes] = []
        while count > 0:
            piece = os.pread(self.descriptor, count, offset)
            if not piece:
                break
            pieces.append(piece)
            count -= len(piece)
            offset += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)


def is_file_name(name: str) -> bool:
    """False for a name with a path in it: it could point anywhere."""
    return Path(name).name == name and name not in ("", "..") and "\0" not in name


def _link_stays(folder: Path, link: Path) -> bool:
    """True when a link ends inside the folder, or in the blob store of a hub cache.

    A hub cache keeps `models--…/snapshots/REVISION/FILE` as links into `models--…/blobs`.
    """
    try:
        target, home = link.resolve(), folder.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return False
    if target.is_relative_to(home):
        return True
    return home.parent.name == "snapshots" and target.parent == home.parent.parent / "blobs"
