"""Bring-ups: a deployment taken into use rung by rung, each with what was seen on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.records.deployment import Failure
from heavylift.records.finding import Finding

SCHEMA: Final = 1


class RungKind(StrEnum):
    """What a rung asks, in the order they are climbed."""

    SMALL_MODEL = "small_model"
    """A small model by the same engine: the machine, apart from the model."""
    DOCTOR = "doctor"
    REHEARSAL = "rehearsal"
    LOAD = "load"
    SMOKE = "smoke"
    CONTEXT = "context"
    CONCURRENCY = "concurrency"


class RungStatus(StrEnum):
    """What became of a rung. Only a passed one is not climbed again."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not for this recipe; `reason` says why."""
    PENDING = "pending"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """One rung. `id` is unique in the bring-up: `context.16384`, `concurrency.4`.

    `reason` is a code of why it failed or was skipped (`does_not_come_up`, `errors`), `params` what
    its text needs, `failure` the start's own. `requests` and `errors` count what was asked; the
    ratio is None where nothing was. `peak_memory_bytes` is the most of one card
    (`memory_of` = `card`), or of the engine's processes where there are no cards (`host`).
    `tool_calls`: `well_formed`, `malformed`, `not_offered` by the server, `unknown`.
    """

    id: str
    kind: RungKind
    status: RungStatus = RungStatus.PENDING
    layers: int | None = None
    context_tokens: int | None = None
    concurrency: int | None = None
    started_at: str | None = None
    seconds: float | None = None
    reason: str | None = None
    params: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    failure: Failure | None = None
    findings: tuple[Finding, ...] = ()
    requests: int = 0
    errors: int = 0
    error_ratio: float | None = None
    failures: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    output_tokens_per_s: float | None = None
    peak_memory_bytes: int | None = None
    memory_of: str | None = None
    tool_calls: str | None = None
    evidence: tuple[str, ...] = ()
    receipt_digest: str | None = None
    report: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BringUp:
    """A bring-up. `stopped_at` is the first rung that failed; None and all of `rungs` passed or
    skipped = it is up. It belongs to one recipe (`recipe_digest`): of another it begins anew.
    """

    name: str
    model: str
    engine: str
    engine_version: str
    recipe_digest: str
    recipe: str
    started_at: str
    updated_at: str
    release: int | None = None
    url: str | None = None
    rungs: tuple[Rung, ...] = ()
    stopped_at: str | None = None
    schema: int = SCHEMA

    @property
    def is_up(self) -> bool:
        """True when every rung was climbed or is not for this recipe."""
        done = (RungStatus.PASSED, RungStatus.SKIPPED)
        return bool(self.rungs) and all(rung.status in done for rung in self.rungs)
