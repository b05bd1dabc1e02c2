"""A gateway as a process: its parts put together, its start, its housekeeping and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import importlib.util
import logging
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiohttp import web

from heavylift.errors import HeavyliftError
from heavylift.gateway.answers import Say
from heavylift.gateway.app import Gateway
from heavylift.gateway.audit import open_audit
from heavylift.gateway.carrier import Carrier
from heavylift.gateway.config import Settings, Times, Tls
from heavylift.gateway.connection import Connection
from heavylift.gateway.health import Health
from heavylift.gateway.ledger import Ledger, open_ledger
from heavylift.gateway.postgres import open_remote_ledger
from heavylift.gateway.router import routing_through
from heavylift.gateway.routing import Fleet, State, Worker
from heavylift.gateway.store import AUDIT

T = TypeVar("T")
OnWorker = Callable[[Worker, State], None]

_BACKLOG: Final = 4096
_FIRST_LOOK_S: Final = 3.0
"""How long the start waits for the first probes; workers that take longer come in later."""
_LAST_WORDS_S: Final = 5.0
"""How long streams that are cut off at the end may take to say so."""
_GARBAGE_EVERY: Final = 10_000
"""Containers made, less those freed, before a look for garbage."""
_SWITCH_S: Final = 0.0005
"""How long the thread that writes the ledger waits for the event loop to let it go on, at most. The
interpreter's own 5 ms, several times in a transaction, would be felt in the first token."""
_RECOVER_EVERY: Final = 5
"""Seconds between two looks for gateways that died."""

# What clients send wrong is answered, not logged: a log is no place for strangers to write to.
_SILENT: Final = logging.getLogger("heavylift.gateway.http")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A gateway that takes requests at `url`. Made by `running`."""

    url: str
    times: Times
    gateway: Gateway
    carrier: Carrier
    ledger: Ledger
    fleet: Fleet
    server: web.Server
    listener: asyncio.Server

    async def drain(self, hurry: asyncio.Event) -> None:
        """The end in order: readiness says no, then no new connections, then open requests finish.

        What is still open at the limit, or when `hurry` is set, ends with an error event.
        """
        self.gateway.draining = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hurry.wait(), self.times.drain_notice_s)
        self.listener.close()
        self.server.pre_shutdown()
        finished = asyncio.create_task(self._all_answered())
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait(
            (finished, hurried),
            timeout=self.times.drain_limit_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        hurried.cancel()
        if not finished.done():
            self.carrier.end_all()
            await asyncio.wait((finished,), timeout=_LAST_WORDS_S)
            finished.cancel()

    async def _all_answered(self) -> None:
        while self.gateway.visits:  # noqa: ASYNC110 - a counter; an event would cost each request
            await asyncio.sleep(0.05)


def serve(
    settings: Settings,
    say: Say,
    on_listening: Callable[[str], None],
    on_worker: OnWorker | None = None,
) -> int:
    """Runs a gateway until SIGTERM or SIGINT; 0. A second signal ends it without waiting.

    `on_listening` gets the address once the port is open, `on_worker` as the fleet's `on_change`.
    Raises as `running`.
    """

    async def main() -> int:
        with _signals() as stop:
            async with running(settings, say, on_worker) as gateway:
                _spare_the_loop()
                on_listening(gateway.url)
                await stop.wait()
                stop.clear()
                await gateway.drain(stop)
        return 0

    return run_fast(main())


def _spare_the_loop() -> None:
    """What stands at the start stays: looking through it for garbage would hold every stream up for
    tens of milliseconds, and what a request leaves is freed by its count. Threads take turns
    sooner.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_EVERY, 20, 50)
    sys.setswitchinterval(_SWITCH_S)


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """What `main` gives, run on uvloop where that is installed: it costs less per chunk."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.run(main)
    uvloop = importlib.import_module("uvloop")
    result: T = uvloop.run(main)
    return result


@contextlib.asynccontextmanager
async def running(
    settings: Settings, say: Say, on_worker: OnWorker | None = None
) -> AsyncIterator[Running]:
    """A gateway that runs while the block does; leaving it without `drain` cuts off what is open.

    Raises GW018 when the router does not start, GW001 when the port cannot be opened, GW004 for a
    host that is not of this machine, GW003 and GW007 for TLS files that cannot be used, and as
    `open_ledger`, `open_remote_ledger` and `open_audit`.
    """
    times, fleet = settings.times, Fleet(settings.routes, on_worker)
    async with contextlib.AsyncExitStack() as stack:
        if settings.router is not None:
            await stack.enter_async_context(routing_through(settings.router, settings.folder))
        audit = stack.enter_context(open_audit(settings.folder / AUDIT, redact=settings.redact))
        ledger = stack.enter_context(_open_ledger(settings))
        ledger.before_write, audit.on_line = audit.flush, ledger.write_soon
        stack.push_async_callback(_settle_all, ledger)
        carrier = await stack.enter_async_context(Carrier(fleet, times, settings.worker_key))
        gateway = Gateway(
            settings, ledger=ledger, fleet=fleet, carrier=carrier, audit=audit, say=say
        )
        await _tidy(ledger, gateway)
        health = Health(
            fleet,
            times,
            settings.worker_key,
            on_stalled=lambda worker: carrier.end_silent(worker, times.stall_s),
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(health.first_look(), _FIRST_LOOK_S)
        server = web.Server(gateway.handle, handler_cancellation=True)
        listener = await _listen(settings, server)
        stack.push_async_callback(server.shutdown, 1.0)
        stack.callback(listener.close)
        for each in (health.run(), carrier.watch(), _reap(server, times), _keep(ledger, gateway)):
            stack.push_async_callback(_cancelled, asyncio.create_task(each))
        host, port = listener.sockets[0].getsockname()[:2]
        yield Running(
            url=f"{'https' if settings.tls else 'http'}://{host}:{port}",
            times=times,
            gateway=gateway,
            carrier=carrier,
            ledger=ledger,
            fleet=fleet,
            server=server,
            listener=listener,
        )


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _listen(settings: Settings, server: web.Server) -> asyncio.Server:
    loop = asyncio.get_running_loop()

    def connection() -> Connection:
        return Connection(
            server,
            loop=loop,
            logger=_SILENT,
            access_log=None,
            keepalive_timeout=settings.times.idle_s,
            lingering_time=1.0,
            auto_decompress=False,
        )

    try:
        return await loop.create_server(
            connection,
            settings.host,
            settings.port,
            ssl=None if settings.tls is None else _ssl_context(settings.tls),
            ssl_handshake_timeout=None if settings.tls is None else settings.times.header_s,
            reuse_port=settings.reuse_port or None,
            backlog=_BACKLOG,
        )
    except OSError as problem:
        detail = problem.strerror or str(problem)
        if isinstance(problem, socket.gaierror) or problem.errno == errno.EADDRNOTAVAIL:
            raise HeavyliftError("GW004", {"host": settings.host}) from problem
        raise HeavyliftError("GW001", {"port": settings.port, "detail": detail}) from problem


def _ssl_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (tls.certificate, tls.key):
        try:
            path.read_bytes()
        except OSError as problem:
            told = {"path": str(path), "detail": problem.strerror or str(problem)}
            raise HeavyliftError("GW003", told) from problem
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except ssl.SSLError as problem:
        told = {"certificate": str(tls.certificate), "key": str(tls.key)}
        raise HeavyliftError("GW007", told) from problem
    return context


@contextlib.contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set while the block runs."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _reap(server: web.Server, times: Times) -> None:
    """Close connections whose request headers do not arrive."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(min(1.0, times.header_s / 2))
        late = loop.time() - times.header_s
        for connection in server.connections:
            since = connection.waiting_since if isinstance(connection, Connection) else None
            if since is not None and since < late and connection.transport is not None:
                connection.transport.abort()


async def _keep(ledger: Ledger, gateway: Gateway) -> None:
    """Checkpoints every second; now and then, what gateways that died have left."""
    turn = 0
    while True:
        await asyncio.sleep(1.0)
        await asyncio.to_thread(ledger.checkpoint)
        turn += 1
        if turn % _RECOVER_EVERY == 0:
            await _tidy(ledger, gateway)


async def _tidy(ledger: Ledger, gateway: Gateway) -> None:
    """Charge what gateways that died left open. A full disk is met at the next request too."""
    with contextlib.suppress(HeavyliftError):
        for lost in await ledger.tidy():
            gateway.note_lost(lost)


def _open_ledger(settings: Settings) -> contextlib.AbstractContextManager[Ledger]:
    return (
        open_ledger(settings.folder)
        if settings.database is None
        else open_remote_ledger(settings.database)
    )


async def _settle_all(ledger: Ledger) -> None:
    """Write the last settlements; what cannot be written is charged by whoever recovers it."""
    for _ in range(20):
        if ledger.flush():
            return
        await asyncio.sleep(0.05)
