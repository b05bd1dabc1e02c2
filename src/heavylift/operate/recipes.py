"""Recipes as folders: `launch.json`, `plan.json`, and how the deployment is watched.

A release keeps a copy of its recipe, so that going back does not depend on a folder of somebody's.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from heavylift.errors import HeavyliftError, reason
from heavylift.launch import engine_env, processes
from heavylift.launch.embedded import launch
from heavylift.planning import THIS_MACHINE, Planning
from heavylift.recipe.engines import embedded
from heavylift.records.deployment import Supervision
from heavylift.records.launch import LaunchSpec, RankSpec
from heavylift.records.plan import Plan, PlanRequest
from heavylift.state import paths

LAUNCH: Final = "launch.json"
PLAN: Final = "plan.json"
SUPERVISION: Final = "supervision.json"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9._-]+")

LOOPBACK: Final = "127.0.0.1"
_LARGEST_FILE_BYTES: Final = 1 << 20

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A recipe as read. `plan` None = the folder holds none. `digest` is of all its files."""

    spec: LaunchSpec
    plan: Plan | None
    rules: Supervision
    digest: str


def read(folder: Path) -> Recipe:
    """The recipe in a folder. Raises REC040 when there is none, REC041 for a file that is none."""
    if not (folder / LAUNCH).is_file():
        raise HeavyliftError(
            "REC040",
            {"path": str(folder)},
            hint_command="heavylift recipe MODEL --on RACK --engine ENGINE -o DIR",
        )
    spec = _decoded(folder / LAUNCH, LaunchSpec)
    if not spec.ranks or not all(rank.argv for rank in spec.ranks):
        raise HeavyliftError(
            "REC041", {"path": str(folder / LAUNCH), "reason": "no_rank_with_command"}
        )
    plan = _decoded(folder / PLAN, Plan) if (folder / PLAN).is_file() else None
    rules = Supervision()
    if spec.stop_grace_s is not None:
        rules = replace(rules, grace_s=float(spec.stop_grace_s))
    if (folder / SUPERVISION).is_file():
        rules = _decoded(folder / SUPERVISION, Supervision)
    return Recipe(spec=spec, plan=plan, rules=rules, digest=_digest(folder))


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises REC041 for a file that holds none."""
    return _decoded(path, Plan)


def keep(source: Path, name: str, number: int) -> Path:
    """A copy of a recipe's files as release `number` of a deployment: what goes back must not hang
    on a folder of somebody's. Large files are no part of a recipe and stay where they are.
    """
    return copy(source, release_dir(name, number))


def copy(source: Path, target: Path) -> Path:
    """A copy of a recipe's own files in a folder; `target`."""
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in sorted(source.rglob("*")):
        if not path.is_file() or path.stat().st_size > _LARGEST_FILE_BYTES:
            continue
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return target


def rewrite(folder: Path, spec: LaunchSpec) -> None:
    """Put another launch into a kept recipe."""
    (folder / LAUNCH).write_bytes(msgspec.json.encode(spec))


def write_files(folder: Path, spec: LaunchSpec) -> None:
    """Put the contents that a launch holds beside it, where they are not yet."""
    for name, content in spec.files.items():
        path = folder / Path(name).name
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(content, "utf-8")


def release_dir(name: str, number: int) -> Path:
    """Where the recipe of a release is kept."""
    return paths.deployment_dir(name) / "releases" / str(number)


def with_hosts(folder: Path, hosts: tuple[str, ...]) -> None:
    """Put machines into a kept launch, in the order in which its ranks with cards name theirs.
    Ranks without cards stand on the first. A launch of one machine runs here where none is named.

    Raises REC042 when there are fewer hosts than machines; REC051 when the API would listen on the
    loopback of another machine, where nobody could ask it.
    """
    spec = _decoded(folder / LAUNCH, LaunchSpec)
    machines = list(
        dict.fromkeys((rank.role, rank.node) for rank in spec.ranks if rank.gpus != 0)
    ) or [(spec.ranks[0].role, spec.ranks[0].node)]
    if not hosts and not any(is_placeholder(rank) for rank in spec.ranks):
        return
    if not hosts and len(machines) == 1:
        hosts = (LOOPBACK,)
    if len(hosts) < len(machines):
        raise HeavyliftError("REC042", {"hosts": len(hosts), "nodes": len(machines)})

    def placed(rank: RankSpec) -> RankSpec:
        machine = (rank.role, rank.node)
        return replace(rank, host=hosts[machines.index(machine) if machine in machines else 0])

    ranks = tuple(map(placed, spec.ranks))
    serving = next((rank for rank in ranks if rank.serves), ranks[0])
    if serving.host not in processes.LOCAL and spec.bind_host in processes.LOCAL:
        raise HeavyliftError("REC051", {"host": serving.host})
    rewrite(folder, replace(spec, ranks=ranks))


def is_placeholder(rank: RankSpec) -> bool:
    """True when a rank's host is yet to be named: recipes write the rank's own name there."""
    return bool(rank.name) and rank.host == rank.name


def name_of(wish: str | None, spec: LaunchSpec) -> str:
    """The deployment's name: as wished, else made from the model's. Raises USE080 for no name."""
    return named(wish, spec.served_name or spec.model)


def named(wish: str | None, model: str) -> str:
    """As `name_of`, where there is no launch yet."""
    if wish is None:
        last = model.rstrip("/").rpartition("/")[2].lower()
        return _NOT_IN_A_NAME.sub("-", last).strip("-.")[:63] or "model"
    if _NAME.fullmatch(wish) is None:
        raise HeavyliftError("USE080", {"name": wish})
    return wish


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedWish:
    """What the embedded engine is to serve: a model's id or a GGUF file, how wide, and whether
    `embeddings` as well.
    """

    model: str
    slot_tokens: int = 1024
    slots: int = 4
    port: int = 0
    embeddings: bool = False


def write_embedded(wish: EmbeddedWish, folder: Path) -> None:
    """Write the recipe of the embedded engine for a model into a folder.

    Raises ENV027 when the engine is not installed, REC043 for a model it has not.
    """
    path = Path(wish.model)
    plan = None
    if path.suffix == ".gguf" and path.is_file():
        settings = _settings(str(path.absolute()), path.stem, wish)
    elif wish.model in (embedded.SMOLLM2_ID, "smollm2"):
        settings = _settings(str(engine_env.smollm2_path()), embedded.SMOLLM2_ID, wish)
        plan = _plan(wish)
    else:
        raise HeavyliftError(
            "REC043",
            {"model": wish.model, "offered": embedded.SMOLLM2_ID},
            hint_command=f"heavylift up {shlex.quote(wish.model)} --engine ENGINE --on RACK",
        )
    digest = (
        "" if plan is None else f"sha256:{hashlib.sha256(msgspec.json.encode(plan)).hexdigest()}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LAUNCH).write_bytes(msgspec.json.encode(launch(settings, plan_digest=digest)))
    if plan is not None:
        (folder / PLAN).write_bytes(msgspec.json.encode(plan))


def _settings(path: str, model: str, wish: EmbeddedWish) -> embedded.EmbeddedSettings:
    return embedded.EmbeddedSettings(
        model_path=path,
        model=model,
        slot_tokens=wish.slot_tokens,
        slots=wish.slots,
        port=wish.port,
        embeddings=wish.embeddings,
    )


def _plan(wish: EmbeddedWish) -> Plan:
    planning = Planning()
    _, rack = planning.rack(THIS_MACHINE)
    if rack is None:
        raise ValueError(THIS_MACHINE)
    request = PlanRequest(
        model=embedded.SMOLLM2_ID,
        rack=rack,
        engine=embedded.ENGINE,
        context_tokens=wish.slots * wish.slot_tokens,
        concurrency=wish.slots,
    )
    return planning.plan(request, planning.knowledge(embedded.SMOLLM2_ID), with_fixes=False)


def _decoded(path: Path, kind: type[R]) -> R:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError) as error:
        raise HeavyliftError("REC041", {"path": str(path), "reason": reason(error)}) from error


def _digest(folder: Path) -> str:
    total = hashlib.sha256()
    for file in (LAUNCH, PLAN, SUPERVISION):
        path = folder / file
        content = path.read_bytes() if path.is_file() else b""
        total.update(hashlib.sha256(content).digest())
    return f"sha256:{total.hexdigest()}"
