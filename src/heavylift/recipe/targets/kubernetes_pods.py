"""Pods of target `kubernetes`: containers, probes, volumes. No object of a cluster's own kinds."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from heavylift.recipe.targets.documents import without_none
from heavylift.recipe.targets.view import LaunchView, Pool, used_files
from heavylift.recipe.targets.words import IN_CONTAINER, filled_word
from heavylift.records.launch import SELF, RankSpec

POD_IP: Final = "$(POD_IP)"
LEADER: Final = "$(LWS_LEADER_ADDRESS)"
WORKER_INDEX: Final = "LWS_WORKER_INDEX"
PRE_STOP_S: Final = 15
"""Endpoints are told of a stop as the pod is: for this long requests still come in."""

_UNCONFINED: Final = "seccomp=unconfined"
_READY_MISSES: Final = 3
# A saturated engine misses a short probe and is no less alive.
_LIVE: Final = {"periodSeconds": 30, "timeoutSeconds": 10, "failureThreshold": 3}
_LONGEST_PORT_NAME: Final = 15
_NUMBER: Final = "\0"
_MODEL: Final = "model"
_CACHE: Final = "cache"
_SHM: Final = "shared-memory"
_FILES: Final = "files"
_MAY_EXPAND: Final = re.compile(r"\$(?=[$(]|$)")


def pod(
    view: LaunchView, pool: Pool, rank: RankSpec, addresses: Mapping[str, str]
) -> dict[str, Any]:
    """The pod of a rank, as the template of a workload: metadata and spec.

    `addresses` of ranks in other pools, by name. In a pool of several, every rank but the head is
    described by one pod for all of them.
    """
    cards = view.access if view.takes_cards(rank) else None
    grace = None if view.stop_grace_s is None else view.stop_grace_s + PRE_STOP_S
    profile = {"type": "Unconfined"} if cards and _UNCONFINED in cards.security_options else None
    return {
        "metadata": {"labels": labels(view, pool)},
        "spec": without_none(
            {
                "automountServiceAccountToken": False,
                # Variables of services would pass for settings of the engine that begin the same.
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": grace,
                "securityContext": {"seccompProfile": profile} if profile else None,
                "containers": [_container(view, pool, rank, addresses)],
                "volumes": _volumes(view, rank) or None,
            }
        ),
    }


def labels(view: LaunchView, pool: Pool) -> dict[str, str]:
    """The labels of a pool's pods, by which its workload and its service find them."""
    return {
        "app.kubernetes.io/name": view.options.name,
        "app.kubernetes.io/instance": workload_name(view, pool),
        "app.kubernetes.io/component": pool.head.role,
        "app.kubernetes.io/managed-by": "heavylift",
    }


def port_name(name: str) -> str:
    """The name of a port as a cluster takes it: short, lower case, dashes."""
    return name.replace("_", "-").lower()[:_LONGEST_PORT_NAME].strip("-")


def workload_name(view: LaunchView, pool: Pool) -> str:
    """The name of a pool's workload: that of its head."""
    return view.full_name(pool.head)


def service_name(view: LaunchView, pool: Pool) -> str:
    """The name of a pool's service. The workload's own name is taken: a group makes a service of
    that name by which its pods find each other.
    """
    return f"{workload_name(view, pool)}-api"


def address_of(view: LaunchView, pool: Pool, rank: RankSpec) -> str:
    """The address of a rank for pods of other pools: the service, or the pod behind the head."""
    if rank is pool.head:
        return service_name(view, pool)
    group = workload_name(view, pool)
    return f"{group}-0-{pool.ranks.index(rank)}.{group}"


def secret_name(view: LaunchView) -> str:
    """The secret that holds the keys under the names of their variables."""
    return view.options.secret or f"{view.options.name}-keys"


def claim_name(view: LaunchView) -> str:
    """The claim that holds the model's files."""
    return view.options.model_claim or f"{view.options.name}-model"


def files_name(view: LaunchView) -> str:
    """The config map that holds the files of the launch."""
    return f"{view.options.name}-files"


# --- containers ----------------------------------------------------------------------------------


def _container(
    view: LaunchView, pool: Pool, rank: RankSpec, addresses: Mapping[str, str]
) -> dict[str, Any]:
    argv, env = _words(pool, rank, _known(view, pool, addresses))
    serves = rank in view.serving
    cards = view.takes_cards(rank)
    needs_ip = any(POD_IP in text for text in (*argv, *env.values()))
    return without_none(
        {
            "name": rank.role,
            "image": view.image(rank),
            "command": list(argv[:1]),
            "args": list(argv[1:]) or None,
            "env": [
                *([_from_field("POD_IP", "status.podIP")] if needs_ip else []),
                *({"name": name, "value": env[name]} for name in sorted(env)),
                *(_from_secret(view, name) for name in rank.secrets),
            ]
            or None,
            "ports": [
                {"name": port_name(name), "containerPort": port}
                for name, port in rank.ports.items()
            ]
            or None,
            "resources": _resources(view, rank) if cards else None,
            "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}
            if cards and view.options.rdma
            else None,
            **(_probes(view) if serves else {}),
            "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_S}}}
            if serves and view.stop_grace_s is not None
            else None,
            "volumeMounts": _volume_mounts(view, rank) or None,
        }
    )


def _known(view: LaunchView, pool: Pool, others: Mapping[str, str]) -> dict[str, str]:
    """Addresses as a pod of the pool writes them."""
    found = {**others, SELF: POD_IP}
    if len(pool.ranks) == 1:
        return found | {pool.head.name: POD_IP}
    found |= {each.name: address_of(view, pool, each) for each in pool.ranks}
    return found | {pool.head.name: LEADER}


def _words(
    pool: Pool, rank: RankSpec, addresses: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Command and environment of the head, or of all other ranks of the pool.

    Those that differ in their number alone take it from the cluster; where they differ in more,
    each chooses its command by its number.
    """

    def word(text: str) -> str:
        return filled_word(text, addresses, IN_CONTAINER, _escaped)

    if rank is pool.head:
        return tuple(map(word, rank.argv)), {name: word(text) for name, text in rank.env.items()}
    flag = pool.rendezvous.rank_flag if pool.rendezvous is not None else None
    written = {
        (
            tuple(word(text) for text in _numbered(each.argv, index, flag)),
            tuple(sorted((name, word(text)) for name, text in each.env.items())),
        )
        for index, each in enumerate(pool.ranks)
        if index
    }
    if len(written) > 1:
        return ("bash", "-c", _choice(pool, word)), {}
    argv, env = next(iter(written))
    return tuple(text.replace(_NUMBER, f"$({WORKER_INDEX})") for text in argv), dict(env)


def _choice(pool: Pool, word: Callable[[str], str]) -> str:
    cases = []
    for index, each in enumerate(pool.ranks):
        if not index:
            continue
        exports = [
            f"    export {name}={shlex.quote(word(each.env[name]))}" for name in sorted(each.env)
        ]
        command = shlex.join(map(word, each.argv))
        cases += [f"  {index})", *exports, f"    exec {command} ;;"]
    return "\n".join([f'case "${WORKER_INDEX}" in', *cases, "esac"]) + "\n"


def _numbered(argv: tuple[str, ...], index: int, flag: str | None) -> tuple[str, ...]:
    """The words of a rank with a mark where its number stands."""
    words = list(argv)
    for place, text in enumerate(words):
        if flag is not None and text == f"{flag}={index}":
            words[place] = f"{flag}={_NUMBER}"
        if flag is not None and text == flag and words[place + 1 : place + 2] == [str(index)]:
            words[place + 1] = _NUMBER
    return tuple(words)


def _escaped(text: str) -> str:
    """A literal whose dollars the cluster leaves alone."""
    return _MAY_EXPAND.sub("$$", text)


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _from_secret(view: LaunchView, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "valueFrom": {"secretKeyRef": {"name": secret_name(view), "key": name}},
    }


def _resources(view: LaunchView, rank: RankSpec) -> dict[str, Any]:
    assert view.access is not None  # noqa: S101 - only ranks that take cards come here
    limits = {view.access.kubernetes_resource: view.gpus(rank), **view.options.extra_resources}
    return {"limits": limits}


def _probes(view: LaunchView) -> dict[str, Any]:
    """Startup until the deadline, then readiness and liveness."""
    health = view.spec.health
    if health is None:
        return {}
    ask = {"httpGet": {"path": health.path, "port": "api"}}
    return {
        "startupProbe": ask
        | {
            "periodSeconds": health.interval_s,
            "timeoutSeconds": health.timeout_s,
            "failureThreshold": math.ceil(view.deadline_s / health.interval_s),
        },
        "readinessProbe": ask
        | {
            "periodSeconds": health.interval_s,
            "timeoutSeconds": health.timeout_s,
            "failureThreshold": _READY_MISSES,
        },
        "livenessProbe": ask | _LIVE,
    }


# --- volumes -------------------------------------------------------------------------------------


def _volumes(view: LaunchView, rank: RankSpec) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if view.takes_cards(rank):
        size = {} if view.spec.shm_bytes is None else {"sizeLimit": str(view.spec.shm_bytes)}
        found.append({"name": _SHM, "emptyDir": {"medium": "Memory", **size}})
    if view.loads_model(rank) and view.spec.model_mount is not None:
        claim = {"claimName": claim_name(view), "readOnly": view.spec.model_mount.read_only}
        found.append({"name": _MODEL, "persistentVolumeClaim": claim})
    if view.loads_model(rank) and view.spec.cache_mounts:
        named = view.options.cache_claim
        kept: dict[str, Any] = {"emptyDir": {}}
        if named is not None:
            kept = {"persistentVolumeClaim": {"claimName": named}}
        found.append({"name": _CACHE, **kept})
    if used_files(rank):
        found.append({"name": _FILES, "configMap": {"name": files_name(view)}})
    return found


def _volume_mounts(view: LaunchView, rank: RankSpec) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if view.takes_cards(rank):
        found.append({"name": _SHM, "mountPath": "/dev/shm"})  # noqa: S108 - the device itself
    if view.loads_model(rank) and view.spec.model_mount is not None:
        mount = view.spec.model_mount
        found.append({"name": _MODEL, "mountPath": mount.target, "readOnly": mount.read_only})
    if view.loads_model(rank):
        found += [
            {
                "name": _CACHE,
                "mountPath": mount.target,
                "subPath": PurePosixPath(mount.target).name,
            }
            for mount in view.spec.cache_mounts
        ]
    if used_files(rank):
        found.append({"name": _FILES, "mountPath": IN_CONTAINER, "readOnly": True})
    return found
