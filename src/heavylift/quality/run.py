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
from heavylift.quality.forced import NotScored, compared
from heavylift.quality.grade import grade
from heavylift.quality.imports import named_model, read_answers
from heavylift.quality.programs import program
from heavylift.quality.records import Answer, Comparison, Divergence, Question
from heavylift.quality.sandbox import Sandbox
from heavylift.records.served_model import ServedModel
from heavylift.wire.client import Client, Endpoint, Limits
from heavylift.wire.failures import UNDECODABLE
from heavylift.wire.reply import ChatRequest, Reply

OnAnswer = Callable[[str, int, int], None]
"""Called with the side's name, how many answers there are, and how many there will be."""

T = TypeVar("T")

_GREEDY: Final = 0.0
_SAMPLED: Final = 0.7


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A comparison as asked for. Sides are endpoints to ask, or files of graded answers.

    `samples` > 1 asks each question so often, with sampling. `noise_floor`: ask the reference a
    second time, in another order. `margin`: the difference that does not matter, stated before.
    `divergence_prompts`: their continuations are scored token by token (none = that is left out).
    `sandbox` runs the programs that are asked for.
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
    divergence_prompts: tuple[str, ...] = ()
    sandbox: Sandbox | None = None


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
    divergence, missing = None, None
    try:
        divergence = await _diverged(wish, (reference_side, candidate_side))
    except NotScored as reason:
        missing = reason.reason
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
        divergence=divergence,
        divergence_missing=missing,
        settings={
            "questions": len(wish.questions),
            "samples": wish.samples,
            "concurrency": wish.concurrency,
            "seed": wish.seed,
            "temperature": _temperature(wish),
            "extra": msgspec.json.encode(wish.extra).decode(),
        },
    )


def _temperature(wish: Wish) -> float:
    """Greedy for one answer; several to a question are only worth asking if they can differ."""
    return _GREEDY if wish.samples == 1 else _SAMPLED


async def _answers(
    wish: Wish, source: Endpoint | Path, side: ServedModel, on_answer: OnAnswer, *, again: int = 0
) -> tuple[Sequence[Answer], ServedModel]:
    if isinstance(source, Path):
        return read_answers(source), replace(side, model=side.model or named_model(source))
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

    async def worker() -> None:
        for question, sample in waiting:
            request = ChatRequest(
                model=model,
                messages=({"role": "user", "content": question.text},),
                max_tokens=question.max_tokens,
                extra={
                    "temperature": _temperature(wish),
                    "seed": wish.seed + sample,
                    **wish.extra,
                },
            )
            outcome = await client.chat(request)
            answers.append(await _graded(wish, question, outcome.reply))
            on_answer(name, len(answers), len(order))

    async with asyncio.TaskGroup() as group:
        for _ in range(wish.concurrency):
            group.create_task(worker())
    return answers


async def _graded(wish: Wish, question: Question, reply: Reply) -> Answer:
    """The graded answer; a program is run first. One that does not end is no wrong answer."""
    if question.function is None or wish.sandbox is None:
        return grade(question, reply)
    source = program(question, reply.text)
    if source is None:
        return grade(question, reply)
    ran = await wish.sandbox.run(source)
    graded = grade(question, reply, ran.output)
    ended = ran.status is not None or graded.failure is not None
    return graded if ended else replace(graded, right=False, failure="code_timeout")


async def _diverged(wish: Wish, sides: tuple[ServedModel, ServedModel]) -> Divergence:
    """The divergence over forced tokens. Raises NotScored with the reason why there is none."""
    one, other = wish.reference, wish.candidate
    if not wish.divergence_prompts:
        raise NotScored("not_asked")
    if not isinstance(one, Endpoint) or not isinstance(other, Endpoint):
        raise NotScored("files")
    chance = random.Random(wish.seed).random  # noqa: S311 - resampling, not secrecy
    async with Client(one, limits=wish.limits) as here, Client(other, limits=wish.limits) as there:
        models = [side.model or "" for side in sides]
        return await compared(
            (here, models[0]), (there, models[1]), wish.divergence_prompts, chance
        )


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


def _unusable(path: Path, detail: str) -> HeavyliftError:
    return HeavyliftError("USE062", {"path": str(path), "detail": detail})
