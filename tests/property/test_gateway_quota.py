"""Quotas hold: no order of events overspends a limit or leaks a reservation."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from heavylift.gateway.keys import Key
from heavylift.gateway.ledger import Ledger, Reservation, open_ledger
from heavylift.gateway.quota import DAY_S, NO_LIMITS, Bound, Cost, Limits

NAMES = ("a", "b")
LIMITS = st.sampled_from(
    [
        NO_LIMITS,
        Limits(tokens_per_minute=100),
        Limits(tokens_per_day=100),
        Limits(concurrent=2),
        Limits(requests_per_minute=3),
        Limits(tokens_per_minute=100, tokens_per_day=200, concurrent=3, requests_per_minute=5),
    ]
)


@dataclass(slots=True)
class Spent:
    """An admitted request as the test remembers it. `tokens` is what it cost, or its bound."""

    key: str
    process: int
    id: int
    bound: Bound
    steady_s: float
    day: int
    tokens: int
    open: bool = True


class QuotaMachine(RuleBasedStateMachine):
    """Two gateway processes, two keys of one team, clocks that jump, and crashes.

    The test keeps its own list of what was admitted and checks every limit against it, by the
    definition: any 60 seconds, any day, any moment.
    """

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._steady_s = 1000.0
        self._epoch_s = 20_000.0 * DAY_S
        self._processes: dict[int, tuple[ExitStack, Ledger]] = {}
        self._all: list[Spent] = []
        self._keys: dict[str, Key] = {}
        self._team = NO_LIMITS

    @initialize(own=st.tuples(LIMITS, LIMITS), team=LIMITS)
    def start(self, *, own: tuple[Limits, Limits], team: Limits) -> None:
        """Both processes run; each key and the team have limits of some kind."""
        self._team = team
        for name, limits in zip(NAMES, own, strict=True):
            self._keys[name] = Key(
                id=name,
                name=name,
                shown=name,
                digest=b"",
                created_at=0.0,
                team="lab",
                limits=limits,
                team_limits=team,
            )
        for number in range(2):
            self._open(number)

    def _open(self, number: int) -> None:
        stack = ExitStack()
        self._processes[number] = (stack, stack.enter_context(self.ledger()))

    def ledger(self) -> AbstractContextManager[Ledger]:
        """The ledger of one process."""
        return open_ledger(
            self._folder,
            steady=lambda: self._steady_s,
            epoch=lambda: self._epoch_s,
            boot_id="b",
        )

    async def written(self, ledger: Ledger) -> None:
        """Give the ledger the time in which it writes by itself."""
        while ledger.waits:  # noqa: ASYNC110 - what other processes see, and no event of ours
            await asyncio.sleep(0.001)

    @rule(
        target=held,
        process=st.integers(0, 1),
        name=st.sampled_from(NAMES),
        prompt=st.integers(0, 40),
        output=st.integers(0, 60),
        elastic=st.booleans(),
    )
    def ask(self, *, process: int, name: str, prompt: int, output: int, elastic: bool) -> Any:
        """A request comes."""
        bound = Bound(prompt_tokens=prompt, output_tokens=output, elastic=elastic)
        ledger = self._processes[process][1]
        answer = self._loop.run_until_complete(ledger.reserve(self._keys[name], "m", bound))
        if not isinstance(answer, Reservation):
            return multiple()
        spent = Spent(
            key=name,
            process=process,
            id=answer.id,
            bound=answer.bound,
            steady_s=self._steady_s,
            day=int(self._epoch_s // DAY_S),
            tokens=answer.bound.tokens,
        )
        assert answer.bound.output_tokens <= max(output, 0)
        self._all.append(spent)
        return spent

    @rule(spent=consumes(held), share=st.floats(0, 1), at_once=st.booleans())
    def end(self, *, spent: Spent, share: float, at_once: bool) -> None:
        """A request ends, having cost some part of its bound."""
        if not spent.open:
            return
        cost = Cost(
            prompt_tokens=int(spent.bound.prompt_tokens * share),
            completion_tokens=int(spent.bound.output_tokens * share),
        )
        ledger = self._processes[spent.process][1]

        async def settle() -> None:
            ledger.settle(spent.id, cost)
            if at_once:
                ledger.flush()
            await self.written(ledger)

        self._loop.run_until_complete(settle())
        spent.open, spent.tokens = False, cost.tokens

    @rule(process=st.integers(0, 1), by_the_other=st.booleans())
    def crash(self, *, process: int, by_the_other: bool) -> None:
        """A process dies with its requests open; it, or the other one, notices."""
        self._processes[process][0].close()
        self._open(process)
        noticing = self._processes[1 - process if by_the_other else process][1]
        noticing.recover()
        for spent in self._all:
            if spent.process == process and spent.open:
                spent.open = False  # and its bound stays charged

    @rule(seconds=st.sampled_from([1.0, 4.9, 5.0, 29.0, 50.0, 61.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self._steady_s += seconds
        self._epoch_s += seconds

    @rule(seconds=st.sampled_from([-DAY_S, -3600.0, 3600.0, float(DAY_S), 2.0 * DAY_S]))
    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._epoch_s += seconds

    @invariant()
    def no_limit_is_overspent(self) -> None:
        """By the definition of each limit."""
        for name, key in self._keys.items():
            self._check([spent for spent in self._all if spent.key == name], key.limits)
        self._check(self._all, self._team)

    def _check(self, spents: list[Spent], limits: Limits) -> None:
        if limits.concurrent is not None:
            assert sum(spent.open for spent in spents) <= limits.concurrent
        for day in {spent.day for spent in spents}:
            of_day = sum(spent.tokens for spent in spents if spent.day == day)
            assert limits.tokens_per_day is None or of_day <= limits.tokens_per_day
        for first in spents:
            minute = [s for s in spents if first.steady_s <= s.steady_s < first.steady_s + 60]
            if limits.tokens_per_minute is not None:
                assert sum(spent.tokens for spent in minute) <= limits.tokens_per_minute
            if limits.requests_per_minute is not None:
                assert len(minute) <= limits.requests_per_minute

    @invariant()
    def no_reservation_leaks(self) -> None:
        """What the ledger holds open is what is open, and nothing is charged twice or never."""
        if not self._processes:
            return
        ledger = self._processes[0][1]
        assert ledger.open_requests() == sum(spent.open for spent in self._all)
        charged = sum(
            row.prompt_tokens + row.completion_tokens for row in ledger.store.usage("key")
        )
        assert charged == sum(spent.tokens for spent in self._all if not spent.open)

    def teardown(self) -> None:
        """Close everything."""
        for stack, _ in self._processes.values():
            stack.close()
        self._stack.close()
        self._loop.close()


TestQuotasHold = QuotaMachine.TestCase
TestQuotasHold.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
