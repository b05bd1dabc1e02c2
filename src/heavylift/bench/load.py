"""Sending load: closed and open loops over one client, a sample per request."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from heavylift.bench.prompts import Conversation
from heavylift.bench.records import Sample
from heavylift.bench.stats import tpot_s
from heavylift.wire import openai
from heavylift.wire.client import Client, Outcome
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

APART_S: Final = 0.002
"""Between the first requests of a closed loop."""

_ERROR_CHARS: Final = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """What every request of a run has in common."""

    model: str
    extra: Mapping[str, Any] = field(default_factory=dict)


OnSample = Callable[[Sample], None]


class Run:
    """One stage of load being sent. `samples` grows as requests end; `reached_limit` is set when
    an open loop had to wait for room.
    """

    def __init__(
        self,
        client: Client,
        asking: Asking,
        on_sample: OnSample | None = None,
        label: str | None = None,
    ) -> None:
        """`label` is the name of the load, for the samples."""
        self._client = client
        self._asking = asking
        self._label = label
        self._on_sample = on_sample
        self._began_at = time.perf_counter()
        self.samples: list[Sample] = []
        self.reached_limit = False

    async def closed(self, conversations: Iterable[Conversation], concurrency: int) -> None:
        """Converse, `concurrency` at once, until the conversations are used up.

        The first requests go out `APART_S` after one another: all at one moment would measure how
        fast client and server take in a burst that no users make.
        """
        waiting = iter(conversations)

        async def worker(number: int) -> None:
            await asyncio.sleep(number * APART_S)
            for conversation in waiting:
                await self._converse(conversation, self._now())

        with _quiet_collector():
            self._began_at = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for number in range(concurrency):
                    group.create_task(worker(number))

    async def open(
        self, arrivals: Iterable[tuple[float, Conversation]], in_flight_limit: int
    ) -> None:
        """Start each conversation when it is due, whether others have ended or not."""
        in_flight = 0

        async def one(conversation: Conversation, due_s: float) -> None:
            nonlocal in_flight
            try:
                await self._converse(conversation, due_s)
            finally:
                in_flight -= 1

        with _quiet_collector():
            self._began_at = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for due_s, conversation in arrivals:
                    await asyncio.sleep(max(0.0, due_s - self._now()))
                    if in_flight >= in_flight_limit:
                        # Sending fewer than was asked would be a closed loop in disguise.
                        self.reached_limit = True
                        break
                    in_flight += 1
                    group.create_task(one(conversation, due_s))

    def _now(self) -> float:
        return time.perf_counter() - self._began_at

    async def _converse(self, conversation: Conversation, due_s: float) -> None:
        messages: list[Mapping[str, Any]] = []
        for turn, content in enumerate(conversation.turns):
            messages.append({"role": "user", "content": content})
            request = ChatRequest(
                model=self._asking.model,
                messages=tuple(messages),
                max_tokens=conversation.wanted_tokens,
                extra=self._asking.extra,
            )
            outcome, sample = await self._ask(request, conversation, turn, due_s)
            self.samples.append(sample)
            if self._on_sample is not None:
                self._on_sample(sample)
            if sample.failure is not None:
                return
            messages.append(openai.as_message(outcome.reply))
            due_s = self._now()

    async def _ask(
        self, request: ChatRequest, conversation: Conversation, turn: int, due_s: float
    ) -> tuple[Outcome, Sample]:
        started_s = self._now()
        stamp_errors: list[float] = []
        in_first_chunk: int | None = None
        async with self._client.open_chat(request) as stream:
            async for timed in stream:
                delta = timed.delta
                if delta.sent_at is not None:
                    stamp_errors.append(timed.at - delta.sent_at)
                if in_first_chunk is None and delta.is_token:
                    usage = delta.usage
                    in_first_chunk = (usage and usage.completion_tokens) or 1
            outcome = stream.outcome()
        sample = _sample(
            outcome,
            conversation,
            turn,
            label=self._label,
            scheduled_s=due_s,
            started_s=started_s,
            ended_s=self._now(),
            stamp_errors=stamp_errors,
            in_first_chunk=in_first_chunk or 1,
        )
        return outcome, sample


def _sample(
    outcome: Outcome,
    conversation: Conversation,
    turn: int,
    *,
    label: str | None,
    scheduled_s: float,
    started_s: float,
    ended_s: float,
    stamp_errors: list[float],
    in_first_chunk: int,
) -> Sample:
    latency, reply, usage = outcome.latency, outcome.reply, outcome.reply.usage
    chunks = 0 if latency.ttft_s is None else len(latency.itl_s) + 1
    counted = None if usage is None else usage.completion_tokens
    tokens = chunks if counted is None else counted
    return Sample(
        index=conversation.index,
        turn=turn,
        load=label,
        prompt_digest=conversation.digest(turn),
        scheduled_s=scheduled_s,
        started_s=started_s,
        ended_s=ended_s,
        connect_s=latency.connect_s,
        ttft_s=latency.ttft_s,
        ttfa_s=latency.ttfa_s,
        tpot_s=tpot_s(latency.ttft_s, latency.last_token_s, tokens, in_first_chunk),
        e2e_s=latency.e2e_s,
        itl_s=latency.itl_s,
        stamp_error_s=tuple(stamp_errors),
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=None if usage is None else usage.cached_tokens,
        completion_tokens=tokens,
        reasoning_tokens=None if usage is None else usage.reasoning_tokens,
        tokens_in_first_chunk=in_first_chunk,
        chunks=chunks,
        counted_by_server=counted is not None,
        wanted_tokens=conversation.wanted_tokens,
        finish_reason=reply.finish_reason,
        failure=_benchmark_failure(outcome),
        status=outcome.status,
        error=None if reply.error is None else reply.error.message[:_ERROR_CHARS],
        resent=outcome.resent,
    )


_LENGTH_IS_NO_FAILURE: Final = (Failure.TRUNCATED_THINKING, Failure.EMPTY)


def _benchmark_failure(outcome: Outcome) -> Failure | None:
    """The failure as a benchmark sees it.

    An answer cut at the length asked for is what was asked for, also inside the thinking.
    """
    cut_as_asked = outcome.reply.finish_reason == "length" and outcome.latency.ttft_s is not None
    if cut_as_asked and outcome.failure in _LENGTH_IS_NO_FAILURE:
        return None
    return outcome.failure


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """No garbage collection inside the block: its pauses would be measured as the server's."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
