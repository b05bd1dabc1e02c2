"""Target `shell`: one script per rank, which becomes the engine (`exec`)."""

from __future__ import annotations

from typing import Final

from heavylift.recipe.targets import common
from heavylift.recipe.targets.records import Rendering, Stage, Step, TargetFile
from heavylift.recipe.targets.view import LaunchView, used_files
from heavylift.recipe.targets.words import (
    HERE,
    HERE_LINE,
    HOSTS_FILE,
    SECRETS_FILE,
    command_lines,
    export_lines,
    needed_files,
    needed_variables,
    required_lines,
    shell_word,
    source_lines,
)
from heavylift.records.launch import RankSpec

TARGET: Final = "shell"


def render(view: LaunchView) -> Rendering:
    """A script per rank, and the files of addresses and secrets that they read."""
    scripts = tuple(rank_script(view, rank) for rank in view.ranks)
    return Rendering(
        target=TARGET,
        files=(*scripts, *common.host_files(view)),
        steps=(
            *common.prepare_steps(view),
            *(
                Step(
                    stage=Stage.START,
                    what="script",
                    argv=("bash", script_path(rank)),
                    rank=rank.name,
                )
                for rank in view.ranks
            ),
            *common.watch_steps(view),
        ),
        findings=view.findings(),
        deadline_at=common.deadline_places(view, script_path),
    )


def script_path(rank: RankSpec) -> str:
    """The path of a rank's script."""
    return f"{rank.name}.sh"


def rank_script(
    view: LaunchView,
    rank: RankSpec,
    *,
    reads: tuple[str, ...] = (HOSTS_FILE, SECRETS_FILE),
    moves: bool = True,
) -> TargetFile:
    """The script of one rank on the host.

    `reads` are the files of variables it may read; what is not there its starter sets. `moves`
    False: it runs in a container and sees folders by the container's paths.
    """
    rank = view.on_host(rank) if moves else rank
    lines = command_lines(shell_word(word, rank) for word in rank.argv)
    text = common.script(
        view,
        prelude(view, rank, reads),
        export_lines(rank),
        [f"exec {lines[0]}", *lines[1:]],
    )
    return TargetFile(path=script_path(rank), text=text, mode=common.SCRIPT_MODE)


def prelude(view: LaunchView, rank: RankSpec, reads: tuple[str, ...]) -> list[str]:
    """Lines that read what the rank needs from files, and stop when something is not there."""
    files = tuple(name for name in needed_files(view, (rank,)) if name in reads)
    return [
        *([HERE_LINE] if files or used_files(rank) else []),
        *source_lines(HERE, files),
        *required_lines(needed_variables(view, rank)),
    ]
