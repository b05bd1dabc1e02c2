"""The cases of failing logs, and what makes a log long, healthy and full of consequences."""

from __future__ import annotations

import os
import tomllib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pytest

from heavylift.devserver.healthy_log import healthy_lines
from heavylift.diagnose.match import diagnose
from heavylift.diagnose.scan import Scanner
from heavylift.diagnose.symptoms import CompiledSymptoms
from heavylift.facts.catalog import Catalog
from heavylift.records.diagnosis import Diagnosis

HERE: Final = Path(__file__).parent

CONSEQUENCES: Final = (
    "(EngineCore pid=1) ERROR 11-30 07:00:00 [core.py:900] EngineCore failed to start.",
    "RuntimeError: Engine core initialization failed. Failed core proc(s): {}",
    "[rank3]:[E1130 ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    "(Worker_TP3 pid=4) ERROR [executor.py:246] Worker proc VllmWorker-3 died unexpectedly",
)


@dataclass(frozen=True)
class Case:
    """Lines of a failing log and the class of their cause."""

    id: str
    area: str
    cause_class: str
    lines: tuple[str, ...]


def own_cases() -> tuple[Case, ...]:
    """The cases beside this file."""
    return tuple(
        Case(
            id=f"{path.stem}-{number}",
            area=path.stem,
            cause_class=entry["cause_class"],
            lines=tuple(entry["lines"]),
        )
        for path in sorted(HERE.glob("*.toml"))
        for number, entry in enumerate(tomllib.loads(path.read_text("utf-8"))["cases"])
    )


def shared_cases() -> tuple[Case, ...]:
    """The reference cases with real lines; skipped where they are not."""
    beside = HERE.parents[2].parent / "shared"
    file = Path(os.environ.get("HEAVYLIFT_SHARED", beside)) / "data" / "failures" / "cases.jsonl"
    if not file.is_file():
        pytest.skip("no reference data here")
    rows = map(msgspec.json.decode, file.read_bytes().splitlines())
    return tuple(
        Case(row["id"], row["area"], row["cause_class"], tuple(row["symptom_log"].split("\n")))
        for row in rows
        if row["log_kind"] == "log"
    )


@pytest.fixture(scope="session")
def own() -> tuple[Case, ...]:
    """Our own cases."""
    return own_cases()


@pytest.fixture(scope="session")
def shared() -> tuple[Case, ...]:
    """The reference cases."""
    return shared_cases()


@pytest.fixture(scope="session")
def symptoms() -> CompiledSymptoms:
    """The shipped symptoms."""
    return CompiledSymptoms(Catalog().symptoms())


@pytest.fixture(scope="session")
def diagnosed(symptoms: CompiledSymptoms) -> Callable[[tuple[str, ...]], Diagnosis]:
    """The diagnosis of lines."""

    def of(lines: tuple[str, ...]) -> Diagnosis:
        scanner = Scanner(symptoms, "log")
        scanner.feed("\n".join(lines).encode())
        return diagnose([scanner.reading()])

    return of


@pytest.fixture(scope="session")
def spliced() -> Callable[[Case], tuple[str, ...]]:
    """A case inside 20,000 lines of a healthy log, consequences before and after it."""
    healthy = tuple(healthy_lines("vllm", 20_000))

    def splice(case: Case) -> tuple[str, ...]:
        at = 2_000 + zlib.crc32(case.id.encode()) % 16_000
        return (*healthy[:at], *CONSEQUENCES, *case.lines, *CONSEQUENCES, *healthy[at:])

    return splice
