"""Running checks against a server: sends what probes ask, gives them what came back."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final
from urllib.parse import urlsplit

from heavylift import __version__
from heavylift.errors import HeavyliftError
from heavylift.records.plan import Plan
from heavylift.records.served_model import ServedModel
from heavylift.telemetry import engine_queue
from heavylift.telemetry.collect_gpus import Command
from heavylift.telemetry.engine_queue import MetricNames
from heavylift.telemetry.gpu_watch import PERIOD_S, GpuWatch, is_here
from heavylift.telemetry.process_watch import ProcessWatch
from heavylift.verify.drift import HostSide, Point, drift_results
from heavylift.verify.judge import Tally, verdict
from heavylift.verify.memory import gpu_results
from heavylift.verify.probes.base import Ask, MakeProbe, Probe, Remote, Server, Situation
from heavylift.verify.records import (
    Check,
    CheckResult,
    Profile,
    Status,
    Trial,
    Verification,
)
from heavylift.verify.remote import PictureHost
from heavylift.verify.suites import PROBES, chosen
from heavylift.wire.client import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Client,
    Endpoint,
    Identity,
    Limits,
    ModelCard,
    Outcome,
    Protocol,
)
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

_ROUTES: Final[Mapping[str, Protocol]] = {
    "chat": CHAT,
    "completions": COMPLETIONS,
    "messages": MESSAGES,
    "responses": RESPONSES,
}
_ALONE: Final = frozenset(
    {"cancel", "concurrency", "just_over", "needle", "parity"}
    | {"remembered", "same", "seed", "together"}
)
"""Probes whose trials run one after another: they fill the server, measure it, or compare answers
that a batch in common with others would change.
"""

_STEADY: Final = "healthy_text"
"""The probe whose latencies can be compared over time: always the same question."""
_LADDER: Final = "needle"
_REMOTE: Final = "remote_picture"
_METRICS_S: Final = 0.25
_SAMPLE_CHARS: Final = 2000
_CAUTIOUS_CHARS_PER_TOKEN: Final = 3.0
"""Fewer than usual vocabularies need for English: a prompt must not overshoot its length."""

OnCheck = Callable[[CheckResult], None]
OnRound = Callable[[int, float], None]
"""Called after each round of a soak with its number, from 1, and the seconds since the start."""

_SOAK_READ_S: Final = 5.0
"""Between two looks at the GPUs in a run of hours."""
_WHOLE: Final = frozenset(
    {None, Failure.EMPTY, Failure.TRUNCATED_THINKING, Failure.TOOL_ARGUMENTS_INVALID}
    | {Failure.BAD_REQUEST, Failure.CONTEXT_TOO_LONG, Failure.NOT_FOUND}
    | {Failure.TOOL_CALLS_LOST, Failure.MARKER_LEAK}
)
"""What a reply that arrived whole may still be: wrong is not lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A verification as asked for.

    `expected` are features the model is known to have: a refusal of one is a failure.
    `answer_tokens` is the room for an answer with its thinking. `other` is a second endpoint that
    must give the same answers. `probes` are the user's own. `extra_results` join the report.
    `soak_s`: the checks are gone through again and again for so long. `gpu_command` is asked about
    the GPUs meanwhile (None = nothing is); `plan` is what their memory is held against.
    `metric_names`: see `MetricNames`. `earlier`: what an earlier release answered.
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
    probes: Mapping[str, MakeProbe] = field(default_factory=dict)
    soak_s: float = 0.0
    gpu_command: Command | None = None
    plan: Plan | None = None
    metric_names: MetricNames = field(default_factory=dict)
    earlier: Mapping[str, str] = field(default_factory=dict)


class _Verifier:
    """One verification being run."""

    def __init__(
        self, client: Client, other: Client | None, server: Server, wish: Wish, remote: Remote
    ) -> None:
        self._client = client
        self._other = other
        self._remote = remote
        self._server = server
        self._wish = wish
        self._room = asyncio.Semaphore(wish.concurrency)
        self._began_at = time.perf_counter()
        self.requests = self.lost = 0
        self.answers: dict[str, str] = {}
        self.latencies: dict[str, list[Point]] = {"first_token": [], "pace": []}

    async def round(
        self, check: Check, number: int, *, hopeless: bool
    ) -> tuple[list[Trial], float]:
        """The trials of a check in a round, from 0, and the seconds that they took."""
        began_at = time.perf_counter()
        if hopeless:
            return [Trial(reason="lower_rung_failed", undecided=True)], 0.0
        trials = await self.trials(check, number * check.trials[self._wish.profile])
        return trials, time.perf_counter() - began_at

    async def trials(self, check: Check, passed_over: int) -> list[Trial]:
        """One round of trials of a check, numbered on from those before."""
        asked = check.trials[self._wish.profile]
        numbers = range(passed_over, passed_over + asked)
        if "other_endpoint" in check.needs and self._other is None:
            return [Trial(unsupported=True)]
        if check.probe == _LADDER:
            return [await self._watched(check, number) for number in numbers]
        if check.probe in _ALONE:
            return [await self._trial(check, number) for number in numbers]
        trials = await asyncio.gather(*(self._in_time(check, number, asked) for number in numbers))
        return [trial for trial in trials if trial is not None]

    async def _in_time(self, check: Check, number: int, first_round: int) -> Trial | None:
        """A trial; None in a later round of a soak whose time is over."""
        async with self._room:
            is_over = time.perf_counter() - self._began_at >= self._wish.soak_s
            if number >= first_round and is_over:
                return None
            return await self._trial(check, number)

    async def _watched(self, check: Check, number: int) -> Trial:
        """A trial with the most that the engine's cache was in use meanwhile, where it tells."""
        uses: list[float] = []

        async def watch() -> None:
            with suppress(HeavyliftError):
                while (page := await self._client.page("/metrics")) is not None:
                    use = engine_queue.read(page, self._wish.metric_names).kv_use_ratio
                    uses.append(0.0 if use is None else use)
                    await asyncio.sleep(_METRICS_S)

        watching = asyncio.create_task(watch())
        try:
            trial = await self._trial(check, number)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if not any(uses):
            return trial
        return replace(trial, figures={**trial.figures, "kv_use_ratio": max(uses)})

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
            earlier=self._wish.earlier,
            remote=self._remote,
        )
        trial = await self._driven(check, situation)
        if trial.answer is not None:
            question, said = trial.answer
            self.answers[question] = said
        if check.probe == _STEADY:
            at_s = time.perf_counter() - self._began_at
            for name, figure in (("first_token", "ttft_s"), ("pace", "gap_s")):
                if figure in trial.figures:
                    self.latencies[name].append((at_s, trial.figures[figure]))
        return trial

    async def _driven(self, check: Check, situation: Situation) -> Trial:
        own = self._wish.probes.get(check.probe)
        if own is None:
            return await self._drive(PROBES[check.probe](situation, check.params))
        try:
            return await self._drive(own(situation, check.params))
        except HeavyliftError:
            raise
        except Exception as problem:  # noqa: BLE001 - the user's code: its mistake is a finding
            evidence = f"{type(problem).__name__}: {problem}"
            return Trial(reason="probe_error", evidence=evidence, undecided=True)

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
            outcome = await client.chat(ask.request, protocol)
            self._note(outcome)
            return outcome
        return await _leave_early(client, ask, ask.leave_after, protocol)

    def _note(self, outcome: Outcome) -> None:
        self.requests += 1
        self.lost += outcome.failure not in _WHOLE


async def _leave_early(client: Client, ask: Ask, chunks: int, protocol: Protocol) -> Outcome:
    """Go away in the middle; the outcome is that of an answer that was cut off by us."""
    async with client.open_chat(ask.request, protocol) as stream:
        seen = 0
        async for timed in stream:
            seen += timed.delta.is_token
            if seen >= chunks:
                return stream.abandoned()
        return stream.outcome()


async def run(
    wish: Wish, on_check: OnCheck, on_round: OnRound = lambda _number, _seconds: None
) -> Verification:
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
        period_s = _SOAK_READ_S if wish.soak_s > _SOAK_READ_S**2 else PERIOD_S
        watch = await stack.enter_async_context(GpuWatch(wish.gpu_command, period_s))
        processes = await stack.enter_async_context(ProcessWatch(_port_here(wish), period_s))
        checks = chosen(
            wish.checks,
            wish.profile,
            context_tokens=server.context_tokens,
            only=wish.only,
            skip=wish.skip,
        )
        asks_for_them = any(check.probe == _REMOTE for check in checks)
        near = asks_for_them and is_here(wish.endpoint.base_url)
        pictures = await stack.enter_async_context(PictureHost(reachable=near))
        verifier = _Verifier(client, other, server, wish, pictures)
        found = await _rounds(verifier, checks, wish, on_check, on_round)
    results = [*wish.extra_results, *found, *_of_the_run(verifier, watch, processes, wish)]
    return Verification(
        subject=_subject(wish, server, identity),
        profile=wish.profile,
        started_at=started_at,
        heavylift_version=__version__,
        seconds=time.perf_counter() - began_at,
        verdict=verdict(results),
        checks=tuple(results),
        answers=verifier.answers,
        narrowed=bool(wish.only or wish.skip),
    )


async def _rounds(
    verifier: _Verifier,
    checks: Sequence[Check],
    wish: Wish,
    on_check: OnCheck,
    on_round: OnRound,
) -> list[CheckResult]:
    """The checks once, and in a soak again until its time is over.

    The first round is whole, or some checks would have no trial; a later one ends with the time.
    """
    began_at = time.perf_counter()
    tallies = {check.id: Tally(check, expected=wish.expected) for check in checks}
    number = 0
    while True:
        ladder_is_broken = False
        for batch in _batches(checks, together=not wish.soak_s):
            if number and time.perf_counter() - began_at >= wish.soak_s:
                break
            # What fails on one rung of the ladder has no better chance on the next.
            hopeless = ladder_is_broken and batch[0].probe == _LADDER
            rounds = await asyncio.gather(
                *(verifier.round(check, number, hopeless=hopeless) for check in batch)
            )
            for check, (trials, seconds) in zip(batch, rounds, strict=True):
                tally = tallies[check.id]
                tally.add(trials, seconds)
                if check.probe == _LADDER:
                    ladder_is_broken |= tally.result().status is Status.FAIL
                if number == 0:
                    on_check(tally.result())
        number += 1
        seconds = time.perf_counter() - began_at
        if not checks or seconds >= wish.soak_s:
            return [tally.result() for tally in tallies.values()]
        on_round(number, seconds)


def _batches(checks: Sequence[Check], *, together: bool) -> Iterator[tuple[Check, ...]]:
    """Checks that may be under way at once, in their order: neighbours that need no server to
    themselves. Not in a soak, whose latencies are compared over hours.
    """
    if not together:
        yield from ((check,) for check in checks)
        return
    for is_alone, group in groupby(checks, key=lambda check: check.probe in _ALONE):
        if is_alone:
            yield from ((check,) for check in group)
        else:
            yield tuple(group)


def _of_the_run(
    verifier: _Verifier, watch: GpuWatch, processes: ProcessWatch, wish: Wish
) -> Iterator[CheckResult]:
    """What only the run as a whole can say: memory of the GPUs, drift."""
    memory = gpu_results(watch.points, wish.plan)
    if "memory" not in wish.skip and (not wish.only or "memory" in wish.only):
        yield from memory
    if wish.soak_s:
        chance = random.Random(wish.seed).random  # noqa: S311 - resampling, not secrecy
        host = None
        if processes.serving is not None:
            host = HostSide(
                name=f"{processes.serving.name} ({processes.serving.pid})",
                points=processes.points,
                available_bytes=processes.available_bytes,
                waits=processes.waits,
            )
        yield from drift_results(
            verifier.latencies, watch.points, (verifier.requests, verifier.lost), chance, host
        )


def _port_here(wish: Wish) -> int | None:
    """The port whose processes a soak watches; None for another machine's, or without a soak."""
    if not wish.soak_s or not is_here(wish.endpoint.base_url):
        return None
    address = urlsplit(wish.endpoint.base_url)
    return address.port or (443 if address.scheme == "https" else 80)


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
