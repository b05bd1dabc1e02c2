"""Phases and errors in log lines."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from heavylift.cli.text import text
from heavylift.launch.phases import first_errors, phase_of
from heavylift.recipe.engines.embedded import PHASES

LOG = Path(__file__).parents[2] / "logs" / "fixtures" / "llamacpp_smollm2_4x1024.log"


def test_phases_of_a_real_start_come_in_the_expected_order() -> None:
    """The log of a start passes all expected phases but the first, which its fixture leaves out."""
    seen = [phase for line in LOG.read_text().splitlines() if (phase := phase_of("embedded", line))]
    assert tuple(seen) == PHASES[1:]
    assert all(PHASES.index(a) < PHASES.index(b) for a, b in pairwise(seen))


def test_every_phase_has_a_text() -> None:
    """What is shown as progress is in the catalogue."""
    assert all(text(f"engine.phase.{phase}") for phase in PHASES)


def test_an_unknown_engine_has_no_phases() -> None:
    """A line means nothing without its engine."""
    assert phase_of("other", "init: listening on http://127.0.0.1:1") is None


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
