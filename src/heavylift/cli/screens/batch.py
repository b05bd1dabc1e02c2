"""A batch: its status, the end of a run, its audit, its estimate."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from heavylift.batch.records import Audit, Ended, Estimate, Status
from heavylift.cli.output import glyphs
from heavylift.cli.text import text
from heavylift.wire.failures import Failure


@functools.singledispatch
def lines(record: object) -> Iterator[str]:
    """The lines of a record of a batch."""
    raise TypeError(record)


@lines.register
def _(record: Audit) -> Iterator[str]:
    word = "ok" if record.sound else "fail"
    yield f"{glyphs()[word]} {text(f'batch.audit.{word}')}"
    yield "  " + text(
        "batch.audit.sum",
        ok=record.ok,
        failed=record.failed,
        skipped=record.skipped,
        input=record.input,
    )
    yield "  " + text("batch.audit.rest", missing=record.missing, duplicates=record.duplicates)
    if record.resent:
        yield "  " + text("batch.audit.resent", count=record.resent)
    if record.shards_left:
        yield "  " + text("batch.shards_left", count=record.shards_left)
    if record.unrecorded_bytes:
        yield "  " + text("batch.audit.unrecorded", count=record.unrecorded_bytes)


@lines.register
def _(record: Ended) -> Iterator[str]:
    yield text("batch.folder", folder=record.folder)
    if record.stopped is not None:
        yield f"{glyphs()['warn']} {text('batch.stopped', reason=record.stopped)}"
        yield from _meaning(record, record.stopped)
    yield from lines(record.audit)
    yield from _reasons(record.reasons)
    failures = {name: count for name, count in record.reasons.items() if name in set(Failure)}
    if record.all_failed and failures:
        most = max(failures, key=failures.__getitem__)
        yield f"{glyphs()['warn']} {text('batch.all_failed', reason=most)}"
        yield from _meaning(record, most)
    yield "  " + text(
        "batch.used",
        prompt=record.prompt_tokens,
        completion=record.completion_tokens,
        seconds=f"{record.elapsed_s:.1f}",
    )
    if record.cost_usd is not None:
        yield "  " + text("batch.cost", usd=f"{record.cost_usd:.2f}")


@lines.register
def _(record: Status) -> Iterator[str]:
    counts = record.counts
    yield text("batch.folder", folder=record.folder)
    if record.running is not None:
        yield "  " + text("batch.running", process=record.running)
    elif record.cancelled:
        yield "  " + text("batch.cancelled")
    yield "  " + text(
        "batch.status",
        input=counts.input,
        ok=counts.ok,
        failed=counts.failed,
        skipped=counts.skipped,
        left=counts.left,
    )
    if record.shards_left:
        yield "  " + text("batch.shards_left", count=record.shards_left)
    yield from _reasons(record.reasons)
    if record.cost_usd is not None:
        yield "  " + text("batch.cost", usd=f"{record.cost_usd:.2f}")


@lines.register
def _(record: Estimate) -> Iterator[str]:
    how = text("batch.estimate.counted" if record.counted else "batch.estimate.guessed")
    yield text("batch.estimate.rows", rows=record.rows)
    yield "  " + text("batch.estimate.prompt", tokens=record.prompt_tokens, how=how)
    if record.completion_tokens_max is not None:
        yield "  " + text("batch.estimate.most", tokens=record.completion_tokens_max)
    if record.completion_tokens is None or record.hours is None:
        yield "  " + text("batch.estimate.no_sample")
        return
    yield "  " + text(
        "batch.estimate.answers",
        sampled=record.sampled,
        tokens=record.completion_tokens,
        hours=f"{record.hours:.2f}",
    )
    if record.cost_usd is not None:
        yield "  " + text("batch.cost", usd=f"{record.cost_usd:.2f}")


def _meaning(record: Ended, reason: str) -> Iterator[str]:
    """What a failure means and what to do; nothing for another reason."""
    if reason in set(Failure):
        yield "  " + text(f"batch.means.{reason}", endpoint=", ".join(record.endpoints))


def _reasons(reasons: Mapping[str, int]) -> Iterator[str]:
    for reason, count in reasons.items():
        yield "    " + text("batch.reason", reason=reason, count=count)
