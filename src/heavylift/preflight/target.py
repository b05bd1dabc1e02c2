"""What a host is judged against: a plan or launch from a file, or a model by name or folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import GpuFacts, ModelFacts, RecipeFacts
from heavylift.preflight.checks.outcome import NotObservedError
from heavylift.preflight.checks.view import Target, View
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Plan
from heavylift.records.snapshot import Snapshot

_FILE_BYTES: Final = 64 * 2**20
_PLAN: Final = "plan.json"


def no_target(catalog: Catalog) -> Target:
    """A target that is only the catalogue: what can be said of a host by itself."""
    cards = {
        name.lower(): gpu for gpu in catalog.gpus() for name in (gpu.id, gpu.title, *gpu.aliases)
    }
    return Target(cards=cards)


def of_plan(plan: Plan, catalog: Catalog) -> Target:
    """The target a plan makes, with the facts of its card and model and its recipe."""
    model = _known(catalog, plan.model)
    return replace(
        no_target(catalog),
        plan=plan,
        model=model,
        gpu=_card(catalog, plan.rack.gpu),
        recipe=None if model is None else _recipe(catalog, model, plan),
    )


def of_model(name: str, catalog: Catalog) -> Target:
    """The target a model makes by itself. Raises FACT010 for a name nobody knows."""
    return replace(no_target(catalog), model=catalog.model(name))


def of_file(path: Path, catalog: Catalog) -> Target:
    """The target in a JSON file: a plan, or a launch with the plan that lies beside it in its
    recipe, without which nobody knows which cards it wants. Raises PRE110 when it is neither.
    """
    try:
        if path.stat().st_size > _FILE_BYTES:
            raise HeavyliftError("PRE110", {"path": str(path), "reason": f"> {_FILE_BYTES} B"})
        raw = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise HeavyliftError("PRE110", {"path": str(path), "reason": reason}) from error
    try:
        return of_plan(msgspec.json.decode(raw, type=Plan), catalog)
    except (msgspec.MsgspecError, RecursionError) as no_plan:
        try:
            spec = msgspec.json.decode(raw, type=LaunchSpec)
        except (msgspec.MsgspecError, RecursionError):
            # A plan is what people have; what is wrong with it as a plan is what helps them.
            raise HeavyliftError("PRE110", {"path": str(path), "reason": str(no_plan)}) from no_plan
    plan = _plan_beside(path)
    base = no_target(catalog) if plan is None else of_plan(plan, catalog)
    return replace(base, spec=spec, model=base.model or _known(catalog, spec.model))


def _plan_beside(launch: Path) -> Plan | None:
    """The plan in the folder of a launch; None where there is none that can be read."""
    try:
        return msgspec.json.decode(launch.with_name(_PLAN).read_bytes(), type=Plan)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def _known(catalog: Catalog, name: str) -> ModelFacts | None:
    try:
        return catalog.model(name)
    except HeavyliftError:
        return None


def _card(catalog: Catalog, name: str) -> GpuFacts | None:
    try:
        return catalog.gpu(name)
    except HeavyliftError:
        return None


def _recipe(catalog: Catalog, model: ModelFacts, plan: Plan) -> RecipeFacts | None:
    """The recipe the plan rests on; else the first of the engine for the card."""
    recipes = catalog.recipes(model.id).recipes
    for recipe in recipes:
        if recipe.id == plan.support.recipe:
            return recipe
    return next(
        (
            recipe
            for recipe in recipes
            if recipe.engine == plan.engine
            and plan.rack.gpu in recipe.gpu_ids
            and recipe.phase is None
        ),
        None,
    )


def rack_of(snapshots: Sequence[Snapshot], target: Target) -> str | None:
    """The rack that the hosts make, as it is typed (`8xMI355X`, `2x8xH200`); None when the cards
    are not all of one kind that the catalogue knows.
    """
    counts = set()
    for snapshot in snapshots:
        names = _card_names(View(snapshot, target))
        facts = {target.cards.get(name.lower()) for name in names}
        card = next(iter(facts)) if len(facts) == 1 else None
        if card is None:
            return None
        counts.add((len(names), card.title))
    if len(counts) != 1:
        return None
    count, title = counts.pop()
    return f"{count}x{title}" if len(snapshots) == 1 else f"{len(snapshots)}x{count}x{title}"


def _card_names(view: View) -> list[str]:
    """Names of the cards as the vendors' tools print them; empty when no tool does."""
    try:
        return [gpu.name or "" for gpu in view.nvidia.gpus]
    except NotObservedError:
        pass
    try:
        return [gpu.name or "" for gpu in view.amd_tool_gpus]
    except NotObservedError:
        return []
