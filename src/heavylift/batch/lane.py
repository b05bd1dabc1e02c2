"""One endpoint of a run: how a row is sent to it, what it says of itself, what a row came to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from heavylift.batch import lines, policy, routes, schema
from heavylift.batch.policy import Gate, History, Limiter
from heavylift.batch.records import Claim, Settled, State
from heavylift.batch.routes import Reading
from heavylift.errors import HeavyliftError
from heavylift.telemetry import engine_queue
from heavylift.telemetry.engine_queue import MetricNames
from heavylift.wire.client import Client, WholeReply
from heavylift.wire.failures import ErrorBody, Failure
from heavylift.wire.reply import ChatRequest

_METRICS_S: Final = 2.0
_MEMORY_S: Final = 5.0

AskMemory = Callable[[], Awaitable[tuple[int, ...] | None]]
"""Asks for the memory in use on each GPU behind an endpoint, in bytes; None = nobody tells."""
MemoryOf = Callable[[str], AskMemory | None]
"""The way to ask about an endpoint by its address; None where there is none."""


class Row:
    """A row on its way. `body` is what is sent next; it differs from the input's after a repair."""

    __slots__ = ("body", "check", "claim", "custom_id", "failures", "history", "tokens", "url")

    def __init__(self, claim: Claim, text: bytes) -> None:
        line = lines.INPUT.decode(text)
        self.claim = claim
        self.custom_id = line.custom_id
        self.url = line.url
        self.body = bytes(line.body)
        self.history = History()
        self.failures: list[str] = []
        self.tokens = (0, 0)
        """Prompt and completion tokens of all its attempts so far."""
        self.check: schema.Check | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One try of a row: the reply and how it was read."""

    reply: WholeReply
    reading: Reading
    sent_at: float
    ended_at: float

    @property
    def failure(self) -> Failure | None:
        """Why it was not a good answer; None = it was."""
        return self.reply.failure or self.reading.failure

    @property
    def error(self) -> ErrorBody | None:
        """What was said of it: by whoever read the answer, else by the server."""
        return self.reading.error or self.reply.error


@dataclass(slots=True)
class Lane:
    """One endpoint of a run: a client, a limiter, a gate, and what it last said of itself."""

    client: Client
    limiter: Limiter
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    gate: Gate = field(default_factory=Gate)
    slots: int = 0
    in_flight: int = 0
    kv_use_ratio: float | None = None
    ask_memory: AskMemory | None = None
    gpu_memory_bytes: tuple[int, ...] | None = None
    asking: asyncio.Task[None] | None = None
    """Asks a broken endpoint how it is."""

    @property
    def name(self) -> str:
        """The endpoint's address, as the log names it."""
        return self.client.endpoint.base_url

    async def send(self, row: Row, *, stream: bool) -> Attempt:
        """Send a row once and read the reply; streamed where that was asked for and can be."""
        sent_at = self.clock()
        body = msgspec.json.decode(row.body) if stream else None
        if body is not None and routes.can_stream(row.url, body):
            reply, reading = await self._streamed(row, body)
        else:
            reply = await self.client.post(row.url, row.body)
            reading = Reading() if reply.failure else routes.read(row.url, reply.body)
        if reply.failure is None and reading.failure is None and row.check is not None:
            defects = row.check(reading.text)
            if defects is not None:
                error = ErrorBody(message=defects)
                reading = msgspec.structs.replace(
                    reading, failure=Failure.SCHEMA_INVALID, error=error
                )
        return Attempt(reply=reply, reading=reading, sent_at=sent_at, ended_at=self.clock())

    async def _streamed(self, row: Row, body: dict[str, Any]) -> tuple[WholeReply, Reading]:
        request = ChatRequest(
            model=body.pop("model"), messages=tuple(body.pop("messages")), extra=body
        )
        outcome = await self.client.chat(request)
        request_id = outcome.request_id or f"batch-{row.claim.seq}"
        created = int(self.wall_clock())
        whole = WholeReply(
            latency=outcome.latency,
            started_at=outcome.started_at,
            body=routes.whole_chat(outcome.reply, request.model, created, request_id),
            failure=outcome.failure,
            error=outcome.reply.error,
            status=outcome.status,
            retry_after_s=outcome.retry_after_s,
            request_id=outcome.request_id,
        )
        return whole, routes.of_chat(outcome.reply)

    async def watch_queue(self, names: MetricNames) -> None:
        """Look at the engine's queue now and then, while it shows one."""
        while True:
            await asyncio.sleep(_METRICS_S)
            try:
                page = await self.client.page("/metrics")
            except HeavyliftError:
                continue  # it is not well, which the requests notice by themselves
            if page is None:
                return
            queue = engine_queue.read(page, names)
            self.kv_use_ratio = queue.kv_use_ratio
            if queue.running is None or queue.waiting is None:
                continue
            self.limiter = policy.queued(
                self.limiter, running=queue.running, waiting=queue.waiting, now=self.clock()
            )

    async def watch_memory(self) -> None:
        """Look at the memory of the GPUs behind it, where somebody knows how."""
        if self.ask_memory is None:
            return
        while True:
            self.gpu_memory_bytes = await self.ask_memory()
            if self.gpu_memory_bytes is None:
                return
            await asyncio.sleep(_MEMORY_S)


def settled(lane: Lane, row: Row, attempt: Attempt) -> Settled:
    """The outcome of a row whose last attempt this was, with its lines in the files and the log."""
    failure = attempt.failure
    attempts = row.history.sent + (1 if failure is None else 0)
    prompt, completion = row.tokens
    return Settled(
        seq=row.claim.seq,
        state=State.OK if failure is None else State.FAILED,
        line=_output(row, attempt),
        log=_log(lane, row, attempt, attempts),
        attempts=attempts,
        reason=None if failure is None else str(failure),
        prompt_tokens=prompt,
        completion_tokens=completion,
    )


def _output(row: Row, attempt: Attempt) -> bytes:
    failure, reply = attempt.failure, attempt.reply
    row_id = f"batch_req_{row.claim.seq:08d}"
    request_id = reply.request_id or row_id
    if failure is None:
        return lines.ok_line(
            row_id,
            row.custom_id,
            status=reply.status or 200,
            request_id=request_id,
            body=reply.body,
        )
    error = attempt.error
    return lines.error_line(
        row_id,
        row.custom_id,
        code=str(failure),
        message=str(failure) if error is None else error.message,
        status=reply.status,
        request_id=request_id,
        body=reply.body,
    )


def _log(lane: Lane, row: Row, attempt: Attempt, attempts: int) -> bytes:
    reply = attempt.reply
    prompt, completion = row.tokens
    return lines.log_line(
        row.custom_id,
        lines.LogEntry(
            line=row.claim.line,
            status="ok" if attempt.failure is None else "failed",
            endpoint=lane.name,
            ended_at=lane.wall_clock(),
            attempts=attempts,
            http_status=reply.status,
            request_id=reply.request_id,
            prompt_tokens=prompt,
            completion_tokens=completion,
            finish_reason=attempt.reading.finish_reason,
            failures=tuple(row.failures),
            error=attempt.error,
            kv_use_ratio=lane.kv_use_ratio,
            gpu_memory_bytes=lane.gpu_memory_bytes,
        ),
        reply.latency,
    )
