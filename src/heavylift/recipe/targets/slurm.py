"""Target `slurm`: a batch script; a task per node, ranks from Slurm, the head from scontrol.

Ranks that MPI starts have a task per card; Slurm is their launcher (PMIx).
"""

from __future__ import annotations

from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.targets import common, docker, shell
from heavylift.recipe.targets.records import Rendering, Runtime, Stage, Step, TargetFile
from heavylift.recipe.targets.view import LaunchView, host_variable
from heavylift.recipe.targets.words import (
    HERE_LINE,
    IN_CONTAINER,
    SECRETS_FILE,
    command_lines,
    comment_lines,
    shell_word,
)
from heavylift.records.launch import RankSpec

TARGET: Final = "slurm"
BATCH_FILE: Final = "job.sbatch"
DISPATCH_FILE: Final = "ranks.sh"
_NO_SUCH_RANK: Final = 64
_SUBMITTED_FROM: Final = '"$SLURM_SUBMIT_DIR"'


def render(view: LaunchView) -> Rendering:
    """The batch script, a script per rank, the one that picks among them, and the secrets' names.

    Raises REC111 when two ranks that take cards share a machine: a node runs one task.
    """
    view.chosen_by_the_cluster()
    runtime = view.runtime(Runtime.PYXIS)
    view = view if runtime is Runtime.HOST else view.packaged()
    main, beside = steps_of(view)
    scripts = tuple(
        docker.rank_script(view, rank, reads=(SECRETS_FILE,))
        if runtime is Runtime.DOCKER
        else shell.rank_script(
            view, rank, reads=(SECRETS_FILE,), moves=runtime is not Runtime.PYXIS
        )
        for rank in view.ranks
    )
    return Rendering(
        target=TARGET,
        files=(
            TargetFile(path=BATCH_FILE, text=_batch(view, main, beside, runtime)),
            _dispatcher(view, main),
            *scripts,
            *common.secrets_example(view),
            *common.own_files(view),
        ),
        steps=(
            *common.secret_steps(view),
            *common.package_steps(view),
            *common.own_steps(view),
            Step(stage=Stage.CHECK, what="sbatch_test", argv=("sbatch", "--test-only", BATCH_FILE)),
            Step(stage=Stage.START, what="sbatch", argv=("sbatch", BATCH_FILE)),
            Step(
                stage=Stage.WATCH,
                what="squeue",
                argv=("squeue", "--me", "--name", view.options.name),
            ),
            Step(
                stage=Stage.STOP,
                what="scancel",
                argv=("scancel", "--me", "--name", view.options.name),
            ),
        ),
        findings=(
            *view.findings(),
            *(view.image_findings() if runtime is not Runtime.HOST else ()),
        ),
        deadline_at=common.deadline_places(view, shell.script_path),
    )


def steps_of(view: LaunchView) -> tuple[tuple[RankSpec, ...], tuple[RankSpec, ...]]:
    """The ranks of the step with a task per node, and those that stand beside it."""
    main = tuple(
        next((rank for rank in ranks if rank.gpus != 0), ranks[0])
        for ranks in view.machines.values()
    )
    beside = tuple(rank for rank in view.ranks if rank not in main)
    for rank in beside:
        if rank.gpus != 0:
            raise HeavyliftError("REC111", {"rank": rank.name})
    return main, beside


def _batch(
    view: LaunchView, main: tuple[RankSpec, ...], beside: tuple[RankSpec, ...], runtime: Runtime
) -> str:
    options = view.options
    directives = [
        f"--job-name={options.name}",
        f"--nodes={len(main)}",
        f"--ntasks-per-node={_tasks(main)}",
        "--exclusive",
        *_resources(view, main),
        *([f"--partition={options.partition}"] if options.partition else []),
        *([f"--account={options.account}"] if options.account else []),
        *([f"--time={options.time_limit}"] if options.time_limit else []),
        *([] if view.stop_grace_s is None else [f"--signal=TERM@{view.stop_grace_s}"]),
        "--output=%x-%j.log",
        "--requeue",
    ]
    machines = tuple(view.machines)
    hosts = [
        f'export {host_variable(rank.name)}="${{hosts[{machines.index(view.machine_of(rank))}]}}"'
        for rank in view.ranks
        if rank.name in view.needed_hosts(view.ranks) or rank in beside
    ]
    words = [
        [
            f"--nodes={len(main)}",
            f"--ntasks={len(main) * _tasks(main)}",
            f"--ntasks-per-node={_tasks(main)}",
            *(["--mpi=pmix"] if _tasks(main) > 1 else []),
            *_resources(view, main),
            *_container(view, main, runtime),
            "bash",
            f"{_folder(runtime)}/{DISPATCH_FILE}",
        ],
        *(
            [
                "--nodes=1",
                "--ntasks=1",
                f'--nodelist="${host_variable(rank.name)}"',
                "--overlap",
                *(["--gres=none"] if view.access is not None else []),
                *_container(view, (rank,), runtime),
                "bash",
                f"{_folder(runtime)}/{shell.script_path(rank)}",
            ]
            for rank in beside
        ),
    ]
    common_words = ["srun", "--kill-on-bad-exit=1"]
    calls = [command_lines([*common_words, *each]) for each in words]
    if len(calls) == 1:
        run = [f"exec {calls[0][0]}", *calls[0][1:]]
    else:
        # Whichever ends first ends the job, and Slurm then stops the others.
        run = [line for call in calls for line in (*call[:-1], f"{call[-1]} &")] + ["wait -n"]
    read = 'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")'
    parts = [
        ["#!/usr/bin/env bash", *(f"#SBATCH {each}" for each in directives)],
        comment_lines(options.header),
        ["set -euo pipefail"],
        [read, *hosts] if hosts else [],
        run,
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _tasks(main: tuple[RankSpec, ...]) -> int:
    """Tasks of a node. Nodes of one step are alike: the most that any rank has."""
    return max(rank.tasks for rank in main)


def _resources(view: LaunchView, ranks: tuple[RankSpec, ...]) -> list[str]:
    """What each node must have. Nodes of one job are alike: the most that any rank takes."""
    if view.access is None or not any(map(view.takes_cards, ranks)):
        return []
    most = max(view.gpus(rank) for rank in ranks if view.takes_cards(rank))
    return [f"--gres={view.access.slurm_resource}:{most}"]


def _folder(runtime: Runtime) -> str:
    return IN_CONTAINER if runtime is Runtime.PYXIS else _SUBMITTED_FROM


def _container(view: LaunchView, ranks: tuple[RankSpec, ...], runtime: Runtime) -> list[str]:
    """Flags of pyxis. All tasks of a step share an image (REC112 where they do not)."""
    if runtime is not Runtime.PYXIS:
        return []
    images = tuple(dict.fromkeys(map(view.image, ranks)))
    if len(images) > 1:
        raise HeavyliftError("REC112", {"images": ", ".join(images)})
    found = dict.fromkeys(mount for rank in ranks for mount in docker.mounts(view, rank))
    folders = [
        f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}" for mount in found
    ]
    listed = ",".join([*folders, ""])
    here = f'{_SUBMITTED_FROM}":{IN_CONTAINER}:ro"'
    return [
        shell_word(f"--container-image={_enroot(images[0])}", ranks[0]),
        shell_word(f"--container-mounts={listed}", ranks[0]) + here,
        "--no-container-mount-home",
        f"--container-workdir={IN_CONTAINER}",
    ]


def _enroot(image: str) -> str:
    """A reference as enroot writes it: the registry ends with `#`."""
    first, slash, rest = image.partition("/")
    return f"{first}#{rest}" if slash and ("." in first or ":" in first) else image


def _dispatcher(view: LaunchView, main: tuple[RankSpec, ...]) -> TargetFile:
    """The script that every task runs: it becomes the script of its rank. All tasks of a node are
    of one rank where MPI starts several.
    """
    number = "SLURM_PROCID" if _tasks(main) == 1 else "SLURM_NODEID"
    cases = [
        f'  {index}) exec bash "$here/{shell.script_path(rank)}" ;;'
        for index, rank in enumerate(main)
    ]
    text = common.script(
        view,
        [HERE_LINE],
        [f'case "${number}" in', *cases, f"  *) exit {_NO_SUCH_RANK} ;;", "esac"],
    )
    return TargetFile(path=DISPATCH_FILE, text=text, mode=common.SCRIPT_MODE)
