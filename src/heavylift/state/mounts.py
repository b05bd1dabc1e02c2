"""Which file system a path is on, from the kernel's mount table. Decides, does not look.

SQLite's write-ahead log needs memory shared between processes and locks that hold. File systems
that several hosts share give neither, and the damage shows up later.
Source: https://www.sqlite.org/wal.html, "Overview"; proc_pid_mountinfo(5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

_SHARED: Final = frozenset(
    {
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
        "wekafs",
    }
)
"""Types of file system that several hosts share, as the kernel names them."""

_SHARED_FUSE: Final = frozenset(
    {"ceph", "gcsfuse", "glusterfs", "goofys", "juicefs", "rclone", "s3fs", "sshfs"}
)
"""The same in user space: what stands after `fuse.`."""

_OPTIONAL_FIELDS_FROM: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """One line of the mount table: where, and which type of file system."""

    point: str
    fs_type: str

    @property
    def is_shared(self) -> bool:
        """True when other hosts may hold the same files."""
        kind, _, program = self.fs_type.partition(".")
        return kind in _SHARED or (kind == "fuse" and program in _SHARED_FUSE)


def parse(mountinfo: str) -> tuple[Mount, ...]:
    """The mounts in the text of `/proc/self/mountinfo`, in its order. Odd lines are left out."""
    mounts = []
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        # The fields from the seventh on are optional; a lone "-" ends them.
        try:
            separator = fields.index("-", _OPTIONAL_FIELDS_FROM)
            mounts.append(Mount(point=_unescaped(fields[4]), fs_type=fields[separator + 1]))
        except (ValueError, IndexError):
            continue
    return tuple(mounts)


def mount_of(path: str, mounts: tuple[Mount, ...]) -> Mount | None:
    """The mount that an absolute path without links lies on; None when the table holds none.

    Of two at the same point the later one covers the earlier.
    """
    above = {str(folder) for folder in (PurePosixPath(path), *PurePosixPath(path).parents)}
    covering = [mount for mount in mounts if mount.point in above]
    longest = max((len(mount.point) for mount in covering), default=0)
    nearest = [mount for mount in covering if len(mount.point) == longest]
    return nearest[-1] if nearest else None


def _unescaped(field: str) -> str:
    """The kernel writes blanks, tabs, newlines and backslashes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
