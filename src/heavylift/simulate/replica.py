"""One replica: an engine's scheduler, step by step, with runs of equal steps taken at once.

Between two events of a replica (a request comes, an answer ends, a chunk of a prompt is computed,
the memory is full) its batch does not change, so the time of any number of steps has a closed form.
"""

from __future__ import annotations

import heapq
from collections import deque
from enum import IntEnum
from typing import Protocol

from heavylift.simulate.pace import Pace, crossing, run_s, steps_by
from heavylift.simulate.pool import Pool, Room
from heavylift.simulate.request import Request


class Role(IntEnum):
    """What a replica does: whole requests, only prompts, or only answers."""

    WHOLE = 0
    PREFILL = 1
    DECODE = 2


class Hold(IntEnum):
    """Why the head of the queue is not admitted, while a run lasts."""

    NOTHING = 0
    SEATS = 1
    POOL = 2
    BUDGET = 3


class Watcher(Protocol):
    """Who is told what became of requests."""

    def first_token(self, request: Request) -> None:
        """The first token exists."""
        ...

    def finished(self, request: Request, at_s: float) -> None:
        """The last token exists."""
        ...

    def refused(self, request: Request) -> None:
        """It is longer than the whole pool."""
        ...

    def computed(self, request: Request, at_s: float) -> None:
        """A prefill replica has computed the prompt."""
        ...


class Figures:
    """What a replica did: seconds of decoding and of prompts, of waiting by reason, and counts.

    `batch_s` and `context_s` are the batch and its tokens over time: by busy seconds, means.
    """

    __slots__ = (
        "batch_s",
        "cached_tokens",
        "context_s",
        "decode_s",
        "held_back_s",
        "preemptions",
        "prefill_s",
        "prompt_tokens",
    )

    def __init__(self) -> None:
        self.decode_s = 0.0
        self.prefill_s = 0.0
        self.held_back_s = [0.0] * len(Hold)
        self.batch_s = 0.0
        self.context_s = 0.0
        self.preemptions = 0
        self.cached_tokens = 0
        self.prompt_tokens = 0

    @property
    def busy_s(self) -> float:
        """Seconds spent in steps."""
        return self.decode_s + self.prefill_s

    def add(self, other: Figures) -> None:
        """Adds another replica's."""
        for name in self.__slots__:
            if name != "held_back_s":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        pairs = zip(self.held_back_s, other.held_back_s, strict=True)
        self.held_back_s = [mine + theirs for mine, theirs in pairs]


class Replica:
    """A replica with its queue, its batch and its memory.

    `budget` are the tokens of a step (prompt chunks and one per decoding sequence). Times are
    seconds; `ends_s` is when the current run ends, None = idle.
    """

    def __init__(
        self, pace: Pace, room: Room, budget: int, watcher: Watcher, role: Role = Role.WHOLE
    ) -> None:
        self.pace = pace
        self.budget = budget
        self.role = role
        self.figures = Figures()
        self.version = 0
        self._watcher = watcher
        self._empty(room)

    def _empty(self, room: Room) -> None:
        """An engine that has just started."""
        self.pool = Pool(room)
        self.outstanding = 0
        self.ends_s: float | None = None
        # at the start of the run
        self._start_s = 0.0
        self._step = 0
        self._batch = 0
        self._held = 0
        self._order = 0
        self._ending: list[tuple[int, int, Request]] = []
        self._running: dict[Request, None] = {}
        self._waiting: deque[Request] = deque()
        self._prefilling: deque[Request] = deque()
        # the run
        self._steps = 0
        self._chunk_s = 0.0
        self._done: list[Request] = []
        self._done_late_s = 0.0
        self._cut = False
        self._hold = Hold.NOTHING

    def offer(self, request: Request, at_s: float) -> bool:
        """A request joins the queue. True when `ends_s` changed."""
        self.outstanding += 1
        self._waiting.append(request)
        if self.ends_s is None:
            self._start_s = at_s
            self._begin()
            return True
        if self._steps and not self._chunk_s and not self._cut and self._hold is Hold.NOTHING:
            return self._cut_short(at_s)
        return False

    def _cut_short(self, at_s: float) -> bool:
        """The step that is under way is the last of this run: the next may take a request in."""
        row = self.pace.row(self._batch)
        steps = steps_by(row, self._batch, self._held, max(0.0, at_s - self._start_s))
        self._cut = True
        if steps >= self._steps:
            return False
        self._steps = steps
        self.ends_s = self._start_s + run_s(row, self._batch, self._held, steps)
        return True

    def drop_all(self) -> list[Request]:
        """The replica is gone: everything it had, as new, in order of arrival."""
        lost = [*self._running, *self._done, *self._prefilling, *self._waiting]
        for request in lost:
            request.restart()
        self._empty(self.pool.room)
        self.version += 1
        return sorted(lost, key=lambda request: request.arrival_s)

    # --- a run ---------------------------------------------------------------------------------

    def advance(self) -> None:
        """The run is over: what it did is done, and the next begins."""
        if self.ends_s is None:
            raise ValueError(self)
        end, batch, steps, figures = self.ends_s, self._batch, self._steps, self.figures
        length = end - self._start_s
        figures.prefill_s += self._chunk_s
        figures.decode_s += length - self._chunk_s
        figures.batch_s += batch * length
        figures.context_s += self._held * length
        if self._waiting:
            figures.held_back_s[self._hold] += length
        self._start_s = end
        if steps and batch:
            self._step += steps
            self._held += batch * steps
            self.pool.grow(batch * steps)
            self._end_answers(end)
        if self._done:
            self._end_prompts(end)
        self._begin()

    def _end_answers(self, at_s: float) -> None:
        ending, step = self._ending, self._step
        while ending and ending[0][0] <= step:
            _, order, request = heapq.heappop(ending)
            # A preempted sequence left its entry behind.
            if request.joined_step < 0 or request.order != order:
                continue
            self._leave(request)
            self.outstanding -= 1
            self._watcher.finished(request, max(at_s, request.first_s))

    def _leave(self, request: Request) -> None:
        """A sequence leaves the batch, and its room the pool."""
        grown = self._step - request.joined_step
        request.made += grown
        request.joined_step = -1
        del self._running[request]
        self._batch -= 1
        self._held -= request.input_tokens + request.made
        self.pool.release(request, grown)

    def _join(self, request: Request) -> None:
        """A sequence with its first token enters the batch."""
        self._order += 1
        request.order = self._order
        request.joined_step = self._step
        self._running[request] = None
        self._batch += 1
        self._held += request.input_tokens + request.made
        last = self._step + request.output_tokens - request.made
        heapq.heappush(self._ending, (last, self._order, request))

    def _end_prompts(self, at_s: float) -> None:
        late = at_s + self._done_late_s
        for request in self._done:
            self.pool.publish(request)
            if request.first_s < 0:
                request.first_s = late
                self._watcher.first_token(request)
            request.made += 1
            if request.made < request.output_tokens and self.role is not Role.PREFILL:
                self._join(request)
                continue
            self.pool.release(request, 0)
            self.outstanding -= 1
            if request.made < request.output_tokens:
                self._watcher.computed(request, late)
            else:
                self._watcher.finished(request, late)
        self._done = []

    # --- the next run --------------------------------------------------------------------------

    def _begin(self) -> None:
        """Decides the next run from what waits and what there is room for."""
        self.version += 1
        self._cut = False
        lanes = self.pace.lanes
        taken = -(-self._batch // lanes) * (1 + self.pace.drafted)
        budget = max(1, self.budget - taken) * lanes
        if self._waiting:
            self._admit(budget)
        else:
            self._hold = Hold.NOTHING
        if self._prefilling:
            self._begin_mixed(budget)
        elif self._batch:
            self._begin_decode()
        else:
            self._steps = 0
            self._chunk_s = 0.0
            self.ends_s = None

    def _admit(self, budget: int) -> None:
        """Takes in from the queue while budget, seats and memory last, in order."""
        waiting, room = self._waiting, self.pool.room
        planned = sum(request.left for request in self._prefilling)
        seats = room.seats
        while waiting:
            request = waiting[0]
            if seats is not None and self._batch + len(self._prefilling) >= seats:
                self._hold = Hold.SEATS
                return
            if planned >= budget and not request.ready:
                self._hold = Hold.BUDGET
                return
            tokens = request.input_tokens + request.made
            cached = self.pool.admit(request, tokens)
            if cached is None:
                if not self._batch and not self._prefilling:
                    # Not even alone: it is refused, as engines refuse what is longer than the pool.
                    waiting.popleft()
                    self.outstanding -= 1
                    self._watcher.refused(request)
                    continue
                self._hold = Hold.POOL
                return
            waiting.popleft()
            if request.ready:
                request.ready = False
                self._join(request)
                continue
            self.figures.prompt_tokens += tokens
            self.figures.cached_tokens += cached
            request.left = max(1, tokens - cached)
            planned += request.left
            self._prefilling.append(request)
        self._hold = Hold.NOTHING

    def _begin_mixed(self, budget: int) -> None:
        """One step with chunks of prompts beside the batch."""
        if self._batch > self.pool.free:
            self._make_room()
        left, prompts, last = budget, 0, 0
        prefilling = self._prefilling
        lane = max(1, budget // self.pace.lanes)
        unfinished: list[Request] = []
        attention = alone = 0.0
        attends = bool(self.pace.attention_s_per_pair)
        while prefilling and left > 0:
            request = prefilling.popleft()
            taken = min(request.left, left, lane)
            if attends:
                before = request.input_tokens + request.made - request.left
                alone = self.pace.attention_s(taken, max(0, before))
                attention += alone
            request.left -= taken
            left -= taken
            prompts += 1
            last = taken
            if request.left:
                unfinished.append(request)
            else:
                self._done.append(request)
        prefilling.extendleft(reversed(unfinished))
        chunk = budget - left
        pace, batch = self.pace, self._batch
        self._chunk_s = pace.chunk_s(chunk, prompts, attention)
        self._done_late_s = pace.pass_s(last, alone) if pace.lanes > 1 else 0.0
        decode = pace.row(batch).step_s(self._held) if batch else 0.0
        self._steps = 1
        self.ends_s = self._start_s + self._chunk_s + decode

    def _begin_decode(self) -> None:
        """As many steps as nothing changes: to the next end of an answer, or of the memory."""
        self._chunk_s = 0.0
        if self._batch > self.pool.free:
            self._make_room()
        batch = self._batch
        ending, running = self._ending, self._running
        while ending[0][2] not in running or ending[0][2].order != ending[0][1]:
            heapq.heappop(ending)
        steps = ending[0][0] - self._step
        by_room = self.pool.free // batch
        if by_room < steps:
            steps = max(1, by_room)
        row = self.pace.row(batch)
        turn = crossing(row, batch, self._held)
        if turn is not None and turn < steps:
            steps = turn
        self._steps = steps
        self.ends_s = self._start_s + run_s(row, batch, self._held, steps)

    def _make_room(self) -> None:
        """Preempts the sequences that joined last until a step has room; they are computed anew."""
        while self._batch > self.pool.free and self._batch > 1:
            request = next(reversed(self._running))
            self._leave(request)
            self.figures.preemptions += 1
            self._waiting.appendleft(request)
            self._hold = Hold.POOL
