"""A router between the gateway and engines that prefill and decode apart: started, kept, ended.

The router is a program of its own, installed by whoever wants it; how it is started is a fact. It
listens on 127.0.0.1 only, because it asks nobody for a key, and gets no secret: the gateway sends
the worker's key with every request, and the router passes it on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.wire.client import Endpoint

LOG: Final = "router.log"
_START_S: Final = 30.0
_GRACE_S: Final = 10.0
_AGAIN_S: Final = 1.0
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_OURS: Final = "HEAVYLIFT_"


@dataclass(frozen=True, kw_only=True, slots=True)
class RouterPlan:
    """A router that is to run: its command, and where it will listen."""

    name: str
    argv: tuple[str, ...]
    url: str


def plan_router(name: str, prefill: tuple[str, ...], decode: tuple[str, ...]) -> RouterPlan:
    """The command of a router before these engines.

    Raises GW016 for a router that is not known, GW017 when it is not installed, GW008 when one of
    the two kinds of engine is missing, USE021 for a URL that is none.
    """
    catalog = Catalog()
    if name not in catalog.ids("routers"):
        raise HeavyliftError("GW016", {"name": name, "known": ", ".join(catalog.ids("routers"))})
    facts = catalog.router(name)
    if not prefill or not decode:
        raise HeavyliftError("GW008")
    program = _program(facts.argv[0])
    if program is None:
        raise HeavyliftError(
            "GW017", {"name": name}, hint_command=f"pip install {facts.package}=={facts.version}"
        )
    port, metrics_port = _free_ports(2)
    argv = [part.format(port=port, metrics_port=metrics_port) for part in facts.argv[1:]]
    for urls, words in ((prefill, facts.prefill), (decode, facts.decode)):
        for given in urls:
            url = Endpoint.parse(given).base_url
            argv += [word.format(url=url) for word in words]
    return RouterPlan(name=name, argv=(program, *argv), url=f"http://127.0.0.1:{port}")


@contextlib.asynccontextmanager
async def routing_through(plan: RouterPlan, folder: Path) -> AsyncIterator[None]:
    """The router runs while the block does; it is started again when it ends by itself.

    Raises GW018 when it does not listen in time, with the last line it wrote.
    """
    log = folder / LOG
    with _opened(log) as descriptor:
        process = _start(plan, descriptor)
        try:
            await _listens(plan, process, log)
        except BaseException:
            _stop(process)
            raise
        held = [process]
        keeper = asyncio.create_task(_keep(plan, descriptor, held))
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            await asyncio.to_thread(_stop, held[0])


async def _keep(plan: RouterPlan, descriptor: int, held: list[subprocess.Popen[bytes]]) -> None:
    """Start it again whenever it has ended. The gateway's probes see when it listens."""
    while True:
        await asyncio.sleep(_AGAIN_S)
        if held[0].poll() is not None:
            held[0] = _start(plan, descriptor)


async def _listens(plan: RouterPlan, process: subprocess.Popen[bytes], log: Path) -> None:
    port = int(plan.url.rpartition(":")[2])
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise HeavyliftError("GW018", {"name": plan.name, "log": str(log), "last": _last_line(log)})


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:300]


def _start(plan: RouterPlan, descriptor: int) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not _private(name)}
    return subprocess.Popen(  # noqa: S603 - a list, made from facts and checked URLs
        plan.argv,
        stdin=subprocess.DEVNULL,
        stdout=descriptor,
        stderr=descriptor,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches the gateway alone, which ends it in order
        preexec_fn=_end_with_us if sys.platform == "linux" else None,  # noqa: PLW1509 - one call
    )


def _private(name: str) -> bool:
    """True for what is ours alone: keys and addresses with passwords."""
    return name.startswith(_OURS)


def _end_with_us() -> None:
    """Ask the kernel to end the router when the gateway is killed."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    process.kill()
    process.wait()


@contextlib.contextmanager
def _opened(log: Path) -> Iterator[int]:
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _program(name: str) -> str | None:
    """Where a program is: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def _free_ports(count: int) -> list[Any]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
