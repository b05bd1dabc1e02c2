"""Verification of real vLLM on a CPU: the responses route, a pair that prefills and decodes.

The pair hands the cache over through files (vLLM's ExampleConnector), which a router in front of
both lets us spoil on the way. Runs by `make test-vllm` alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.vllm.pair import routed
from tests.vllm.serving import served

from heavylift.bench.files import shipped_prose
from heavylift.facts.catalog import Catalog
from heavylift.verify import run as verify
from heavylift.verify.records import CheckResult, Profile, Status
from heavylift.verify.suites import shipped
from heavylift.wire.client import Endpoint

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        "HEAVYLIFT_VLLM_ENV" not in os.environ, reason="HEAVYLIFT_VLLM_ENV: see make test-vllm"
    ),
]

CONTEXT = 2048
A_SMALL_MODELS_OWN = {"wrong_answer", "no_call", "bad_request"}
"""What a model of 135 million parameters gets wrong by itself; `bad_request`: it takes no picture
and was given no parser of tool calls.
"""


class Pair(NamedTuple):
    """One engine for all, one that prefills, one that decodes, and the folder between the two."""

    together: str
    prefill: str
    decode: str
    cache: Path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Three vLLMs with SmolLM2."""
    folder = tmp_path_factory.mktemp("pair")
    cache = folder / "cache"
    python = str(Path(os.environ["HEAVYLIFT_VLLM_ENV"], "bin/python"))
    model = Path(os.environ["HEAVYLIFT_VLLM_MODELS"], "smollm2")
    addresses = []
    with ExitStack() as stack:
        for role in (None, "kv_producer", "kv_consumer"):
            transfer = {
                "kv_connector": "ExampleConnector",
                "kv_role": role,
                "kv_connector_extra_config": {"shared_storage_path": str(cache)},
            }
            more = () if role is None else ("--kv-transfer-config", json.dumps(transfer))
            log = folder / f"{role}.log"
            start = served(python, model, log, *more, max_model_len=CONTEXT)
            addresses.append(stack.enter_context(start))
        together, prefill, decode = addresses
        yield Pair(together, prefill, decode, cache)


def verified(
    url: str, only: tuple[str, ...], *, against: str | None = None, seed: int = 0
) -> dict[str, CheckResult]:
    """The checks of a verification, by name."""
    return asyncio.run(averified(url, only, against=against, seed=seed))


async def averified(
    url: str, only: tuple[str, ...], *, against: str | None, seed: int
) -> dict[str, CheckResult]:
    """The same, inside an event loop."""
    wish = verify.Wish(
        endpoint=Endpoint.parse(url),
        checks=shipped(),
        profile=Profile.SMOKE,
        prose=shipped_prose(),
        markers=tuple(text for each in Catalog().reply_formats() for text in each.markers),
        only=only,
        other=None if against is None else Endpoint.parse(against),
        answer_tokens=48,
        seed=seed,
    )
    found = await verify.run(wish, lambda _: None)
    return {check.id: check for check in found.checks}


def test_the_responses_route_of_a_real_engine_is_understood(pair: Pair) -> None:
    """Text, stream, system message and turns; what goes wrong is the small model's own."""
    found = verified(pair.together, ("responses",))
    assert len(found) == 6
    for check in found.values():
        assert set(check.reasons) <= A_SMALL_MODELS_OWN, check
    judged = {name for name, check in found.items() if check.rate is not None}
    assert {"responses.answer", "responses.stream", "responses.turns"} <= judged


def held_against(pair: Pair, between: Callable[[], None], seed: int) -> dict[str, CheckResult]:
    """The pair behind its router, held against the engine that does both."""

    async def once() -> dict[str, CheckResult]:
        async with routed(pair.prefill, pair.decode, between) as url:
            only = ("against.text", "against.whole", "against.long", "against.together")
            return await averified(url, only, against=pair.together, seed=seed)

    return asyncio.run(once())


def test_a_pair_that_prefills_and_decodes_answers_as_one_engine_does(pair: Pair) -> None:
    """With a cache that was handed over: there are files of it."""
    found = held_against(pair, lambda: None, seed=1)
    assert {check.status for check in found.values()} == {Status.PASS}, found
    assert list(pair.cache.rglob("*.safetensors"))


def test_a_cache_that_is_spoilt_on_the_way_is_found(pair: Pair) -> None:
    """Zeros in place of the keys and values of a long prompt: the answer is another."""

    def spoil() -> None:
        for file in pair.cache.rglob("*.safetensors"):
            with file.open("r+b") as tensors:
                (header,) = struct.unpack("<Q", tensors.read(8))
                size = file.stat().st_size - 8 - header
                tensors.seek(8 + header)
                tensors.write(bytes(size))

    check = held_against(pair, spoil, seed=2)["against.long"]
    assert check.status is Status.FAIL
    assert set(check.reasons) == {"text_differs"}
