"""Asking two deployments the same questions, or reading what they answered elsewhere."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from heavylift import __version__
from heavylift.errors import HeavyliftError
from heavylift.quality import compare, stats
from heavylift.quality.grade import grade
from heavylift.quality.records import Answer, Comparison, Question
from heavylift.records.served_model import ServedModel
from heavylift.wire.client import Client, Endpoint, Limits
from heavylift.wire.failures import UNDECODABLE
from heavylift.wire.reply import ChatRequest

OnAnswer = Callable[[str, int, int], None]
"""Called with the side's name, how many answers there are, and how many there will be."""

T = TypeVar("T")

_RIGHT: Final = ("right", "exact_match", "acc", "score")
_ID: Final = ("question", "id", "doc_id")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A comparison as asked for. Sides are endpoints to ask, or files of graded answers.

    `samples` > 1 asks each question so often, with sampling. `noise_floor`: ask the reference a
    second time, in another order. `margin`: the difference that does not matter, stated before.
    """

    reference: Endpoint | Path
    candidate: Endpoint | Path
    questions: tuple[Question, ...]
    margin: float
    reference_side: ServedModel
    candidate_side: ServedModel
    samples: int = 1
    noise_floor: bool = True
    concurrency: int = 8
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    extra: dict[str, Any] = field(default_factory=dict)


async def run(wish: Wish, on_answer: OnAnswer) -> Comparison:
    """Compare. Raises WIRE003 or WIRE061 when a side does not answer at all, USE062 for a file
    that holds no graded answers, VER020 when no question was answered by both.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    reference, reference_side = await _answers(wish, wish.reference, wish.reference_side, on_answer)
    floor: Sequence[Answer] = ()
    if wish.noise_floor and isinstance(wish.reference, Endpoint):
        floor, _ = await _answers(wish, wish.reference, wish.reference_side, on_answer, again=1)
    candidate, candidate_side = await _answers(wish, wish.candidate, wish.candidate_side, on_answer)
    chance = random.Random(wish.seed).random  # noqa: S311 - resampling, not secrecy
    items = compare.by_item(reference)
    found = compare.contrasts(items, compare.by_item(candidate), margin=wish.margin, chance=chance)
    if not found:
        raise HeavyliftError("VER020", {})
    noise = compare.contrasts(items, compare.by_item(floor), margin=wish.margin, chance=chance)
    whole = found[0]
    return Comparison(
        reference=reference_side,
        candidate=candidate_side,
        started_at=started_at,
        heavylift_version=__version__,
        margin=wish.margin,
        verdict=compare.overall_verdict(found),
        difference=whole.difference,
        interval=whole.interval,
        minimum_detectable_effect=whole.minimum_detectable_effect,
        detectable_beforehand=stats.minimum_detectable_effect(
            whole.items, compare.PRESUMED_DISCORDANCE
        ),
        contrasts=found,
        noise_floor=noise[0] if noise else None,
        same_text=compare.same_text(items, compare.by_item(candidate)),
        same_text_floor=compare.same_text(items, compare.by_item(floor)),
    )


async def _answers(
    wish: Wish, source: Endpoint | Path, side: ServedModel, on_answer: OnAnswer, *, again: int = 0
) -> tuple[Sequence[Answer], ServedModel]:
    if isinstance(source, Path):
        return read_answers(source), side
    async with Client(source, limits=wish.limits) as client:
        model = side.model or (await client.first_model()).id
        identity = await client.identity()
        answers = await _ask_all(
            wish, client, model=model, name=side.url, again=again, on_answer=on_answer
        )
    return answers, replace(side, model=model, engine=identity.engine, version=identity.version)


async def _ask_all(
    wish: Wish, client: Client, *, model: str, name: str, again: int, on_answer: OnAnswer
) -> list[Answer]:
    """The answers, asked in an order of this run's own: neighbours in a batch should differ."""
    order = [(question, sample) for question in wish.questions for sample in range(wish.samples)]
    random.Random(f"{wish.seed} {name} {again}").shuffle(order)  # noqa: S311 - an order
    waiting = iter(order)
    answers: list[Answer] = []
    sampling = {"temperature": 0.0} if wish.samples == 1 else {"temperature": 0.7}

    async def worker() -> None:
        for question, sample in waiting:
            request = ChatRequest(
                model=model,
                messages=({"role": "user", "content": question.text},),
                max_tokens=question.max_tokens,
                extra={**sampling, "seed": wish.seed + sample, **wish.extra},
            )
            outcome = await client.chat(request)
            answers.append(grade(question, outcome.reply))
            on_answer(name, len(answers), len(order))

    async with asyncio.TaskGroup() as group:
        for _ in range(wish.concurrency):
            group.create_task(worker())
    return answers


def read_answers(path: Path) -> tuple[Answer, ...]:
    """Graded answers from JSON lines: ours, or the samples that lm-eval writes.

    A row has an id (`question`, `id` or `doc_id`) and a grade (`right`, `exact_match`, `acc` or
    `score`, right from 0.5 up). Raises USE075 for a row without, USE077 for one that is no JSON.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise _unusable(path, str(problem)) from problem
    return tuple(_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip())


def read_questions(path: Path) -> tuple[Question, ...]:
    """The user's own questions, one JSON object per line. Raises USE077 with the line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise _unusable(path, str(problem)) from problem
    return tuple(
        _decoded(path, number, line, Question)
        for number, line in enumerate(lines, 1)
        if line.strip()
    )


def _decoded(path: Path, number: int, line: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except UNDECODABLE as problem:
        raise HeavyliftError(
            "USE077", {"path": str(path), "line": number, "detail": str(problem)}
        ) from problem


def _row(path: Path, number: int, line: str) -> Answer:
    row = _decoded(path, number, line, dict[str, Any])
    name = next((row[key] for key in _ID if key in row), None)
    grade_ = next((row[key] for key in _RIGHT if isinstance(row.get(key), int | float)), None)
    if name is None or grade_ is None:
        ids, grades = ", ".join(_ID), ", ".join(_RIGHT)
        raise HeavyliftError(
            "USE075", {"path": str(path), "line": number, "ids": ids, "grades": grades}
        )
    return Answer(
        question=str(name),
        group=str(row.get("group", path.stem)),
        right=grade_ >= 0.5,  # noqa: PLR2004 - half or more of the credit
        text=str(row.get("text", "")),
        failure=row.get("failure"),
    )


def _unusable(path: Path, detail: str) -> HeavyliftError:
    return HeavyliftError("USE062", {"path": str(path), "detail": detail})
