"""Target `kubernetes`: a StatefulSet for one node, a LeaderWorkerSet for a pool that meets.

Every pool that answers HTTP has a service of the name of its head; routers are Deployments.
"""

from __future__ import annotations

from typing import Any, Final

from heavylift.recipe.targets import common
from heavylift.recipe.targets.documents import documents, without_none
from heavylift.recipe.targets.job import EVERYWHERE, Job, Pool
from heavylift.recipe.targets.kubernetes_pods import (
    claim_name,
    files_name,
    labels,
    pod,
    secret_name,
    workload_name,
)
from heavylift.recipe.targets.records import Rendering, Stage, Step, TargetFile
from heavylift.recipe.targets.words import SECRETS_FILE
from heavylift.units import GIB

TARGET: Final = "kubernetes"
STORAGE_FILE: Final = "storage.yaml"
FILES_FILE: Final = "files.yaml"
_LEADER: Final = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}


def render(job: Job) -> Rendering:
    """A manifest per pool, the model's claim where none is named, and the names of the secrets.

    A pod has an address of its own and must listen there: keys are needed whatever was asked.
    """
    inner = job.bound_to(EVERYWHERE) if job.serving else job
    addresses = {rank.name: workload_name(job, pool) for pool in job.pools for rank in pool.ranks}
    manifests = tuple(
        TargetFile(
            path=_path(pool),
            text=documents(job.options.header, _objects(inner, pool, addresses)),
        )
        for pool in inner.pools
    )
    files = (*_storage(job), *_config(job), *manifests)
    return Rendering(
        target=TARGET,
        files=(*files, *common.secrets_example(job), *common.own_files(job)),
        steps=_steps(job, tuple(each.path for each in files)),
        findings=(*job.findings(exposed=True), *job.image_findings(), *job.kept_findings()),
        deadline_at=(
            *common.deadline_places(job, lambda rank: _path(job.pool_of(rank))),
            *(
                f"{_path(pool)}: startupProbe.failureThreshold × periodSeconds"
                for pool in job.pools
                if pool.head in job.serving and job.spec.health is not None
            ),
        ),
    )


def _path(pool: Pool) -> str:
    return f"{pool.head.name}.yaml"


def _steps(job: Job, paths: tuple[str, ...]) -> tuple[Step, ...]:
    kubectl = (
        "kubectl",
        *(("--namespace", job.options.namespace) if job.options.namespace else ()),
    )
    files = tuple(word for path in paths for word in ("--filename", path))
    secret: tuple[Step, ...] = ()
    if job.secrets():
        made = ("create", "secret", "generic", secret_name(job), f"--from-env-file={SECRETS_FILE}")
        secret = (
            *common.secret_steps(job),
            Step(stage=Stage.PREPARE, what="kubectl_secret", argv=(*kubectl, *made)),
        )
    claim: tuple[Step, ...] = ()
    if job.spec.model_mount is not None and STORAGE_FILE not in paths:
        words = ("get", "persistentvolumeclaim", claim_name(job))
        claim = (Step(stage=Stage.CHECK, what="kubectl_claim", argv=(*kubectl, *words)),)
    dry = ("apply", "--dry-run=server", *files)
    workloads = tuple(f"{_kind(job, pool)}/{workload_name(job, pool)}" for pool in job.pools)
    return (
        *secret,
        *common.own_steps(job),
        *claim,
        Step(stage=Stage.CHECK, what="kubectl_dry_run", argv=(*kubectl, *dry)),
        Step(stage=Stage.START, what="kubectl_apply", argv=(*kubectl, "apply", *files)),
        Step(stage=Stage.WATCH, what="kubectl_get", argv=(*kubectl, "get", *workloads)),
        Step(stage=Stage.STOP, what="kubectl_delete", argv=(*kubectl, "delete", *workloads)),
    )


def _kind(job: Job, pool: Pool) -> str:
    if len(pool.ranks) > 1:
        return "leaderworkerset"
    return "statefulset" if job.loads_model(pool.head) else "deployment"


def _objects(job: Job, pool: Pool, addresses: dict[str, str]) -> list[dict[str, Any]]:
    """The workload of a pool and its service."""
    others = {name: at for name, at in addresses.items() if name not in _names(pool)}
    head = pod(job, pool, pool.head, others)
    meta = _metadata(job, pool)
    kind = _kind(job, pool)
    selector = {"matchLabels": labels(job, pool)}
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
                    "workerTemplate": pod(job, pool, pool.ranks[1], others),
                },
            },
        }
    elif kind == "statefulset":
        workload = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": meta,
            "spec": {
                "serviceName": workload_name(job, pool),
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
    if pool.head not in job.serving:
        return [workload]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            "type": "ClusterIP",
            "selector": labels(job, pool) | (_LEADER if kind == "leaderworkerset" else {}),
            "ports": [{"name": "api", "port": job.port(pool.head), "targetPort": "api"}],
        },
    }
    return [workload, service]


def _names(pool: Pool) -> set[str]:
    return {rank.name for rank in pool.ranks}


def _metadata(job: Job, pool: Pool) -> dict[str, Any]:
    return without_none(
        {
            "name": workload_name(job, pool),
            "namespace": job.options.namespace,
            "labels": labels(job, pool),
        }
    )


def _storage(job: Job) -> tuple[TargetFile, ...]:
    """The claim of the model's files, as large as they are; none where one is named or the size is
    not known.
    """
    options = job.options
    if job.spec.model_mount is None or options.model_claim or options.model_bytes is None:
        return ()
    readers = sum(job.loads_model(rank) for rank in job.ranks)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": without_none({"name": claim_name(job), "namespace": options.namespace}),
        "spec": without_none(
            {
                "accessModes": ["ReadWriteMany" if readers > 1 else "ReadWriteOnce"],
                "storageClassName": options.storage_class,
                "resources": {"requests": {"storage": f"{-(-options.model_bytes // GIB)}Gi"}},
            }
        ),
    }
    return (TargetFile(path=STORAGE_FILE, text=documents(options.header, [claim])),)


def _config(job: Job) -> tuple[TargetFile, ...]:
    """The files of the launch as a config map; none where there are none."""
    if not job.spec.files:
        return ()
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": without_none({"name": files_name(job), "namespace": job.options.namespace}),
        "data": dict(sorted(job.spec.files.items())),
    }
    return (TargetFile(path=FILES_FILE, text=documents(job.options.header, [body])),)
