"""The licence before a launch: shown, and acknowledged once where it sets conditions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heavylift.cli.text import of_facts, text
from heavylift.errors import HeavyliftError
from heavylift.records.sink import Sink

if TYPE_CHECKING:
    from heavylift.operate.recipes import EmbeddedWish
    from heavylift.records.golive import LicenceState


def before_launch(out: Sink, thing: Path | EmbeddedWish, *, accepted: bool, typed: str) -> None:
    """Show the licence of what is to be started, unless it was acknowledged here before.

    One with conditions has to be: by `--accept-licence`, or by answering. Raises USE102 where
    nobody can answer; the hint is the command as `typed` with the option.
    """
    from heavylift.facts.catalog import Catalog
    from heavylift.operate.licences import acknowledge, licence_of

    catalog = Catalog()
    model = _model(thing)
    licence = licence_of(catalog, model)
    if licence.acknowledged_at is not None:
        return
    if licence.name is None:
        out.note("licence.unknown", model=model)
        return
    _show(out, catalog.model(model).title, licence)
    if not accepted and licence.terms:
        accepted = _answered(model, licence, typed)
    if accepted:
        acknowledge(catalog, model)


def _show(out: Sink, model: str, licence: LicenceState) -> None:
    out.note(
        "licence.stated",
        model=model,
        licence=licence.name,
        source=licence.source,
        as_of=licence.as_of,
    )
    for term in licence.terms:
        out.note("licence.term", text=of_facts(term.text), source=term.source, as_of=term.as_of)


def _answered(model: str, licence: LicenceState, typed: str) -> bool:
    """What a person answers. Raises USE102 where there is none, or the answer is no."""
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        if click.confirm(text("licence.ask"), default=False, err=True):
            return True
        raise click.Abort
    raise HeavyliftError(
        "USE102",
        {"model": model, "licence": licence.name, "terms": len(licence.terms)},
        hint_command=f"{typed} --accept-licence",
    )


def _model(thing: Path | EmbeddedWish) -> str:
    from heavylift.operate import recipes

    if not isinstance(thing, Path):
        return thing.model
    recipe = recipes.read(thing)
    return recipe.spec.model if recipe.plan is None else recipe.plan.model
