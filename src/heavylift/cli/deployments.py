"""What the commands on deployments share: following a run, and saying how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from heavylift.cli.text import text
from heavylift.errors import Exit
from heavylift.records.sink import Sink

if TYPE_CHECKING:
    from heavylift.operate.operations import Begun
    from heavylift.records.deployment import DeploymentStatus, RunState


def follow(out: Sink, begun: Begun) -> int:
    """Show a run's phases until it serves and is verified, then its status; the exit status."""
    from heavylift.operate import operations
    from heavylift.records.deployment import Phase

    followed = operations.follow(begun, _teller(out))
    shown = status(begun.name)
    out.record("status", shown)
    if followed.is_sound:
        out.next_command(f"heavylift logs -f {begun.name}")
        return Exit.OK
    if followed.run.phase is Phase.READY:
        out.next_command(f"heavylift rollback {begun.name}")
        return Exit.NEGATIVE
    failure = followed.run.failure
    wanted = None if failure is None else failure.next_command
    out.next_command(wanted or f"heavylift diagnose {shown.log or '--last'}")
    return Exit.ENGINE


def status(name: str) -> DeploymentStatus:
    """The status of one deployment."""
    from heavylift.operate import truth
    from heavylift.state.deployments import deployments_path, open_deployments

    with open_deployments(deployments_path()) as store:
        return truth.report(store, name).deployments[0]


def _teller(out: Sink) -> Callable[[RunState], None]:
    told: list[str] = []

    def tell(run: RunState) -> None:
        for line in _lines(run):
            if line not in told:
                told.append(line)
                out.note("up.line", line=line)

    return tell


def _lines(run: RunState) -> list[str]:
    """What is new about a run, each line once."""
    prefix = "" if run.attempt <= 1 else text("up.attempt", number=run.attempt)
    progress = run.progress
    if progress.done is not None and progress.total:
        share = text(f"up.unit.{progress.unit}", done=progress.done, total=progress.total)
        return [f"· {prefix}{text(f'phase.{run.phase}')}: {share}"]
    lines = [f"· {prefix}{text(f'phase.{run.phase}')}"]
    if run.stalled_s is not None:
        lines.append(f"! {text('up.stalled', phase=text(f'phase.{run.phase}'))}")
    if run.is_late:
        lines.append(f"! {text('up.late')}")
    if run.phase == "ready" and run.verdict == "pending":
        lines.append(f"· {text('up.verifying')}")
    return lines
