"""Running checks against a server: sends what probes ask, gives them what came back."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from heavylift import __version__
from heavylift.errors import HeavyliftError
from heavylift.records.served_model import ServedModel
from heavylift.verify.judge import result, verdict
from heavylift.verify.probes.base import Ask, Probe, Server, Situation
from heavylift.verify.records import (
    Check,
    CheckResult,
    Profile,
    Status,
    Trial,
    Verification,
)
from heavylift.verify.suites import PROBES, chosen
from heavylift.wire.client import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    Client,
    Endpoint,
    Identity,
    Limits,
    ModelCard,
    Outcome,
    Protocol,
)
from heavylift.wire.reply import ChatRequest

_ROUTES: Final[Mapping[str, Protocol]] = {
    "chat": CHAT,
    "completions": COMPLETIONS,
    "messages": MESSAGES,
}
_ALONE: Final = frozenset({"cancel", "concurrency", "needle", "parity", "same_answers", "seed"})
"""Probes whose trials run one after another: they fill the server, measure it, or compare answers
that a batch in common with others would change.
"""

_SAMPLE_CHARS: Final = 2000
_CAUTIOUS_CHARS_PER_TOKEN: Final = 3.0
"""Fewer than usual vocabularies need for English: a prompt must not overshoot its length."""

OnCheck = Callable[[CheckResult], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A verification as asked for.

    `expected` are features the model is known to have: a refusal of one is a failure.
    `answer_tokens` is the room for an answer with its thinking. `other` is a second endpoint that
    must give the same answers. `extra_results` join the report (memory, for one).
    """

    endpoint: Endpoint
    checks: tuple[Check, ...]
    profile: Profile
    prose: str
    markers: tuple[str, ...]
    model: str = ""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    expected: frozenset[str] = frozenset()
    other: Endpoint | None = None
    limits: Limits = field(default_factory=Limits)
    concurrency: int = 4
    answer_tokens: int = 1024
    context_tokens: int | None = None
    seed: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    variant: str | None = None
    release: str | None = None
    is_quantised: bool | None = None
    extra_results: tuple[CheckResult, ...] = ()


class _Verifier:
    """One verification being run."""

    def __init__(self, client: Client, other: Client | None, server: Server, wish: Wish) -> None:
        self._client = client
        self._other = other
        self._server = server
        self._wish = wish
        self._room = asyncio.Semaphore(wish.concurrency)

    async def check(self, check: Check) -> CheckResult:
        """The result of one check."""
        began_at = time.perf_counter()
        count = check.trials[self._wish.profile]
        if "other_endpoint" in check.needs and self._other is None:
            trials = [Trial(unsupported=True)]
        elif check.probe in _ALONE:
            trials = [await self._trial(check, number) for number in range(count)]
        else:
            trials = await asyncio.gather(*(self._trial(check, n) for n in range(count)))
        seconds = time.perf_counter() - began_at
        return result(check, trials, expected=self._wish.expected, seconds=seconds)

    async def _trial(self, check: Check, number: int) -> Trial:
        # Seeded by name, so that a check asks the same whichever others run.
        chance = random.Random(f"{self._wish.seed} {check.id} {number}")  # noqa: S311 - questions
        situation = Situation(
            server=self._server,
            number=number,
            chance=chance.random,
            markers=self._wish.markers,
            answer_tokens=self._wish.answer_tokens,
            prose=self._wish.prose,
            extra=self._wish.extra,
        )
        async with self._room:
            return await self._drive(PROBES[check.probe](situation, check.params))

    async def _drive(self, probe: Probe) -> Trial:
        try:
            asks = next(probe)
            while True:
                asks = probe.send(tuple(await asyncio.gather(*map(self._send, asks))))
        except StopIteration as end:
            trial: Trial = end.value
            return trial

    async def _send(self, ask: Ask) -> Outcome:
        client = self._other if ask.elsewhere and self._other is not None else self._client
        protocol = _ROUTES[ask.route]
        if ask.leave_after is None:
            return await client.chat(ask.request, protocol)
        return await _leave_early(client, ask, ask.leave_after, protocol)


async def _leave_early(client: Client, ask: Ask, chunks: int, protocol: Protocol) -> Outcome:
    """Go away in the middle; the outcome is that of an answer that was cut off by us."""
    async with client.open_chat(ask.request, protocol) as stream:
        seen = 0
        async for timed in stream:
            seen += timed.delta.is_token
            if seen >= chunks:
                return stream.abandoned()
        return stream.outcome()


async def run(wish: Wish, on_check: OnCheck) -> Verification:
    """Run the checks. Raises WIRE003 or WIRE061 when the server does not even list a model."""
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    began_at = time.perf_counter()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(wish.endpoint, limits=wish.limits))
        other = None
        if wish.other is not None:
            other = await stack.enter_async_context(Client(wish.other, limits=wish.limits))
        server = await _look(client, wish)
        identity = await client.identity()
        verifier = _Verifier(client, other, server, wish)
        checks = chosen(
            wish.checks,
            wish.profile,
            context_tokens=server.context_tokens,
            only=wish.only,
            skip=wish.skip,
        )
        results = list(wish.extra_results)
        ladder_is_broken = False
        for check in checks:
            if ladder_is_broken and check.probe == "needle":
                outcome = result(check, [Trial(unsupported=True)], expected=frozenset())
            else:
                outcome = await verifier.check(check)
            # What fails on one rung of the ladder has no better chance on the next.
            ladder_is_broken |= check.probe == "needle" and outcome.status is Status.FAIL
            results.append(outcome)
            on_check(outcome)
    return Verification(
        subject=_subject(wish, server, identity),
        profile=wish.profile,
        started_at=started_at,
        heavylift_version=__version__,
        seconds=time.perf_counter() - began_at,
        verdict=verdict(results),
        checks=tuple(results),
    )


async def _look(client: Client, wish: Wish) -> Server:
    """What there is to know of the server before the first question."""
    cards = await client.models()
    if not cards and not wish.model:
        raise HeavyliftError("WIRE061", {"url": client.endpoint.base_url})
    card = next((each for each in cards if each.id == wish.model), None)
    if card is None:
        card = ModelCard(id=wish.model) if wish.model else cards[0]
    return Server(
        model=card.id,
        listed=tuple(each.id for each in cards),
        context_tokens=wish.context_tokens or card.context_tokens or await _slot_tokens(client),
        chars_per_token=await _chars_per_token(client, card.id, wish.prose[:_SAMPLE_CHARS]),
        health=await client.health(),
    )


async def _chars_per_token(client: Client, model: str, sample: str) -> float:
    """Characters per token of the prose, from the server's own count of a prompt of it."""
    question = ({"role": "user", "content": sample},)
    outcome = await client.chat(
        ChatRequest(model=model, messages=question, stream=False, max_tokens=1)
    )
    usage = outcome.reply.usage
    if usage is None or not usage.prompt_tokens:
        return _CAUTIOUS_CHARS_PER_TOKEN
    return len(sample) / usage.prompt_tokens


async def _slot_tokens(client: Client) -> int | None:
    """The context of one sequence where the engine says it among its properties."""
    with suppress(HeavyliftError):
        props = await client.props() or {}
        settings = props.get("default_generation_settings")
        tokens = settings.get("n_ctx") if isinstance(settings, dict) else None
        return tokens if isinstance(tokens, int) else None
    return None


def _subject(wish: Wish, server: Server, identity: Identity) -> ServedModel:
    return ServedModel(
        url=wish.endpoint.base_url,
        model=server.model,
        engine=identity.engine,
        version=identity.version,
        variant=wish.variant,
        release=wish.release,
        is_quantised=wish.is_quantised,
        context_tokens=server.context_tokens,
    )
