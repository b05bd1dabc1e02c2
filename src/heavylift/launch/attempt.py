"""One attempt: the processes of a launch, their logs, and the questions asked of their API."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from heavylift.errors import HeavyliftError
from heavylift.launch import preparing, processes
from heavylift.launch.keepers import Kept
from heavylift.launch.liveness import Probe
from heavylift.launch.log_bounds import bounded
from heavylift.launch.phases import first_errors
from heavylift.launch.preparing import Ways
from heavylift.launch.readiness import why_not_ready
from heavylift.launch.starting import Signs
from heavylift.records.deployment import ProcessState, Progress
from heavylift.records.launch import LaunchSpec, RankSpec, resolve
from heavylift.records.receipt import MeasuredTerm
from heavylift.telemetry import engine_queue
from heavylift.telemetry.engine_log import EngineWords, LogReader
from heavylift.telemetry.engine_queue import EngineQueue, MetricNames
from heavylift.wire.client import Client, Endpoint, Limits, ask
from heavylift.wire.failures import Failure as WireFailure
from heavylift.wire.reply import ChatRequest
from heavylift.wire.text_health import defect

_LOOPBACK: Final = "127.0.0.1"
_API: Final = "api"
_EFFORT_S: Final = 1.0
_CONNECT_S: Final = 1.0
_FIRST_TOKENS: Final = 32
_FILES: Final = "files"
_FILES_THERE: Final = "/tmp/heavylift-files"  # noqa: S108 - a folder of the run's, mode 700, see `keeper`
_CLIENTS: Final = frozenset(
    {"submitted.py", "docker", "podman", "ollama", "srun", "sbatch", "kubectl"}
)
"""Programs that have the work done elsewhere."""
_FIRST_ERRORS_BYTES: Final = 4 << 20
_UNANSWERED: Final = frozenset(
    {
        WireFailure.TIMEOUT_CONNECT,
        WireFailure.TIMEOUT_FIRST_BYTE,
        WireFailure.TIMEOUT_GAP,
        WireFailure.TIMEOUT_TOTAL,
        WireFailure.GATEWAY_TIMEOUT,
    }
)
_BROKEN: Final = frozenset(
    {
        WireFailure.CONNECT,
        WireFailure.DISCONNECTED,
        WireFailure.SERVER_ERROR,
        WireFailure.MALFORMED,
        WireFailure.STREAM_BROKEN,
        WireFailure.ABORTED,
    }
)
_BUSY: Final = frozenset({WireFailure.OVERLOADED, WireFailure.RATE_LIMITED})


_MPI_TARGET: Final = "slurm"


class Attempt:
    """The processes of one start and what is known of them."""

    def __init__(
        self,
        spec: LaunchSpec,
        *,
        words: EngineWords,
        folder: Path,
        run_id: str,
        secrets: Mapping[str, str],
        ssh: tuple[str, ...] = (),
        url: str | None = None,
        cwd: Path | None = None,
        ways: Ways = Ways(),  # noqa: B008 - frozen
    ) -> None:
        """`url`: where the API is, if that is known to whoever started it. `cwd`: the recipe's
        folder, which words of it may be relative to. `ways`: what is done before and after.
        """
        self._ways = ways
        self._folder = folder
        self._cwd = cwd
        self._ssh = ssh
        self._spec = spec
        self._url = url
        self._run_id = run_id
        self._secrets = secrets
        hosts = {each.name: each.host for each in spec.ranks}
        self._files = folder / _FILES
        there = f"{_FILES_THERE}-{run_id}"
        ranks = [
            resolve(each, hosts, str(self._files) if each.host in processes.LOCAL else there)
            for each in spec.ranks
        ]
        self._kept = [
            Kept(
                rank,
                log=folder / f"{rank.name or f'rank-{rank.rank}'}.log",
                ssh=None if rank.host in processes.LOCAL else ssh,
                cwd=cwd,
                files=None if rank.host in processes.LOCAL else (there, spec.files),
            )
            for rank in ranks
        ]
        self._readers = [LogReader(words) for _ in ranks]
        self._read_to = [0 for _ in ranks]
        self._effort = (-1.0, processes.Effort())
        self._serving = serving_rank(ranks)
        self.key = key_of(ranks[self._serving], secrets)
        self.model = spec.served_name or spec.model

    # --- start and end ---------------------------------------------------------------------------

    def check(self) -> None:
        """What can be known before anything is started: who starts it, the program, the port.

        Raises REC116 for ranks that only MPI can start, RUN010, RUN033.
        """
        if any(kept.rank.tasks > 1 for kept in self._kept):
            raise HeavyliftError("REC116", {"engine": self._spec.engine, "target": _MPI_TARGET})
        for kept in self._kept:
            if kept.rank.host not in processes.LOCAL:
                continue
            program = kept.rank.argv[0]
            if shutil.which(program, path=kept.rank.env.get("PATH")) is None:
                raise HeavyliftError(
                    "RUN010", {"program": program, "reason": os.strerror(2).lower()}
                )
            for port in kept.rank.ports.values():
                _check_port(port)

    def clear(self) -> None:
        """Take away what a client that was killed has left elsewhere."""
        preparing.clear(self._ways)

    def prepare(
        self,
        commands: Sequence[tuple[str, ...]],
        check: Callable[[], None],
        told: Callable[[Progress], None],
    ) -> None:
        """Do what a start needs done before; see `preparing.prepare`. Raises RUN043."""
        self._write_files()
        first = self._kept[0].rank
        folder = str(self._files) if first.host in processes.LOCAL else None
        preparing.prepare(
            [
                resolve(replace(first, argv=command, env={}), {}, folder or ".").argv
                for command in commands
            ],
            [
                (kept.rank, None if kept.rank.host in processes.LOCAL else self._ssh)
                for kept in self._kept
                if kept.rank.gpus != 0 or len(self._kept) == 1
            ],
            folder=self._folder,
            cwd=self._cwd,
            run_id=self._run_id,
            secrets=self._secrets,
            check=check,
            told=told,
        )

    def _write_files(self) -> None:
        """Contents that ranks read: for them alone, they may hold keys."""
        if not self._spec.files:
            return
        self._files.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, content in self._spec.files.items():
            descriptor = os.open(
                self._files / Path(name).name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
            )
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(content)

    def start(self, *, grace_s: float) -> None:
        """Start every rank. Raises RUN010."""
        self._write_files()
        for kept in self._kept:
            values = {variable: self._secrets[name] for variable, name in kept.rank.secrets.items()}
            kept.start(run_id=self._run_id, environment=values, grace_s=grace_s)

    def stop(self, grace_s: float) -> None:
        """End every process, whatever state it is in; nothing of the run is left afterwards."""
        for kept in self._kept:
            kept.ask_to_stop(grace_s)
        for kept in self._kept:
            kept.wait(grace_s)
        self.look()
        processes.end(processes.of_run(self._run_id, self.states()), grace_s=0.0)
        self.clear()

    def look(self) -> None:
        """Take in what keepers and logs have told since the last look."""
        for number, kept in enumerate(self._kept):
            kept.look()
            with contextlib.suppress(FileNotFoundError), Path(kept.state.log).open("rb") as log:
                log.seek(self._read_to[number])
                block = log.read()
                self._read_to[number] += len(block)
                self._readers[number].feed(block)

    def bound_logs(self, limit_bytes: int) -> None:
        """Put aside what a log has over its limit, once all of it was read."""
        for number, kept in enumerate(self._kept):
            if self._read_to[number] > limit_bytes and bounded(Path(kept.state.log), limit_bytes):
                self._read_to[number] = 0

    def raise_if_over(self) -> None:
        """Raises RUN010 when a rank could not be started, RUN011 when one has ended."""
        for kept in self._kept:
            if kept.failed is not None:
                raise HeavyliftError(
                    "RUN010", {"program": kept.rank.argv[0], "reason": kept.failed}
                )
        over = [kept for kept in self._kept if kept.is_over]
        if over:
            self.look()
            log = Path(over[0].state.log)
            with log.open("rb") as file:
                lines = file.read(_FIRST_ERRORS_BYTES).decode("utf-8", "replace").splitlines()
            raise HeavyliftError(
                "RUN035",
                {
                    "rank": over[0].rank.name or over[0].rank.rank,
                    "exit_code": over[0].state.exit_code,
                    "lines": "\n".join(first_errors(lines)),
                    "log": str(log),
                },
            )

    def was_killed(self) -> bool:
        """True when a process was ended by SIGKILL, which no engine does to itself."""
        return any(kept.state.exit_code == -signal.SIGKILL for kept in self._kept)

    # --- what is known ---------------------------------------------------------------------------

    def states(self) -> tuple[ProcessState, ...]:
        """The processes."""
        return tuple(kept.state for kept in self._kept)

    def logs(self) -> tuple[Path, ...]:
        """The logs, the first rank's first."""
        return tuple(Path(kept.state.log) for kept in self._kept)

    def phase(self) -> str | None:
        """The phase the log of the serving rank tells; of another where that tells none."""
        order = (self._readers[self._serving], *self._readers)
        return next((reader.phase for reader in order if reader.phase is not None), None)

    def progress(self) -> tuple[int | None, int | None, str | None]:
        """Done, total and their unit, of the first rank that tells them."""
        for reader in self._readers:
            if reader.total is not None:
                return reader.done, reader.total, reader.unit
        return None, None, None

    def terms(self) -> tuple[MeasuredTerm, ...]:
        """Memory terms of all logs; ranks with logs of their own are told apart by their names."""
        if len(self._readers) == 1:
            return self._readers[0].measured_terms()
        return tuple(
            replace(term, device=f"{kept.rank.name or kept.rank.rank}.{term.device}")
            for kept, reader in zip(self._kept, self._readers, strict=True)
            for term in reader.measured_terms()
        )

    def figures(self) -> dict[str, float]:
        """Figures of the logs; the serving rank's count where several tell one."""
        found: dict[str, float] = {}
        for reader in (*self._readers, self._readers[self._serving]):
            found |= reader.figures
        return found

    def signs(self, now_s: float) -> Signs:
        """Signs of progress. Counting bytes walks the process table: once a second is enough."""
        taken_s, effort = self._effort
        if now_s - taken_s >= _EFFORT_S:
            effort = self._efforts()
            self._effort = (now_s, effort)
        return Signs(
            news=sum(reader.news for reader in self._readers),
            moved_bytes=effort.read_bytes + effort.written_bytes,
            cpu_s=effort.cpu_s,
        )

    @property
    def is_seen_whole(self) -> bool:
        """True when all that computes are processes of this machine: of a container or another host
        only the client is seen.
        """
        return all(
            kept.rank.host in processes.LOCAL
            and not any(Path(word).name in _CLIENTS for word in kept.rank.argv[:3])
            for kept in self._kept
        )

    def cpu_s(self) -> float:
        """Seconds of CPU used by the processes on this machine."""
        return self._efforts().cpu_s

    def _efforts(self) -> processes.Effort:
        each = [
            processes.effort(kept.state.session, kept.state.keeper_pid)
            for kept in self._kept
            if kept.rank.host in processes.LOCAL
        ]
        return processes.Effort(
            read_bytes=sum(one.read_bytes for one in each),
            written_bytes=sum(one.written_bytes for one in each),
            cpu_s=sum(one.cpu_s for one in each),
        )

    # --- the API ---------------------------------------------------------------------------------

    def address(self) -> str | None:
        """Where the API is: by the launch, or as the log says; None = not known yet."""
        if self._url is not None:
            return self._url
        rank = self._kept[self._serving].rank
        port = rank.ports.get(_API) or self._spec.served_port
        host = _LOOPBACK if rank.host in processes.LOCAL else rank.host
        if port:
            return f"http://{host}:{port}"
        return self._readers[self._serving].address

    def listens(self) -> bool:
        """True when something takes connections where the API is to be."""
        address = urlsplit(self.address() or "")
        if address.hostname is None or address.port is None:
            return False
        with (
            contextlib.suppress(OSError),
            socket.create_connection((address.hostname, address.port), _CONNECT_S),
        ):
            return True
        return False

    def why_not_ready(self) -> str | None:
        """None when the model is listed and has generated a token."""
        address = self.address()
        if address is None:
            return "address"
        return why_not_ready(address, model=self.model, key=self.key)

    def probe(self, timeout_s: float) -> Probe:
        """What becomes of one token asked for now."""
        request = ChatRequest(
            model=self.model,
            messages=({"role": "user", "content": f"{time.time_ns()}"},),
            stream=False,
            max_tokens=1,
            extra={"temperature": 0},
        )
        limits = Limits(connect_s=timeout_s, first_byte_s=timeout_s, total_s=timeout_s)
        outcome = ask(self._endpoint(), request, limits=limits)
        usage = outcome.reply.usage
        if usage is not None and usage.completion_tokens:
            return Probe.ANSWERED
        if outcome.failure in _UNANSWERED:
            return Probe.TIMED_OUT
        if outcome.failure in _BROKEN:
            return Probe.BROKEN
        return Probe.REFUSED if outcome.failure in _BUSY else Probe.ANSWERED

    def first_words(self) -> str | None:
        """What is wrong with a short greedy answer, whatever it says; None = it is text."""
        request = ChatRequest(
            model=self.model,
            messages=({"role": "user", "content": "Describe a harbour in the morning."},),
            stream=False,
            max_tokens=_FIRST_TOKENS,
            extra={"temperature": 0},
        )
        reply = ask(self._endpoint(), request, limits=Limits(first_byte_s=120.0, gap_s=120.0)).reply
        return defect(reply.text) or defect(reply.reasoning)

    def metrics_page(self) -> str | None:
        """The engine's metrics; None where it has none, or does not answer."""

        async def page() -> str | None:
            limits = Limits(connect_s=5.0, first_byte_s=10.0, total_s=20.0)
            async with Client(self._endpoint(), limits=limits) as client:
                return await client.page("/metrics")

        with contextlib.suppress(HeavyliftError):
            return asyncio.run(page())
        return None

    @staticmethod
    def queue(page: str, names: MetricNames) -> EngineQueue:
        """The engine's own figures on a page."""
        return engine_queue.read(page, names)

    def _endpoint(self) -> Endpoint:
        return Endpoint.parse(self.address() or "", self.key or None)


def serving_rank(ranks: Sequence[RankSpec]) -> int:
    """The place of the rank that answers HTTP."""
    found = (number for number, rank in enumerate(ranks) if rank.serves or _API in rank.ports)
    return next(found, 0)


def key_of(rank: RankSpec, secrets: Mapping[str, str]) -> str:
    """The key clients need: the secret that the serving rank has under a name of such."""
    for variable, name in rank.secrets.items():
        if "API_KEY" in variable.upper() or "api-key" in name:
            return secrets.get(name, "")
    return ""


def _check_port(port: int) -> None:
    if not port:
        return
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # As servers do: what lingers of an ended one is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise HeavyliftError(
                "RUN033", {"port": port, "reason": error.strerror or str(error)}
            ) from error
