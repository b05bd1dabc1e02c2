"""`heavylift speed`: how fast a layout serves a workload, as bands with what they rest on."""

from __future__ import annotations

from typing import Any

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.cli.workload import Asked, holds_nothing, workload_options
from heavylift.errors import Exit
from heavylift.plan.command import layout_flags
from heavylift.records.plan import Plan
from heavylift.records.speed import Speed


@click.command(help=text("help.speed"))
@click.argument("model")
@click.option("--on", "rack_text", required=True, metavar="RACK", help=text("option.on"))
@workload_options
@json_option
def command(model: str, rack_text: str, as_json: bool, **options: Any) -> int:
    """Forecast, show; 1 when the asked concurrency cannot be held at once."""
    asked = Asked.of(model, rack_text, options)
    plan = asked.plan()
    out = sink(as_json)
    if holds_nothing(plan):
        out.record("plan", plan)
        return Exit.NEGATIVE
    speed = asked.forecaster(plan).speed(asked.workload)
    out.record("speed", speed)
    out.next_command(_next(asked, plan, speed))
    return Exit.OK if speed.refusal is None else Exit.NEGATIVE


def _next(asked: Asked, plan: Plan, speed: Speed) -> str:
    """A layout that holds what was asked where there is one; else the price of this one."""
    rack = plan.rack.label
    lengths = f"--isl {speed.workload.input_tokens} --osl {speed.workload.output_tokens}"
    clients = f"--concurrency {speed.workload.concurrency}"
    if speed.refusal is not None and not plan.request.layout_constraints:
        wider = asked.plan(speed.workload.concurrency)
        if (wider.capacity.max_sequences.high or 0) >= speed.workload.concurrency:
            flags = layout_flags(wider.layout)
            return f"heavylift speed {asked.model} --on {rack} {clients} {lengths} {flags}"
    if speed.refusal is not None:
        return f"heavylift plan {asked.model} --on {rack} --context {plan.context_tokens}"
    return f"heavylift decide {asked.model} --on {rack} {clients} {lengths}"
