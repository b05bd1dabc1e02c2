"""Target `systemd`: a unit per rank around the rank's script, ready when the service answers."""

from __future__ import annotations

import math
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.targets import common, docker, shell
from heavylift.recipe.targets.records import Rendering, Runtime, Stage, Step, TargetFile
from heavylift.recipe.targets.view import LaunchView, used_files
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


def render(view: LaunchView) -> Rendering:
    """A unit and a script per rank, and the files of addresses and secrets that the units read."""
    folder = view.options.folder
    if not folder.startswith("/") or not folder.replace("/", "").replace("-", "").isalnum():
        raise HeavyliftError("REC108", {"folder": folder})
    runtime = view.runtime(Runtime.DOCKER)
    view = view.packaged() if runtime is Runtime.DOCKER else view
    writer = docker.rank_script if runtime is Runtime.DOCKER else shell.rank_script
    scripts = tuple(writer(view, rank, reads=()) for rank in view.ranks)
    units = tuple(
        TargetFile(path=unit_name(view, rank), text=_unit(view, rank, runtime))
        for rank in view.ranks
    )
    pulls = docker.pull_steps(view) if runtime is Runtime.DOCKER else _user_steps(view)
    return Rendering(
        target=TARGET,
        files=(*units, *scripts, *common.host_files(view)),
        steps=(
            *common.prepare_steps(view),
            *pulls,
            *(step for rank in view.ranks for step in _install_steps(view, rank)),
            *(_step(view, rank, Stage.START, "systemctl_start", "start") for rank in view.ranks),
            *(_step(view, rank, Stage.WATCH, "systemctl_status", "status") for rank in view.ranks),
            *(_step(view, rank, Stage.STOP, "systemctl_stop", "stop") for rank in view.ranks),
        ),
        findings=(
            *view.findings(),
            *(view.image_findings() if runtime is Runtime.DOCKER else ()),
        ),
        deadline_at=(
            *common.deadline_places(view, shell.script_path),
            *(f"{unit_name(view, rank)}: TimeoutStartSec" for rank in view.ranks),
        ),
    )


def unit_name(view: LaunchView, rank: RankSpec) -> str:
    """The file of a rank's unit."""
    return f"{view.full_name(rank)}.service"


def _step(view: LaunchView, rank: RankSpec, stage: Stage, what: str, verb: str) -> Step:
    no_block = ("--no-block",) if verb == "start" else ()
    argv = ("systemctl", verb, *no_block, unit_name(view, rank))
    return Step(stage=stage, what=what, argv=argv, rank=rank.name)


def _user_steps(view: LaunchView) -> tuple[Step, ...]:
    argv = ("useradd", "--system", "--create-home", view.options.user)
    return (Step(stage=Stage.PREPARE, what="make_user", argv=argv),)


def _install_steps(view: LaunchView, rank: RankSpec) -> tuple[Step, ...]:
    place = _folder(view)
    needed = needed_files(view, (rank,))
    plain = [unit_name(view, rank), *(name for name in needed if name != SECRETS_FILE)]
    groups = {
        "755": [shell.script_path(rank)],
        "644": [*plain, *used_files(rank)],
        "600": [name for name in needed if name == SECRETS_FILE],
    }
    unit = f"{place}/{unit_name(view, rank)}"
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


def _folder(view: LaunchView) -> str:
    return f"{view.options.folder}/{view.options.name}"


def _unit(view: LaunchView, rank: RankSpec, runtime: Runtime) -> str:
    place = _folder(view)
    name = view.full_name(rank)
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
        *_account(view, rank, in_docker=in_docker),
        *(f"EnvironmentFile={place}/{each}" for each in needed_files(view, (rank,))),
        *([f"ExecStartPre=-/usr/bin/env docker rm --force {name}"] if in_docker else []),
        f"ExecStart=/bin/bash {place}/{shell.script_path(rank)}",
        *_wait(view, rank),
        *([f"ExecStop=-/usr/bin/env docker stop {name}"] if in_docker else []),
        f"TimeoutStartSec={view.deadline_s}",
        *([] if view.stop_grace_s is None else [f"TimeoutStopSec={view.stop_grace_s + _KILL_S}"]),
        # The engine is told to stop; what is then left of it, workers included, is killed.
        "KillMode=mixed",
        *_restart(view, rank, unit),
        "NoNewPrivileges=yes",
        "UMask=0077",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        "LimitCORE=0",
    ]
    return common.text_of(view, unit, service, ["[Install]", "WantedBy=multi-user.target"])


def _account(view: LaunchView, rank: RankSpec, *, in_docker: bool) -> list[str]:
    """Whom the rank runs as: Docker's client as root, an engine as a user of its own."""
    if in_docker:
        return []
    groups = view.access.groups if view.access is not None and view.takes_cards(rank) else ()
    return [
        f"User={view.options.user}",
        *([f"SupplementaryGroups={' '.join(groups)}"] if groups else []),
    ]


def _wait(view: LaunchView, rank: RankSpec) -> list[str]:
    """The unit counts as started when the service answers; until then `TimeoutStartSec` runs."""
    url = common.health_url(view, rank)
    health = view.spec.health
    if url is None or health is None:
        return []
    tries = math.ceil(view.deadline_s / health.interval_s)
    words = (
        "/usr/bin/env curl --fail --silent --show-error --output /dev/null --retry-all-errors",
        f"--retry {tries} --retry-delay {health.interval_s} --retry-max-time {view.deadline_s}",
        f"--max-time {health.timeout_s} {unit_word(url, rank)}",
    )
    return [f"ExecStartPost={' '.join(words)}"]


def _restart(view: LaunchView, rank: RankSpec, unit: list[str]) -> list[str]:
    """Restart what can come back alone; a rank of a pool waits for the others and comes too late.

    The window holds the deadlines of all starts, so that a load that fails late counts too.
    """
    if not view.can_restart_alone(rank):
        return ["Restart=no"]
    window_s = _MOST_STARTS * (view.deadline_s + _RESTART_DELAY_S)
    unit += [f"StartLimitIntervalSec={window_s}", f"StartLimitBurst={_MOST_STARTS}"]
    return [
        "Restart=on-failure",
        f"RestartSec={_RESTART_DELAY_S}",
        f"RestartPreventExitStatus={_USAGE_ERROR}",
    ]
