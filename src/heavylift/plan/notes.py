"""Remarks on a plan: what was read into the request, what a layout costs, where sources differ."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.plan.subject import UNNAMED_VENDOR, Subject
from heavylift.plan.support import ran_as_published
from heavylift.plan.weights import expert_split
from heavylift.records.plan import Capacity, Layout, Note, Status, Support

# What is missing even when the bytes fit, by the best word there is.
_PROOF = {Status.VERIFIED: "no_proof_of_traffic", Status.REPORTED: "one_report"}


def notes(subject: Subject, layout: Layout, fits: Capacity, known: Support) -> tuple[Note, ...]:
    """All remarks, in the order they are read."""
    return (
        *_reading(subject),
        *_padding(subject, layout),
        *_pipeline(layout),
        *_contradiction(subject, layout, fits),
        *_sources(subject, known),
        *(() if subject.drafter else _proof(fits, known)),
        *_shared_context(subject),
        *_drafter(subject),
    )


def _reading(subject: Subject) -> Iterator[Note]:
    rack = subject.rack
    if rack.reading is not None:
        yield Note(
            code=f"rack_{rack.reading}",
            params={
                "text": rack.text,
                "nodes": rack.nodes,
                "per_node": rack.gpus_per_node,
                "gpu": subject.gpu.title,
            },
        )
    if rack.parts:
        yield Note(
            code="mixed_layers" if _deals_by_room(subject) else "mixed_rack",
            params={"gpu": rack.gpu_title},
        )
    if subject.gpu.vendor == UNNAMED_VENDOR:
        yield Note(code="card_by_memory", params={"gpu": rack.gpu_title})
    devices = subject.gpu.devices_per_card
    if devices > 1:
        yield Note(
            code="counts_devices",
            params={"gpu": subject.gpu.title, "devices": devices, "gpus": rack.gpu_count},
        )


def _deals_by_room(subject: Subject) -> bool:
    """True for an engine that deals whole layers by the room of each card."""
    rule = subject.scope.first(subject.engine.pipelines)
    return rule is not None and rule.remainder == "proportional"


def _padding(subject: Subject, layout: Layout) -> Iterator[Note]:
    experts = expert_split(subject, layout)
    if experts is None or not experts.is_padded:
        return
    yield Note(
        code="expert_padding",
        params={
            "inner": experts.inner,
            "padded": experts.width * experts.ranks,
            "width": experts.width,
            "ranks": experts.ranks,
            "backend": subject.moe_backend or "?",
            "engine": subject.engine.title,
            "version": subject.version_text,
        },
    )


def _pipeline(layout: Layout) -> Iterator[Note]:
    if layout.pipeline_parallel_size > 1 and layout.tensor_parallel_size > 1:
        yield Note(code="pipeline_bubbles", params={"stages": layout.pipeline_parallel_size})


def _contradiction(subject: Subject, layout: Layout, fits: Capacity) -> Iterator[Note]:
    ran = ran_as_published(subject, layout)
    if fits is Capacity.DOES_NOT_FIT and ran is not None:
        params = {"recipe": ran.id, "source": ran.source, "as_of": ran.as_of.isoformat()}
        yield Note(code="published_but_no_room", params={**params})


def _sources(subject: Subject, known: Support) -> Iterator[Note]:
    if known.conflict is not None and subject.version_is_read:
        yield Note(code="sources_differ", params={"other": known.conflict})
    if not subject.version_is_read:
        listed = subject.scope.version.id == subject.version_text
        yield Note(
            code="version_by_logs" if listed else "version_unread",
            params={
                "version": subject.version_text,
                "taken": subject.scope.version.id,
                "engine": subject.engine.title,
            },
        )


def _proof(fits: Capacity, known: Support) -> Iterator[Note]:
    if fits is not Capacity.DOES_NOT_FIT:
        yield Note(code=_PROOF.get(known.status, "no_proof_of_run"))


def _shared_context(subject: Subject) -> Iterator[Note]:
    rule = subject.scope.first(subject.engine.caches)
    if rule is not None and rule.context_shared and subject.concurrency > 1:
        yield Note(
            code="context_shared",
            params={
                "context": subject.context_tokens,
                "slots": subject.concurrency,
                "each": subject.context_tokens // subject.concurrency,
            },
        )


def _drafter(subject: Subject) -> Iterator[Note]:
    if subject.drafter is not None:
        yield Note(code="drafter_unknown", params={"drafter": subject.drafter})
