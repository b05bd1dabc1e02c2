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

from heavylift.cli.cells import wrap
from heavylift.cli.recipe_words import note, refused
from heavylift.cli.text import listed, of_facts, text
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
_LINE = 90
_JOINED = "\u00a0"
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


def _said(key: str, **params: str) -> str:
    return text(f"recipes_table.{key}", **params)


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
                on=listed(published.other_hardware) or _said("any"),
                layout="-",
                outcome="not_derived",
                remarks=(_why_not(published),),
            )
            continue
        for gpu in published.gpu_ids:
            yield _row(reciping, catalog, published, gpu)


def _why_not(published: RecipeFacts) -> str:
    if published.other_hardware:
        return _said("no_facts")
    if published.id.endswith("-common"):
        return _said("common")
    return of_facts(published.reason) if published.reason else _said("no_rack")


def _chosen(reciping: Reciping, published: RecipeFacts, on: str, variant: str) -> Row:
    def ask(rack: Rack) -> PlanRequest:
        return PlanRequest(model=MODEL, rack=rack, variant=variant)

    recipe = reciping.recipe(RecipeWish(model=MODEL, rack=on, ask=ask, engine=published.engine))
    assert recipe.launch is not None  # noqa: S101
    return Row(
        published=published,
        on=_said("ours", on=on),
        layout=recipe.layout,
        outcome="our_rack",
        remarks=(
            _said("asked", variant=variant, on=on),
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
        return Row(published=published, on=on, layout="-", outcome="not_derived", remarks=(words,))
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
        outcome="again" if not told else "differs",
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
    follows = _said("follows", source=sources[0]) if sources else _said("follows_none")
    words = [argument.partition(" ")[::2] for argument in published.arguments]
    for name, value in (*words, *published.environment.items()):
        main = _main(table, name)
        if main in columns:
            continue
        ours = here.get(main)
        if ours is None:
            word = f"{name} {value}".strip()
            yield dropped.get(name, _said("left_out", word=word, follows=follows))
        elif _plain(ours.value) != _plain(value) or _negates(ours.name) != _negates(name):
            theirs, mine = f"{name} {value}", f"{ours.name} {ours.value}"
            yield _said("is_here", theirs=theirs, ours=mine, why=ours.why)


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
    return tuple(_said("nearest", command=near.command) for near in recipe.refused.nearest[:1])


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


def _intro() -> Iterator[str]:
    code = "make recipe-docs"
    joined = code.replace(" ", _JOINED)
    for line in wrap(_said("intro").replace(code, joined), width=_LINE, cuts=False):
        yield line.replace(_JOINED, " ")


def page(reciping: Reciping) -> str:
    """The page as Markdown."""
    found = list(rows(reciping))
    counts: dict[str, int] = {}
    for row in found:
        counts[_said(row.outcome)] = counts.get(_said(row.outcome), 0) + 1
    numbers = [text("label", name=name, words=str(counts[name])) for name in sorted(counts)]
    lines = [
        f"# {_said('title', model=reciping.catalog.model(MODEL).title)}",
        "",
        *_intro(),
        "",
        _said("counts", counts=listed(numbers, "list.clauses")),
        "",
        f"| {_said('columns')} |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        remarks = "<br>".join(each.replace("|", "\\|") for each in row.remarks)
        status = text(f"web.status_word.{row.published.status}")
        said = f"{status} {row.published.as_of.isoformat()}"
        cells = (row.published.id, said, row.on, row.layout, _said(row.outcome), remarks)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    OUTPUT.write_text(page(Reciping()), "utf-8")
    sys.stdout.write(f"{OUTPUT}\n")


if __name__ == "__main__":
    main()
