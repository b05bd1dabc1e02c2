"""Keepers, seen from the supervisor: one per rank, here or at the other end of ssh."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from heavylift.errors import HeavyliftError, reason
from heavylift.launch import processes
from heavylift.records.deployment import ProcessState
from heavylift.records.launch import RankSpec

KEEPER: Final = Path(__file__).with_name("keeper.py")
_POLL_S: Final = 0.02
_KEEPER_END_S: Final = 15.0
SSH_OPTIONS: Final = (
    "-T",
    "-oBatchMode=yes",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oConnectTimeout=15",
)
# A constant: the program itself comes over standard input, and so does everything it is told.
_REMOTE: Final = (
    'exec python3 -u -c "import os,json;'
    "b=b'';\n"
    "while not b.endswith(b'\\n'): b+=os.read(0,1)\n"
    "exec(compile(json.loads(b),'keeper','exec'))\""
)


class Kept:
    """One engine process and its keeper."""

    def __init__(
        self, rank: RankSpec, *, log: Path, ssh: tuple[str, ...] | None, cwd: Path | None = None
    ) -> None:
        """`ssh` is the command that reaches the rank's host, None for this machine; `cwd` where
        the engine runs here.
        """
        self._cwd = None if cwd is None or ssh is not None else str(cwd)
        self.rank = rank
        self.state = ProcessState(rank=rank.rank, host=rank.host, name=rank.name, log=str(log))
        self.failed: str | None = None
        """Why it could not be started."""
        self._log = log
        self._ssh = ssh
        self._keeper: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def start(self, *, run_id: str, environment: Mapping[str, str], grace_s: float) -> None:
        """Start the keeper and give it its order. Secrets in `environment` go by the pipe alone.

        Raises RUN010 when the keeper cannot be started.
        """
        self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        argv: tuple[str, ...] = (sys.executable, "-I", "-S", str(KEEPER))
        if self._ssh is not None:
            argv = (*self._ssh, *SSH_OPTIONS, "--", self.rank.host, _REMOTE)
        own = {processes.RUN_VARIABLE: run_id}
        try:
            keeper = subprocess.Popen(  # noqa: S603 - constants, and a host of the recipe
                argv,
                stdin=subprocess.PIPE,
                stdout=descriptor,
                stderr=subprocess.PIPE,
                env=os.environ | own,
                start_new_session=True,
            )
        except OSError as error:
            params = {"program": argv[0], "reason": reason(error)}
            raise HeavyliftError("RUN010", params) from error
        finally:
            os.close(descriptor)
        self._keeper = keeper
        self.state = replace(self.state, keeper_pid=keeper.pid)
        order = {
            "argv": self.rank.argv,
            "env": {**self.rank.env, **own, **environment},
            "grace_s": grace_s,
            "cwd": self._cwd,
        }
        if keeper.stderr is not None:
            os.set_blocking(keeper.stderr.fileno(), False)
        if keeper.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                if self._ssh is not None:
                    keeper.stdin.write(json.dumps(KEEPER.read_text("utf-8")).encode() + b"\n")
                keeper.stdin.write(msgspec.json.encode(order) + b"\n")
                keeper.stdin.flush()

    def look(self) -> None:
        """Take in what the keeper has told."""
        keeper = self._keeper
        if keeper is None or keeper.stderr is None:
            return
        with contextlib.suppress(BlockingIOError):
            while block := os.read(keeper.stderr.fileno(), 65536):
                self._rest += block
        *whole, self._rest = self._rest.split(b"\n")
        for line in whole:
            self._told(line)
        code = keeper.poll()
        if code is not None and self.state.exit_code is None and self.failed is None:
            if self.state.pid is None:
                self.failed = f"keeper ended with status {code}"
            # The keeper was killed: the engine's first process went with it, by the kernel.
            self.state = replace(self.state, exit_code=-9 if code < 0 else code)

    def _told(self, line: bytes) -> None:
        try:
            told = json.loads(line)
            event = told["event"]
        except (ValueError, TypeError, KeyError):
            # What ssh has to say.
            with self._log.open("ab") as log:
                log.write(line + b"\n")
            return
        if event == "started":
            self.state = replace(
                self.state, pid=told["pid"], session=told["session"], started_ticks=told["ticks"]
            )
        elif event == "exited":
            self.state = replace(self.state, exit_code=told["code"])
        else:
            self.failed = str(told["reason"])

    @property
    def is_over(self) -> bool:
        """True when the engine is gone, or never came."""
        return self.failed is not None or self.state.exit_code is not None

    def ask_to_stop(self, grace_s: float) -> None:
        """Have the engine ended within `grace_s`; does not wait."""
        keeper = self._keeper
        if keeper is not None and keeper.stdin is not None and not keeper.stdin.closed:
            with contextlib.suppress(OSError):
                keeper.stdin.write(f"stop {grace_s}\n".encode())
                keeper.stdin.flush()

    def wait(self, wait_s: float) -> None:
        """Wait for the keeper to have ended everything; kill it when it does not."""
        keeper = self._keeper
        if keeper is None:
            return
        until = time.monotonic() + wait_s + _KEEPER_END_S
        while keeper.poll() is None and time.monotonic() < until:
            self.look()
            time.sleep(_POLL_S)
        self.look()
        if keeper.poll() is None:
            keeper.kill()
        keeper.wait()
        for stream in (keeper.stdin, keeper.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._keeper = None
