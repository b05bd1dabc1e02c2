"""A gateway in this process, in front of scripted workers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heavylift.gateway.config import Settings, Times
from heavylift.gateway.keys import Scope
from heavylift.gateway.quota import Limits
from heavylift.gateway.routing import Lane, Routes, Upstream
from heavylift.gateway.serve import Running, running
from heavylift.gateway.store import open_store

FAST = Times(
    connect_s=5.0,
    stall_s=0.3,
    probe_s=0.1,
    probe_timeout_s=5.0,
    probe_misses=2,
    refresh_s=0.2,
    drain_notice_s=0.0,
    drain_limit_s=2.0,
)
"""Times short enough for tests. What a healthy part must keep is long: the machine may be busy."""

Start = Callable[..., contextlib.AbstractAsyncContextManager[Running]]


@pytest.fixture
def make_key(tmp_path: Path) -> Callable[..., str]:
    """`make_key(tokens_per_day=…, team=…, scope=…)`: a new key of the gateway's store."""
    names = {"requests_per_minute", "tokens_per_minute", "tokens_per_day", "concurrent"}

    def make(**given: Any) -> str:
        limits = Limits(**{name: given.pop(name) for name in names & set(given)})
        with open_store(tmp_path) as store:
            created = store.create_key("test", now_epoch_s=time.time(), limits=limits, **given)
        return created.key

    return make


@pytest.fixture
def admin_key(make_key: Callable[..., str]) -> str:
    """A key for the admin routes."""
    return make_key(scope=Scope.ADMIN)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """`start(url, …, times={…}, **settings)`: a gateway in front of workers w0, w1 and so on."""

    @contextlib.asynccontextmanager
    async def started(
        *urls: str,
        times: dict[str, float] | None = None,
        aliases: dict[str, str] | None = None,
        long_lane: tuple[str, ...] = (),
        **given: Any,
    ) -> AsyncIterator[Running]:
        upstreams = tuple(
            Upstream(name=f"w{number}", url=url, lane=Lane.LONG if url in long_lane else Lane.ALL)
            for number, url in enumerate(urls)
        )
        settings = Settings(
            folder=tmp_path,
            routes=Routes(upstreams=upstreams, aliases=aliases or {}),
            port=0,
            times=msgspec.structs.replace(FAST, **(times or {})),
            **given,
        )
        async with running(settings, str) as gateway:
            yield gateway

    return started
