"""Tables of what is known: models, cards, engines, prices, recipes, sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heavylift.cli.reference.markdown import cell, code, day, kind, note, source, table
from heavylift.cli.text import of_facts, text
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import Fact, GpuFacts, ModelFacts, RecipeFacts, Source
from heavylift.units import format_gib

_CARD_FACTS = (
    "memory_visible",
    "memory_nameplate",
    "memory_bandwidth",
    "link_bandwidth",
    "native_formats",
    "dense_bf16",
    "dense_fp8",
    "dense_fp4",
    "power",
)


def pages(catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Path -> text."""
    models = [catalog.model(name) for name in catalog.ids("models")]
    yield "facts/models.md", _page("models", _models(models))
    yield "facts/gpus.md", _page("gpus", _gpus(catalog.gpus()))
    yield "facts/engines.md", _page("engines", _engines(catalog))
    yield "facts/prices.md", _page("prices", _prices(catalog))
    yield "facts/sources.md", _page("sources", _sources(catalog.all_sources()))
    yield "recipes.md", _page("recipes", _recipes(catalog))


def _page(name: str, lines: Iterator[str]) -> str:
    head = [f"# {text(f'reference.{name}')}", "", text(f"reference.{name}_intro"), ""]
    return "\n".join([*head, *lines])


def _models(models: list[ModelFacts]) -> Iterator[str]:
    yield from table(
        "reference.models_columns",
        (
            (
                cell(model.title),
                code(model.id),
                model.family,
                f"{model.max_context.value:,}",
                cell(model.licence.value if model.licence else None),
                source(model.max_context.source),
            )
            for model in models
        ),
    )
    yield f"## {text('reference.variants')}"
    yield ""
    yield from table(
        "reference.variants_columns",
        (
            (
                cell(model.title),
                code(variant.id),
                cell(of_facts(variant.title)),
                cell(variant.repo),
                cell(", ".join(variant.engines)),
                kind(variant.kind),
                source(variant.source),
                day(variant.as_of),
            )
            for model in models
            for variant in model.variants
        ),
    )


def _gpus(cards: tuple[GpuFacts, ...]) -> Iterator[str]:
    yield from table(
        "reference.gpus_columns",
        (
            (
                cell(card.title),
                card.vendor,
                card.architecture,
                format_gib(card.memory_visible.value),
                cell(", ".join(card.aliases)),
            )
            for card in cards
        ),
    )
    yield f"## {text('reference.values')}"
    yield ""
    yield from table(
        "reference.values_columns",
        (
            (cell(card.title), code(name), *_value(fact))
            for card in cards
            for name in _CARD_FACTS
            if isinstance(fact := getattr(card, name), Fact)
        ),
    )


def _value(fact: Fact[Any]) -> tuple[str, ...]:
    value = fact.value
    shown = f"{value:,}" if isinstance(value, int | float) else cell(value)
    unit = cell(of_facts(fact.unit))
    return shown, unit, kind(fact.kind), source(fact.source), day(fact.as_of), note(fact.note)


def _engines(catalog: Catalog) -> Iterator[str]:
    yield from table(
        "reference.engines_columns",
        (
            (
                cell(engine.title),
                code(version.id),
                text("reference.yes" if version.read else "reference.no"),
                source(version.source),
                day(version.as_of),
                note(version.note),
            )
            for engine in catalog.engines()
            for version in engine.versions
        ),
    )


def _prices(catalog: Catalog) -> Iterator[str]:
    prices = catalog.prices()
    yield f"## {text('reference.api')}"
    yield ""
    yield from table(
        "reference.api_columns",
        (
            (
                cell(price.provider),
                cell(price.name),
                cell(price.tier),
                price.currency,
                f"{price.input:g}",
                cell(None if price.cached_input is None else f"{price.cached_input:g}"),
                f"{price.output:g}",
                kind(price.kind),
                source(price.source),
                day(price.as_of),
            )
            for price in prices.api
        ),
    )
    yield f"## {text('reference.rents')}"
    yield ""
    yield from table(
        "reference.rents_columns",
        (
            (
                cell(catalog.gpu(rent.gpu).title),
                cell(of_facts(rent.provider)),
                cell(of_facts(rent.term)),
                cell(None if rent.usd_per_gpu_hour is None else f"{rent.usd_per_gpu_hour:g}"),
                kind(rent.kind),
                source(rent.source),
                day(rent.as_of),
            )
            for rent in prices.rentals
        ),
    )
    yield f"## {text('reference.assumptions')}"
    yield ""
    yield from table(
        "reference.assumptions_columns",
        (
            (
                code(each.id),
                f"{each.value:g}",
                f"{each.low:g} – {each.high:g}",
                cell(of_facts(each.unit)),
                kind(each.kind),
                source(each.source),
                day(each.as_of),
            )
            for each in prices.assumptions
        ),
    )


def _sources(known: tuple[Source, ...]) -> Iterator[str]:
    yield from table(
        "reference.sources_columns",
        (
            (
                f'<a id="{each.id}"></a>{code(each.id)}',
                f"[{cell(of_facts(each.title))}]({each.url})"
                if each.url
                else cell(of_facts(each.title)),
                day(each.retrieved),
                cell(each.licence),
            )
            for each in known
        ),
    )


def _recipes(catalog: Catalog) -> Iterator[str]:
    for model in catalog.ids("recipes"):
        yield f"## {catalog.model(model).title}"
        yield ""
        rows = (_recipe(catalog, recipe) for recipe in catalog.recipes(model).recipes)
        yield from table("reference.recipes_columns", rows)


def _recipe(catalog: Catalog, recipe: RecipeFacts) -> tuple[str, ...]:
    cards = ", ".join(
        (*(catalog.gpu(name).title for name in recipe.gpu_ids), *recipe.other_hardware)
    )
    count = f"{recipe.gpus} × " if recipe.gpus and cards else ""
    nodes = text("reference.on_nodes", nodes=recipe.nodes) if recipe.nodes else ""
    return (
        code(recipe.id),
        cell(catalog.engine(recipe.engine).title if _known(catalog, recipe) else recipe.engine),
        cell(f"{count}{cards or text('reference.any_card')}{nodes}"),
        text(f"web.status_word.{recipe.status}"),
        day(recipe.as_of),
        f"[{recipe.source}](facts/sources.md#{recipe.source})",
        cell(of_facts(recipe.reason)),
    )


def _known(catalog: Catalog, recipe: RecipeFacts) -> bool:
    return recipe.engine in catalog.ids("engines")
