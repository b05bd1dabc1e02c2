"""Deployments as they run: phases, processes, progress, failures; what `status` shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.records.finding import Finding

SCHEMA: Final = 1


class Phase(StrEnum):
    """How far a deployment has come, in order; then the ways in which it does not run."""

    PREFLIGHT = "preflight"
    IMAGE = "image"
    PROCESS = "process"
    FIT = "fit"
    WEIGHTS = "weights"
    MEMORY = "memory"
    GRAPHS = "graphs"
    WARM_UP = "warm_up"
    API = "api"
    READY = "ready"
    BACKOFF = "backoff"
    """Ended; will be started again at `restart_at`."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    """Ended because somebody asked for it."""
    FAILED = "failed"
    """Ended, and starting again would not help or was tried often enough."""
    LOST = "lost"
    """Its supervisor is gone without a word (killed, or the machine went down)."""

    @property
    def is_over(self) -> bool:
        """True when nothing of it runs, by its own account."""
        return self in (Phase.STOPPED, Phase.FAILED, Phase.LOST)


class Alive(StrEnum):
    """Whether the engine works, by its steps and not by its HTTP status."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    """Work is queued and no step was seen for a while; the second proof is being taken."""
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Progress inside a phase. `unit`: what `done` and `total` count (`shards`, `graphs`).

    `read_bytes` were read by the engine's processes since their start, disk cache included.
    """

    done: int | None = None
    total: int | None = None
    unit: str | None = None
    read_bytes: int | None = None
    eta_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessState:
    """The process of one rank. `started_ticks` tells it from a later one of the same number.

    `session` is the session its whole family is in; `keeper_pid` the process that holds it.
    `host` other than this machine: the pid is that machine's.
    """

    rank: int
    host: str
    log: str
    name: str = ""
    keeper_pid: int | None = None
    pid: int | None = None
    started_ticks: int | None = None
    session: int | None = None
    exit_code: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a start or a run ended. `code` is that of an error with a text in the catalogue.

    `cause_class`, `title`, `line`, `fix` and `next_command` come from the diagnosis, where the log
    shows a cause. `can_restart`: starting again can help.
    """

    code: str
    params: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    phase: str = ""
    at: str = ""
    cause_class: str | None = None
    title: str | None = None
    line: str | None = None
    fix: str | None = None
    source: str | None = None
    next_command: str | None = None
    can_restart: bool = False
    restart_reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunState:
    """One run of a deployment from `up` to its end, over all its attempts.

    Written by its supervisor alone. `attempt` counts starts of the engine from 1. `verdict` is the
    word of the verification after the start: `pending`, `pass`, `warn`, `fail`, `skipped`,
    `unknown`.
    """

    id: str
    deployment: str
    release: int
    folder: str
    started_at: str
    boot_id: str
    supervisor_pid: int | None = None
    attempt: int = 0
    phase: Phase = Phase.PREFLIGHT
    phase_at: str = ""
    progress: Progress = Progress()
    stalled_s: float | None = None
    is_late: bool = False
    processes: tuple[ProcessState, ...] = ()
    url: str | None = None
    ready_at: str | None = None
    ready_s: float | None = None
    alive: Alive = Alive.UNKNOWN
    alive_reason: str = ""
    restarts: int = 0
    restart_at: str | None = None
    failure: Failure | None = None
    findings: tuple[Finding, ...] = ()
    verdict: str = "pending"
    verdict_reasons: tuple[str, ...] = ()
    receipt_digest: str | None = None
    ended_at: str | None = None
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    """What is kept of a deployment: what somebody wants of it, and the release it is to run."""

    name: str
    wanted: str
    """`up` or `down`."""
    release: int
    model: str
    engine: str
    verify: bool = True
    ssh: tuple[str, ...] = ()
    """The command that reaches other hosts; empty = all processes are on this machine."""
    url: str | None = None
    """Where the API is, if somebody said so; None = by the launch, or the log."""
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class DeploymentStatus:
    """The truth about a deployment now: what was written down, checked against what runs.

    `ready`: it has answered and its processes are there. `pid` is the engine's on the first rank.
    `secrets_file` holds the key that clients need, not this record. `leftovers` are processes of an
    earlier run that still run without a supervisor.
    """

    name: str
    phase: Phase
    pid: int | None
    url: str | None
    ready: bool
    alive: Alive
    release: int
    wanted: str
    model: str
    engine: str
    supervisor_pid: int | None = None
    attempt: int = 0
    restarts: int = 0
    since: str | None = None
    ready_s: float | None = None
    progress: Progress = Progress()
    stalled_s: float | None = None
    is_late: bool = False
    alive_reason: str = ""
    restart_at: str | None = None
    verdict: str = "pending"
    verdict_reasons: tuple[str, ...] = ()
    failure: Failure | None = None
    findings: tuple[Finding, ...] = ()
    leftovers: tuple[int, ...] = ()
    log: str | None = None
    secrets_file: str | None = None
    processes: tuple[ProcessState, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusReport:
    """All deployments of this user on this machine."""

    deployments: tuple[DeploymentStatus, ...]
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One field in which two releases differ; None = not there."""

    field: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Supervision:
    """How a deployment is watched; times in seconds.

    `suspect_s` without a step while work is queued makes it suspect; a probe then has
    `probe_timeout_s`. An idle engine is asked for a token every `heartbeat_s`. A start without any
    sign of progress for `stall_s` is stalled. An engine that ended is started again at most
    `restart_limit` times within `restart_window_s`, after `backoff_s`, doubled each time up to
    `backoff_most_s`. `grace_s` is the time between asking an engine to end and ending it.
    """

    suspect_s: float = 30.0
    probe_timeout_s: float = 60.0
    heartbeat_s: float = 60.0
    look_s: float = 2.0
    stall_s: float = 600.0
    restart_limit: int = 5
    restart_window_s: float = 3600.0
    backoff_s: float = 2.0
    backoff_most_s: float = 300.0
    grace_s: float = 15.0
    schema: int = SCHEMA
