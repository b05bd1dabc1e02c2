"""The linter with the shipped facts, and the reference data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heavylift.lint.commands import CommandReader
from heavylift.linting import Linting


@pytest.fixture(scope="session")
def linting() -> Linting:
    """The linter with the facts of the package."""
    return Linting()


@pytest.fixture(scope="session")
def reader(linting: Linting) -> CommandReader:
    """The reader of commands with the shipped engines and flag tables."""
    return CommandReader(linting.library.engines, linting.library.tables)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data outside the repository; the test is skipped where there is none."""
    beside = Path(__file__).resolve().parents[3].parent / "shared"
    root = Path(os.environ.get("HEAVYLIFT_SHARED", beside))
    if not root.is_dir():
        pytest.skip("no reference data here")
    return root
