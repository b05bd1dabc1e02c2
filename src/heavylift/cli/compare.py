"""`heavylift compare`: the same model on several racks, a row each, and the answer in words."""

from __future__ import annotations

import gc
from typing import Any

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.request import Wish, plan_options
from heavylift.cli.text import text
from heavylift.errors import Exit
from heavylift.plan.command import plan_command
from heavylift.planning import Planning


@click.command(help=text("help.compare"))
@click.argument("model")
@click.option("--on", "racks", multiple=True, metavar="RACK", help=text("option.on_several"))
@click.option("--all", "every", is_flag=True, help=text("option.all"))
@click.option("--search", "searched", is_flag=True, help=text("option.search"))
@plan_options
@json_option
def command(
    model: str,
    racks: tuple[str, ...],
    every: bool,
    searched: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Compare, show; 0 when at least one rack holds the model, 3 when none could be planned."""
    if not racks and not every and not searched:
        raise click.UsageError(text("usage.compare_what"))
    # A search makes hundreds of thousands of records that nothing lets go of before the answer.
    gc.disable()
    planning = Planning()
    knowledge = planning.knowledge(model)
    wish = Wish.of(model, options)
    if searched:
        found = planning.search(lambda rack: wish.request(planning, rack), knowledge)
        sink(as_json).record("search", found)
        any_holds = any(way.verdict.is_positive for way in found.best)
        return Exit.OK if any_holds else Exit.NEGATIVE
    if every:
        racks = (*racks, *(gpu.title for gpu in planning.catalog.gpus()))
    comparison = planning.compare(
        racks,
        lambda rack: wish.request(planning, rack),
        knowledge,
        with_speed=True,
    )
    out = sink(as_json)
    out.record("compare", comparison)
    if not comparison.rows:
        return Exit.INPUT
    held = [row for row in comparison.rows if row.plan.verdict.is_positive]
    if held:
        out.next_command(plan_command(held[0].plan.request))
    return Exit.OK if held else Exit.NEGATIVE
