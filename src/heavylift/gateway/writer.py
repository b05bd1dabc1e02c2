"""A thread that writes, so that the event loop never waits for a disk or a network.

Streams are passed on by the event loop. A write that meets a busy disk may take a hundred
milliseconds, and would hold every stream up for as long; in a thread it holds up only whoever waits
for it to be written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Work = Callable[[], Any]
Then = Callable[[Any, Exception | None], None]
"""What happens in the event loop with the result of some work, or with what went wrong."""


class Writer:
    """Does one piece of work after the other, in the order in which they were given."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Work, Then, asyncio.AbstractEventLoop] | None] = SimpleQueue()
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self, work: Work, then: Then) -> None:
        """Have some work done; `then` is called in the event loop that runs now."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((work, then, asyncio.get_running_loop()))

    async def do(self, work: Callable[[], T]) -> T:
        """What some work brings. Raises what it raises."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def then(result: Any, problem: Exception | None) -> None:
            if done.done():
                return
            if problem is None:
                done.set_result(result)
            else:
                done.set_exception(problem)

        self.start(work, then)
        return await done

    def close(self) -> None:
        """Wait for what was given, and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, then, loop = job
            result, problem = None, None
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - told to whoever asked, in their thread
                problem = error
            try:
                loop.call_soon_threadsafe(then, result, problem)
            except RuntimeError:  # the loop has ended, and with it whoever waited
                continue
