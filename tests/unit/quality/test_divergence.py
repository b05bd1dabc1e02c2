"""Divergence over forced tokens: bounds, both directions, and asking two servers for it."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from heavylift.quality.divergence import Position, divergence, kl, uncovered
from heavylift.quality.forced import NotScored, compared
from heavylift.quality.records import Divergence
from heavylift.wire.client import Client, Endpoint

WEIGHTS = st.lists(st.floats(0.01, 1.0), min_size=4, max_size=8)


def told(weights: list[float], top: int | None = None) -> dict[str, float]:
    """Log-probabilities of the `top` likeliest of tokens with these weights."""
    total = sum(weights)
    shares = {str(token): weight / total for token, weight in enumerate(weights)}
    likeliest = sorted(shares, key=lambda token: -shares[token])[:top]
    return {token: math.log(shares[token]) for token in likeliest}


def whole_kl(p: list[float], q: list[float]) -> float:
    """The divergence by its definition."""
    return sum(
        a / sum(p) * math.log((a / sum(p)) / (b / sum(q))) for a, b in zip(p, q, strict=True)
    )


@given(p=WEIGHTS, q=WEIGHTS, top=st.integers(1, 8))
def test_what_is_told_bounds_the_divergence_from_below(
    p: list[float], q: list[float], top: int
) -> None:
    """Whatever part of the vocabulary is told; all of it gives the divergence itself."""
    size = min(len(p), len(q))
    p, q = p[:size], q[:size]
    exact = whole_kl(p, q)
    assert kl(told(p, top), told(q, top)) <= exact + 1e-9
    assert kl(told(p), told(q)) == pytest.approx(exact, abs=1e-9)
    assert kl(told(p, top), told(p, top)) == pytest.approx(0.0, abs=1e-9)


def test_what_is_not_told_is_counted() -> None:
    """Two of four equal tokens leave a half."""
    assert uncovered(told([1, 1, 1, 1], top=2)) == pytest.approx(0.5)


def test_figures_are_over_positions_and_intervals_over_prompts() -> None:
    """Two prompts, one of which diverges at one of its two places."""
    same = Position(forced="0", reference=told([3, 1]), candidate=told([3, 1]))
    other = Position(forced="0", reference=told([3, 1]), candidate=told([1, 3]))
    found = divergence(
        [[same, other], [same, same]], [[same], [same]], top=2, chance=random.Random(1).random
    )
    assert found is not None
    assert (found.prompts, found.positions) == (2, 4)
    # 3/4·ln 3 + 1/4·ln(1/3) = ln(3)/2, at one place of four.
    assert found.forward.mean == pytest.approx(math.log(3) / 8)
    assert found.forward.max == pytest.approx(math.log(3) / 2)
    assert found.backward.mean == pytest.approx(math.log(3) / 8)
    assert found.forward.interval.low == pytest.approx(0.0)
    assert found.top1_agreement == 0.75
    assert found.floor_mean == 0
    # From 3/4 to 1/4 at one place of four.
    assert found.probability_change_rms == pytest.approx(0.25)
    assert divergence([], [], top=2, chance=random.Random(1).random) is None


# --- servers -------------------------------------------------------------------------------------

Handler = Callable[[web.Request], Awaitable[web.Response]]


def scorer(weights: list[float], *, shift: int = 0, offers: bool = True) -> web.Application:
    """A server with ten tokens, of which each is as likely at every place as its weight."""

    async def tokenize(request: web.Request) -> web.Response:
        body = await request.json()
        if "messages" in body:
            return web.json_response({"error": {"message": "no template"}}, status=400)
        return web.json_response({"tokens": [ord(c) % 10 + shift for c in body["prompt"]]})

    async def completions(request: web.Request) -> web.Response:
        body = await request.json()
        choice: dict[str, Any] = {"index": 0, "text": "abc", "finish_reason": "length"}
        if "prompt_logprobs" in body and offers:
            row = {t: {"logprob": p} for t, p in told(weights).items()}
            choice["prompt_logprobs"] = [None] + [row] * (len(body["prompt"]) - 1)
        return web.json_response({"choices": [choice]})

    application = web.Application()
    application.router.add_post("/tokenize", tokenize)
    application.router.add_post("/v1/completions", completions)
    return application


def asked(one: web.Application, other: web.Application) -> Divergence:
    """The divergence between two servers."""

    async def once() -> Divergence:
        urls = []
        runners = [web.AppRunner(one), web.AppRunner(other)]
        for runner in runners:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        try:
            async with Client(Endpoint.parse(urls[0])) as a, Client(Endpoint.parse(urls[1])) as b:
                chance = random.Random(1).random
                return await compared((a, "m"), (b, "m"), ["hello", "there"], chance)
        finally:
            for runner in runners:
                await runner.cleanup()

    return asyncio.run(once())


EVEN, UNEVEN = [1.0] * 10, [5.0] + [1.0] * 9


def test_two_servers_are_scored_on_the_same_tokens() -> None:
    """Three tokens after each of two prompts; both directions by their definition."""
    found = asked(scorer(EVEN), scorer(UNEVEN))
    assert (found.prompts, found.positions) == (2, 6)
    assert found.forward.mean == pytest.approx(whole_kl(EVEN, UNEVEN))
    assert found.backward.mean == pytest.approx(whole_kl(UNEVEN, EVEN))
    assert found.floor_mean == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (scorer(EVEN, offers=False), "not_offered"),
        (scorer(EVEN, shift=1), "tokens_differ"),
        (web.Application(), "not_offered"),
    ],
    ids=["no logprobs", "other tokens", "no routes"],
)
def test_what_cannot_be_scored_says_why(other: web.Application, reason: str) -> None:
    """A server without prompt logprobs, or with another vocabulary."""
    with pytest.raises(NotScored) as caught:
        asked(scorer(EVEN), other)
    assert caught.value.reason == reason
