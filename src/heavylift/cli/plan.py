"""`heavylift plan`: what a model needs on a rack, byte by byte, and whether it fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heavylift.cli import last
from heavylift.cli.hub import reach_hub
from heavylift.cli.output import json_option, sink
from heavylift.cli.request import Wish, check_layout_fits_rack, plan_options
from heavylift.cli.text import text
from heavylift.errors import Exit
from heavylift.facts.catalog import Catalog
from heavylift.plan.command import plan_command
from heavylift.planning import Planning
from heavylift.records.plan import Plan, Status


@click.command(help=text("help.plan"))
@click.argument("model")
@click.option("--on", "rack_text", required=True, metavar="RACK", help=text("option.on"))
@plan_options
@click.option(
    "--receipt",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=text("option.receipt"),
)
@click.option("--rules", is_flag=True, help=text("option.rules"))
@json_option
def command(
    model: str, rack_text: str, receipt: Path | None, rules: bool, as_json: bool, **options: Any
) -> int:
    """Plan, show, remember; the exit status is the verdict."""
    out = sink(as_json)
    catalog = Catalog()
    planning = Planning(catalog, reach=reach_hub(catalog, None, out))
    plan = make(Wish.of(model, options), rack_text, receipt, planning=planning)
    if rules:
        plan = planning.with_rules_of_thumb(plan)
    last.save(plan)
    for defect in planning.remarks:
        words = text(f"defect.{defect.problem}", detail=defect.detail)
        out.note("plan.remark", path=defect.path, problem=words)
    out.record("plan", plan)
    out.next_command(_next(plan))
    return Exit.OK if plan.verdict.is_positive else Exit.NEGATIVE


def make(
    wish: Wish, rack_text: str, receipt: Path | None = None, *, planning: Planning | None = None
) -> Plan:
    """The plan of a wish on a rack as typed.

    With a receipt file its measured terms are taken; without one, those of the newest start that
    was kept of exactly this plan.
    """
    planning = planning or Planning()
    knowledge = planning.knowledge(wish.model)
    gpu, rack = planning.rack(rack_text)
    measured = None if receipt is None else last.read_receipt(receipt)
    if rack is None:
        return planning.plan(
            lambda each: wish.request(planning, each), knowledge, gpu=gpu, receipt=measured
        )
    check_layout_fits_rack(wish, rack)
    request = wish.request(planning, rack)
    plan = planning.plan(request, knowledge, receipt=measured)
    kept = last.kept_receipt(plan) if receipt is None else None
    return plan if kept is None else planning.plan(request, knowledge, receipt=kept)


def _next(plan: Plan) -> str:
    if plan.fixes and not plan.verdict.is_positive:
        order = list(Status)
        return min(plan.fixes, key=lambda fix: order.index(fix.status)).command
    if plan.verdict.is_positive:
        return "heavylift explain weights"
    return plan_command(plan.request, "compare").replace(" --on", " --all --on", 1)
