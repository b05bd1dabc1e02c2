"""Verifications of scripted servers, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from heavylift.bench.files import shipped_prose
from heavylift.devserver.scenario import FaultKind, Scenario, Then
from heavylift.devserver.server import ScriptedServer
from heavylift.facts.catalog import Catalog
from heavylift.verify.records import Profile, Verification
from heavylift.verify.run import Wish, run
from heavylift.verify.suites import shipped
from heavylift.wire.client import Endpoint, Limits

PATIENT = Limits(connect_s=30.0, first_byte_s=30.0, gap_s=30.0)
"""Guards against a hang, for servers that answer: no busy machine takes this long."""
FEATURES = frozenset({"tools", "structured", "reasoning", "images", "responses", "dynamic_tools"})
"""What a model may be known to do, and the obliging engine does."""
SHORT = Limits(connect_s=30.0, first_byte_s=0.5, gap_s=0.5)
"""For servers that fall silent by their script."""


def limits_for(scenario: Scenario) -> Limits:
    """Short ones only where running out of time is what the scenario is for."""
    faults = [rule.fault for rule in scenario.rules]
    hangs = any(fault is not None and fault.kind is FaultKind.HANG for fault in faults)
    return SHORT if hangs else PATIENT


@pytest.fixture(scope="session")
def verify() -> Callable[..., Verification]:
    """`verify(scenario, profile=…, only=…, …)`: the verification of a server that plays it; with
    `against` another scenario, held against a server that plays that.
    """
    markers = tuple(text for each in Catalog().reply_formats() for text in each.markers)
    prose = shipped_prose()
    metric_names = Catalog().metric_names()

    def verified(
        scenario: Scenario, *, against: Scenario | None = None, **given: Any
    ) -> Verification:
        async def once() -> Verification:
            async with AsyncExitStack() as stack:
                server = await stack.enter_async_context(ScriptedServer(scenario))
                assert await server.until(Then.READY)
                if against is not None:
                    other = await stack.enter_async_context(ScriptedServer(against))
                    assert await other.until(Then.READY)
                    given["other"] = Endpoint.parse(other.url)
                wish = Wish(
                    endpoint=Endpoint.parse(server.url),
                    prose=prose,
                    markers=markers,
                    metric_names=metric_names,
                    **{
                        "checks": shipped(),
                        "profile": Profile.SMOKE,
                        "limits": limits_for(scenario),
                        "expected": FEATURES,
                        **given,
                    },
                )
                return await run(wish, lambda _: None)

        return asyncio.run(once())

    return verified
