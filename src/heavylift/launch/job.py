"""What a supervisor is given: the launch to keep running, and what other stages do for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from heavylift.launch.attempt import Attempt
from heavylift.launch.preparing import Ways
from heavylift.records.deployment import Deployment, Failure, RunState, Supervision
from heavylift.records.finding import Finding
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Plan
from heavylift.telemetry.engine_log import EngineWords
from heavylift.telemetry.engine_queue import MetricNames


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What to keep running. `secrets` holds the values by the names the launch uses."""

    deployment: Deployment
    spec: LaunchSpec
    plan: Plan | None
    folder: Path
    secrets: Mapping[str, str]
    rules: Supervision
    metrics: MetricNames
    words: EngineWords
    restarts: Mapping[str, bool]
    recipe_folder: Path
    ways: Ways = field(default_factory=Ways)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """An engine that has answered, for the hooks: where, with which key, what its logs tell."""

    url: str
    key: str
    model: str
    logs: tuple[Path, ...]
    attempt: Attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """A verification's word and the names of what failed; `findings` join those of the run."""

    verdict: str
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Memory of the start against the plan; `receipt_digest` None = the log told nothing."""

    findings: tuple[Finding, ...] = ()
    receipt_digest: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """What other stages do for a deployment. Each may raise `HeavyliftError`: then it said nothing.

    `explain` completes a failure from the logs; `prove` verifies (None = nobody wants that), in a
    thread of its own; `measure` reads the memory; `save` keeps a run, False = not this time;
    `judged` keeps a verdict; `watch` is given the engine's metrics page (None = it has none) at
    every look, in a thread.
    """

    explain: Callable[[Failure, tuple[Path, ...]], Failure]
    measure: Callable[[Ready], Measured]
    save: Callable[[RunState], bool | None]
    judged: Callable[[RunState, Proof], None]
    prove: Callable[[Ready], Proof] | None = None
    watch: Callable[[Ready, str | None], None] | None = None
