"""`heavylift demo`: from a plan of the largest model to a served, checked answer here."""

from __future__ import annotations

import click

from heavylift.cli.last import first_command
from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit


@click.command(help=text("help.demo"))
@json_option
def command(as_json: bool) -> int:
    """Run it, a line per step; 1 when a check failed."""
    from heavylift import demo

    out = sink(as_json)
    shown = demo.run(
        lambda step, params: out.step(f"demo.step.{step}", **params),
        lambda phase: out.step(f"demo.phase.{phase}"),
    )
    out.record("demo", shown)
    out.next_command(first_command())
    return Exit.OK if shown.sound else Exit.NEGATIVE
