"""Target `shell`: one script per rank, which becomes the engine (`exec`)."""

from __future__ import annotations

from typing import Final

from heavylift.records.launch import RankSpec
from heavylift.recipe.targets import common
from heavylift.recipe.targets.job import Job
from heavylift.recipe.targets.records import Rendering, Stage, Step, TargetFile
from heavylift.recipe.targets.words import (
    command_lines,
    export_lines,
    needed_files,
    needed_variables,
    required_lines,
    shell_word,
    source_lines,
)

TARGET: Final = "shell"
HERE: Final = 'here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)'


def render(job: Job) -> Rendering:
    """A script per rank, and the files of addresses and secrets that they read."""
    scripts = tuple(rank_script(job, rank) for rank in job.ranks)
    return Rendering(
        target=TARGET,
        files=(*scripts, *common.host_files(job)),
        steps=(
            *common.prepare_steps(job),
            *(
                Step(
                    stage=Stage.START,
                    what="script",
                    argv=("bash", script_path(rank)),
                    rank=rank.name,
                )
                for rank in job.ranks
            ),
            *common.watch_steps(job, common.local_address(job)),
        ),
        findings=job.findings(),
    )


def script_path(rank: RankSpec) -> str:
    """The path of a rank's script."""
    return f"{rank.name}.sh"


def rank_script(job: Job, rank: RankSpec, *, reads_files: bool = True) -> TargetFile:
    """The script of one rank on the host. `reads_files` False: who starts it sets the variables."""
    lines = command_lines(shell_word(word, rank) for word in rank.argv)
    text = common.script(
        job,
        prelude(job, rank, reads_files=reads_files),
        export_lines(rank),
        [f"exec {lines[0]}", *lines[1:]],
    )
    return TargetFile(path=script_path(rank), text=text, mode=common.SCRIPT_MODE)


def prelude(job: Job, rank: RankSpec, *, reads_files: bool) -> list[str]:
    """Lines that read what the rank needs from files, and stop when something is not there."""
    files = needed_files(job, (rank,)) if reads_files else ()
    read = [HERE, *source_lines('"$here"', files)] if files else []
    return [*read, *required_lines(needed_variables(job, rank))]
