"""Recorded outputs of our own making, in the forms the tools print."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

FIXTURES = Path(__file__).with_name("fixtures")


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], str]:
    """Reads a recorded output by name."""
    return lambda name: (FIXTURES / name).read_text("utf-8")


@pytest.fixture(scope="session")
def sample() -> Callable[[str], str]:
    """Reads an output of a real machine; the test is skipped where there is none."""
    beside = Path(__file__).resolve().parents[3].parent / "shared"
    folder = Path(os.environ.get("HEAVYLIFT_SHARED", beside)) / "data" / "samples"
    if not folder.is_dir():
        pytest.skip("no recorded outputs of real machines here")
    return lambda name: (folder / name).read_text("utf-8", "replace")
