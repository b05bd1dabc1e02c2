"""Target `kubernetes`: a StatefulSet for one node, a LeaderWorkerSet for a pool that meets.

Every pool that answers HTTP has a service; routers are Deployments.
"""

from __future__ import annotations

from typing import Any, Final

from heavylift.recipe.targets import common
from heavylift.recipe.targets.documents import documents, without_none
from heavylift.recipe.targets.kubernetes_pods import (
    address_of,
    claim_name,
    files_name,
    labels,
    pod,
    port_name,
    secret_name,
    service_name,
    workload_name,
)
from heavylift.recipe.targets.records import Rendering, Stage, Step, TargetFile
from heavylift.recipe.targets.view import EVERYWHERE, LaunchView, Pool
from heavylift.recipe.targets.words import SECRETS_FILE
from heavylift.records.launch import RankSpec
from heavylift.units import GIB

TARGET: Final = "kubernetes"
STORAGE_FILE: Final = "storage.yaml"
FILES_FILE: Final = "files.yaml"
_LEADER: Final = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}


def render(view: LaunchView) -> Rendering:
    """A manifest per pool, the model's claim where none is named, and the names of the secrets.

    A pod has an address of its own and must listen there: keys are needed whatever was asked.
    """
    view.chosen_by_the_cluster()
    view = view.packaged()
    inner = view.bound_to(EVERYWHERE) if view.serving else view
    addresses = {
        rank.name: address_of(view, pool, rank) for pool in view.pools for rank in pool.ranks
    }
    manifests = tuple(
        TargetFile(
            path=_path(pool),
            text=documents(view.options.header, _objects(inner, pool, addresses)),
        )
        for pool in inner.pools
    )
    files = (*_storage(view), *_config(view), *manifests)
    return Rendering(
        target=TARGET,
        files=(*files, *common.secrets_example(view), *common.own_files(view)),
        steps=_steps(view, tuple(each.path for each in files)),
        findings=(*view.findings(exposed=True), *view.image_findings(), *view.kept_findings()),
        deadline_at=(
            *common.deadline_places(view, lambda rank: _path(view.pool_of(rank))),
            *(
                f"{_path(pool)}: startupProbe.failureThreshold × periodSeconds"
                for pool in view.pools
                if pool.head in view.serving and view.spec.health is not None
            ),
        ),
    )


def _path(pool: Pool) -> str:
    return f"{pool.head.name}.yaml"


def _steps(view: LaunchView, paths: tuple[str, ...]) -> tuple[Step, ...]:
    kubectl = (
        "kubectl",
        *(("--namespace", view.options.namespace) if view.options.namespace else ()),
    )
    files = tuple(word for path in paths for word in ("--filename", path))
    secret: tuple[Step, ...] = ()
    if view.secrets():
        made = ("create", "secret", "generic", secret_name(view), f"--from-env-file={SECRETS_FILE}")
        secret = (
            *common.secret_steps(view),
            Step(stage=Stage.PREPARE, what="kubectl_secret", argv=(*kubectl, *made)),
        )
    claim: tuple[Step, ...] = ()
    if view.spec.model_mount is not None and STORAGE_FILE not in paths:
        words = ("get", "persistentvolumeclaim", claim_name(view))
        claim = (Step(stage=Stage.CHECK, what="kubectl_claim", argv=(*kubectl, *words)),)
    dry = ("apply", "--dry-run=server", *files)
    workloads = tuple(f"{_kind(view, pool)}/{workload_name(view, pool)}" for pool in view.pools)
    return (
        *secret,
        *common.own_steps(view),
        *claim,
        Step(stage=Stage.CHECK, what="kubectl_dry_run", argv=(*kubectl, *dry)),
        Step(stage=Stage.START, what="kubectl_apply", argv=(*kubectl, "apply", *files)),
        Step(stage=Stage.WATCH, what="kubectl_get", argv=(*kubectl, "get", *workloads)),
        Step(stage=Stage.STOP, what="kubectl_delete", argv=(*kubectl, "delete", *workloads)),
    )


def _kind(view: LaunchView, pool: Pool) -> str:
    if len(pool.ranks) > 1:
        return "leaderworkerset"
    return "statefulset" if view.loads_model(pool.head) else "deployment"


def _objects(view: LaunchView, pool: Pool, addresses: dict[str, str]) -> list[dict[str, Any]]:
    """The workload of a pool and its service."""
    others = {name: at for name, at in addresses.items() if name not in _names(pool)}
    head = pod(view, pool, pool.head, others)
    meta = _metadata(view, pool)
    kind = _kind(view, pool)
    selector = {"matchLabels": labels(view, pool)}
    workload: dict[str, Any]
    if kind == "leaderworkerset":
        workload = {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": meta,
            "spec": {
                "replicas": 1,
                "startupPolicy": "LeaderCreated",
                "leaderWorkerTemplate": {
                    "size": len(pool.ranks),
                    # One that starts anew finds no others: all of them start anew.
                    "restartPolicy": "RecreateGroupOnPodRestart",
                    "leaderTemplate": head,
                    "workerTemplate": pod(view, pool, pool.ranks[1], others),
                },
            },
        }
    elif kind == "statefulset":
        workload = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": meta,
            "spec": {
                "serviceName": service_name(view, pool),
                "replicas": 1,
                "selector": selector,
                "template": head,
            },
        }
    else:
        workload = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"replicas": 1, "selector": selector, "template": head},
        }
    addressed = pool.head.name in view.needed_hosts(_outside(view, pool))
    if not pool.head.ports or not (addressed or pool.head in view.serving):
        return [workload]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**meta, "name": service_name(view, pool)},
        "spec": {
            "type": "ClusterIP",
            "selector": labels(view, pool) | (_LEADER if kind == "leaderworkerset" else {}),
            "ports": [
                {"name": port_name(name), "port": port, "targetPort": port_name(name)}
                for name, port in pool.head.ports.items()
            ],
        },
    }
    return [workload, service]


def _outside(view: LaunchView, pool: Pool) -> tuple[RankSpec, ...]:
    return tuple(rank for rank in view.ranks if rank not in pool.ranks)


def _names(pool: Pool) -> set[str]:
    return {rank.name for rank in pool.ranks}


def _metadata(view: LaunchView, pool: Pool) -> dict[str, Any]:
    return without_none(
        {
            "name": workload_name(view, pool),
            "namespace": view.options.namespace,
            "labels": labels(view, pool),
        }
    )


def _storage(view: LaunchView) -> tuple[TargetFile, ...]:
    """The claim of the model's files, as large as they are; none where one is named or the size is
    not known.
    """
    options = view.options
    if view.spec.model_mount is None or options.model_claim or options.model_bytes is None:
        return ()
    readers = sum(view.loads_model(rank) for rank in view.ranks)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": without_none({"name": claim_name(view), "namespace": options.namespace}),
        "spec": without_none(
            {
                "accessModes": ["ReadWriteMany" if readers > 1 else "ReadWriteOnce"],
                "storageClassName": options.storage_class,
                "resources": {"requests": {"storage": f"{-(-options.model_bytes // GIB)}Gi"}},
            }
        ),
    }
    return (TargetFile(path=STORAGE_FILE, text=documents(options.header, [claim])),)


def _config(view: LaunchView) -> tuple[TargetFile, ...]:
    """The files of the launch as a config map; none where there are none."""
    if not view.spec.files:
        return ()
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": without_none({"name": files_name(view), "namespace": view.options.namespace}),
        "data": dict(sorted(view.spec.files.items())),
    }
    return (TargetFile(path=FILES_FILE, text=documents(view.options.header, [body])),)
