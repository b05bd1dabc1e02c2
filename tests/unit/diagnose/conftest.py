"""The shipped symptoms, and a way from lines to a diagnosis."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heavylift.diagnose.match import diagnose
from heavylift.diagnose.scan import LogReading, Scanner
from heavylift.diagnose.symptoms import CompiledSymptoms
from heavylift.facts.catalog import Catalog
from heavylift.records.diagnosis import Diagnosis


@pytest.fixture(scope="session")
def symptoms() -> CompiledSymptoms:
    """The shipped symptoms."""
    return CompiledSymptoms(Catalog().symptoms())


@pytest.fixture(scope="session")
def scanned(symptoms: CompiledSymptoms) -> Callable[..., LogReading]:
    """`scanned(text, file=…)`: the reading of a log."""

    def scan(text: str, file: str = "log") -> LogReading:
        scanner = Scanner(symptoms, file)
        scanner.feed(text.encode())
        return scanner.reading()

    return scan


@pytest.fixture(scope="session")
def diagnosed(scanned: Callable[..., LogReading]) -> Callable[..., Diagnosis]:
    """`diagnosed(text, text, …)`: the diagnosis of one log per text (rank-0, rank-1 and so on)."""

    def of(*texts: str) -> Diagnosis:
        return diagnose([scanned(text, f"rank-{number}") for number, text in enumerate(texts)])

    return of
