"""Something that may take long, in a thread that nobody has to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from heavylift.errors import HeavyliftError

T = TypeVar("T")


class Background(Generic[T]):
    """Runs a function at once. A daemon thread: an unanswered question keeps no process alive."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._values: list[T] = []
        self._error: HeavyliftError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._values.append(self._function())
        except HeavyliftError as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        """True when the result is there."""
        return not self._thread.is_alive()

    def result(self) -> T:
        """The result once done. Raises what the function raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        if not self._values:
            # The thread ended by a mistake of ours, which Python has printed.
            raise HeavyliftError("RUN039", {})
        return self._values[0]
