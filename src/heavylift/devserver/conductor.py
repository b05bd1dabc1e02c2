"""The conductor: sends the steps of many streams on time with one timer and no task per token.

Writing straight to the transport, in ticks, is what lets one core pace hundreds of streams; the
price is that a client that does not read is buffered for, which a scripted reply can afford.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import count

from heavylift.devserver.play import Action, Step


class Ending(StrEnum):
    """How a request ended, seen from the server."""

    FINISHED = "finished"
    ABORTED = "aborted"
    """Reset by the scenario."""
    DISCONNECTED = "disconnected"
    """The client went."""
    REFUSED = "refused"
    """Answered with an error status."""


class Player:
    """One stream being played. `ended` holds how it ended."""

    def __init__(
        self,
        steps: Iterator[Step],
        transport: asyncio.Transport,
        *,
        began_at: float,
        clock: Callable[[], float],
        stamps: bool,
        sends: list[float],
    ) -> None:
        """`began_at` is the loop's clock; `clock` makes the stamps, which go into `sends`."""
        self._steps = steps
        self._transport = transport
        self._began_at = began_at
        self._clock = clock
        self._stamps = stamps
        self._sends = sends
        self._next = next(steps, None)
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    def due_at(self) -> float | None:
        """When the next step is due, by the loop's clock; None = there is none."""
        return None if self._next is None else self._began_at + self._next.at_s

    def step(self) -> None:
        """Do the step that is due."""
        step = self._next
        if step is None:
            return
        if self._transport.is_closing():
            self._end(Ending.DISCONNECTED)
        elif step.action is Action.ABORT:
            self._transport.abort()
            self._end(Ending.ABORTED)
        elif step.action is Action.HANG:
            self._next = None  # `ended` stays open until the client goes
        else:
            self._send(step)
            self._next = next(self._steps, None)
            if self._next is None:
                self._end(Ending.FINISHED)

    def _send(self, step: Step) -> None:
        now = self._clock()
        data = step.encode(now if self._stamps else None)
        # The framing of HTTP's chunked encoding, one chunk per event.
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        self._sends.append(now)

    def _end(self, ending: Ending) -> None:
        self._next = None
        if not self.ended.done():
            self.ended.set_result(ending)


class Conductor:
    """Plays any number of streams from one timer."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Player]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None

    async def play(self, player: Player) -> Ending:
        """How the stream ended, once it has."""
        due_at = player.due_at()
        if due_at is None:
            return Ending.FINISHED
        heapq.heappush(self._due, (due_at, next(self._order), player))
        self._arm()
        return await player.ended

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._due[0][0], self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            _, order, player = self._due[0]
            player.step()
            due_at = player.due_at()
            if due_at is None:
                heapq.heappop(self._due)
            else:
                heapq.heapreplace(self._due, (due_at, order, player))
        self._arm()
