"""The proof after every start: a few checks of `verify`, and two of our own.

People doubt the text of a served model more than its speed. So: the model is listed and answers in
order, no marker leaks, no sign or word fills an answer, a tool call works where the model is known
to make one, the words are those of the last release that verified, and a second turn over a warm
cache says what it says over a cold one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from heavylift.bench.files import shipped_prose
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.launch.job import Proof, Ready
from heavylift.operate import recipes
from heavylift.operate.recipes import Recipe
from heavylift.records.deployment import Deployment
from heavylift.records.release import Release
from heavylift.state.deployments import Deployments
from heavylift.verify import run as verification
from heavylift.verify.judge import result
from heavylift.verify.records import Check, CheckResult, Profile, Status, Trial
from heavylift.verify.suites import shipped
from heavylift.wire.client import Endpoint, Limits, Outcome, ask
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

ANSWERS: Final = "answers.json"
REPORT: Final = "verification.json"

_ALWAYS: Final = ("basics.models", "basics.stream")
_TOOLS: Final = "tools.forced"
_ANSWER_TOKENS: Final = 48
_TOKENS: Final = 24
"""Of the answers that are compared: where two starts differ, they do within a few words."""

_THINKING_TOKENS: Final = 1024
_WAIT_S: Final = 900.0

QUESTIONS: Final = (
    "Name the capital of France and say one sentence about it.",
    "Count from one to ten in words.",
    "Write two sentences about a harbour in the morning.",
)
"""Asked greedily at every start: the answers are kept with the release and compared."""

_FIRST_TURN: Final = "Here is a list: lantern, granite, harbour, meadow. Say it back."
_SECOND_TURN: Final = "Which of them is a kind of stone? Answer in one sentence."
_SAME_WORDS: Final = 3
"""Words from which on two greedy answers may part: a warm cache is computed in other batches, and
the last bits of a sum differ.
"""


class Proving:
    """Proves starts of one release."""

    def __init__(
        self, store: Deployments, deployment: Deployment, recipe: Recipe, catalog: Catalog
    ) -> None:
        """What the store knows is read here: `prove` runs in a thread of its own."""
        self._deployment = deployment
        self._recipe = recipe
        self._features = features_of(catalog, recipe)
        self._markers = tuple(marker for each in catalog.reply_formats() for marker in each.markers)
        self._release = store.release(deployment.name, deployment.release)
        self._last = _last_verified(store, self._release)

    def prove(self, ready: Ready) -> Proof:
        """The word on a start. Raises WIRE003 when the server does not answer at all."""
        endpoint = Endpoint.parse(ready.url, ready.key or None)
        answers = tuple(_answer(endpoint, ready.model, each) for each in QUESTIONS)
        own = (
            _same_words(answers, self._kept_answers(), is_same_start=self._is_same_start()),
            _two_turns(endpoint, ready.model),
        )
        word = asyncio.run(verification.run(self._wish(endpoint, ready, own), _nothing))
        Path(ready.logs[0]).parent.parent.joinpath(REPORT).write_bytes(msgspec.json.encode(word))
        failed = [check for check in word.checks if check.status in (Status.FAIL, Status.WARN)]
        if word.verdict in (Status.PASS, Status.WARN):
            self._keep(answers)
        return Proof(
            verdict=str(word.verdict),
            reasons=tuple(f"{check.id}: {_why(check)}" for check in failed),
        )

    def _wish(
        self, endpoint: Endpoint, ready: Ready, own: tuple[CheckResult, ...]
    ) -> verification.Wish:
        thinks = "reasoning" in self._features
        return verification.Wish(
            endpoint=endpoint,
            checks=shipped(),
            profile=Profile.SMOKE,
            prose=shipped_prose(),
            markers=self._markers,
            model=ready.model,
            only=(*_ALWAYS, _TOOLS) if "tools" in self._features else _ALWAYS,
            expected=self._features,
            limits=Limits(first_byte_s=_WAIT_S, gap_s=_WAIT_S),
            answer_tokens=_THINKING_TOKENS if thinks else _ANSWER_TOKENS,
            variant=None if self._recipe.plan is None else self._recipe.plan.variant,
            release=str(self._deployment.release),
            extra_results=own,
        )

    def _kept_answers(self) -> tuple[str, ...] | None:
        if self._last is None:
            return None
        path = recipes.release_dir(self._last.deployment, self._last.number) / ANSWERS
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=_Answers)
        except (OSError, msgspec.MsgspecError):
            return None
        # Asked otherwise by another version of heavylift: not comparable.
        return kept.answers if (kept.questions, kept.tokens) == (QUESTIONS, _TOKENS) else None

    def _is_same_start(self) -> bool:
        """Whether the last verified release is this very recipe: then the words must be equal."""
        return self._last is not None and (
            self._last.recipe_digest,
            self._last.engine_version,
            self._last.driver,
        ) == (self._release.recipe_digest, self._release.engine_version, self._release.driver)

    def _keep(self, answers: tuple[str, ...]) -> None:
        folder = recipes.release_dir(self._deployment.name, self._deployment.release)
        kept = _Answers(questions=QUESTIONS, tokens=_TOKENS, answers=answers)
        (folder / ANSWERS).write_bytes(msgspec.json.encode(kept))


class _Answers(msgspec.Struct, frozen=True):
    """What was asked and how long an answer could be, with the answers."""

    questions: tuple[str, ...]
    tokens: int
    answers: tuple[str, ...]


def _nothing(_check: CheckResult) -> None:
    """Nobody watches check by check."""


def _why(check: CheckResult) -> str:
    return ", ".join(check.reasons) or str(check.status)


def features_of(catalog: Catalog, recipe: Recipe) -> frozenset[str]:
    """What the model is known to do; nothing for one that is not known."""
    model = recipe.spec.model if recipe.plan is None else recipe.plan.model
    try:
        family = catalog.model(model).family
    except HeavyliftError:
        return frozenset()
    return frozenset(
        feature
        for each in catalog.reply_formats()
        if family in each.families
        for feature in each.features
    )


def _last_verified(store: Deployments, release: Release) -> Release | None:
    """The release whose words these must be: of the same weights."""
    last = store.latest_verified(release.deployment)
    if last is None or last.model_revision != release.model_revision:
        return None
    return last


def _ask(
    endpoint: Endpoint, model: str, messages: Sequence[dict[str, str]], **extra: object
) -> Outcome:
    request = ChatRequest(
        model=model,
        messages=tuple(messages),
        stream=False,
        max_tokens=_TOKENS,
        extra={"temperature": 0, "seed": 1, **extra},
    )
    return ask(endpoint, request, limits=Limits(first_byte_s=_WAIT_S, gap_s=_WAIT_S))


def _answer(endpoint: Endpoint, model: str, question: str) -> str:
    reply = _ask(endpoint, model, ({"role": "user", "content": question},)).reply
    return reply.text or reply.reasoning


def _same_words(
    answers: tuple[str, ...], kept: tuple[str, ...] | None, *, is_same_start: bool
) -> CheckResult:
    """The greedy answers are those of the last verified release. The same recipe must say the same;
    another layout, engine or driver computes in another order, which is a remark.
    """
    check = Check(
        id="release.same_words",
        probe="",
        needs=("earlier_release",),
        trials={Profile.SMOKE: len(QUESTIONS)},
        on_failure=Status.FAIL if is_same_start else Status.WARN,
    )
    if kept is None:
        return result(check, [Trial(unsupported=True)], expected=frozenset())
    trials = [
        Trial(reason=None if now == then else "other_words", evidence=f"{now} | {then}")
        for now, then in zip(answers, kept, strict=False)
    ]
    return result(check, trials, expected=frozenset())


def _two_turns(endpoint: Endpoint, model: str) -> CheckResult:
    """A second turn begins with the same words, its first turn in the cache or not."""
    check = Check(id="release.two_turns", probe="", trials={Profile.SMOKE: 1})
    first = ({"role": "user", "content": _FIRST_TURN},)
    said = _ask(endpoint, model, first).reply.text
    talk = (
        *first,
        {"role": "assistant", "content": said},
        {"role": "user", "content": _SECOND_TURN},
    )
    # How engines are told to compute a prompt anew; one that knows neither name ignores both.
    cold = _ask(endpoint, model, talk, cache_prompt=False, cache_salt="cold")
    if cold.failure is Failure.BAD_REQUEST:
        cold = _ask(endpoint, model, talk)
    warm = [_ask(endpoint, model, talk).reply.text for _ in range(2)]
    trials = [
        Trial(
            reason=None if _begins_alike(cold.reply.text, each) else "cache_changes_answer",
            evidence=f"{cold.reply.text} | {each}",
        )
        for each in warm
    ]
    return result(check, trials, expected=frozenset())


def _begins_alike(one: str, other: str) -> bool:
    return one.split()[:_SAME_WORDS] == other.split()[:_SAME_WORDS]
