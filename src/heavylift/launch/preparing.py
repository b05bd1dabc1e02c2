"""What is done before a start: fetching an image, making a model. Each command under a keeper."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.launch.keepers import Kept
from heavylift.launch.phases import first_errors
from heavylift.records.deployment import Progress
from heavylift.records.launch import RankSpec

_POLL_S: Final = 0.05
_CLEAR_S: Final = 60.0
_LAYER: Final = re.compile(r"^([0-9a-f]{12}): (.+)$")
_HELD: Final = ("Already exists", "Pull complete")
_PERCENT: Final = re.compile(r"\b(\d{1,3})%")
_WHOLE: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Ways:
    """How a launch is prepared and cleared up after.

    `early` are commands of the node of each rank, in order, once; `late` those that need the server
    and are run when it listens. `clear` are commands before each start and after each end, whatever
    comes of them: they take away what a killed client may have left.
    """

    early: tuple[tuple[str, ...], ...] = ()
    late: tuple[tuple[str, ...], ...] = ()
    clear: tuple[tuple[str, ...], ...] = ()


def progress(lines: Sequence[str]) -> Progress:
    """How far a command is by its output: layers of an image, or the last percentage."""
    layers: dict[str, bool] = {}
    percent = None
    for line in lines:
        layer = _LAYER.match(line.strip())
        if layer is not None:
            layers[layer[1]] = layers.get(layer[1], False) or layer[2].startswith(_HELD)
        for found in _PERCENT.findall(line):
            percent = min(int(found), _WHOLE)
    if layers:
        return Progress(done=sum(layers.values()), total=len(layers), unit="layers")
    if percent is not None:
        return Progress(done=percent, total=_WHOLE, unit="percent")
    return Progress()


def prepare(
    commands: Sequence[tuple[str, ...]],
    ranks: Sequence[tuple[RankSpec, tuple[str, ...] | None]],
    *,
    folder: Path,
    cwd: Path | None,
    run_id: str,
    secrets: Mapping[str, str],
    check: Callable[[], None],
    told: Callable[[Progress], None],
) -> None:
    """Run every command on the host of each rank, a host once. `ranks` come with how ssh reaches
    them (None = this machine).

    `check` is called all the while and may raise; `told` gets the progress. Raises RUN043 for a
    command that fails.
    """
    hosts = {rank.host: (rank, ssh) for rank, ssh in reversed(list(ranks))}
    for place, (rank, ssh) in enumerate(reversed(list(hosts.values()))):
        for number, command in enumerate(commands):
            kept = Kept(
                replace(rank, argv=command),
                log=folder / f"prepare-{place}-{number}.log",
                ssh=ssh,
                cwd=cwd,
            )
            values = {variable: secrets[name] for variable, name in rank.secrets.items()}
            _run(kept, run_id, values, check, told)


def _run(
    kept: Kept,
    run_id: str,
    values: Mapping[str, str],
    check: Callable[[], None],
    told: Callable[[Progress], None],
) -> None:
    log = Path(kept.state.log)
    kept.start(run_id=run_id, environment=values, grace_s=1.0)
    try:
        while not kept.is_over:
            check()
            kept.look()
            told(progress(_lines(log)))
            time.sleep(_POLL_S)
    finally:
        kept.ask_to_stop(1.0)
        kept.wait(1.0)
    if kept.failed is not None or kept.state.exit_code != 0:
        raise HeavyliftError(
            "RUN043",
            {
                "command": " ".join(kept.rank.argv[:3]),
                "exit_code": kept.state.exit_code,
                "lines": kept.failed or "\n".join(first_errors(_lines(log))),
                "log": str(log),
            },
        )


def clear(ways: Ways) -> None:
    """Take away what an earlier client may have left. Nothing there is as good as taken away."""
    for command in ways.clear:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, check=False, capture_output=True, timeout=_CLEAR_S)  # noqa: S603 - words of a kept recipe


def _lines(log: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return re.split(r"[\r\n]+", log.read_text("utf-8", "replace"))
    return []
