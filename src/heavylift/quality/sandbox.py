"""Running programs that a model wrote: no network, no files but its own, little time and memory.

Isolation is the kernel's (namespaces of user, files, network, processes), through bubblewrap or
unshare. A sandbox proves what it forbids before it is used; without one nothing is run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError

SECONDS: Final = 10.0
"""For one program, Python's own start included."""
_OUTPUT_BYTES: Final = 64 * 1024
_CHILD: Final = Path(__file__).with_name("sandbox_child.py")
_PYTHON: Final = os.path.realpath(sys.executable)
"""The interpreter itself: a virtual environment is a link to it, in a folder that is not shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What became of a program. `output` is what it printed; `status` None = it ran out of time or
    printed without end.
    """

    output: str
    status: int | None
    errors: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sandbox:
    """A way to isolate. `command` comes before Python's; `builds_root`: the child makes a root."""

    name: str
    command: tuple[str, ...]
    builds_root: bool

    async def run(self, program: str, seconds: float = SECONDS) -> Ran:
        """Run a Python program."""
        with tempfile.TemporaryDirectory(prefix="heavylift-sandbox-") as folder:
            root = folder if self.builds_root else ""
            python = [_PYTHON, "-I", "-S", "-c", _CHILD.read_text("utf-8"), root]
            process = await asyncio.create_subprocess_exec(
                *self.command,
                *python,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={},
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(seconds):
                    return await _talk(process, program.encode())
            except TimeoutError:
                return Ran(output="", status=None)
            finally:
                await _end(process)


async def _talk(process: asyncio.subprocess.Process, program: bytes) -> Ran:
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise RuntimeError
    with contextlib.suppress(ConnectionError):
        process.stdin.write(program)
        await process.stdin.drain()
    process.stdin.close()
    output, errors = await asyncio.gather(_some(process.stdout), _some(process.stderr))
    if len(output) > _OUTPUT_BYTES:
        return Ran(output="", status=None)
    status = await process.wait()
    return Ran(
        output=output.decode("utf-8", "replace"),
        status=status,
        errors=errors.decode("utf-8", "replace")[-500:],
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # Its end is only noticed when its pipes have been read to theirs.
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            await stream.read()
    await process.wait()


async def _some(stream: asyncio.StreamReader) -> bytes:
    """What comes, up to a little more than is kept: a program may print for ever."""
    parts: list[bytes] = []
    size = 0
    while size <= _OUTPUT_BYTES and (part := await stream.read(_OUTPUT_BYTES)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def ways() -> tuple[Sandbox, ...]:
    """The ways to isolate that this machine has the programs for, the best first."""
    found = []
    bubblewrap, unshare = shutil.which("bwrap"), shutil.which("unshare")
    if bubblewrap is not None:
        seen = (sys.base_prefix,)
        readable = [part for path in seen for part in ("--ro-bind", path, path)]
        links = [
            part for path in ("/bin", "/lib", "/lib64") for part in _as_the_host_has_it(Path(path))
        ]
        found.append(
            Sandbox(
                name="bubblewrap",
                command=(
                    *(bubblewrap, "--unshare-all", "--die-with-parent", "--new-session"),
                    *("--clearenv", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"),
                    *links,
                    *readable,
                    *("--tmpfs", "/tmp", "--chdir", "/tmp"),  # noqa: S108 - of the new root
                    *("--remount-ro", "/"),
                ),
                builds_root=False,
            )
        )
    if unshare is not None:
        spaces = ("--user", "--map-root-user", "--mount", "--net", "--ipc", "--uts", "--pid")
        command = (unshare, *spaces, "--fork", "--kill-child")
        found.append(Sandbox(name="unshare", command=command, builds_root=True))
    return tuple(found)


def _as_the_host_has_it(path: Path) -> tuple[str, ...]:
    if path.is_symlink():
        return ("--symlink", str(path.readlink()), str(path))
    return ("--ro-bind", str(path), str(path)) if path.is_dir() else ()


_PROBE: Final = """
import json, os, socket
found = []
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=2)
    found.append("network")
except OSError:
    pass
try:
    open({secret!r}).read()
    found.append("files")
except OSError:
    pass
for path in {traces!r}:
    try:
        open(path, "w").close()  # may be allowed, in a folder of its own: it must not arrive
    except OSError:
        pass
try:
    os.kill({pid}, 0)
    found.append("processes")
except OSError:
    pass
open("/tmp/own", "w").close()
print(json.dumps(["{nonce}", found]))
"""


async def open_sandbox() -> Sandbox:
    """A sandbox that was seen to hold. Raises ENV061 when this machine has none."""
    reasons = []
    for sandbox in ways():
        leak = await _leak(sandbox)
        if leak is None:
            return sandbox
        reasons.append(f"{sandbox.name}: {leak}")
    raise HeavyliftError("ENV061", {"reasons": "; ".join(reasons) or "bwrap, unshare: not found"})


async def _leak(sandbox: Sandbox) -> str | None:
    """What a sandbox lets through, or why it does not run; None when it holds."""
    nonce = secrets.token_hex(8)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    traces = [folder / f"heavylift-probe-{nonce}" for folder in (Path("/usr"), Path.home())]
    with tempfile.NamedTemporaryFile() as secret:
        async with server:
            program = _PROBE.format(
                port=server.sockets[0].getsockname()[1],
                secret=secret.name,
                traces=list(map(str, traces)),
                pid=os.getpid(),
                nonce=nonce,
            )
            ran = await sandbox.run(program)
    arrived = [path for path in traces if path.exists()]
    for path in arrived:
        path.unlink()
    if arrived:
        return "writing"
    try:
        said = json.loads(ran.output)
    except ValueError:
        return ran.errors.strip().rpartition("\n")[2] or f"status {ran.status}"
    if said[0] != nonce:
        return "another answer"
    return ", ".join(said[1]) or None
