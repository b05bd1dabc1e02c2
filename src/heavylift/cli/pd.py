"""`heavylift pd`: prefill and decode on cards of their own, sized, and whether it pays."""

from __future__ import annotations

from typing import Any

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.cli.workload import Asked, Seconds, holds_nothing, workload_options
from heavylift.errors import Exit
from heavylift.plan.prefill_decode import Split
from heavylift.records.prefill_decode import SplitVerdict

DEFAULT_TPOT_LIMIT_S = 0.05
_LAYOUT_OPTIONS = ("tp", "pp", "dp", "ep", "dcp")


@click.command(help=text("help.pd"))
@click.argument("model")
@click.option("--on", "rack_text", required=True, metavar="RACK", help=text("option.pd_on"))
@click.option("--prefill-on", "prefill_text", metavar="RACK", help=text("option.prefill_on"))
@click.option(
    "--tpot",
    "tpot_limit_s",
    type=Seconds(),
    default=DEFAULT_TPOT_LIMIT_S,
    help=text("option.tpot_limit"),
)
@workload_options
@json_option
def command(
    model: str,
    rack_text: str,
    prefill_text: str | None,
    tpot_limit_s: float,
    as_json: bool,
    **options: Any,
) -> int:
    """Size, show; 1 when the limit is out of reach or a pool cannot hold the model."""
    decode = Asked.of(model, rack_text, options)
    # Stated sizes are those of the decode unit; another rack for prefill gets its usual layout.
    free = {**options, **dict.fromkeys(_LAYOUT_OPTIONS)}
    prefill = decode if prefill_text is None else Asked.of(model, prefill_text, free)
    out = sink(as_json)
    plans = [prefill.plan(), decode.plan()]
    for plan in plans:
        if holds_nothing(plan):
            out.record("plan", plan)
            return Exit.NEGATIVE
    answer = Split(
        prefill=prefill.forecaster(plans[0]),
        decode=decode.forecaster(plans[1]),
        workload=decode.workload,
        tpot_limit_s=tpot_limit_s,
        clients=options["concurrency"],
    ).answer()
    out.record("pd", answer)
    lengths = f"--isl {answer.workload.input_tokens} --osl {answer.workload.output_tokens}"
    out.next_command(f"heavylift speed {model} --on {answer.decode.rack.label} {lengths}")
    return Exit.NEGATIVE if answer.verdict is SplitVerdict.NOT_POSSIBLE else Exit.OK
