"""Runs a launch: starts the process, waits for a real token, and leaves nothing behind.

The process gets a process group of its own, so that Ctrl-C in the terminal reaches heavylift alone
and the engine is stopped in order. An engine that heavylift cannot stop any more (it was killed)
ends by itself: it asks the kernel for that, see `embedded_child`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.launch.phases import first_errors
from heavylift.launch.readiness import why_not_ready
from heavylift.records.launch import LaunchSpec, RankSpec
from heavylift.telemetry.engine_log import EngineWords, LogReader

GRACE_S: Final = 5.0
_POLL_S: Final = 0.05
_RUNNER_PID: Final = "HEAVYLIFT_RUNNER_PID"

OnPhase = Callable[[str], None]


class Served:
    """A running engine that has answered. A context manager: leaving it stops the engine."""

    def __init__(self, spec: LaunchSpec, process: subprocess.Popen[bytes], log: Path) -> None:
        self.spec = spec
        self.log = log
        self.address = ""
        """`http://127.0.0.1:port`, known once the engine listens."""
        self._process = process

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def log_lines(self) -> list[str]:
        """The log as far as it is written."""
        return self.log.read_text("utf-8", "replace").splitlines()

    def stop(self, grace_s: float = GRACE_S) -> None:
        """End the engine: asked first, killed after `grace_s`. Does nothing when it is gone."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        # Also when the leader is gone: what it started may not be.
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def serve(
    spec: LaunchSpec,
    *,
    secrets: Mapping[str, str],
    log: Path,
    on_phase: OnPhase | None = None,
) -> Served:
    """Start the one rank of `spec` on this machine and wait until it has generated a token.

    `secrets` gives the value of each secret the rank names. The log is written to `log`, readable
    by its owner alone. `on_phase` is called with each phase as it begins.

    Raises RUN010 when the program cannot be started, RUN011 when it ends early, RUN012 when it has
    not answered by the deadline; by then the process is gone.
    """
    (rank,) = spec.ranks
    served = Served(spec, _start(rank, secrets, log), log)
    try:
        _wait(served, secrets, on_phase or (lambda _phase: None))
    except BaseException:  # also KeyboardInterrupt: whatever ends the wait ends the engine
        served.stop()
        raise
    return served


def run_to_end(argv: tuple[str, ...], *, log: Path, timeout_s: float) -> list[str]:
    """The log lines of a program that ends by itself, such as a fit pass.

    Raises RUN010 when it cannot be started, RUN011 when it fails and RUN012 after `timeout_s`.
    """
    rank = RankSpec(rank=0, host="127.0.0.1", argv=argv)
    process = _start(rank, {}, log)
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired as error:
        raise HeavyliftError(
            "RUN012", {"deadline_s": timeout_s, "reason": "running", "log": str(log)}
        ) from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = log.read_text("utf-8", "replace").splitlines()
    if code != 0:
        raise _ended(code, lines, log)
    return lines


def _start(rank: RankSpec, secrets: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    # Call it from the main thread: the kernel ties an engine's "end with the parent" to the thread
    # that started it.
    environment = os.environ | rank.env | {_RUNNER_PID: str(os.getpid())}
    environment |= {variable: secrets[name] for variable, name in rank.secrets.items()}
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 - an argument list made by a recipe, no shell
            rank.argv,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise HeavyliftError(
            "RUN010", {"program": rank.argv[0], "reason": error.strerror or type(error).__name__}
        ) from error
    finally:
        os.close(descriptor)


def _wait(served: Served, secrets: Mapping[str, str], on_phase: OnPhase) -> None:
    spec = served.spec
    deadline = time.monotonic() + spec.deadline_s
    watch = _LogWatch(spec.engine, served.log, on_phase)
    key = next((secrets[name] for name in spec.ranks[0].secrets.values()), "")
    reason = "start"
    while time.monotonic() < deadline:
        address = watch.address()
        code = served.exit_code
        if code is not None:
            raise _ended(code, served.log_lines(), served.log)
        if address is not None:
            problem = why_not_ready(address, model=spec.model, key=key)
            if problem is None:
                served.address = address
                return
            reason = problem
        time.sleep(_POLL_S)
    raise HeavyliftError(
        "RUN012", {"deadline_s": spec.deadline_s, "reason": reason, "log": str(served.log)}
    )


class _LogWatch:
    """Follows a log as it grows, for phases and the address the engine says it listens on."""

    def __init__(self, engine: str, log: Path, on_phase: OnPhase) -> None:
        self._log = log
        self._on_phase = on_phase
        self._at = 0
        self._phase: str | None = None
        self._reader = LogReader(EngineWords(Catalog().engine_logs(), engine))

    def address(self) -> str | None:
        """The address, once the engine has printed it."""
        with self._log.open("rb") as file:
            file.seek(self._at)
            # Line by line: several phases may have passed since the last look.
            for line in file:
                self._at += len(line)
                self._reader.feed(line)
                phase = self._reader.phase
                if phase is not None and phase != self._phase:
                    self._phase = phase
                    self._on_phase(phase)
        return self._reader.address


def _ended(code: int, lines: list[str], log: Path) -> HeavyliftError:
    return HeavyliftError(
        "RUN011", {"exit_code": code, "lines": "\n".join(first_errors(lines)), "log": str(log)}
    )
