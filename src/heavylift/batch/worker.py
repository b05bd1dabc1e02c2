"""The worker: sends the rows of a ledger to the endpoints and records what became of them.

One event loop. Each endpoint has a lane: a client, a limiter, a gate, and slots, which are tasks
that each carry one request at a time. Lanes draw from one queue, so a faster endpoint draws more.
The ledger is written to by one thread, a group at a time; only what it has returned for is counted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

import msgspec

from heavylift.batch import policy, routes, schema
from heavylift.batch.lane import Attempt, Lane, MemoryOf, Row, settled
from heavylift.batch.outputs import Ledger
from heavylift.batch.policy import Action, History
from heavylift.batch.records import Claim, Progress, Settings, Settled
from heavylift.batch.routes import Reading
from heavylift.batch.store import CANCELLED
from heavylift.telemetry.engine_queue import MetricNames
from heavylift.wire.client import Client, Endpoint, Limits
from heavylift.wire.failures import Failure

SIGNAL: Final = "signal"
LIMIT: Final = "limit_"
"""How the reasons of `Budget.exhausted` begin."""

_GROUP_S: Final = 0.1
"""How long outcomes are gathered for one commit: short beside a generation, long beside a sync."""
_IDLE_S: Final = 0.5
"""How often the worker looks up when nothing happens: cancellation, limits, patience."""
_HEALTH_S: Final = 10.0
_HEALTH_BASE_S: Final = 0.5
_HEALTH_CAP_S: Final = 30.0
_PROGRESS_S: Final = 0.5
_RATE_WINDOW_S: Final = 10.0
_MILLION: Final = 1e6

Random = Callable[[], float]
OnProgress = Callable[[Progress], None]


class Worker:
    """One run over a ledger. Call `run` once; `stop` asks it to end from the same thread."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        *,
        metric_names: MetricNames,
        key: str | None = None,
        checks: Callable[[Row], schema.Check | None] | None = None,
        on_progress: OnProgress | None = None,
        memory_of: MemoryOf | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        chance: Random = random.random,
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._metric_names = metric_names
        self._key = key
        self._checks = checks
        self._on_progress = on_progress
        self._memory_of = memory_of
        self._clock = clock
        self._wall_clock = wall_clock
        self._chance = chance
        self._lanes: list[Lane] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: deque[Row] = deque()
        self._flying: dict[int, Row] = {}
        self._resting: dict[int, tuple[Row, asyncio.TimerHandle]] = {}
        self._done: list[Settled] = []
        self._drained = False
        """The journal has no more rows to offer."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._wake = asyncio.Event()
        self._stopped: str | None = None
        self._broken_off: list[int] = []
        self._had_success = False
        self._began_at = clock()
        self._failed: BaseException | None = None
        self._last_group = 0
        self._seen: deque[tuple[float, int, int]] = deque()
        self._shown_at = 0.0
        caps = (settings.requests_per_minute, settings.tokens_per_minute)
        self._requests, self._tokens = (
            None if cap is None else policy.per_minute(cap, self._began_at) for cap in caps
        )

    async def run(self) -> str | None:
        """Why it stopped before the end; None = every row has an outcome.

        Raises BAT010 when the disk fails; the rows of the last moments will then be sent again.
        """
        async with AsyncExitStack() as stack:
            for url in self._settings.endpoints:
                await self._open_lane(stack, url)
            helpers = [
                asyncio.create_task(watching)
                for lane in self._lanes
                for watching in (lane.watch_queue(self._metric_names), lane.watch_memory())
            ]
            try:
                with ThreadPoolExecutor(1, "ledger") as thread:
                    await self._keep_ledger(thread)
            finally:
                await self._end_tasks(helpers)
        return self._stopped

    def stop(self, reason: str) -> None:
        """End the run: nothing new is sent, what is in flight may finish for `drain_s`."""
        if self._stopped is not None:
            self._break_off()
            return
        self._stopped = reason
        self._release_waiters()
        self._wake.set()
        if reason == CANCELLED:
            self._break_off()
        elif not reason.startswith(LIMIT):
            asyncio.get_running_loop().call_later(self._settings.drain_s, self._break_off)

    def _break_off(self) -> None:
        """Close the sockets of what is in flight, so that the engine stops generating."""
        for task in self._tasks:
            task.cancel()

    async def _open_lane(self, stack: AsyncExitStack, url: str) -> None:
        clocks = self._settings.clocks
        limits = Limits(
            connect_s=clocks.connect_s,
            first_byte_s=clocks.first_byte_s,
            gap_s=clocks.gap_s,
            total_s=clocks.total_s,
        )
        client = Client(Endpoint.parse(url, self._key), limits=limits, clock=self._clock)
        await stack.enter_async_context(client)
        ceiling = self._settings.concurrency
        limiter = policy.pinned(ceiling) if self._settings.pinned else policy.adaptive(ceiling)
        ask_memory = None if self._memory_of is None else self._memory_of(url)
        self._lanes.append(
            Lane(
                client=client,
                limiter=limiter,
                clock=self._clock,
                wall_clock=self._wall_clock,
                ask_memory=ask_memory,
            )
        )

    async def _end_tasks(self, helpers: list[asyncio.Task[None]]) -> None:
        for _, timer in self._resting.values():
            timer.cancel()
        asking = [lane.asking for lane in self._lanes if lane.asking is not None]
        for task in (*helpers, *asking, *self._tasks):
            task.cancel()
        await asyncio.gather(*helpers, *asking, *self._tasks, return_exceptions=True)

    # --- the ledger ------------------------------------------------------------------------------

    async def _keep_ledger(self, thread: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while True:
            outcomes, self._done = self._done, []
            broken_off, self._broken_off = self._broken_off, []
            unsent = self._take_back() if self._stopped is not None else []
            want = self._want(len(outcomes))
            if outcomes or broken_off or unsent or want:
                claims = await loop.run_in_executor(
                    thread, self._record, outcomes, want, unsent, broken_off
                )
                if want:
                    self._drained = len(claims) < want
                self._ready.extend(Row(claim, text) for claim, text in claims)
            self._last_group = len(outcomes)
            self._look_around()
            if self._is_over():
                return
            self._staff()
            await self._rest(low=bool(self._want(0)) and not self._drained)

    def _record(
        self, outcomes: list[Settled], want: int, unsent: list[int], broken_off: list[int]
    ) -> list[tuple[Claim, bytes]]:
        return self._ledger.record(outcomes, want=want, unsent=unsent, broken_off=broken_off)

    async def _rest(self, *, low: bool) -> None:
        """Gather outcomes for a moment; while nothing happens, wait for something to happen."""
        if self._failed is not None:
            raise self._failed
        if low:
            await asyncio.sleep(0)
            return
        self._wake.clear()
        if not self._done:
            try:
                async with asyncio.timeout(_IDLE_S):
                    await self._wake.wait()
            except TimeoutError:
                return
        if self._stopped is None:
            await asyncio.sleep(_GROUP_S)

    def _want(self, just_settled: int) -> int:
        """How many rows to claim: enough for the slots until the next commit, and few enough that
        a crash leaves few in doubt.
        """
        if self._stopped is not None:
            return 0
        slots = sum(lane.gate.room(lane.limiter.whole, self._clock()) for lane in self._lanes)
        ahead = max(slots, 2 * max(just_settled, self._last_group))
        # Rows that rest after a failure hold their claims: not too many of them at once.
        if len(self._resting) > 4 * self._settings.concurrency:
            return 0
        idle = slots - len(self._flying)
        missing = ahead + max(0, idle) - len(self._ready)
        return missing if missing * 2 > ahead or not self._ready else 0

    def _take_back(self) -> list[int]:
        unsent = [row.claim.seq for row in self._ready if row.history == History()]
        self._broken_off += [row.claim.seq for row in self._ready if row.history != History()]
        self._ready.clear()
        for seq, (_, timer) in self._resting.items():
            timer.cancel()
            self._broken_off.append(seq)
        self._resting.clear()
        return unsent

    def _is_over(self) -> bool:
        idle = not (self._done or self._broken_off or self._flying or self._ready or self._resting)
        return idle and (self._drained or self._stopped is not None)

    def _look_around(self) -> None:
        """Notice what ends a run early, and tell how it goes."""
        now = self._clock()
        self._show(now)
        if self._stopped is not None:
            if self._stopped != CANCELLED and self._is_cancelled():
                self._stopped = CANCELLED
                self._break_off()
            return
        counts = self._ledger.counts
        reason = self._settings.budget.exhausted(
            counts.prompt_tokens, counts.completion_tokens, now - self._began_at
        )
        gates = tuple(lane.gate for lane in self._lanes)
        reason = reason or policy.hopeless(
            gates, self._settings.patience, now=now, had_success=self._had_success
        )
        if self._is_cancelled():
            reason = CANCELLED
        if reason is not None:
            self.stop(str(reason))

    def _is_cancelled(self) -> bool:
        return self._ledger.journal.get("cancelled", bool) is True

    def _show(self, now: float) -> None:
        counts = self._ledger.counts
        self._seen.append((now, counts.ok + counts.failed, counts.completion_tokens))
        while now - self._seen[0][0] > _RATE_WINDOW_S:
            self._seen.popleft()
        if self._on_progress is None or now - self._shown_at < _PROGRESS_S:
            return
        self._shown_at = now
        then, rows, tokens = self._seen[0]
        span = now - then
        per_s = (counts.ok + counts.failed - rows) / span if span > 0 else None
        closed = [lane.gate for lane in self._lanes if lane.gate.room(1, now) == 0]
        waiting = closed[0].last_failure if len(closed) == len(self._lanes) else None
        self._on_progress(
            Progress(
                counts=counts,
                in_flight=len(self._flying),
                limit=sum(lane.limiter.whole for lane in self._lanes),
                rows_per_s=per_s,
                tokens_per_s=(counts.completion_tokens - tokens) / span if span > 0 else None,
                eta_s=counts.left / per_s if per_s else None,
                waiting_for=waiting,
                answered=self._had_success,
            )
        )

    # --- slots -----------------------------------------------------------------------------------

    def _staff(self) -> None:
        """As many slots as each limiter allows, and no idle one asleep when there is work."""
        for lane in self._lanes:
            # No more slots than there could be work for.
            wanted = min(lane.limiter.whole, lane.in_flight + len(self._ready))
            while lane.slots < wanted:
                lane.slots += 1
                task = asyncio.create_task(self._slot(lane))
                self._tasks.add(task)
                task.add_done_callback(self._ended)
        self._release_waiters(len(self._ready))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()
        self._wake.set()

    def _release_waiters(self, most: int | None = None) -> None:
        count = len(self._waiters) if most is None else min(most, len(self._waiters))
        for _ in range(count):
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def _slot(self, lane: Lane) -> None:
        try:
            while (row := await self._next(lane)) is not None:
                self._flying[row.claim.seq] = row
                lane.in_flight += 1
                try:
                    await self._try(lane, row)
                except asyncio.CancelledError:
                    self._broken_off.append(row.claim.seq)
                    raise
                finally:
                    lane.in_flight -= 1
                    del self._flying[row.claim.seq]
        finally:
            lane.slots -= 1

    async def _next(self, lane: Lane) -> Row | None:
        """The next row for a slot; None when the slot is one too many."""
        while self._stopped is None:
            now = self._clock()
            if lane.slots > lane.limiter.whole:
                return None
            if self._ready and lane.in_flight < lane.gate.room(lane.limiter.whole, now):
                wait_s = self._cap_wait_s(now)
                if wait_s <= 0:
                    return self._ready.popleft()
                await asyncio.sleep(wait_s)
                continue
            self._wake.set()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return None

    def _cap_wait_s(self, now: float) -> float:
        """Seconds until the rate caps let one more request go; takes it when they do."""
        waits = [bucket.wait_s(now) for bucket in (self._requests, self._tokens) if bucket]
        longest = max(waits, default=0.0)
        if longest <= 0 and self._requests is not None:
            self._requests = self._requests.taken(now)
        return longest

    # --- one try ---------------------------------------------------------------------------------

    async def _try(self, lane: Lane, row: Row) -> None:
        if row.check is None and self._checks is not None:
            row.check = self._checks(row)
        attempt = await lane.send(row, stream=self._settings.stream)
        self._note_endpoint(lane, attempt)
        self._note_tokens(row, attempt.reading)
        if attempt.failure is None:
            self._had_success = True
            self._settle(settled(lane, row, attempt))
        else:
            self._after_failure(lane, row, attempt, attempt.failure)

    def _note_endpoint(self, lane: Lane, attempt: Attempt) -> None:
        failure, now = attempt.failure, attempt.ended_at
        if failure is None:
            lane.gate = policy.succeeded(lane.gate)
            lane.limiter = policy.finished(
                lane.limiter,
                sent_at=attempt.sent_at,
                now=now,
                units=attempt.reading.completion_tokens or 1,
                busy=lane.in_flight >= lane.limiter.whole,
            )
            return
        lane.gate = policy.failed(
            lane.gate,
            failure,
            sent_at=attempt.sent_at,
            now=now,
            chance=self._chance(),
            retry_after_s=attempt.reply.retry_after_s,
        )
        if policy.wants_room(failure):
            lane.limiter = policy.overloaded(lane.limiter, sent_at=attempt.sent_at, now=now)
        if lane.gate.is_broken and lane.asking is None:
            lane.asking = asyncio.create_task(self._ask_health(lane))
        if lane.gate.opens_at > now:
            delay = lane.gate.opens_at - now
            asyncio.get_running_loop().call_later(delay, self._release_waiters)

    async def _ask_health(self, lane: Lane) -> None:
        """Ask a broken endpoint how it is until it says well, or has no way to say."""
        times = 0
        while lane.gate.is_broken:
            times += 1
            try:
                async with asyncio.timeout(_HEALTH_S):
                    failure = await lane.client.health()
            except TimeoutError:
                failure = Failure.TIMEOUT_TOTAL
            if failure in (None, Failure.NOT_FOUND):
                lane.gate = policy.healthy(lane.gate)
                break
            wait_s = policy.backoff_s(times, _HEALTH_BASE_S, _HEALTH_CAP_S, chance=self._chance())
            await asyncio.sleep(wait_s)
        lane.asking = None
        self._staff()

    def _note_tokens(self, row: Row, reading: Reading) -> None:
        prompt, completion = row.tokens
        row.tokens = (prompt + reading.prompt_tokens, completion + reading.completion_tokens)
        if self._tokens is not None:
            spent = reading.prompt_tokens + reading.completion_tokens
            self._tokens = self._tokens.taken(self._clock(), spent)

    def _after_failure(self, lane: Lane, row: Row, attempt: Attempt, failure: Failure) -> None:
        row.failures.append(failure)
        history = row.history
        if policy.is_refusal(failure):
            row.history = history = replace(history, refused=history.refused + 1)
        else:
            row.history = history = replace(history, sent=history.sent + 1)
        body: dict[str, Any] | None = None
        if failure is Failure.TRUNCATED_THINKING:
            body = routes.enlarged(row.url, msgspec.json.decode(row.body))
        decision = policy.decide(
            failure,
            history,
            self._settings.retry,
            chance=self._chance(),
            can_enlarge=body is not None,
        )
        if decision.action is Action.FAIL or (
            decision.action is Action.REPAIR and row.url != routes.CHAT
        ):
            self._settle(settled(lane, row, attempt))
            return
        if decision.action is Action.ENLARGE and body is not None:
            row.body = msgspec.json.encode(body)
            row.history = replace(history, enlarged=True)
        elif decision.action is Action.REPAIR:
            row.body = self._repaired(row, attempt)
            row.history = replace(history, repairs=history.repairs + 1)
        if decision.action is Action.AGAIN:
            self._let_rest(row, decision.wait_s)
        else:
            self._ready.appendleft(row)
            self._release_waiters(1)

    @staticmethod
    def _repaired(row: Row, attempt: Attempt) -> bytes:
        defects = attempt.reading.error
        question = msgspec.json.decode(row.body)
        body = routes.repaired(question, attempt.reading.text, defects.message if defects else "")
        return msgspec.json.encode(body)

    def _let_rest(self, row: Row, wait_s: float) -> None:
        def back() -> None:
            del self._resting[row.claim.seq]
            self._ready.append(row)
            self._staff()

        timer = asyncio.get_running_loop().call_later(wait_s, back)
        self._resting[row.claim.seq] = (row, timer)

    def _settle(self, outcome: Settled) -> None:
        self._done.append(outcome)
        self._wake.set()
