"""File systems: which of them a database of ours may lie on."""

from __future__ import annotations

import pytest

from heavylift.state.mounts import Mount, mount_of, parse

# Lines in the form of proc_pid_mountinfo(5).
TABLE = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
24 22 0:50 / /home rw,relatime shared:7 master:2 - nfs4 server:/home rw
25 24 8:2 / /home/me/local rw - xfs /dev/sdb1 rw
26 22 0:51 / /mnt/with\040blank rw - cifs //server/share rw
27 22 0:52 / /data rw - ext4 /dev/sdc1 rw
28 27 0:53 / /data rw - fuse.sshfs me@host: rw
a line that is not one
29 22 0:54 / /short rw -
"""


@pytest.mark.parametrize(
    ("path", "fs_type", "shared"),
    [
        ("/var/lib/x.db", "ext4", False),
        ("/", "ext4", False),
        ("/home/me/x.db", "nfs4", True),
        ("/homestead/x.db", "ext4", False),
        ("/home/me/local/x.db", "xfs", False),
        ("/mnt/with blank/x.db", "cifs", True),
        ("/data/x.db", "fuse.sshfs", True),
    ],
)
def test_the_nearest_mount_decides(path: str, fs_type: str, *, shared: bool) -> None:
    """The longest mount point above the path; of two at one point, the one mounted later."""
    mount = mount_of(path, parse(TABLE))
    assert mount is not None
    assert mount.fs_type == fs_type
    assert mount.is_shared is shared


def test_lines_that_cannot_be_read_are_left_out() -> None:
    """Seven good lines of nine; an empty table decides nothing."""
    assert len(parse(TABLE)) == 7
    assert mount_of("/x", ()) is None


@pytest.mark.parametrize(
    ("fs_type", "shared"),
    [
        ("nfs", True),
        ("nfs4", True),
        ("cifs", True),
        ("smb3", True),
        ("lustre", True),
        ("beegfs", True),
        ("ceph", True),
        ("fuse.glusterfs", True),
        ("fuse.s3fs", True),
        ("ext4", False),
        ("xfs", False),
        ("btrfs", False),
        ("zfs", False),
        ("tmpfs", False),
        ("overlay", False),
        ("fuse.ntfs-3g", False),
    ],
)
def test_file_systems_of_several_hosts_are_refused(fs_type: str, *, shared: bool) -> None:
    """Network and cluster file systems; a local one in user space is fine."""
    assert Mount(point="/", fs_type=fs_type).is_shared is shared
