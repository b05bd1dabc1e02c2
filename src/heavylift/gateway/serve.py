"""A gateway as a process: its parts put together, its start, its housekeeping and its end."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import signal
import ssl
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from heavylift.errors import HeavyliftError
from heavylift.gateway.app import Gateway, Say
from heavylift.gateway.audit import open_audit, redact_nothing
from heavylift.gateway.carrier import Carrier
from heavylift.gateway.config import Settings, Times, Tls
from heavylift.gateway.connection import Connection
from heavylift.gateway.health import Health
from heavylift.gateway.ledger import Ledger, open_ledger
from heavylift.gateway.routing import Fleet
from heavylift.gateway.store import AUDIT

_BACKLOG: Final = 4096
_FIRST_LOOK_S: Final = 3.0
"""How long the start waits for the first probes; workers that take longer come in later."""
_LAST_WORDS_S: Final = 5.0
"""How long streams that are cut off at the end may take to say so."""
_RECOVER_EVERY: Final = 5
"""Seconds between two looks for gateways that died."""

# What clients send wrong is answered, not logged: a log is no place for strangers to write to.
_SILENT: Final = logging.getLogger("heavylift.gateway.http")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """The parts of a running gateway."""

    times: Times
    gateway: Gateway
    carrier: Carrier
    ledger: Ledger
    health: Health


def serve(settings: Settings, say: Say, on_listening: Callable[[str], None]) -> int:
    """Runs a gateway until SIGTERM or SIGINT; 0. A second signal ends it without waiting.

    `on_listening` gets the address once the port is open. Raises GW001 when it cannot be opened,
    GW003 for TLS files that cannot be used, and as `open_ledger` and `open_audit`.
    """
    return _run(_serve(settings, say, on_listening))


def _run(main: Coroutine[Any, Any, int]) -> int:
    """Runs it on uvloop where that is installed: it costs less per chunk."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.run(main)
    uvloop = importlib.import_module("uvloop")
    status: int = uvloop.run(main)
    return status


async def _serve(settings: Settings, say: Say, on_listening: Callable[[str], None]) -> int:
    redact = redact_nothing if settings.audit_bodies else None
    fleet = Fleet(settings.routes)
    with (
        open_ledger(settings.folder) as ledger,
        open_audit(settings.folder / AUDIT, redact=redact) as audit,
    ):
        async with Carrier(fleet, settings.times, settings.worker_key) as carrier:
            gateway = Gateway(
                settings,
                ledger=ledger,
                fleet=fleet,
                carrier=carrier,
                audit=audit,
                say=say,
            )
            health = Health(
                fleet,
                settings.times,
                settings.worker_key,
                on_stalled=lambda worker: carrier.end_silent(worker, settings.times.stall_s),
            )
            parts = _Parts(
                times=settings.times,
                gateway=gateway,
                carrier=carrier,
                ledger=ledger,
                health=health,
            )
            await _serve_parts(settings, parts, on_listening)
        await _settle_all(ledger)
    return 0


async def _serve_parts(
    settings: Settings, parts: _Parts, on_listening: Callable[[str], None]
) -> None:
    gateway, ledger = parts.gateway, parts.ledger
    _recover(ledger, gateway)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(parts.health.first_look(), _FIRST_LOOK_S)
    server = web.Server(gateway.handle, handler_cancellation=True)
    with _signals() as stop:
        listener = await _listen(settings, server)
        host, port = listener.sockets[0].getsockname()[:2]
        tasks = [
            asyncio.create_task(each)
            for each in (
                parts.health.run(),
                parts.carrier.watch(),
                _reap(server, parts.times),
                _keep(ledger, gateway),
            )
        ]
        try:
            on_listening(f"{'https' if settings.tls else 'http'}://{host}:{port}")
            await stop.wait()
            stop.clear()
            await _drain(parts, server, listener, stop)
        finally:
            listener.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.shutdown(1.0)


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
        raise HeavyliftError("GW001", {"port": settings.port, "detail": detail}) from problem


def _ssl_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except OSError as problem:  # ssl.SSLError is one
        detail = problem.strerror or str(problem)
        raise HeavyliftError("GW003", {"path": str(tls.certificate), "detail": detail}) from problem
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


async def _drain(
    parts: _Parts, server: web.Server, listener: asyncio.Server, stop: asyncio.Event
) -> None:
    """The end in order: readiness says no, then no new connections, then open requests finish.

    What is still open at the limit, or at a second signal, ends with an error event.
    """
    gateway, times = parts.gateway, parts.times
    gateway.draining = True
    await _until(stop, times.drain_notice_s)
    listener.close()
    server.pre_shutdown()
    finished = asyncio.create_task(_all_answered(gateway))
    hurry = asyncio.create_task(stop.wait())
    await asyncio.wait(
        (finished, hurry), timeout=times.drain_limit_s, return_when=asyncio.FIRST_COMPLETED
    )
    hurry.cancel()
    if not finished.done():
        parts.carrier.end_all()
        await asyncio.wait((finished,), timeout=_LAST_WORDS_S)
        finished.cancel()


async def _until(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def _all_answered(gateway: Gateway) -> None:
    while gateway.visits:  # noqa: ASYNC110 - a counter that every request would have to signal
        await asyncio.sleep(0.05)


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
            ledger.sweep()
            _recover(ledger, gateway)


def _recover(ledger: Ledger, gateway: Gateway) -> None:
    """Charge what gateways that died left open. A full disk is met at the next request too."""
    with contextlib.suppress(HeavyliftError):
        for lost in ledger.recover():
            gateway.note_lost(lost)


async def _settle_all(ledger: Ledger) -> None:
    """Write the last settlements; what cannot be written is charged by whoever recovers it."""
    for _ in range(20):
        if ledger.flush():
            return
        await asyncio.sleep(0.05)
