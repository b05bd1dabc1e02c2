"""Recipes as folders: `launch.json`, `plan.json`, and how the deployment is watched.

A release keeps a copy of its recipe, so that going back does not depend on a folder of somebody's.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from heavylift.errors import HeavyliftError, reason
from heavylift.launch import engine_env
from heavylift.launch.embedded import launch
from heavylift.planning import THIS_MACHINE, Planning
from heavylift.recipe.engines import embedded
from heavylift.records.deployment import Supervision
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Plan, PlanRequest
from heavylift.state import paths

LAUNCH: Final = "launch.json"
PLAN: Final = "plan.json"
SUPERVISION: Final = "supervision.json"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9._-]+")

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
        raise HeavyliftError("REC040", {"path": str(folder)})
    spec = _decoded(folder / LAUNCH, LaunchSpec)
    if not spec.ranks or not all(rank.argv for rank in spec.ranks):
        raise HeavyliftError(
            "REC041", {"path": str(folder / LAUNCH), "reason": "no rank with a command"}
        )
    plan = _decoded(folder / PLAN, Plan) if (folder / PLAN).is_file() else None
    rules = Supervision()
    if (folder / SUPERVISION).is_file():
        rules = _decoded(folder / SUPERVISION, Supervision)
    return Recipe(spec=spec, plan=plan, rules=rules, digest=_digest(folder))


def keep(source: Path, name: str, number: int, *, whole: bool = False) -> Path:
    """A copy of a recipe's files as release `number` of a deployment; `whole`: of all files in its
    folder, for a scheduler that runs them.
    """
    target = release_dir(name, number)
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    if whole:
        shutil.copytree(source, target, dirs_exist_ok=True)
        return target
    for file in (LAUNCH, PLAN, SUPERVISION):
        if (source / file).is_file():
            shutil.copyfile(source / file, target / file)
    return target


def release_dir(name: str, number: int) -> Path:
    """Where the recipe of a release is kept."""
    return paths.deployment_dir(name) / "releases" / str(number)


def with_hosts(folder: Path, hosts: tuple[str, ...]) -> None:
    """Put the machines into a kept launch: the first host is node 0, and so on.

    Raises REC042 when there are fewer hosts than nodes.
    """
    spec = _decoded(folder / LAUNCH, LaunchSpec)
    needed = 1 + max((each.node or 0) for each in spec.ranks)
    if len(hosts) < needed:
        raise HeavyliftError("REC042", {"hosts": len(hosts), "nodes": needed})
    ranks = tuple(replace(each, host=hosts[each.node or 0]) for each in spec.ranks)
    (folder / LAUNCH).write_bytes(msgspec.json.encode(replace(spec, ranks=ranks)))


def name_of(wish: str | None, spec: LaunchSpec) -> str:
    """The deployment's name: as wished, else made from the model's. Raises USE080 for no name."""
    if wish is None:
        last = (spec.served_name or spec.model).rstrip("/").rpartition("/")[2].lower()
        return _NOT_IN_A_NAME.sub("-", last).strip("-.")[:63] or "model"
    if _NAME.fullmatch(wish) is None:
        raise HeavyliftError("USE080", {"name": wish})
    return wish


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedWish:
    """What the embedded engine is to serve: a model's id or a GGUF file, and how wide."""

    model: str
    slot_tokens: int = 1024
    slots: int = 4
    port: int = 0


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
        raise HeavyliftError("REC043", {"model": wish.model, "known": embedded.SMOLLM2_ID})
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
