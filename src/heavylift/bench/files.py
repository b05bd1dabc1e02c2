"""Files of a benchmark: the prose of its prompts, traces, and the samples of earlier runs."""

from __future__ import annotations

import importlib
import random
from pathlib import Path

import msgspec

from heavylift.bench.records import Report, Sample
from heavylift.bench.schedule import schedule
from heavylift.errors import HeavyliftError
from heavylift.records.served_model import ServedModel
from heavylift.traffic.read import open_trace
from heavylift.traffic.trace import Arrival
from heavylift.wire.failures import UNDECODABLE

_TRACE_SEED = 1
_FEWEST_CHARS = 2000
"""A shorter text would repeat itself within one prompt."""


def shipped_prose() -> str:
    """The language reference that comes with Python: 460,000 characters of real English prose that
    every machine has, so that nothing need be downloaded. Raises ENV060 where it was left out.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError as problem:
        raise HeavyliftError("ENV060", {}) from problem
    return "\n".join(topics[name] for name in sorted(topics))


def read_prose(path: Path) -> str:
    """The user's own text. Raises USE062 when it cannot be read, USE074 when too short."""
    text = _read(path)
    if len(text) < _FEWEST_CHARS:
        raise HeavyliftError(
            "USE074", {"path": str(path), "found": len(text), "fewest": _FEWEST_CHARS}
        )
    return text


def read_trace(path: Path) -> tuple[Arrival, ...]:
    """A trace: a file, or a folder of clients. Raises USE062, USE061, USE071 and USE076."""
    chance = random.Random(_TRACE_SEED).random  # noqa: S311 - sizes of requests, no secret
    try:
        return schedule(open_trace(path, chance), str(path))
    except OSError as problem:
        raise HeavyliftError("USE062", {"path": str(path), "detail": str(problem)}) from problem


def read_samples(path: Path) -> tuple[Sample, ...]:
    """The samples of a run: from its JSON lines, or through the report that names them.

    Raises USE062 when the file is neither.
    """
    text = _read(path)
    try:
        if '"samples_file"' in text:
            report = msgspec.json.decode(text, type=Report)
            if report.samples_file is None:
                raise HeavyliftError("USE063", {"path": str(path)})
            named = Path(report.samples_file)
            text = _read(named if named.is_file() else path.parent / named.name)
        return tuple(msgspec.json.decode(line, type=Sample) for line in text.splitlines() if line)
    except UNDECODABLE as problem:
        raise HeavyliftError("USE062", {"path": str(path), "detail": str(problem)}) from problem


class _Head(msgspec.Struct):
    target: ServedModel


def read_target(path: Path) -> ServedModel | None:
    """What a report says was measured; None for a file of samples."""
    try:
        return msgspec.json.decode(_read(path), type=_Head).target
    except UNDECODABLE:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise HeavyliftError("USE062", {"path": str(path), "detail": str(problem)}) from problem
