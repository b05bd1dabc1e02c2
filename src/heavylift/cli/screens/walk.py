"""What to look at for a symptom, step by step."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from heavylift.cli.output import WIDTH
from heavylift.records.diagnosis import Walk


def lines(walk: Walk) -> Iterator[str]:
    """The screen, line by line."""
    yield walk.title
    yield ""
    for number, step in enumerate(walk.steps, 1):
        yield from textwrap.wrap(
            step.text, WIDTH, initial_indent=f"{number}. ", subsequent_indent="   "
        )
        if step.command is not None:
            yield f"   $ {step.command}"
        if step.causes:
            yield from textwrap.wrap(
                "→ " + ", ".join(step.causes),
                WIDTH,
                initial_indent="   ",
                subsequent_indent="     ",
            )
    yield ""
