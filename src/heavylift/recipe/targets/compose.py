"""Target `compose`: one file per machine, a service per rank, with a health check that waits."""

from __future__ import annotations

from typing import Any, Final

from heavylift.recipe.targets import common
from heavylift.recipe.targets.docker import (
    RDMA_DEVICES,
    ULIMITS,
    group_variable,
    mounts,
    pull_steps,
)
from heavylift.recipe.targets.documents import documents, without_none
from heavylift.recipe.targets.records import Rendering, Stage, Step, TargetFile
from heavylift.recipe.targets.view import (
    EVERYWHERE,
    LOOPBACK,
    LaunchView,
    host_variable,
    used_files,
)
from heavylift.recipe.targets.words import HOSTS_FILE, IN_CONTAINER, SECRETS_FILE, filled_word
from heavylift.records.launch import SELF, Mount, RankSpec

TARGET: Final = "compose"
_FILE: Final = "compose.yaml"
_FAILURES_UNTIL_UNHEALTHY: Final = 3


def render(view: LaunchView) -> Rendering:
    """A compose file per machine, and the files of addresses and secrets."""
    view = view.packaged()
    files = tuple(
        TargetFile(path=_path(view, machine), text=_machine(view, machine))
        for machine in view.machines
    )
    groups = _groups(view, view.ranks)
    needs_hosts = view.host_network
    return Rendering(
        target=TARGET,
        files=(
            *files,
            *common.hosts_file(view, tuple(map(group_variable, groups)), needs_hosts=needs_hosts),
            *common.secrets_example(view),
            *common.own_files(view),
        ),
        steps=(
            *(common.prepare_steps(view) if needs_hosts else common.secret_steps(view)),
            *(() if needs_hosts else common.own_steps(view)),
            *_group_steps(groups),
            *pull_steps(view),
            *(
                _step(view, machine, stage, what, words)
                for stage, what, words in (
                    (Stage.CHECK, "compose_config", ("config", "--quiet")),
                    (Stage.START, "compose_up", ("up", "--detach")),
                    (Stage.WATCH, "compose_ps", ("ps",)),
                    (Stage.STOP, "compose_down", ("down",)),
                )
                for machine in view.machines
            ),
        ),
        findings=(*view.findings(), *view.image_findings()),
        deadline_at=(
            *common.deadline_places(view, lambda rank: _path(view, view.machine_of(rank))),
            *_probe_places(view),
        ),
    )


def _probe_places(view: LaunchView) -> tuple[str, ...]:
    return tuple(
        f"{_path(view, view.machine_of(rank))}: services.{rank.name}.healthcheck.start_period"
        for rank in view.serving
        if view.spec.health is not None
    )


def _path(view: LaunchView, machine: str) -> str:
    return f"{machine}/{_FILE}" if view.is_multi_node else _FILE


def _step(view: LaunchView, machine: str, stage: Stage, what: str, words: tuple[str, ...]) -> Step:
    ranks = view.machines[machine]
    needed = (view.host_network and view.needed_hosts(ranks)) or _groups(view, ranks)
    hosts = ("--env-file", HOSTS_FILE) if needed else ()
    argv = ("docker", "compose", *hosts, "--file", _path(view, machine), *words)
    return Step(stage=stage, what=what, argv=argv, rank=machine)


def _group_steps(groups: tuple[str, ...]) -> tuple[Step, ...]:
    if not groups:
        return ()
    return (
        Step(stage=Stage.PREPARE, what="read_groups", argv=("getent", "group", *groups)),
        Step(stage=Stage.PREPARE, what="fill_groups", argv=("vi", HOSTS_FILE)),
    )


def _groups(view: LaunchView, ranks: tuple[RankSpec, ...]) -> tuple[str, ...]:
    """Groups whose numbers on the machine must be known."""
    return (
        view.access.groups if view.access is not None and any(map(view.takes_cards, ranks)) else ()
    )


def _machine(view: LaunchView, machine: str) -> str:
    published = view.spec.bind_host or LOOPBACK[0]
    inner = view if view.host_network or not view.serving else view.bound_to(EVERYWHERE)
    body = {
        "name": view.options.name,
        "services": {
            rank.name: _service(inner, inner.rank(rank.name), published)
            for rank in view.machines[machine]
        },
    }
    return documents(view.options.header, [body])


def _service(view: LaunchView, rank: RankSpec, published: str) -> dict[str, Any]:
    words = _words(view, rank)
    alone = view.can_restart_alone(rank)
    cards = view.access if view.takes_cards(rank) else None
    rdma = view.options.rdma and view.is_multi_node and cards is not None
    groups = cards.groups if cards is not None else ()
    devices = [f"{node}:{node}" for node in (cards.devices if cards is not None else ())]
    if rdma:
        devices.append(f"{RDMA_DEVICES}:{RDMA_DEVICES}")
    ports = None
    if not view.host_network and rank in view.serving:
        port = view.port(rank)
        ports = [f"{common.bracketed(published)}:{port}:{port}"]
    folder = "../" if view.is_multi_node else "./"
    return without_none(
        {
            "image": view.image(rank),
            "container_name": view.full_name(rank),
            "entrypoint": words[:1],
            "command": words[1:] or None,
            "environment": {name: _word(view, rank, rank.env[name]) for name in sorted(rank.env)}
            or None,
            "env_file": [f"{folder}{SECRETS_FILE}"] if rank.secrets else None,
            "init": True,
            "network_mode": "host" if view.host_network else None,
            "ports": ports,
            "volumes": [
                {
                    "type": "bind",
                    "source": _escaped(mount.source),
                    "target": _escaped(mount.target),
                    "read_only": mount.read_only,
                    "bind": {"create_host_path": False},
                }
                for mount in (*mounts(view, rank), *_file_mounts(rank, folder))
            ]
            or None,
            "devices": devices or None,
            "group_add": [f"${{{group_variable(group)}:?}}" for group in groups] or None,
            "security_opt": list(cards.security_options) or None if cards is not None else None,
            "cap_add": ["IPC_LOCK"] if rdma else None,
            "ipc": "host" if cards is not None else None,
            "shm_size": view.spec.shm_bytes if cards is None else None,
            "ulimits": {name: int(value) for name, value in ULIMITS} if cards is not None else None,
            "deploy": _reservation(view, rank),
            "healthcheck": _health_check(view, rank),
            "restart": "unless-stopped" if alone else "no",
            "stop_grace_period": None if view.stop_grace_s is None else f"{view.stop_grace_s}s",
        }
    )


def _file_mounts(rank: RankSpec, folder: str) -> tuple[Mount, ...]:
    return tuple(
        Mount(source=f"{folder}{name}", target=f"{IN_CONTAINER}/{name}")
        for name in used_files(rank)
    )


def _reservation(view: LaunchView, rank: RankSpec) -> dict[str, Any] | None:
    if view.access is None or view.access.compose_driver is None or not view.takes_cards(rank):
        return None
    device = {"driver": view.access.compose_driver, "count": "all", "capabilities": ["gpu"]}
    return {"resources": {"reservations": {"devices": [device]}}}


def _health_check(view: LaunchView, rank: RankSpec) -> dict[str, Any] | None:
    health = view.spec.health
    url = common.health_url(view, rank)
    if health is None or url is None:
        return None
    return {
        "test": [
            "CMD",
            "curl",
            "--fail",
            "--silent",
            "--output",
            "/dev/null",
            _word(view, rank, url),
        ],
        "start_period": f"{view.deadline_s}s",
        "interval": f"{health.interval_s}s",
        "timeout": f"{health.timeout_s}s",
        "retries": _FAILURES_UNTIL_UNHEALTHY,
    }


def _words(view: LaunchView, rank: RankSpec) -> list[str]:
    return [_word(view, rank, word) for word in rank.argv]


def _word(view: LaunchView, rank: RankSpec, text: str) -> str:
    """A word as compose reads it: a dollar of ours is doubled, addresses are its variables.

    Services of one file find each other by name.
    """
    names = {
        each.name: f"${{{host_variable(each.name)}:?}}" if view.host_network else each.name
        for each in view.ranks
    }
    names[SELF] = names[rank.name]
    return filled_word(text, names, IN_CONTAINER, _escaped)


def _escaped(text: str) -> str:
    return text.replace("$", "$$")
