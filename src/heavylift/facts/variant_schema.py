"""Shapes of what is reported of the published forms of a model: size, speed, quality, what is
against it.
"""

from __future__ import annotations

from dataclasses import dataclass

from heavylift.facts.schema import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantReportFacts(Rule):
    """A published form of a model, with what was seen of it on one kind of machine.

    `variant` is the id in the model's facts, where a plan can be made of it, and `plans_on` the
    engine for that. `host`: what holds the weights: `gpus`, `unified` (memory shared by processor
    and GPU), `ram` (experts in host memory) or `stream` (weights stay on disk, `least_memory_bytes`
    of memory suffice). `ran_memory_bytes`: memory of what it was seen to run on, as sold. Speeds
    are decode tokens per second of a single stream. `quality_score` is compared only with those of
    the same `quality_metric`. `unusable`: published, and no choice. `dominated_by` names the form
    that is better at no more bytes. `confidence`: `reported` (one source), `confirmed` (a log, or
    several), `claimed` (a model card).
    """

    id: str
    title: str
    form: str
    engines: tuple[str, ...]
    host: str
    variant: str | None = None
    plans_on: str | None = None
    bytes_total: int | None = None
    least_memory_bytes: int | None = None
    hardware: str | None = None
    ran_memory_bytes: int | None = None
    tokens_per_s_low: float | None = None
    tokens_per_s_high: float | None = None
    prefill_tokens_per_s: float | None = None
    quality: str | None = None
    quality_metric: str | None = None
    quality_score: float | None = None
    pruned: bool = False
    unusable: bool = False
    dominated_by: str | None = None
    caution: str | None = None
    confidence: str = "reported"


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantReportBook:
    """All reports on the forms of one model."""

    model: str
    reports: tuple[VariantReportFacts, ...]
