"""The deployment that a go-live report is of: by its name, or a recipe's folder."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from heavylift.checkpoint.hub_settings import HubId
from heavylift.errors import HeavyliftError
from heavylift.golive.evidence import moment
from heavylift.launch import processes
from heavylift.operate import recipes, truth
from heavylift.operate.recipes import Recipe
from heavylift.preflight.snapshot import WEIGHTS
from heavylift.records.deployment import DeploymentStatus, RunState
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Plan
from heavylift.records.release import Release
from heavylift.state.deployments import deployments_path, open_deployments

_MOST_RUNS: Final = 1000
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What is known of the deployment before any evidence. `name`, `release` and `status` are None
    for a recipe that no deployment runs. `folder` holds the recipe; `recipe` None = there is none
    that can be read, `broken` says why; with `bare_plan` it is the plan's own file. `runs` are
    newest first, `before` is the release to go back to.
    """

    name: str | None
    folder: Path
    recipe: Recipe | None
    broken: str | None = None
    release: Release | None = None
    before: Release | None = None
    status: DeploymentStatus | None = None
    runs: tuple[RunState, ...] = ()
    bare_plan: Plan | None = None

    @property
    def plan(self) -> Plan | None:
        """The plan: the recipe's, or one that no recipe was made of yet."""
        return self.bare_plan if self.recipe is None else self.recipe.plan

    @property
    def plan_file(self) -> Path:
        """Where the plan lies."""
        return self.folder if self.bare_plan is not None else self.folder / recipes.PLAN

    @property
    def digest(self) -> str:
        """What tells this recipe, or plan, from another; empty where there is neither."""
        if self.bare_plan is not None:
            return f"sha256:{hashlib.sha256(msgspec.json.encode(self.bare_plan)).hexdigest()}"
        return "" if self.recipe is None else self.recipe.digest

    @property
    def spec(self) -> LaunchSpec | None:
        """The launch."""
        return None if self.recipe is None else self.recipe.spec

    @property
    def live_url(self) -> str | None:
        """Where it answers now."""
        return self.status.url if self.status is not None and self.status.ready else None

    def release_at(self, at: str) -> int | None:
        """The release that ran at a time; None = nothing of it did, or the time is none."""
        when = moment(at)
        if when is None:
            return None
        for run in self.runs:
            began, ended = moment(run.started_at), moment(run.ended_at or "")
            if began is not None and began <= when and (ended is None or when <= ended):
                return run.release
        return None


def find(what: str) -> Found:
    """The deployment of that name, else the recipe of that folder or `launch.json`, else the plan
    in that file.

    Raises OPS001 for what is none of them, and what reading a recipe or a plan raises.
    """
    folder = Path(what)
    with open_deployments(deployments_path()) as store:
        deployment = store.deployment(what)
        if deployment is None and folder.exists():
            return _of_path(folder.absolute())
        deployment = truth.require(store, what)
        status = truth.status(store, deployment)
        kept = recipes.release_dir(what, deployment.release)
        recipe, broken = None, None
        try:
            recipe = recipes.read(kept)
        except HeavyliftError as error:
            broken = error.code
        return Found(
            name=what,
            folder=kept,
            recipe=recipe,
            broken=broken,
            release=store.release(what, deployment.release),
            before=store.latest_verified(what, but=deployment.release),
            status=status,
            runs=store.runs(what, most=_MOST_RUNS),
        )


def _of_path(path: Path) -> Found:
    if path.name == recipes.LAUNCH and path.is_file():
        path = path.parent
    plan = path / recipes.PLAN if path.is_dir() else path
    if path.is_dir() and ((path / recipes.LAUNCH).exists() or not plan.is_file()):
        return Found(name=None, folder=path, recipe=recipes.read(path))
    return Found(name=None, folder=plan, recipe=None, bare_plan=recipes.read_plan(plan))


def bound_of(found: Found, front: str | None) -> dict[str, frozenset[str]]:
    """What evidence must be of, by name. `front` is the address of a gateway before it."""
    spec, plan = found.spec, found.plan
    bound: dict[str, set[str]] = {}
    if found.name is not None:
        bound["deployment"] = {found.name}
    if found.release is not None:
        bound["release"] = {str(found.release.number)}
    digests = {found.digest} - {""}
    if found.release is not None:
        digests.add(found.release.recipe_digest)
    bound["recipe"] = digests
    if spec is not None:
        bound["model"] = {name for name in (spec.model, spec.served_name) if name}
        if spec.model_revision is not None:
            bound["revision"] = {spec.model_revision}
        place = checkpoint_of(spec)
        if place is not None:
            bound["checkpoint"] = {str(place), os.path.realpath(place)}
    if plan is not None:
        bound["layout"] = {plan.layout.label}
        bound["model"] = {plan.model} | bound.get("model", set())
    urls = {run.url for run in found.runs if run.url is not None} | {found.live_url, front}
    bound["url"] = {plain_url(url) for url in urls if url is not None}
    return {name: frozenset(values) for name, values in bound.items() if values}


def words_of(found: Found, promised: Mapping[str, int], slo: str) -> dict[str, str]:
    """What commands of points are filled with; what is not known is left out."""
    spec = found.spec
    plan = found.plan
    place = None if spec is None else checkpoint_of(spec)
    url = found.live_url
    words: dict[str, str | None] = {
        "subject": found.name or str(found.folder),
        "name": found.name,
        "folder": str(found.folder) if found.name is None and spec is not None else None,
        "recipe": None if spec is None else str(found.folder),
        "launch": None if spec is None else str(found.folder / recipes.LAUNCH),
        "live": found.name if url is not None else None,
        "url": url,
        "model": plan.model if plan is not None else None if spec is None else spec.model,
        "rack": None if plan is None else plan.rack.text,
        "engine": None if plan is None else plan.engine,
        "checkpoint": None if place is None else str(place),
        "sums": None if place is None else _sums(place),
        "repository": None if spec is None or place is not None else repository_of(spec),
        "slo": slo,
    }
    if "concurrency" in promised:
        words["concurrency"] = str(promised["concurrency"])
    return {name: value for name, value in words.items() if value}


def _sums(place: Path) -> str | None:
    """The list of digests that came with the weights; None where none lies beside them."""
    listed = (place if place.is_dir() else place.parent) / "SHA256SUMS"
    return str(listed) if listed.is_file() else None


def checkpoint_of(spec: LaunchSpec) -> Path | None:
    """The folder of the weights on this machine, by the launch: its mount, its model, or a word of
    its commands that is a file of weights. None where the engine fetches them itself.
    """
    given = [] if spec.model_mount is None else [spec.model_mount.source]
    given += [spec.model_path or "", spec.model]
    for rank in spec.ranks:
        given += [word.rpartition("=")[2] for word in rank.argv]
    for word in given:
        path = Path(word)
        if not path.is_absolute():
            continue
        if path.suffix in WEIGHTS and path.is_file():
            return path.parent
        if (path / "config.json").is_file():
            return path
    return None


def repository_of(spec: LaunchSpec) -> str | None:
    """The repository of the weights, where the launch names one."""
    for word in (spec.model_path or "", spec.model):
        if re.fullmatch(r"[\w.-]+/[\w.-]+", word) and HubId.parse(word) is not None:
            return word
    return None


def plain_url(url: str) -> str:
    """An address by which two spellings of one server are equal: `127.0.0.1:8000`. What is no
    address stays as it is.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        return url
    host = parts.hostname or ""
    if host in processes.LOCAL:
        host = "127.0.0.1"
    return f"{host}:{port or _PORTS.get(parts.scheme, 0)}"


def now_utc() -> datetime:
    """Now, whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)
