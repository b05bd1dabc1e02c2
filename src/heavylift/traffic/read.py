"""Trace files and folders of clients, opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from heavylift.errors import HeavyliftError
from heavylift.stats import Chance
from heavylift.traffic.servegen import (
    DATASET_SUFFIX,
    TRACE_SUFFIX,
    Client,
    arrivals,
    parse_client,
)
from heavylift.traffic.trace import Arrival, read_arrivals


def open_trace(path: Path, chance: Chance) -> Iterator[Arrival]:
    """The requests of a trace file, or of a folder of ServeGen's clients or one of their files.

    Only clients draw from `chance`. Raises OSError for what cannot be read, USE061 and USE071 for
    what is no trace.
    """
    if path.is_dir():
        yield from _drawn(sorted(path.glob(f"*{TRACE_SUFFIX}")), path, chance)
    elif path.name.endswith(TRACE_SUFFIX) and _dataset(path).is_file():
        yield from _drawn([path], path, chance)
    else:
        with path.open(encoding="utf-8", errors="replace", newline="") as lines:
            yield from read_arrivals(lines, str(path))


def _drawn(files: list[Path], asked: Path, chance: Chance) -> Iterator[Arrival]:
    if not files:
        raise HeavyliftError("USE071", {"path": str(asked)})
    yield from arrivals([_client(file) for file in files], chance)


def _client(file: Path) -> Client:
    dataset = _dataset(file)
    with file.open(encoding="utf-8", errors="replace", newline="") as lines:
        return parse_client(lines, dataset.read_bytes(), str(file), str(dataset))


def _dataset(file: Path) -> Path:
    return file.with_name(file.name.removesuffix(TRACE_SUFFIX) + DATASET_SUFFIX)
