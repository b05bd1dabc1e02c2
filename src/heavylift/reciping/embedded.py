"""The recipe of the embedded engine: one process on this machine, as it is installed here."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.plan.planner import Knowledge
from heavylift.recipe.engines import embedded
from heavylift.recipe.engines.llamacpp import slot_tokens
from heavylift.recipe.launches import SINGLE_NODE, plan_digest
from heavylift.reciping.shelf import Shelf
from heavylift.reciping.wish import RecipeWish
from heavylift.records.launch import Health, LaunchSpec
from heavylift.records.plan import Plan

ENGINE: Final = embedded.ENGINE
_LEAST_S: Final = 60
_PORT: Final = 8080


def embedded_launch(
    shelf: Shelf, wish: RecipeWish, knowledge: Knowledge
) -> tuple[Plan, LaunchSpec]:
    """The plan and the launch. Raises REC024 for another rack than this machine."""
    _, rack = shelf.planning.rack(wish.rack)
    if wish.embedded is None or rack is None or rack.gpu != rack.gpu_title:
        raise HeavyliftError("REC024", {"rack": wish.rack})
    plan = shelf.planning.plan(replace(wish.ask(rack), engine=ENGINE), knowledge, with_fixes=False)
    start, common = wish.start, shelf.catalog.serving_common()
    loaded = plan.host.load_bytes_per_node or plan.host.disk_bytes
    per_s = (start.read_gb_per_s or common.read_bandwidth.value) * 10**9
    seconds = max(_LEAST_S, ceil(loaded / per_s))
    settings = embedded.EmbeddedSettings(
        model_path=start.model_path or wish.embedded.model_path,
        model=start.served_name or plan.model,
        slot_tokens=slot_tokens(plan.context_tokens),
        slots=plan.concurrency,
        port=start.port or _PORT,
        deadline_s=seconds,
    )
    spec = embedded.launch_spec(
        settings,
        python=wish.embedded.python,
        child=wish.embedded.child,
        plan_digest=plan_digest(plan),
    )
    rank = replace(spec.ranks[0], name="serve-0", node=0, gpus=0, serves=True)
    return plan, replace(
        spec,
        ranks=(rank,),
        nodes=1,
        gpus_per_node=0,
        topology=SINGLE_NODE,
        model_path=settings.model_path,
        served_name=settings.model,
        bind_host="127.0.0.1",
        served_port=settings.port,
        health=Health(path="/health", start_period_s=seconds),
        host_network=False,
        stop_grace_s=common.stop_grace.value,
        support=plan.support,
    )
