"""Recipes with an image on a machine with Docker: each rank becomes `docker run` with its words."""

from __future__ import annotations

import contextlib
import grp
import hashlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.facts.access_schema import CardAccess
from heavylift.facts.catalog import Catalog
from heavylift.launch import processes
from heavylift.operate import recipes
from heavylift.recipe.targets.docker import RDMA_DEVICES, run_argv
from heavylift.recipe.targets.records import TargetOptions
from heavylift.recipe.targets.view import LaunchView
from heavylift.recipe.targets.words import IN_CONTAINER
from heavylift.records.launch import LaunchSpec, RankSpec

DOCKER: Final = "docker"
CONTAINED: Final = "contained.json"
_NAME_CHARS: Final = 29
_DIGEST_CHARS: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Contained:
    """Commands around the containers of a kept recipe: fetching images, taking away leftovers."""

    pull: tuple[tuple[str, ...], ...]
    clear: tuple[tuple[str, ...], ...]


def is_offered(spec: LaunchSpec) -> bool:
    """True when every rank has an image, and this machine a Docker client."""
    return shutil.which(DOCKER) is not None and all(rank.image or spec.image for rank in spec.ranks)


def contain(folder: Path, name: str, catalog: Catalog) -> None:
    """Make a kept recipe one whose ranks run in containers of this machine.

    Raises REC055 for a rank on another machine, REC056 for a group this machine has not, REC105 and
    REC106 for an image that is not known or floats, and what else a view of a launch raises.
    """
    spec = recipes.read(folder).spec
    for rank in spec.ranks:
        if rank.host not in processes.LOCAL:
            raise HeavyliftError("REC055", {"host": rank.host})
    view = LaunchView(
        spec=spec, options=TargetOptions(name=_project(name)), access=_access(spec, catalog)
    )
    recipes.write_files(folder, spec)
    groups = dict(_groups(view.access))
    rdma = Path(RDMA_DEVICES).is_dir()
    for mount in spec.cache_mounts:
        # Docker refuses to mount a folder that is not there; one that cannot be made it names.
        with contextlib.suppress(OSError):
            Path(mount.source).mkdir(parents=True, exist_ok=True)

    def run(rank: RankSpec, argv: tuple[str, ...] | None = None) -> tuple[str, ...]:
        return run_argv(view, rank, argv, groups=groups, rdma=rdma, folder=str(folder))

    is_late = catalog.prepares_late(spec.engine)
    first = spec.ranks[0]
    prepare = tuple(
        (DOCKER, "exec", view.full_name(first), *_inside(command))
        if is_late
        else _unnamed(run(first, command))
        for command in spec.prepare
    )
    images = dict.fromkeys(map(view.image, spec.ranks))
    contained = Contained(
        pull=tuple((DOCKER, "pull", image) for image in images),
        clear=tuple((DOCKER, "rm", "--force", view.full_name(rank)) for rank in spec.ranks),
    )
    (folder / CONTAINED).write_bytes(msgspec.json.encode(contained))
    ranks = tuple(replace(rank, argv=run(rank), env={}) for rank in spec.ranks)
    recipes.rewrite(folder, replace(spec, ranks=ranks, prepare=prepare))


def contained(folder: Path) -> Contained | None:
    """What a kept recipe says of its containers; None when it has none."""
    try:
        return msgspec.json.decode((folder / CONTAINED).read_bytes(), type=Contained)
    except (OSError, msgspec.MsgspecError):
        return None


def _inside(command: tuple[str, ...]) -> Iterator[str]:
    for word in command:
        yield re.sub(r"\{file:([A-Za-z0-9._-]+)\}", rf"{IN_CONTAINER}/\1", word)


def _unnamed(argv: tuple[str, ...]) -> tuple[str, ...]:
    """A run beside the rank's own: without its name and its ports."""
    return tuple(word for word in argv if not word.startswith(("--name=", "--publish=")))


def _project(name: str) -> str:
    """The deployment's name as part of a container's; one that had to be changed gets a digest, so
    that no two deployments share a container.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:_NAME_CHARS].rstrip("-")
    if plain != name:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
        plain = f"{plain[: _NAME_CHARS - _DIGEST_CHARS - 1]}-{digest}"
    return f"heavylift-{plain}"


def _access(spec: LaunchSpec, catalog: Catalog) -> CardAccess | None:
    return None if spec.gpu_vendor is None else catalog.card_access(spec.gpu_vendor)


def _groups(access: CardAccess | None) -> Iterator[tuple[str, int]]:
    for name in () if access is None else access.groups:
        with contextlib.suppress(KeyError):
            yield name, grp.getgrnam(name).gr_gid
