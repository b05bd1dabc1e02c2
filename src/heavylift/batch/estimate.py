"""What a batch would use, before it is sent: tokens, hours, money, from a sample of its rows."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.batch import lines, routes
from heavylift.batch.intake import Source, asked_text, take_in
from heavylift.batch.outputs import spooled
from heavylift.batch.records import Estimate, Settings
from heavylift.batch.store import Journal, open_journal
from heavylift.errors import HeavyliftError
from heavylift.wire.client import Client, Endpoint, unanswered

_BYTES_PER_TOKEN: Final = 4
"""A rough mean over English text, only where no server counts; the estimate says so."""
_SAMPLE_ROWS: Final = 64
_AT_ONCE: Final = 16


def estimate(source: Source, settings: Settings, *, key: str | None, answers: int) -> Estimate:
    """What the batch would use, from a sample. `answers` rows of it are really sent and their
    answers thrown away; with 0 none is. Raises as `take_in`.
    """
    folder = Path(tempfile.mkdtemp(prefix="heavylift-batch-"))
    try:
        with open_journal(folder) as journal:
            take_in(folder, journal, source)
            return asyncio.run(_estimate(folder, journal, settings, key, answers))
    finally:
        shutil.rmtree(folder)


async def _estimate(
    folder: Path, journal: Journal, settings: Settings, key: str | None, answers: int
) -> Estimate:
    rows = journal.counts().pending
    places = journal.sample(max(_SAMPLE_ROWS, answers))
    sample = [lines.INPUT.decode(text) for text in spooled(folder, journal, places)]
    bodies = [msgspec.json.decode(row.body) for row in sample]
    async with Client(Endpoint.parse(settings.endpoints[0], key)) as client:
        counted = await _count_tokens(client, bodies)
        bytes_seen = sum(size for _, size in places)
        prompt = journal.input_bytes() / _BYTES_PER_TOKEN
        if counted is not None and bytes_seen:
            prompt = counted / bytes_seen * journal.input_bytes()
        limits = [
            routes.token_limit(row.url, body) for row, body in zip(sample, bodies, strict=True)
        ]
        stated = [limit for limit in limits if limit is not None]
        known = Estimate(
            rows=rows,
            prompt_tokens=round(prompt),
            counted=counted is not None,
            completion_tokens_max=(
                round(sum(stated) / len(stated) * rows) if len(stated) == len(limits) else None
            ),
        )
        return (
            known if answers == 0 else await _with_answers(client, known, sample, settings, answers)
        )


async def _count_tokens(client: Client, bodies: list[dict[str, Any]]) -> int | None:
    total = 0
    for body in bodies:
        try:
            tokens = await client.tokenize(body["model"], asked_text(body))
        except HeavyliftError:
            return None
        if tokens is None:
            return None
        total += len(tokens)
    return total


async def _with_answers(
    client: Client,
    known: Estimate,
    sample: list[lines.InputLine],
    settings: Settings,
    answers: int,
) -> Estimate:
    chosen = sample[:: max(1, len(sample) // answers)][:answers]
    room = asyncio.Semaphore(_AT_ONCE)

    async def ask(row: lines.InputLine) -> tuple[float, routes.Reading]:
        async with room:
            reply = await client.post(row.url, bytes(row.body))
        if reply.failure is not None:
            raise unanswered(client.endpoint.base_url, reply.failure, status=reply.status)
        return reply.latency.e2e_s or 0.0, routes.read(row.url, reply.body)

    seen = await asyncio.gather(*map(ask, chosen))
    prompt = sum(reading.prompt_tokens for _, reading in seen) / len(seen) * known.rows
    completion = sum(reading.completion_tokens for _, reading in seen) / len(seen) * known.rows
    slot_s = sum(seconds for seconds, _ in seen) / len(seen) * known.rows
    at_once = min(settings.concurrency, _AT_ONCE, known.rows)
    return Estimate(
        rows=known.rows,
        prompt_tokens=round(prompt) or known.prompt_tokens,
        counted=known.counted or bool(prompt),
        completion_tokens_max=known.completion_tokens_max,
        sampled=len(seen),
        completion_tokens=round(completion),
        hours=slot_s / at_once / 3600,
        cost_usd=settings.budget.cost_usd(round(prompt), round(completion)),
    )
