"""Rehearsals: a recipe started with invented weights, and what that showed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from heavylift.records.deployment import Failure
from heavylift.records.finding import Finding
from heavylift.records.receipt import Receipt

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTime:
    """A phase of a start, and the seconds from the first process to its beginning."""

    phase: str
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Rehearsal:
    """One rehearsal. `layers` None = all of them, as the recipe serves them.

    `passed`: it came up, generated tokens and answered a stream with a tool in well-formed chunks;
    `failure` says why not, `reason` which of the answers. `ready_s` from the first process to the
    first token, without a byte of weights read. `figures` are the engine's own (`kv_tokens`);
    `findings` hold its memory against the plan, per term. `receipt` is what a plan takes in; None =
    the log told of no memory. `untold`: what no rehearsal, or not this one, can tell.
    """

    name: str
    model: str
    engine: str
    engine_version: str
    recipe_digest: str
    layers: int | None
    passed: bool
    started_at: str
    seconds: float
    ready_s: float | None = None
    phases: tuple[PhaseTime, ...] = ()
    reason: str | None = None
    failure: Failure | None = None
    findings: tuple[Finding, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    receipt: Receipt | None = None
    receipt_digest: str | None = None
    receipt_file: str | None = None
    log: str | None = None
    image: str | None = None
    untold: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA
