"""The one timer of all streams, on a clock that only waiting moves. No sockets here."""

from __future__ import annotations

import asyncio
import selectors

import pytest

from heavylift.devserver.conductor import Conductor, Ending, Player
from heavylift.devserver.play import Step

PACE = [0.0, *(0.2 + 0.02 * number for number in range(64))]


class _Leap(selectors.SelectSelector):
    """Instead of waiting for a time, it makes it that time."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready at once; the wait is added to the clock."""
        self.now_s += timeout or 0.0
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._leap = _Leap()
        super().__init__(self._leap)

    def time(self) -> float:
        return self._leap.now_s


class _Sink(asyncio.Transport):
    """Takes everything."""

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nowhere."""


def test_every_step_is_sent_when_it_is_due() -> None:
    """Of three streams that began at different times, none is early, late, or moves another."""

    async def run() -> list[list[float]]:
        loop = asyncio.get_running_loop()
        conductor = Conductor()
        sent: list[list[float]] = []

        async def play(begins_s: float) -> None:
            await asyncio.sleep(begins_s)
            sends: list[float] = []
            sent.append(sends)
            player = Player(
                iter([Step(at_s, raw=b"x") for at_s in PACE]),
                _Sink(),
                began_at=loop.time(),
                clock=loop.time,
                stamps=False,
                sends=sends,
            )
            assert await conductor.play(player) is Ending.FINISHED

        await asyncio.gather(*(play(begins_s) for begins_s in (0.0, 0.013, 0.2)))
        return sent

    with asyncio.Runner(loop_factory=_Loop) as runner:
        sent = runner.run(run())
    for begins_s, sends in zip((0.0, 0.013, 0.2), sent, strict=True):
        due = [1000.0 + begins_s + at_s for at_s in PACE]
        assert sends == pytest.approx(due, rel=0, abs=1e-6)
