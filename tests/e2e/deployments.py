"""Deployments of scripted engines for tests: recipes, waiting, what is left running."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from heavylift.launch import processes
from heavylift.operate import operations, truth
from heavylift.operate.operations import Begun, UpWish
from heavylift.plan.receipts import compare
from heavylift.records.deployment import DeploymentStatus, Phase, RunState, Supervision
from heavylift.records.launch import LaunchSpec, RankSpec
from heavylift.records.plan import Plan, TermComparison
from heavylift.state.deployments import deployments_path, open_deployments

Command = Callable[..., tuple[int, str, str]]
"""`heavylift("status", "d")`: status, output, errors of the command."""

WAIT_S = 60.0
"""Longer than anything here takes on a machine with much other work."""

QUICK = Supervision(
    suspect_s=1.5,
    probe_timeout_s=5.0,
    heartbeat_s=1.0,
    look_s=0.1,
    stall_s=20.0,
    restart_limit=2,
    backoff_s=0.1,
    grace_s=2.0,
)
"""A day of supervision in seconds."""


def free_port() -> int:
    """A port nobody has now."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_recipe(
    folder: Path,
    scenario: str,
    *,
    rules: Supervision = QUICK,
    port: int | None = None,
    deadline_s: int = 60,
    version: str = "1",
    engine: str = "scripted",
) -> Path:
    """A recipe's folder for a scripted engine: `scenario` is a shipped name or a TOML text.

    `engine` is whose words its log is read by.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = scenario
    if "\n" in scenario:
        path = folder / "scenario.toml"
        path.write_text(scenario)
        name = str(path)
    port = free_port() if port is None else port
    rank = RankSpec(
        rank=0,
        host="127.0.0.1",
        argv=(sys.executable, "-m", "heavylift", "dev", "engine", name, f"--port={port}"),
        ports={"api": port},
        name="serve-0",
        serves=True,
    )
    spec = LaunchSpec(
        engine=engine,
        engine_version=version,
        image_digest=None,
        model="scripted",
        model_revision=None,
        ranks=(rank,),
        expected_phases=(),
        deadline_s=deadline_s,
        plan_digest="sha256:0",
    )
    (folder / "launch.json").write_bytes(msgspec.json.encode(spec))
    (folder / "supervision.json").write_bytes(msgspec.json.encode(rules))
    return folder


@dataclass
class Field:
    """A field of deployments for one test: what it starts is stopped when the test ends."""

    names: list[str] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)

    def up(self, folder: Path, name: str = "d", **more: object) -> Begun:
        """Begin a deployment without verification."""
        self.names.append(name)
        wish = UpWish(source=folder, name=name, verify=False)
        return operations.up(replace(wish, **more))  # type: ignore[arg-type]

    def follow(self, begun: Begun) -> RunState:
        """Follow it until it serves or is over."""
        self.phases.clear()

        def note(run: RunState) -> None:
            if not self.phases or self.phases[-1] is not run.phase:
                self.phases.append(run.phase)

        return operations.follow(begun, note).run

    def status(self, name: str = "d") -> DeploymentStatus:
        """Its status now."""
        with open_deployments(deployments_path()) as store:
            return truth.report(store, name).deployments[0]

    def until(
        self, wanted: Callable[[DeploymentStatus], bool], name: str = "d", wait_s: float = WAIT_S
    ) -> DeploymentStatus:
        """The first status that is as wanted."""
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            status = self.status(name)
            if wanted(status):
                return status
            time.sleep(0.02)
        raise AssertionError(self.status(name))

    def run(self, name: str = "d") -> RunState:
        """Its newest run."""
        with open_deployments(deployments_path()) as store:
            return store.runs(name, most=1)[0]

    def everything(self, name: str = "d") -> tuple[int, ...]:
        """Every process of the newest run."""
        run = self.run(name)
        return processes.of_run(run.id, run.processes)


@contextlib.contextmanager
def field_of_deployments() -> Iterator[Field]:
    """A field; at its end nothing of it runs."""
    there = Field()
    try:
        yield there
    finally:
        for name in dict.fromkeys(there.names):
            operations.down(name)
            assert there.everything(name) == ()


def kill(*pids: int | None) -> None:
    """`kill -9`, all at once."""
    for pid in pids:
        assert pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def gone(pids: tuple[int, ...]) -> bool:
    """True once none of them runs, within the wait."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if not any(processes.is_running(pid, None) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def status_of(heavylift: Command, *words: str) -> dict[str, Any]:
    """The first deployment of `status --json`."""
    _, out, _ = heavylift("status", *words, "--json")
    found: dict[str, Any] = json.loads(out)["deployments"][0]
    return found


def compared(deployed: Field, recipe: Path) -> dict[str, TermComparison]:
    """Every term that a run's log told, against the plan in its recipe's folder."""
    plan = msgspec.json.decode((recipe / "plan.json").read_bytes(), type=Plan)
    with open_deployments(deployments_path()) as store:
        digest = deployed.run().receipt_digest
        (receipt,) = store.receipts(
            model=plan.model,
            variant=plan.variant,
            engine=plan.engine,
            rack=plan.rack.label,
            layout=plan.layout,
        )
        assert store.save_receipt(receipt) == digest
    return {each.term: each for each in compare(plan, receipt)}
