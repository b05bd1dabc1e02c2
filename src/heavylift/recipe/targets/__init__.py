"""Targets: a launch spec becomes the files of one way to start it, and the steps to take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.access_schema import CardAccess
from heavylift.recipe.targets import (
    compose,
    docker,
    kubernetes,
    ray,
    shell,
    slurm,
    systemd,
)
from heavylift.recipe.targets.records import Rendering, TargetOptions
from heavylift.recipe.targets.view import LaunchView
from heavylift.records.launch import LaunchSpec

TARGETS: Final[Mapping[str, Callable[[LaunchView], Rendering]]] = MappingProxyType(
    {
        module.TARGET: module.render
        for module in (shell, docker, compose, systemd, slurm, kubernetes, ray)
    }
)
"""Every target by name."""


def render(
    target: str, spec: LaunchSpec, options: TargetOptions, access: CardAccess | None = None
) -> Rendering:
    """The launch as files of `target`. `access`: how its cards are reached; None = it takes none.

    Raises REC100 for a target that is not known, REC116 for ranks that only MPI can start, and
    REC101 to REC114 for a launch that the target cannot write: a name, an address, a port, an image
    or a number of cards is missing.
    """
    if target not in TARGETS:
        raise HeavyliftError("REC100", {"target": target, "known": ", ".join(TARGETS)})
    if target != slurm.TARGET and any(rank.tasks > 1 for rank in spec.ranks):
        raise HeavyliftError("REC116", {"engine": spec.engine, "target": slurm.TARGET})
    return TARGETS[target](LaunchView(spec=spec, options=options, access=access))
