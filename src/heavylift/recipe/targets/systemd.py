"""Target `systemd`: a unit per rank around the rank's script, ready when the service answers."""

from __future__ import annotations

import math
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.targets import common, docker, shell
from heavylift.recipe.targets.job import Job, used_files
from heavylift.recipe.targets.records import Rendering, Runtime, Stage, Step, TargetFile
from heavylift.recipe.targets.words import SECRETS_FILE, needed_files, unit_word
from heavylift.records.launch import RankSpec

TARGET: Final = "systemd"
UNITS: Final = "/etc/systemd/system"

_RESTART_DELAY_S: Final = 30
_MOST_STARTS: Final = 3
_KILL_S: Final = 30
"""For killing and cleaning up what did not stop within its grace."""

_USAGE_ERROR: Final = 2
"""What an engine exits with for a flag it does not know: a restart cannot mend it."""


def render(job: Job) -> Rendering:
    """A unit and a script per rank, and the files of addresses and secrets that the units read."""
    folder = job.options.folder
    if not folder.startswith("/") or not folder.replace("/", "").replace("-", "").isalnum():
        raise HeavyliftError("REC108", {"folder": folder})
    runtime = job.runtime(Runtime.DOCKER)
    writer = docker.rank_script if runtime is Runtime.DOCKER else shell.rank_script
    scripts = tuple(writer(job, rank, reads=()) for rank in job.ranks)
    units = tuple(
        TargetFile(path=unit_name(job, rank), text=_unit(job, rank, runtime)) for rank in job.ranks
    )
    pulls = docker.pull_steps(job) if runtime is Runtime.DOCKER else _user_steps(job)
    return Rendering(
        target=TARGET,
        files=(*units, *scripts, *common.host_files(job)),
        steps=(
            *common.prepare_steps(job),
            *pulls,
            *(step for rank in job.ranks for step in _install_steps(job, rank)),
            *(_step(job, rank, Stage.START, "systemctl_start", "start") for rank in job.ranks),
            *(_step(job, rank, Stage.WATCH, "systemctl_status", "status") for rank in job.ranks),
            *(_step(job, rank, Stage.STOP, "systemctl_stop", "stop") for rank in job.ranks),
        ),
        findings=(
            *job.findings(),
            *(job.image_findings() if runtime is Runtime.DOCKER else ()),
        ),
        deadline_at=(
            *common.deadline_places(job, shell.script_path),
            *(f"{unit_name(job, rank)}: TimeoutStartSec" for rank in job.ranks),
        ),
    )


def unit_name(job: Job, rank: RankSpec) -> str:
    """The file of a rank's unit."""
    return f"{job.full_name(rank)}.service"


def _step(job: Job, rank: RankSpec, stage: Stage, what: str, verb: str) -> Step:
    no_block = ("--no-block",) if verb == "start" else ()
    argv = ("systemctl", verb, *no_block, unit_name(job, rank))
    return Step(stage=stage, what=what, argv=argv, rank=rank.name)


def _user_steps(job: Job) -> tuple[Step, ...]:
    argv = ("useradd", "--system", "--create-home", job.options.user)
    return (Step(stage=Stage.PREPARE, what="make_user", argv=argv),)


def _install_steps(job: Job, rank: RankSpec) -> tuple[Step, ...]:
    place = _folder(job)
    needed = needed_files(job, (rank,))
    plain = [unit_name(job, rank), *(name for name in needed if name != SECRETS_FILE)]
    groups = {
        "755": [shell.script_path(rank)],
        "644": [*plain, *used_files(rank)],
        "600": [name for name in needed if name == SECRETS_FILE],
    }
    unit = f"{place}/{unit_name(job, rank)}"
    return (
        *(
            Step(
                stage=Stage.PREPARE,
                what="copy_files",
                argv=("install", "-D", f"--mode={mode}", f"--target-directory={place}", *files),
                rank=rank.name,
            )
            for mode, files in groups.items()
            if files
        ),
        Step(
            stage=Stage.CHECK,
            what="systemd_verify",
            argv=("systemd-analyze", "verify", unit),
            rank=rank.name,
        ),
        Step(
            stage=Stage.PREPARE,
            what="systemctl_link",
            argv=("systemctl", "link", unit),
            rank=rank.name,
        ),
    )


def _folder(job: Job) -> str:
    return f"{job.options.folder}/{job.options.name}"


def _unit(job: Job, rank: RankSpec, runtime: Runtime) -> str:
    place = _folder(job)
    name = job.full_name(rank)
    in_docker = runtime is Runtime.DOCKER
    after = "network-online.target" + (" docker.service" if in_docker else "")
    unit = [
        "[Unit]",
        f"Description={name}",
        "Wants=network-online.target",
        *(["Requires=docker.service"] if in_docker else []),
        f"After={after}",
    ]
    service = [
        "[Service]",
        "Type=exec",
        *_account(job, rank, in_docker=in_docker),
        *(f"EnvironmentFile={place}/{each}" for each in needed_files(job, (rank,))),
        *([f"ExecStartPre=-/usr/bin/env docker rm --force {name}"] if in_docker else []),
        f"ExecStart=/bin/bash {place}/{shell.script_path(rank)}",
        *_wait(job, rank),
        *([f"ExecStop=-/usr/bin/env docker stop {name}"] if in_docker else []),
        f"TimeoutStartSec={job.deadline_s}",
        *([] if job.stop_grace_s is None else [f"TimeoutStopSec={job.stop_grace_s + _KILL_S}"]),
        # The engine is told to stop; what is then left of it, workers included, is killed.
        "KillMode=mixed",
        *_restart(job, rank, unit),
        "NoNewPrivileges=yes",
        "UMask=0077",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        "LimitCORE=0",
    ]
    return common.text_of(job, unit, service, ["[Install]", "WantedBy=multi-user.target"])


def _account(job: Job, rank: RankSpec, *, in_docker: bool) -> list[str]:
    """Whom the rank runs as: Docker's client as root, an engine as a user of its own."""
    if in_docker:
        return []
    groups = job.access.groups if job.access is not None and job.takes_cards(rank) else ()
    return [
        f"User={job.options.user}",
        *([f"SupplementaryGroups={' '.join(groups)}"] if groups else []),
    ]


def _wait(job: Job, rank: RankSpec) -> list[str]:
    """The unit counts as started when the service answers; until then `TimeoutStartSec` runs."""
    url = common.health_url(job, rank)
    health = job.spec.health
    if url is None or health is None:
        return []
    tries = math.ceil(job.deadline_s / health.interval_s)
    words = (
        "/usr/bin/env curl --fail --silent --show-error --output /dev/null --retry-all-errors",
        f"--retry {tries} --retry-delay {health.interval_s} --retry-max-time {job.deadline_s}",
        f"--max-time {health.timeout_s} {unit_word(url, rank)}",
    )
    return [f"ExecStartPost={' '.join(words)}"]


def _restart(job: Job, rank: RankSpec, unit: list[str]) -> list[str]:
    """Restart what can come back alone; a rank of a pool waits for the others and comes too late.

    The window holds the deadlines of all starts, so that a load that fails late counts too.
    """
    if not job.can_restart_alone(rank):
        return ["Restart=no"]
    window_s = _MOST_STARTS * (job.deadline_s + _RESTART_DELAY_S)
    unit += [f"StartLimitIntervalSec={window_s}", f"StartLimitBurst={_MOST_STARTS}"]
    return [
        "Restart=on-failure",
        f"RestartSec={_RESTART_DELAY_S}",
        f"RestartPreventExitStatus={_USAGE_ERROR}",
    ]
