"""Errors in log lines, and texts of phases."""

from __future__ import annotations

import pytest

from heavylift.cli.text import text
from heavylift.launch.phases import first_errors
from heavylift.recipe.engines.embedded import PHASES


def test_every_phase_has_a_text() -> None:
    """What is shown as progress is in the catalogue."""
    assert all(text(f"engine.phase.{phase}") for phase in PHASES)


@pytest.mark.parametrize(
    "line",
    [
        "0.00.045.101 E llama_model_load: something went wrong",
        "RuntimeError: Failed to init server",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "cudaMalloc failed: out of memory",
    ],
)
def test_the_first_errors_are_found(line: str) -> None:
    """By level letter or by word, without the lines around them."""
    log = ["0.00.001.0 I srv  init: initializing ...", "", line, "0.00.002.0 I srv  stop"]
    assert first_errors(log) == (line,)


def test_without_an_error_the_last_lines_are_given() -> None:
    """An engine that was killed says nothing; where it stopped is the best there is."""
    log = [f"0.00.00{number}.0 I step {number}" for number in range(9)]
    assert first_errors(log, limit=2) == tuple(log[-2:])
