"""Target `ray`: for engines whose ranks meet through a Ray cluster, and for no other.

The head starts the cluster and becomes the engine; the others join and wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.targets import docker, shell
from heavylift.recipe.targets.records import Rendering, Runtime, Stage, Step
from heavylift.recipe.targets.view import LaunchView, Pool
from heavylift.records.launch import RankSpec, host_token

TARGET: Final = "ray"
KIND: Final = "ray"

# The port and the engine's words follow as arguments: nothing of them is quoted into a script.
_HEAD_SCRIPT: Final = 'ray start --head --port="$0" && exec "$@"'


def render(view: LaunchView) -> Rendering:
    """A script per rank that starts or joins the cluster first.

    Raises REC113 when no pool meets through Ray: the engine's own rendezvous is safer.
    """
    if not any(pool.rendezvous and pool.rendezvous.kind == KIND for pool in view.pools):
        raise HeavyliftError("REC113", {"engine": view.spec.engine})
    ranks = tuple(_in_cluster(view.pool_of(rank), rank) for rank in view.ranks)
    view = replace(view, spec=replace(view.spec, ranks=ranks))
    runtime = view.runtime(Runtime.DOCKER)
    rendering = docker.render(view) if runtime is Runtime.DOCKER else shell.render(view)
    stops = tuple(
        Step(stage=Stage.STOP, what="ray_stop", argv=("ray", "stop"), rank=rank.name)
        for rank in view.ranks
        if runtime is Runtime.HOST
    )
    return replace(rendering, target=TARGET, steps=(*rendering.steps, *stops))


def _in_cluster(pool: Pool, rank: RankSpec) -> RankSpec:
    """The rank with its part of the cluster in front; one that starts Ray itself stays as it is."""
    meeting = pool.rendezvous
    if meeting is None or meeting.kind != KIND or rank.argv[0] == "ray":
        return rank
    if rank is pool.head:
        return replace(rank, argv=("bash", "-c", _HEAD_SCRIPT, str(meeting.port), *rank.argv))
    address = f"{host_token(meeting.head)}:{meeting.port}"
    return replace(rank, argv=("ray", "start", f"--address={address}", "--block"))
