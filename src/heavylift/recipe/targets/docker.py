"""Target `docker`: one script per rank, which becomes `docker run` in the foreground."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.targets import common
from heavylift.recipe.targets.records import Rendering, Stage, Step, TargetFile
from heavylift.recipe.targets.shell import prelude, script_path
from heavylift.recipe.targets.view import EVERYWHERE, LOOPBACK, LaunchView, used_files
from heavylift.recipe.targets.words import (
    HERE,
    HOSTS_FILE,
    IN_CONTAINER,
    SECRETS_FILE,
    continued,
    filled_word,
    in_lines,
    shell_word,
)
from heavylift.records.launch import SELF, Mount, RankSpec, host_token

TARGET: Final = "docker"

# NVIDIA's and AMD's own instructions for containers: pages pinned for transfers, threads' stacks.
ULIMITS: Final = (("memlock", "-1"), ("stack", "67108864"))
RDMA_DEVICES: Final = "/dev/infiniband"

_RDMA_LINES: Final = [
    "rdma=()",
    f"if [ -d {RDMA_DEVICES} ]; then",
    f"  rdma=(--device {RDMA_DEVICES} --cap-add IPC_LOCK)",
    "fi",
]


def render(view: LaunchView) -> Rendering:
    """A script per rank, and the files of addresses and secrets that they read."""
    view = view.packaged()
    each_start = (
        Step(stage=Stage.START, what="script", argv=("bash", script_path(rank)), rank=rank.name)
        for rank in view.ranks
    )
    each_stop = (
        Step(
            stage=Stage.STOP,
            what="docker_stop",
            argv=("docker", "stop", view.full_name(rank)),
            rank=rank.name,
        )
        for rank in view.ranks
    )
    return Rendering(
        target=TARGET,
        files=(*(rank_script(view, rank) for rank in view.ranks), *common.host_files(view)),
        steps=(
            *common.prepare_steps(view),
            *pull_steps(view),
            *each_start,
            *common.watch_steps(view),
            *each_stop,
        ),
        findings=(*view.findings(), *view.image_findings()),
        deadline_at=common.deadline_places(view, script_path),
    )


def shares_network(view: LaunchView) -> bool:
    """True when the containers share the host's network: asked for, or several must meet."""
    return view.host_network or len(view.ranks) > 1


def inside(view: LaunchView) -> LaunchView:
    """The launch as its containers run it.

    A container with a network of its own listens to all of it; the host publishes the port where
    asked.
    """
    view = view.packaged()
    return view if shares_network(view) or not view.serving else view.bound_to(EVERYWHERE)


def pull_steps(view: LaunchView) -> tuple[Step, ...]:
    """Fetching every image before the start, so that the deadline counts the load alone."""
    images = dict.fromkeys(map(view.image, view.ranks))
    return tuple(
        Step(stage=Stage.PREPARE, what="pull", argv=("docker", "pull", image)) for image in images
    )


def rank_script(
    view: LaunchView, rank: RankSpec, *, reads: tuple[str, ...] = (HOSTS_FILE, SECRETS_FILE)
) -> TargetFile:
    """The script of one rank in a container.

    `reads` are the files of variables it may read; what is not there its starter sets.
    """
    published = view.spec.bind_host or LOOPBACK[0]
    view = inside(view)
    rank = view.rank(rank.name)
    groups = view.access.groups if view.access is not None and view.takes_cards(rank) else ()
    run = in_lines(_run_words(view, rank, published))
    engine = in_lines(shell_word(word, rank, IN_CONTAINER) for word in rank.argv[1:])
    lines = continued([*run, *engine])
    text = common.script(
        view,
        prelude(view, rank, reads),
        [
            line
            for group in groups
            for line in (
                f"{group_variable(group)}=$(getent group {group} | cut -d: -f3)",
                f': "${{{group_variable(group)}:?}}"',
            )
        ],
        _RDMA_LINES if _has_rdma(view, rank) else [],
        [f"exec {lines[0]}", *lines[1:]],
    )
    return TargetFile(path=script_path(rank), text=text, mode=common.SCRIPT_MODE)


def group_variable(group: str) -> str:
    """The variable that holds the number of a group of the host."""
    return f"{group.upper().replace('-', '_')}_GROUP"


@dataclass(frozen=True, slots=True)
class _Group:
    """Stands for `--group-add` of a group whose number the host knows."""

    name: str


@dataclass(frozen=True, slots=True)
class _File:
    """Stands for the mount of a file of the recipe's folder."""

    name: str


@dataclass(frozen=True, slots=True)
class _Rdma:
    """Stands for the words of RDMA devices, if the host has any."""


_Option = str | _Group | _File | _Rdma


def run_argv(
    view: LaunchView,
    rank: RankSpec,
    argv: tuple[str, ...] | None = None,
    *,
    groups: Mapping[str, int],
    rdma: bool,
    folder: str,
) -> tuple[str, ...]:
    """`docker run …` of a rank as words, no shell in between; `argv` in place of its own.

    `groups` are the numbers of the host's groups, `rdma` whether it has such devices, `folder`
    where the recipe's files lie. Addresses stay tokens. Raises REC056 for a group the host has not.
    """
    published = view.spec.bind_host or LOOPBACK[0]
    view = inside(view)
    rank = view.rank(rank.name)
    addresses = {name: host_token(name) for name in (SELF, *(each.name for each in view.ranks))}

    def plain(text: str) -> str:
        return filled_word(text, addresses, IN_CONTAINER, str)

    words = ["docker", "run"]
    for option in _options(view, rank, published):
        if isinstance(option, _Group):
            if option.name not in groups:
                raise HeavyliftError("REC056", {"group": option.name})
            words.append(f"--group-add={groups[option.name]}")
        elif isinstance(option, _File):
            words.append(
                f"--mount=type=bind,source={folder}/{option.name},"
                f"target={IN_CONTAINER}/{option.name},readonly"
            )
        elif isinstance(option, _Rdma):
            words += [f"--device={RDMA_DEVICES}", "--cap-add=IPC_LOCK"] if rdma else []
        else:
            words.append(plain(option))
    command = rank.argv if argv is None else argv
    words += [f"--entrypoint={plain(command[0])}", view.image(rank)]
    return (*words, *map(plain, command[1:]))


def _run_words(view: LaunchView, rank: RankSpec, published: str) -> list[str]:
    """`docker run …` up to the image, as words that bash reads."""
    words = ["docker run"]
    for option in _options(view, rank, published):
        if isinstance(option, _Group):
            words.append(f'--group-add="${{{group_variable(option.name)}}}"')
        elif isinstance(option, _File):
            words.append(
                f"--mount=type=bind,source={HERE}/{option.name},"
                f"target={IN_CONTAINER}/{option.name},readonly"
            )
        elif isinstance(option, _Rdma):
            words.append('"${rdma[@]}"')
        else:
            words.append(shell_word(option, rank, IN_CONTAINER))
    entry = shell_word(f"--entrypoint={rank.argv[0]}", rank, IN_CONTAINER)
    return [*words, entry, shell_word(view.image(rank), rank)]


def _options(view: LaunchView, rank: RankSpec, published: str) -> list[_Option]:
    """What stands between `docker run` and the image, the entry point apart."""
    options: list[_Option] = [f"--name={view.full_name(rank)}", "--rm", "--init"]
    if view.stop_grace_s is not None:
        options.append(f"--stop-timeout={view.stop_grace_s}")
    options += _network(view, rank, published)
    if view.access is not None and view.takes_cards(rank):
        access = view.access
        options += ["--gpus=all"] if access.docker_gpus else []
        options += [f"--device={device}" for device in access.devices]
        options += [_Group(group) for group in access.groups]
        options += [f"--security-opt={each}" for each in access.security_options]
        options += ["--ipc=host"]
        options += [f"--ulimit={name}={value}" for name, value in ULIMITS]
    elif view.spec.shm_bytes is not None:  # the host's shared memory has a size of its own
        options.append(f"--shm-size={view.spec.shm_bytes}")
    if _has_rdma(view, rank):
        options.append(_Rdma())
    options += [f"--mount={mount_words(each)}" for each in mounts(view, rank)]
    options += [_File(name) for name in used_files(rank)]
    options += [f"--env={name}={value}" for name, value in sorted(rank.env.items())]
    options += [f"--env={name}" for name in rank.secrets]
    return options


def _has_rdma(view: LaunchView, rank: RankSpec) -> bool:
    return view.is_multi_node and view.takes_cards(rank)


def _network(view: LaunchView, rank: RankSpec, published: str) -> list[str]:
    if shares_network(view):
        return ["--network=host"]
    if rank not in view.serving:
        return []
    port = view.port(rank)
    return [f"--publish={common.bracketed(published)}:{port}:{port}"]


def mounts(view: LaunchView, rank: RankSpec) -> tuple[Mount, ...]:
    """The folders of the host that a rank sees: the model, what survives a restart, its own."""
    if not view.loads_model(rank):
        return rank.mounts
    model = (view.spec.model_mount,) if view.spec.model_mount is not None else ()
    return tuple(dict.fromkeys((*model, *view.spec.cache_mounts, *rank.mounts)))


def mount_words(mount: Mount) -> str:
    """A mount as Docker reads it: comma-separated, quoted as CSV where a path needs it.

    Unlike `--volume` it refuses a folder that is not there, where the other would make an empty
    one that belongs to root.
    """
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    if mount.read_only:
        fields.append("readonly")
    return ",".join(map(_csv, fields))


def _csv(field: str) -> str:
    if "," not in field and '"' not in field:
        return field
    return '"' + field.replace('"', '""') + '"'
