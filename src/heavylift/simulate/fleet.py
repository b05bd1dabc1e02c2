"""A fleet in simulated time: requests come, a router places them, replicas work, fail and start."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import log1p
from typing import Final

from heavylift.simulate.pace import Pace
from heavylift.simulate.pool import Room
from heavylift.simulate.replica import Figures, Replica, Role
from heavylift.simulate.request import Request, Source
from heavylift.simulate.sketch import Sketch
from heavylift.slo import Goal
from heavylift.stats import Chance

_DOWN: Final = 1 << 60
_CROWDED: Final = 1.25
"""A replica with this many times the mean load and more is passed over by affinity."""

_REPLICA: Final = 0
_UP: Final = 1
_FAIL: Final = 2
_HANDOVER: Final = 3
_COMES: Final = 4


_SERIES: Final = 1 << 53
_MASK: Final = (1 << 64) - 1


def series(base: int, number: int) -> Chance:
    """A series of numbers in [0, 1) of its own: fleets of other sizes meet the same failures in the
    replicas that they share, so that their difference is not chance.

    Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014 (SplitMix).
    """
    state = (base ^ (number + 1) * 0xD1342543DE82EF95) & _MASK

    def following() -> float:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) >> 11) / _SERIES

    return following


class Router(StrEnum):
    """How a request finds its replica.

    `round_robin`: in turn. `least`: the fewest requests. `affinity`: where its prefix is kept,
    unless crowded. `random`: by chance. `two_choices`: the better of two by chance.
    """

    ROUND_ROBIN = "round_robin"
    LEAST = "least"
    AFFINITY = "affinity"
    RANDOM = "random"
    TWO_CHOICES = "two_choices"


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSpec:
    """Equal replicas: how many, how fast, what each holds and its tokens per step."""

    replicas: int
    pace: Pace
    room: Room
    budget: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Failures:
    """Replicas that go and come: mean seconds up, and seconds to start again (load and warm-up)."""

    mean_up_s: float
    start_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetSpec:
    """What is run. `prefill` None = every replica does prompts and answers.

    `handover_s` and `handover_s_per_token` are the way from a prefill to a decode replica over the
    link that a prefill replica sends on, one request after the other. Longer requests than
    `longest_tokens` are refused: the model's context ends there.
    """

    serve: PoolSpec
    prefill: PoolSpec | None = None
    handover_s: float = 0.0
    handover_s_per_token: float = 0.0
    router: Router = Router.LEAST
    failures: Failures | None = None
    longest_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """When a run ends: after `requests` have come; those under way are finished first.

    The first `warmup` requests are served and not counted. A run whose goal can no longer be met is
    given up early when `gives_up`.
    """

    requests: int
    warmup: int = 0
    goals: tuple[Goal, ...] = ()
    gives_up: bool = False


@dataclass(slots=True)
class Outcome:
    """What a run gave. Times in seconds of simulated time."""

    requests: int = 0
    refused: int = 0
    broken: int = 0
    gave_up: bool = False
    within: int = 0
    first_s: float = 0.0
    last_arrival_s: float = 0.0
    last_s: float = 0.0
    warm_s: float = 0.0
    output_tokens: int = 0
    warm_output_tokens: int = 0
    input_tokens: int = 0
    in_system_s: float = 0.0
    left_at_last_arrival: int = 0
    waiting_mean: float = 0.0
    ttft: Sketch = field(default_factory=Sketch)
    tpot: Sketch = field(default_factory=Sketch)
    e2e: Sketch = field(default_factory=Sketch)
    serve: Figures = field(default_factory=Figures)
    prefill: Figures | None = None
    failures: int = 0
    link_wait_s: float = 0.0
    evictions: int = 0

    @property
    def span_s(self) -> float:
        """From the first arrival to the last token."""
        return self.last_s - self.first_s

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens of all answers over the whole run."""
        return self.output_tokens / self.span_s if self.span_s > 0 else 0.0


def run(spec: FleetSpec, source: Source, stop: Stop, chance: Chance) -> Outcome:
    """One run. The same arguments and the same numbers of `chance` give the same outcome."""
    return _Run(spec, source, stop, chance).go()


class _Run:
    """The loop: the earliest of arrivals, ends of replicas' runs, failures and starts, next."""

    def __init__(self, spec: FleetSpec, source: Source, stop: Stop, chance: Chance) -> None:
        self.spec, self.source, self.stop, self.chance = spec, source, stop, chance
        self.outcome = Outcome()
        self.heap: list[tuple[float, int, int, int, Request | int]] = []
        self.order = 0
        self.started = 0
        self.left = 0
        self.coming = 0
        self.now = 0.0
        self.turn = 0
        self.homeless: list[Request] = []
        self.owner: dict[int, int] = {}
        self.allowed = _allowed(stop)
        split = spec.prefill is not None
        self.serving = [
            Replica(s.pace, s.room, s.budget, self, Role.DECODE if split else Role.WHOLE)
            for s in [spec.serve] * spec.serve.replicas
        ]
        self.prefilling = (
            [
                Replica(s.pace, s.room, s.budget, self, Role.PREFILL)
                for s in [spec.prefill] * spec.prefill.replicas
            ]
            if spec.prefill is not None
            else []
        )
        self.all = [*self.serving, *self.prefilling]
        self.load = [0] * len(self.all)
        self.fates: list[Chance] = []
        self.link_free_s = [0.0] * len(self.all)
        count = len(self.serving)
        self.entrance = range(count, len(self.all)) if split else range(count)
        self.answers = range(count)

    # --- the loop --------------------------------------------------------------------------------

    def go(self) -> Outcome:  # noqa: C901 - the one loop, and it is hot
        """Runs to the end."""
        outcome, heap = self.outcome, self.heap
        if self.spec.failures is not None:
            base = int(self.chance() * _SERIES)
            self.fates = [series(base, index) for index in self._fate_numbers()]
            for index in range(len(self.all)):
                self._plan_failure(index, 0.0)
        arrivals = self.source.arrivals()
        pending = self._next(arrivals)
        first = True
        while not outcome.gave_up:
            if self.started >= self.stop.requests:
                pending = None
            if pending is not None and (not heap or pending.arrival_s <= heap[0][0]):
                at_s = pending.arrival_s
                if first:
                    outcome.first_s, first = at_s, False
                self._pass(at_s)
                self._arrive(pending)
                pending = self._next(arrivals)
                continue
            if pending is None and self.left == 0 and not self._coming():
                break
            at_s, _, kind, index, what = heapq.heappop(heap)
            if kind == _REPLICA:
                replica = self.all[index]
                if replica.version != what:
                    continue
                self._pass(at_s)
                replica.advance()
                if replica.ends_s is not None:
                    self._schedule(index, replica)
                continue
            self._pass(at_s)
            self._other(at_s, kind, index, what)
        return self._summed()

    def _fate_numbers(self) -> Iterator[int]:
        """Which series each replica's failures are of: the same in a fleet of one more."""
        yield from (2 * index for index in range(len(self.serving)))
        yield from (2 * index + 1 for index in range(len(self.prefilling)))

    def _pass(self, at_s: float) -> None:
        self.outcome.in_system_s += self.left * (at_s - self.now)
        self.now = at_s

    def _coming(self) -> bool:
        """True when requests are still to come by themselves: next turns that are not dropped."""
        return self.started < self.stop.requests and self.coming > 0

    def _next(self, arrivals: Iterator[Request]) -> Request | None:
        return next(arrivals, None) if self.started < self.stop.requests else None

    def _other(self, at_s: float, kind: int, index: int, what: Request | int) -> None:
        if kind == _FAIL:
            self._fail(index, at_s)
        elif kind == _UP:
            self.load[index] = 0
            self._plan_failure(index, at_s)
            homeless, self.homeless = self.homeless, []
            for request in homeless:
                self._place(request, at_s)
        elif isinstance(what, Request):
            if kind == _HANDOVER:
                self._send(request=what, among=self.answers, at_s=at_s)
                return
            self.coming -= 1
            if self.started < self.stop.requests:
                self._arrive(what)

    def _push(self, at_s: float, kind: int, index: int, what: Request | int) -> None:
        self.order += 1
        heapq.heappush(self.heap, (at_s, self.order, kind, index, what))

    def _schedule(self, index: int, replica: Replica) -> None:
        if replica.ends_s is not None:
            self._push(replica.ends_s, _REPLICA, index, replica.version)

    # --- requests --------------------------------------------------------------------------------

    def _arrive(self, request: Request) -> None:
        self.started += 1
        self.left += 1
        outcome = self.outcome
        request.counted = self.started > self.stop.warmup
        outcome.last_arrival_s = request.arrival_s
        if self.started == self.stop.requests:
            span = request.arrival_s - outcome.first_s
            outcome.left_at_last_arrival = self.left
            outcome.waiting_mean = outcome.in_system_s / span if span > 0 else 0.0
        if self.started == self.stop.warmup + 1:
            outcome.warm_s = request.arrival_s
        longest = self.spec.longest_tokens
        if longest is not None and request.input_tokens + request.output_tokens > longest:
            self.left -= 1
            outcome.refused += 1
            return
        self._place(request, request.arrival_s)

    def _place(self, request: Request, at_s: float) -> None:
        self._send(request, self.entrance, at_s)

    def _send(self, request: Request, among: range, at_s: float) -> None:
        index = self._choose(request, among)
        if index is None:
            request.restart()
            self.homeless.append(request)
            return
        request.at = index
        self.load[index] += 1
        replica = self.all[index]
        if replica.offer(request, at_s):
            self._schedule(index, replica)

    def _choose(self, request: Request, among: range) -> int | None:
        """The replica for a request; None when all are down."""
        load, router = self.load, self.spec.router
        count = len(among)
        if count == 1:
            return among[0] if load[among[0]] < _DOWN else None
        if router is Router.LEAST:
            part = load[among.start : among.stop]
            least = min(part)
            return among.start + part.index(least) if least < _DOWN else None
        if router is Router.AFFINITY:
            return self._nearest(request, among)
        if router is Router.TWO_CHOICES:
            one = among.start + int(self.chance() * count)
            two = among.start + int(self.chance() * count)
            best = one if load[one] <= load[two] else two
            return best if load[best] < _DOWN else self._least(among)
        for _ in among:
            if router is Router.ROUND_ROBIN:
                self.turn += 1
                index = among.start + self.turn % count
            else:
                index = among.start + int(self.chance() * count)
            if load[index] < _DOWN:
                return index
        return self._least(among)

    def _least(self, among: range) -> int | None:
        part = self.load[among.start : among.stop]
        least = min(part)
        return among.start + part.index(least) if least < _DOWN else None

    def _nearest(self, request: Request, among: range) -> int | None:
        """Where the longest known part of the prompt was computed last, if not crowded."""
        least = self._least(among)
        if least is None:
            return None
        owner = self.owner
        for name, _ in reversed(request.segments):
            index = owner.get(name)
            if index is None or index not in among:
                continue
            if not self.all[index].pool.known(name):
                del owner[name]
                continue
            mean = sum(x for x in self.load[among.start : among.stop] if x < _DOWN) / len(among)
            if self.load[index] <= _CROWDED * mean + 1:
                return index
            break
        return least

    # --- what replicas tell ----------------------------------------------------------------------

    def first_token(self, request: Request) -> None:
        """The first token of a request: its prompt is kept where it was computed."""
        if request.segments and self.spec.router is Router.AFFINITY:
            self.owner[request.segments[-1][0]] = request.at
            if len(request.segments) > 1:
                self.owner[request.segments[0][0]] = request.at

    def computed(self, request: Request, at_s: float) -> None:
        """A prompt is ready to be handed over."""
        spec = self.spec
        self.load[request.at] -= 1
        request.ready = True
        takes = spec.handover_s + spec.handover_s_per_token * request.input_tokens
        free = max(at_s, self.link_free_s[request.at])
        self.link_free_s[request.at] = free + takes
        self.outcome.link_wait_s += free - at_s
        self._push(free + takes, _HANDOVER, 0, request)

    def refused(self, request: Request) -> None:
        """Too long for any replica."""
        self.load[request.at] -= 1
        self.left -= 1
        self.outcome.refused += 1

    def finished(self, request: Request, at_s: float) -> None:
        """An answer is complete."""
        self.load[request.at] -= 1
        self.left -= 1
        outcome = self.outcome
        outcome.requests += 1
        outcome.output_tokens += request.output_tokens
        outcome.input_tokens += request.input_tokens
        outcome.last_s = max(outcome.last_s, at_s)
        if request.counted:
            self._count(request, at_s)
        following = self.source.follow(request, at_s)
        if following is not None and self.started < self.stop.requests:
            self.coming += 1
            self._push(following.arrival_s, _COMES, 0, following)

    def _count(self, request: Request, at_s: float) -> None:
        outcome = self.outcome
        outcome.warm_output_tokens += request.output_tokens
        e2e = at_s - request.arrival_s
        ttft = request.first_s - request.arrival_s
        outcome.e2e.add(e2e)
        outcome.ttft.add(ttft)
        tpot = None
        if request.output_tokens > 1:
            tpot = (at_s - request.first_s) / (request.output_tokens - 1)
            outcome.tpot.add(tpot)
        inside = True
        for goal in self.stop.goals:
            measured = ttft if goal.metric == "ttft" else tpot if goal.metric == "tpot" else e2e
            if measured is not None and measured > goal.limit_s:
                inside = False
                left = self.allowed.get(goal)
                if left is not None:
                    self.allowed[goal] = left - 1
                    if left <= 0 and self.stop.gives_up:
                        outcome.gave_up = True
        outcome.within += inside

    # --- failures --------------------------------------------------------------------------------

    def _plan_failure(self, index: int, at_s: float) -> None:
        failures = self.spec.failures
        if failures is not None:
            up_s = -failures.mean_up_s * log1p(-self.fates[index]())
            self._push(at_s + up_s, _FAIL, index, 0)

    def _fail(self, index: int, at_s: float) -> None:
        failures = self.spec.failures
        if failures is None:
            return
        self.outcome.failures += 1
        lost = self.all[index].drop_all()
        self.load[index] = _DOWN
        self._push(at_s + failures.start_s, _UP, index, 0)
        for request in lost:
            self.outcome.broken += 1
            self._place(request, at_s)

    # --- the end ---------------------------------------------------------------------------------

    def _summed(self) -> Outcome:
        outcome = self.outcome
        outcome.serve = _sum(self.serving)
        outcome.prefill = _sum(self.prefilling) if self.prefilling else None
        outcome.evictions = sum(replica.pool.evictions for replica in self.all)
        return outcome


def _sum(replicas: list[Replica]) -> Figures:
    total = Figures()
    for replica in replicas:
        total.add(replica.figures)
    return total


def _allowed(stop: Stop) -> dict[Goal, int]:
    """How many counted requests may miss each bound on a quantile; one more is no doubt."""
    counted = stop.requests - stop.warmup
    return {
        goal: int((1 - goal.share) * counted) + 1 for goal in stop.goals if goal.share is not None
    }
