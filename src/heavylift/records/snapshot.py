"""Snapshot: what was observed on one host, as raw text by probe, to be judged anywhere.

Texts are kept as the tools wrote them: a parser that learns a new form tomorrow reads the snapshot
of today. An observation that could not be made says why; it is never left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

SCHEMA: Final = 1


class State(StrEnum):
    """How an observation ended."""

    OK = "ok"
    ABSENT = "absent"
    """There is no such file or program."""
    DENIED = "denied"
    TIME_LIMIT = "time_limit"
    """It did not answer in time: a wedged driver, a dead file server."""
    FAILED = "failed"
    """It answered with an error; `text` and `detail` hold what it said."""
    NOT_RUN = "not_run"
    """It was not tried: not asked for, or given up after others of its kind had hung."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """One probe's result.

    `detail` is an errno name for files and the first lines of standard error for programs.
    `truncated`: the text was longer than the probe's limit.
    """

    state: State
    text: str = ""
    detail: str = ""
    exit_status: int | None = None
    truncated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """All observations of one host.

    Keys are `kind:argument`: `read:/proc/meminfo`, `tool:nvidia-smi -q -x`, `stat:/dev/kfd`,
    `open:/dev/kfd`, `space:/data`, `glob:/dev/dri/renderD*`, `link:…`, `environ:`, `process:PID`,
    `engine:torch`, `checkpoint:/models/k3`. `taken_at` is an ISO 8601 time in UTC.
    """

    host: str
    taken_at: str
    heavylift_version: str
    observations: dict[str, Observation] = field(default_factory=dict)
    schema: int = SCHEMA
