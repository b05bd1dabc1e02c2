"""Run inside new namespaces: builds a root of its own, sets limits, gives up every privilege, and
becomes the program that is on standard input. Its text is given to `python -c`: it imports nothing
of heavylift.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC = 4096, 16384
MS_PRIVATE, MNT_DETACH = 1 << 18, 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
LAST_CAPABILITY = 63
MIB = 2**20
LIMITS = (
    (resource.RLIMIT_CPU, 10),
    (resource.RLIMIT_AS, 1024 * MIB),
    (resource.RLIMIT_FSIZE, 16 * MIB),
    (resource.RLIMIT_NOFILE, 64),
    (resource.RLIMIT_NPROC, 64),
    (resource.RLIMIT_CORE, 0),
)


def main(root: str) -> None:
    """`root`: an empty folder to build on; empty when another program has built one already."""
    program = sys.stdin.buffer.read()
    libc = ctypes.CDLL(None, use_errno=True)
    if root:
        build(libc, root)
    os.chdir("/tmp")  # noqa: S108 - of the new root
    Path("program.py").write_bytes(program)
    for limit, value in LIMITS:
        resource.setrlimit(limit, (value, value))
    for capability in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        sys.exit("no_new_privs")
    python = sys.executable
    os.execve(python, [python, "-I", "-S", "program.py"], {})  # noqa: S606 - the program itself


def build(libc: ctypes.CDLL, root: str) -> None:
    """A root with the system's libraries and this Python, read-only, and an empty /tmp."""

    def mount(source: str, target: str, kind: str | None, flags: int, data: str | None) -> None:
        texts = [None if text is None else text.encode() for text in (source, target, kind)]
        if libc.mount(*texts, flags, None if data is None else data.encode()) != 0:
            sys.exit(f"mount {target}: {os.strerror(ctypes.get_errno())}")

    mount("none", "/", None, MS_REC | MS_PRIVATE, None)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for path in map(Path, (*("/usr", "/bin", "/lib", "/lib64"), sys.base_prefix)):
        target = Path(f"{root}{path}")
        if path.is_symlink() and path.parent == Path("/"):
            target.symlink_to(path.readlink())
        elif path.is_dir() and not target.exists():
            target.mkdir(parents=True)
            mount(str(path), str(target), None, MS_BIND | MS_REC, None)
            # What the host's own mount forbids must stay forbidden, or the kernel refuses.
            kept = os.statvfs(path).f_flag & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
            flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept
            mount("none", str(target), None, flags, None)
    for name in ("tmp", "old"):
        Path(root, name).mkdir(exist_ok=True)
    number = PIVOT_ROOT.get(os.uname().machine)
    if number is None or libc.syscall(number, root.encode(), f"{root}/old".encode()) != 0:
        sys.exit(f"pivot_root: {os.strerror(ctypes.get_errno())}")
    os.chdir("/")
    if libc.umount2(b"/old", MNT_DETACH) != 0:
        sys.exit(f"umount: {os.strerror(ctypes.get_errno())}")
    Path("/old").rmdir()
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m")  # noqa: S108 - of the new root
    mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, None)


if __name__ == "__main__":
    main(sys.argv[1])
