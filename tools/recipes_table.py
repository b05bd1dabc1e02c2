"""Derive every published recipe of a model again and write what comes of it: docs/recipes-MODEL.md.

Each is asked for on its own rack and layout with its own settings. What is refused is refused with
its reason; what differs is listed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from heavylift.cli.recipe_words import note, refused
from heavylift.cli.text import text
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import RecipeFacts, ServicePhase
from heavylift.recipe.flags import FlagTable
from heavylift.reciping import RecipeWish, Reciping
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import PlanRequest, Rack
from heavylift.records.recipe import Recipe

MODEL = "kimi-k3"
OUTPUT = Path(__file__).parents[1] / "docs" / f"recipes-{MODEL}.md"
TOLD = ("plan_disagrees",)
LAYOUT = ("tensor", "pipeline", "data", "expert", "dcp", "nodes", "nodes_by_data")
"""Settings that the columns of the table say already."""
CHOSEN = {
    "vllm-nvfp4": ("8xB300", "nvfp4"),
    "llamacpp": ("8xH100", "ud-iq1-s"),
}
"""Racks and forms for what is published without one: ours, so that it is derived all the same."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published recipe on one card."""

    published: RecipeFacts
    on: str
    layout: str
    outcome: str
    remarks: tuple[str, ...]


def rows(reciping: Reciping) -> Iterator[Row]:
    """A row per recipe and card, in the order of the facts."""
    catalog = reciping.catalog
    for published in catalog.recipes(MODEL).recipes:
        if published.id in CHOSEN:
            yield _chosen(reciping, published, *CHOSEN[published.id])
            continue
        if not published.gpu_ids or published.gpus is None:
            yield Row(
                published=published,
                on=", ".join(published.other_hardware) or "any",
                layout="-",
                outcome="not derived",
                remarks=(_why_not(published),),
            )
            continue
        for gpu in published.gpu_ids:
            yield _row(reciping, catalog, published, gpu)


def _why_not(published: RecipeFacts) -> str:
    if published.other_hardware:
        return "The hardware has no facts here, so nothing can be counted."
    if published.id.endswith("-common"):
        return "Base arguments: they are part of every recipe below."
    return published.reason or "No card and no layout are stated."


def _chosen(reciping: Reciping, published: RecipeFacts, on: str, variant: str) -> Row:
    def ask(rack: Rack) -> PlanRequest:
        return PlanRequest(model=MODEL, rack=rack, variant=variant)

    recipe = reciping.recipe(RecipeWish(model=MODEL, rack=on, ask=ask, engine=published.engine))
    assert recipe.launch is not None  # noqa: S101
    return Row(
        published=published,
        on=f"{on} (ours)",
        layout=recipe.layout,
        outcome="derived, our rack",
        remarks=(
            f"No card and no layout are stated; `{variant}` on {on} was asked for.",
            *_differences(reciping, published, recipe.launch),
        ),
    )


def _row(reciping: Reciping, catalog: Catalog, published: RecipeFacts, gpu: str) -> Row:
    facts = catalog.gpu(gpu)
    per_node = catalog.node(facts.node).gpus_per_node.value
    count = published.gpus or per_node
    nodes = published.nodes or -(-count // per_node)
    on = f"{nodes}x{count // nodes}x{facts.title}"
    try:
        recipe = _derived(reciping, published, on)
    except HeavyliftError as error:
        params = dict(error.params)
        words = text(f"error.{error.code}", **{"why": "", **params})
        return Row(published=published, on=on, layout="-", outcome="not derived", remarks=(words,))
    if recipe.refused is not None:
        return Row(
            published=published,
            on=on,
            layout=recipe.layout,
            outcome="refused",
            remarks=(*refused(recipe.refused), *_nearest(recipe)),
        )
    assert recipe.launch is not None  # noqa: S101
    told = (
        *(note(each) for each in recipe.launch.notes if each.code in TOLD),
        *_differences(reciping, published, recipe.launch),
    )
    return Row(
        published=published,
        on=on,
        layout=recipe.layout,
        outcome="derived again" if not told else "derived, differs",
        remarks=told,
    )


def _differences(reciping: Reciping, published: RecipeFacts, launch: LaunchSpec) -> Iterator[str]:
    """Every word of the published command that the derived one does not have."""
    serving = reciping.catalog.serving(published.engine)
    table = FlagTable(reciping.catalog.flags(serving.table))
    commands = reciping.catalog.command_engines().engines
    command = next(each for each in commands if each.id == serving.command)
    columns = {flag for setting in LAYOUT for flag in command.settings.get(setting, ())}
    role = published.phase.value if published.phase else "serve"
    here = {
        _main(table, setting.name): setting for setting in launch.settings if setting.role == role
    }
    dropped = {
        str(each.params["name"]): note(each)
        for each in launch.notes
        if each.code.startswith("dropped_")
    }
    sources = [each.source for each in launch.settings if each.why == "published"]
    follows = f"{sources[0]} is followed" if sources else "nothing published is followed"
    words = [argument.partition(" ")[::2] for argument in published.arguments]
    for name, value in (*words, *published.environment.items()):
        main = _main(table, name)
        if main in columns:
            continue
        ours = here.get(main)
        if ours is None:
            yield dropped.get(name, f"`{f'{name} {value}'.strip()}` is left out: {follows}")
        elif _plain(ours.value) != _plain(value) or _negates(ours.name) != _negates(name):
            yield f"`{name} {value}` is `{ours.name} {ours.value}` here ({ours.why})"


def _main(table: FlagTable, name: str) -> str:
    found = table.flag(name) if name.startswith("-") else None
    return found.name if found is not None else name


def _negates(name: str) -> bool:
    return name.startswith("--no-")


def _plain(value: str) -> object:
    for read in (json.loads, float):
        try:
            return read(value)
        except ValueError:
            continue
    return value


def _nearest(recipe: Recipe) -> tuple[str, ...]:
    assert recipe.refused is not None  # noqa: S101
    return tuple(f"Nearest: `{near.command}`" for near in recipe.refused.nearest[:1])


def _derived(reciping: Reciping, published: RecipeFacts, on: str) -> Recipe:
    """The recipe asked for as it was published: rack, layout, context, batch, KV dtype."""
    settings = published.settings
    layout = {}
    if published.tensor_parallel_size is not None:
        layout = {
            "tensor": published.tensor_parallel_size,
            "pipeline": published.pipeline_parallel_size,
            "data": published.data_parallel_size,
            "expert": published.expert_parallel_size,
            "decode_context": published.decode_context_parallel_size,
        }

    if published.phase is not None:
        return _half(reciping, published, on)

    def ask(rack: Rack) -> PlanRequest:
        context = settings.get("max_model_len")
        request = PlanRequest(
            model=MODEL,
            rack=rack,
            context_tokens=None if context is None else int(context),
            layout_constraints=layout,
            vision=False if "--language-model-only" in published.arguments else None,
        )
        share = settings.get("gpu_memory_utilization", settings.get("mem_fraction_static"))
        seqs, batched = settings.get("max_num_seqs"), settings.get("max_num_batched_tokens")
        return replace(
            request,
            gpu_memory_utilization=None if share is None else float(share),
            max_num_seqs=None if seqs is None else int(seqs),
            max_num_batched_tokens=None if batched is None else int(batched),
            kv_cache_dtype=_word(settings.get("kv_cache_dtype")),
            moe_backend=_word(settings.get("moe_backend")),
        )

    return reciping.recipe(RecipeWish(model=MODEL, rack=on, ask=ask, engine=published.engine))


def _half(reciping: Reciping, published: RecipeFacts, on: str) -> Recipe:
    """One half of a split service, with the other half as it was published for the card."""
    gpu = reciping.planning.rack(on)[0]
    other = next(
        recipe
        for recipe in reciping.catalog.recipes(MODEL).recipes
        if recipe.engine == published.engine
        and recipe.phase not in (None, published.phase)
        and gpu.id in recipe.gpu_ids
    )
    per_node = reciping.catalog.node(gpu.node).gpus_per_node.value
    nodes = {recipe.phase: (recipe.gpus or per_node) // per_node for recipe in (published, other)}
    split = (nodes[ServicePhase.PREFILL], nodes[ServicePhase.DECODE])

    def ask(rack: Rack) -> PlanRequest:
        return PlanRequest(model=MODEL, rack=rack)

    return reciping.recipe(
        RecipeWish(
            model=MODEL,
            rack=f"{sum(split)}x{per_node}x{gpu.title}",
            ask=ask,
            engine=published.engine,
            split=split,
        )
    )


def _word(value: float | str | None) -> str | None:
    return None if value is None else str(value)


def page(reciping: Reciping) -> str:
    """The page as Markdown."""
    found = list(rows(reciping))
    counts: dict[str, int] = {}
    for row in found:
        counts[row.outcome] = counts.get(row.outcome, 0) + 1
    lines = [
        f"# Published recipes of {reciping.catalog.model(MODEL).title}, derived again",
        "",
        "Every published recipe in `facts/data/recipes`, asked for on its own rack and layout with",
        "its own settings, and what `heavylift recipe` makes of it with the newest engine version",
        "that was read. A half of a split service is asked for with its other half. Made by",
        "`make recipe-docs`; a test holds it against the facts.",
        "",
        "; ".join(f"{outcome}: {number}" for outcome, number in sorted(counts.items())) + ".",
        "",
        "| published | status | rack | layout | outcome | what differs, or why not |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        remarks = "<br>".join(each.replace("|", "\\|") for each in row.remarks)
        said = f"{row.published.status.value} {row.published.as_of.isoformat()}"
        lines.append(
            f"| {row.published.id} | {said} | {row.on} | {row.layout} | {row.outcome} | {remarks} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    OUTPUT.write_text(page(Reciping()), "utf-8")
    sys.stdout.write(f"{OUTPUT}\n")


if __name__ == "__main__":
    main()
