"""`heavylift plan`: what a model needs on a rack, byte by byte, and whether it fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heavylift.cli import last
from heavylift.cli.hub import reach_hub
from heavylift.cli.output import json_option, sink
from heavylift.cli.request import Wish, Word, check_layout_fits_rack, plan_options
from heavylift.cli.text import text
from heavylift.errors import Exit
from heavylift.facts.catalog import Catalog
from heavylift.plan.command import plan_command
from heavylift.plan.planner import Knowledge
from heavylift.planning import Planning
from heavylift.records.plan import Plan, Status
from heavylift.records.receipt import Receipt
from heavylift.records.sink import Sink

if TYPE_CHECKING:
    from heavylift.telemetry.start_log import StartLog


@click.command(help=text("help.plan"))
@click.argument("model", required=False)
@click.option("--on", "rack_text", required=True, metavar="RACK", help=text("option.on"))
@plan_options
@click.option(
    "--command",
    "pasted",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help=text("option.command"),
)
@click.option("--drafter", type=Word(), help=text("option.drafter"))
@click.option(
    "--receipt",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=text("option.receipt"),
)
@click.option("--rules", is_flag=True, help=text("option.rules"))
@json_option
def command(
    *,
    model: str | None,
    rack_text: str,
    pasted: str | None,
    receipt: Path | None,
    rules: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Plan, show, remember; the exit status is the verdict."""
    out = sink(as_json)
    catalog = Catalog()
    planning = Planning(catalog, reach=reach_hub(catalog, None, out))
    wish = _wish(model, options, pasted, out, catalog)
    plan = make(wish, rack_text, receipt, planning=planning)
    if rules:
        plan = planning.with_rules_of_thumb(plan)
    last.save(plan)
    for defect in planning.remarks:
        words = text(f"defect.{defect.problem}", detail=defect.detail)
        out.note("plan.remark", path=defect.path, problem=words)
    out.record("plan", plan)
    out.next_command(_next(plan))
    return Exit.OK if plan.verdict.is_positive else Exit.NEGATIVE


def _wish(
    model: str | None, options: dict[str, Any], pasted: str | None, out: Sink, catalog: Catalog
) -> Wish:
    """What was typed, and of a pasted command what nobody typed."""
    if pasted is not None:
        from heavylift.cli.lint import read_pasted
        from heavylift.linting import Linting

        said = Linting(catalog).said_of_plan(read_pasted(pasted), pasted)
        model = model or said.model
        taken = {
            name: value for name, value in said.options.items() if options[name] in (None, False, 0)
        }
        options = {**options, **taken}
        words = ", ".join(f"{name} {value}" for name, value in taken.items())
        out.note("plan.from_command", taken=words)
    if model is None:
        raise click.UsageError(text("usage.plan_what"))
    return Wish.of(model, options)


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
    measured = None if receipt is None else last.read_measured(receipt)
    if measured is not None and not isinstance(measured, Receipt):
        return _of_log(wish, measured, planning, knowledge, rack_text)
    if rack is None:
        return planning.plan(
            lambda each: wish.request(planning, each), knowledge, gpu=gpu, receipt=measured
        )
    check_layout_fits_rack(wish, rack)
    request = wish.request(planning, rack)
    plan = planning.plan(request, knowledge, receipt=measured)
    kept = last.kept_receipt(plan) if receipt is None else None
    return plan if kept is None else planning.plan(request, knowledge, receipt=kept)


def _of_log(
    wish: Wish, log: StartLog, planning: Planning, knowledge: Knowledge, rack_text: str
) -> Plan:
    """A plan, measured by a log. What the log says of the start and nobody typed is taken from it;
    a log of another engine than the one typed is of something else.
    """
    from heavylift.telemetry.start_log import receipt_of

    said: dict[str, Any] = {"engine": log.engine, "engine_version": _known_version(log, planning)}
    said |= {_OPTIONS[name]: value for name, value in log.settings.items()}
    given = {
        option: said.get(option) if value is None else value
        for option, value in wish.options.items()
    }
    wish = Wish.of(wish.model, given)
    gpu, rack = planning.rack(rack_text)
    if rack is None:
        found = planning.plan(lambda each: wish.request(planning, each), knowledge, gpu=gpu)
        rack = found.rack
    else:
        check_layout_fits_rack(wish, rack)
        found = planning.plan(wish.request(planning, rack), knowledge)
    return planning.plan(wish.request(planning, rack), knowledge, receipt=receipt_of(log, found))


# Settings of a request by the options that state them.
_OPTIONS = {
    "context_tokens": "context",
    "concurrency": "concurrency",
    "max_num_batched_tokens": "max_batched_tokens",
    "kv_cache_dtype": "kv_dtype",
    "gpu_memory_utilization": "gpu_memory_utilization",
}


def _known_version(log: StartLog, planning: Planning) -> str | None:
    """The version a log names, where its rules were read."""
    versions = planning.catalog.engine(log.engine).versions
    return next((each.id for each in versions if each.id == log.version), None)


def _next(plan: Plan) -> str:
    if plan.fixes and not plan.verdict.is_positive:
        order = list(Status)
        return min(plan.fixes, key=lambda fix: order.index(fix.status)).command
    if plan.verdict.is_positive:
        return "heavylift explain weights"
    return plan_command(plan.request, "compare").replace(" --on", " --all --on", 1)
