"""Fixtures of the batch tests: inputs, scripted engines, whole runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.servers import on_a_thread, playing

from heavylift.batch import intake, job
from heavylift.batch.outputs import Ledger
from heavylift.batch.policy import Patience, RetryRules
from heavylift.batch.records import Ended, Settings, Shape
from heavylift.batch.store import Journal
from heavylift.devserver.library import load
from heavylift.devserver.scenario import decode
from heavylift.devserver.server import ScriptedServer

WriteInput = Callable[..., Path]
RunBatch = Callable[..., Ended]
Engine = Callable[[str], Any]


@pytest.fixture
def write_input(tmp_path: Path) -> WriteInput:
    """A function that writes so many batch lines, named r0, r1, …; fields join every body."""

    def write(rows: int, name: str = "input.jsonl", prompt: str = "say", **fields: Any) -> Path:
        path = tmp_path / name
        with path.open("wb") as file:
            for number in range(rows):
                question = [{"role": "user", "content": f"{prompt} {number}"}]
                body = {"model": "scripted", "messages": question, **fields}
                line = {"custom_id": f"r{number}", "method": "POST"}
                route = {"url": "/v1/chat/completions", "body": body}
                file.write(msgspec.json.encode({**line, **route}) + b"\n")
        return path

    return write


@pytest.fixture
def engine() -> Engine:
    """A context manager: a scripted engine on a thread of its own, by the name of
    a shipped scenario or its text.
    """

    def started(scenario: str) -> AbstractContextManager[ScriptedServer]:
        script = decode(scenario, "test") if "\n" in scenario else load(scenario)
        return on_a_thread(playing(script))

    return started


@pytest.fixture
def run_batch(tmp_path: Path) -> RunBatch:
    """`run_batch(source, url)`: one run into `tmp_path/out`, with waits short enough for a test."""

    def run(
        source: Path | None,
        *urls: str,
        shape: Shape | None = None,
        skip_invalid: bool = False,
        replace: bool = False,
        out: str = "out",
        make_ledger: Callable[[Path, Journal], Ledger] = Ledger,
        **given: Any,
    ) -> Ended:
        given.setdefault("retry", RetryRules(base_s=0.01))
        given.setdefault("patience", Patience(first_s=2.0, later_s=5.0))
        settings = Settings(endpoints=urls, **given)
        folder = tmp_path / out
        with job.held(folder, must_exist=False) as journal:
            if source is not None:
                asked = intake.Source(
                    path=str(source),
                    shape=shape or Shape(),
                    skip_invalid=skip_invalid,
                    replace=replace,
                )
                intake.take_in(folder, journal, asked)
            journal.put(settings=settings)
            return job.run(job.Run(folder, journal, settings, make_ledger=make_ledger))

    return run


@pytest.fixture
def read_lines() -> Callable[[Path], list[dict[str, Any]]]:
    """The documents in a file of JSON lines."""

    def read(path: Path) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]

    return read
