"""Health: probes every worker, and tells the fleet. Health means progress, not HTTP 200.

A list of models is answered by front ends whose engine is dead, so it is enough only for a worker
that was well until now. One that is out, or that has open requests and has been silent for long,
has to generate a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from heavylift.errors import HeavyliftError
from heavylift.gateway.config import Times
from heavylift.gateway.routing import Fleet, State, Worker
from heavylift.wire.client import Client, Endpoint, Limits, ModelCard
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

_STALLED = "no_progress"
_NOT_READY = "not_ready"

# An answer of this kind shows that the engine is there, even where it does not chat.
_ALIVE = frozenset(
    {
        Failure.BAD_REQUEST,
        Failure.NOT_FOUND,
        Failure.CONTEXT_TOO_LONG,
        Failure.RATE_LIMITED,
        Failure.EMPTY,
        Failure.TRUNCATED_THINKING,
        Failure.TOOL_CALLS_LOST,
        Failure.MARKER_LEAK,
    }
)


class Health:
    """One probing task per worker."""

    def __init__(
        self,
        fleet: Fleet,
        times: Times,
        worker_key: str | None,
        on_stalled: Callable[[Worker], None],
    ) -> None:
        """`on_stalled` gets a worker that was thrown out for want of progress."""
        self._fleet = fleet
        self._times = times
        self._key = worker_key
        self._on_stalled = on_stalled

    async def run(self) -> None:
        """Probe until cancelled."""
        async with asyncio.TaskGroup() as group:
            for worker in self._fleet.workers.values():
                group.create_task(self._look_after(worker))

    async def first_look(self) -> None:
        """Probe every worker once, so that the first request meets workers that are known."""
        await asyncio.gather(*(self._look_once(worker) for worker in self._fleet.workers.values()))

    async def _look_once(self, worker: Worker) -> None:
        async with self._client(worker) as client:
            await self._admit(worker, client)

    async def _look_after(self, worker: Worker) -> None:
        async with self._client(worker) as client:
            listed_at = time.monotonic()
            while True:
                await asyncio.sleep(self._times.probe_s)
                now = time.monotonic()
                if worker.state is not State.IN:
                    await self._admit(worker, client)
                elif self._fleet.stalled(worker, self._times.stall_s, now):
                    await self._suspect(worker, client)
                elif now - listed_at >= self._times.refresh_s:
                    listed_at = now
                    await self._refresh(worker, client)

    def _client(self, worker: Worker) -> Client:
        wait_s = self._times.probe_timeout_s
        limits = Limits(connect_s=self._times.connect_s, first_byte_s=wait_s, total_s=wait_s)
        return Client(Endpoint(base_url=worker.upstream.url, key=self._key), limits=limits)

    async def _admit(self, worker: Worker, client: Client) -> None:
        """Let a worker in that lists its models and generates a token."""
        reason = _NOT_READY
        try:
            cards = await client.models()
        except HeavyliftError as problem:
            cards, reason = (), str(problem.params.get("failure", _NOT_READY))
        if cards and await self._generates(client, cards[0].id):
            self._listed(worker, cards)
        elif worker.state is State.UNKNOWN:
            self._fleet.throw_out(worker, reason)

    async def _suspect(self, worker: Worker, client: Client) -> None:
        """Look into a worker that sends nothing to anybody."""
        if await self._generates(client, worker.models[0]):
            self._fleet.probe_succeeded(worker)
            # Its silence has been looked into: the next look is due after as long again.
            worker.progress_at = time.monotonic()
            return
        self._fleet.probe_failed(worker, _STALLED, self._times.probe_misses)
        if worker.state is State.OUT:
            self._on_stalled(worker)

    async def _refresh(self, worker: Worker, client: Client) -> None:
        cards = await self._models(client)
        if cards:
            self._listed(worker, cards)
        else:
            self._fleet.probe_failed(worker, "no_model_list", self._times.probe_misses)

    def _listed(self, worker: Worker, cards: tuple[ModelCard, ...]) -> None:
        contexts = {c.id: c.context_tokens for c in cards if c.context_tokens is not None}
        self._fleet.probe_succeeded(worker, tuple(card.id for card in cards), contexts)

    async def _models(self, client: Client) -> tuple[ModelCard, ...]:
        with contextlib.suppress(HeavyliftError):
            return await client.models()
        return ()

    async def _generates(self, client: Client, model: str) -> bool:
        request = ChatRequest(
            model=model,
            messages=({"role": "user", "content": "."},),
            max_tokens=1,
            stream=False,
        )
        outcome = await client.chat(request)
        return outcome.failure is None or outcome.failure in _ALIVE
