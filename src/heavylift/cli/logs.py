"""`heavylift logs`: what the engine of a deployment writes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from heavylift.cli.text import printable, text
from heavylift.errors import HeavyliftError

_POLL_S = 0.2
_BLOCK = 1 << 16


@click.command(help=text("help.logs"))
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help=text("logs.follow"))
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help=text("logs.lines"),
)
@click.option("--attempt", type=click.IntRange(min=1), help=text("logs.attempt"))
@click.option(
    "--rank", type=click.IntRange(min=0), default=0, show_default=True, help=text("logs.rank")
)
def command(name: str, follow: bool, lines: int, attempt: int | None, rank: int) -> None:
    """Print the last lines of the log, and what comes with `-f` until the run is over."""
    from heavylift.operate import truth
    from heavylift.state.deployments import deployments_path, open_deployments

    with open_deployments(deployments_path()) as store:
        truth.require(store, name)
        run = next(iter(store.runs(name, most=1)), None)
        path = None
        if run is not None and rank < len(run.processes):
            path = Path(run.processes[rank].log)
            if attempt is not None:
                path = path.parent.with_name(f"attempt-{attempt}") / path.name
        if path is None or not path.is_file():
            raise HeavyliftError("OPS005", {"name": name})
        at = _tail(path, lines)
        while follow:
            # Looked at before the log: the last lines of an ended run are still printed.
            run = store.runs(name, most=1)[0]
            is_over = run.phase.is_over or truth.supervisor_pid(name) is None
            newer = Path(run.processes[rank].log) if rank < len(run.processes) else path
            at = _print_from(path, at)
            if is_over:
                return
            if attempt is None and newer != path and newer.is_file():
                path, at = newer, 0
            time.sleep(_POLL_S)


def _tail(path: Path, lines: int) -> int:
    """Print the last lines; the place behind them."""
    with path.open("rb") as log:
        end = log.seek(0, 2)
        at = end
        block = b""
        while at > 0 and block.count(b"\n") <= lines:
            at = max(0, at - _BLOCK)
            log.seek(at)
            block = log.read(end - at)
    kept = block.splitlines(keepends=True)[-lines:] if lines else []
    _print(b"".join(kept))
    return end


def _print_from(path: Path, at: int) -> int:
    with path.open("rb") as log:
        log.seek(at)
        block = log.read()
    _print(block)
    return at + len(block)


def _print(block: bytes) -> None:
    """A stranger's words may not steer the terminal."""
    for line in block.decode("utf-8", "replace").splitlines():
        sys.stdout.write(printable(line.replace("\t", "  ")) + "\n")
    sys.stdout.flush()
