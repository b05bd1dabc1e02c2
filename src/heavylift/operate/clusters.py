"""Deployments on a scheduler: the recipe's own files, submitted and taken back by its commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import yaml

from heavylift.errors import HeavyliftError
from heavylift.operate import recipes
from heavylift.records.launch import LaunchSpec, RankSpec

SUBMITTED: Final = Path(__file__).parents[1] / "launch" / "submitted.py"
ORDER: Final = "submitted.json"
_STOP_S: Final = 60.0
_LABEL: Final = "app.kubernetes.io/name"


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The commands of a submission, as words. See `launch.submitted`."""

    folder: str
    start: tuple[str, ...]
    running: tuple[str, ...]
    stop: tuple[str, ...]
    port: int
    host: tuple[str, ...] | None = None
    logs: str | None = None
    follow: tuple[str, ...] | None = None


def slurm(folder: Path, name: str, port: int) -> Order:
    """The batch script of a recipe. Raises REC049 when the folder holds none."""
    script = _only(folder, "*.sbatch", "slurm")
    job = f"heavylift-{name}"
    mine = ("squeue", "--noheader", "--me", f"--name={job}")
    return Order(
        folder=str(folder),
        # The output is ours to find, whatever the script calls it.
        start=("sbatch", f"--job-name={job}", f"--output={job}-%j.log", script),
        running=(*mine, "--format=%T"),
        stop=("scancel", "--me", f"--name={job}"),
        host=(*mine, "--states=RUNNING", "--format=%B"),
        logs=f"{job}-*.log",
        port=port,
    )


def kubernetes(folder: Path, name: str, port: int) -> Order:
    """The manifests of a recipe, with the user's kubectl and context. Raises REC049 for none."""
    files = sorted(path.name for path in folder.glob("*.yaml"))
    if not files:
        raise HeavyliftError("REC049", {"path": str(folder), "target": "kubernetes"})
    named = tuple(f"--filename={file}" for file in files)
    return Order(
        folder=str(folder),
        start=("kubectl", "apply", *named),
        running=("kubectl", "get", "--output=name", "--ignore-not-found", *named),
        stop=("kubectl", "delete", "--ignore-not-found", *named),
        follow=(
            "kubectl",
            "logs",
            "--follow",
            "--all-containers",
            f"--selector={_LABEL}={_labelled(folder, files) or name}",
        ),
        port=port,
    )


TARGETS: Final[Mapping[str, Callable[[Path, str, int], Order]]] = {
    "slurm": slurm,
    "kubernetes": kubernetes,
}


def submit(folder: Path, target: str, name: str, *, url: str | None = None) -> None:
    """Make a kept recipe one that is submitted: one process here stands for all of them there.

    Raises REC049 when the folder holds no files for the target, REC050 when nobody says where the
    API will be and the target does not tell.
    """
    spec = recipes.read(folder).spec
    port = spec.served_port or next(
        (rank.ports["api"] for rank in spec.ranks if "api" in rank.ports), 8000
    )
    order = TARGETS[target](folder, name, port)
    if order.host is None and url is None:
        raise HeavyliftError("REC050", {"target": target})
    (folder / ORDER).write_bytes(msgspec.json.encode(order))
    secrets = {name: key for rank in spec.ranks for name, key in rank.secrets.items()}
    rank = RankSpec(
        rank=0,
        host="127.0.0.1",
        argv=(sys.executable, "-I", str(SUBMITTED), str(folder / ORDER)),
        secrets=secrets,
        name=target,
        serves=True,
    )
    written: LaunchSpec = replace(spec, ranks=(rank,), served_port=None)
    (folder / recipes.LAUNCH).write_bytes(msgspec.json.encode(written))


def take_back(folder: Path) -> None:
    """Take back what a release has submitted, should its process here have been killed."""
    try:
        order = msgspec.json.decode((folder / ORDER).read_bytes(), type=Order)
    except (OSError, msgspec.MsgspecError):
        return
    if shutil.which(order.stop[0]) is None:
        return
    try:
        subprocess.run(  # noqa: S603 - words of this module
            order.stop, cwd=order.folder, check=False, capture_output=True, timeout=_STOP_S
        )
    except subprocess.TimeoutExpired:
        # A scheduler that does not answer: its queue is looked at by the next start.
        return


def _labelled(folder: Path, files: list[str]) -> str | None:
    """The name that the manifests put on their pods; None where they put none."""
    for file in files:
        for document in yaml.safe_load_all((folder / file).read_text("utf-8")):
            metadata = document.get("metadata") if isinstance(document, dict) else None
            labels = metadata.get("labels") if isinstance(metadata, dict) else None
            if isinstance(labels, dict) and _LABEL in labels:
                return str(labels[_LABEL])
    return None


def _only(folder: Path, pattern: str, target: str) -> str:
    found = sorted(path.name for path in folder.glob(pattern))
    if len(found) != 1:
        raise HeavyliftError("REC049", {"path": str(folder), "target": target})
    return found[0]
