"""What stands between a kept recipe and its start: machines, containers, commands beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from heavylift.facts.catalog import Catalog
from heavylift.launch import preparing
from heavylift.launch.preparing import Ways
from heavylift.operate import clusters, containers, recipes
from heavylift.records.launch import LaunchSpec

PROCESSES: Final = "processes"
TARGETS: Final = (PROCESSES, containers.DOCKER, *clusters.TARGETS)


def place(
    kept: Path,
    *,
    name: str,
    target: str | None,
    hosts: tuple[str, ...] = (),
    url: str | None = None,
) -> str | None:
    """Put a kept recipe where it is to run; what it runs by when that is not a plain process.

    `target` None = containers where the recipe has an image and this machine Docker, else
    processes.
    Raises what the targets raise.
    """
    if target is not None and target in clusters.TARGETS:
        clusters.submit(kept, target, name, url=url)
        return target
    recipes.with_hosts(kept, hosts)
    spec = recipes.read(kept).spec
    if target == containers.DOCKER or (
        target is None and not hosts and containers.is_offered(spec)
    ):
        containers.contain(kept, name, Catalog())
        return containers.DOCKER
    return None


def ways(catalog: Catalog, kept: Path, spec: LaunchSpec) -> Ways:
    """The commands around a start of a kept recipe."""
    contained = containers.contained(kept)
    is_late = catalog.prepares_late(spec.engine)
    pull = () if contained is None else contained.pull
    return Ways(
        early=(*pull, *(() if is_late else spec.prepare)),
        late=spec.prepare if is_late else (),
        clear=() if contained is None else contained.clear,
    )


def take_back(kept: Path) -> None:
    """Take back what a release has running elsewhere, should its process here have been killed."""
    clusters.take_back(kept)
    contained = containers.contained(kept)
    if contained is not None:
        preparing.clear(Ways(clear=contained.clear))
