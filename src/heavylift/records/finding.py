"""Finding: the currency of preflight, verification, drift and diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.errors import Scalar

SCHEMA: Final = 1


class Severity(StrEnum):
    """How bad a finding is. `unknown` is an answer of its own: it is never `ok`."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One checked thing: what was seen, what was expected, what to do.

    `code` selects the text, `params` fill it. `observed` and `expected` are values as they were
    read or computed, with their unit inside the text of the catalogue. `fix` is a command or a
    catalogue key of a remedy. `evidence` quotes the lines or files the finding rests on.
    """

    id: str
    code: str
    severity: Severity
    subject: str
    observed: Scalar = None
    expected: Scalar = None
    fix: str | None = None
    evidence: tuple[str, ...] = ()
    source: str | None = None
    params: dict[str, Scalar] = field(default_factory=dict)
    schema: int = SCHEMA
