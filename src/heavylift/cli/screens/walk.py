"""What to look at for a symptom, step by step."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.cells import wrap
from heavylift.cli.text import of_facts
from heavylift.records.diagnosis import Walk


def lines(walk: Walk) -> Iterator[str]:
    """The screen, line by line."""
    yield of_facts(walk.title)
    yield ""
    for number, step in enumerate(walk.steps, 1):
        yield from wrap(of_facts(step.text), f"{number}. ", "   ")
        if step.command is not None:
            yield f"   $ {step.command}"
        if step.causes:
            yield from wrap(f"→ {', '.join(step.causes)}", "   ", "     ")
    yield ""
