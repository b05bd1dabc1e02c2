"""Comparing two served deployments, and files of graded answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from heavylift.devserver.scenario import Scenario, Then, decode
from heavylift.devserver.server import ScriptedServer
from heavylift.errors import HeavyliftError
from heavylift.quality.imports import read_answers
from heavylift.quality.records import Case, Comparison, Question, Verdict
from heavylift.quality.run import Wish, read_questions, run
from heavylift.quality.sandbox import Ran, Sandbox, open_sandbox
from heavylift.records.served_model import ServedModel
from heavylift.wire.client import Endpoint

SUMS = tuple(
    Question(id=f"sum-{n}", group="logic", language="en", text=f"What is {n} + {n}?", number=2 * n)
    for n in range(10, 110)
)
SOUND = "[reply]\nmind = 'obliging'\n"
DAMAGED = (
    SOUND + "[[rule]]\nmatch = { every = 5 }\nreply = { mind = 'scripted', text = 'blah 0' }\n"
)


def compared(reference: str, candidate: str, *, samples: int = 1) -> Comparison:
    """The comparison of two scripted engines."""

    async def once() -> Comparison:
        def scenario(text: str) -> Scenario:
            return decode(text, "test")

        async with (
            ScriptedServer(scenario(reference)) as one,
            ScriptedServer(scenario(candidate)) as other,
        ):
            assert await one.until(Then.READY)
            assert await other.until(Then.READY)
            wish = Wish(
                reference=Endpoint.parse(one.url),
                candidate=Endpoint.parse(other.url),
                questions=SUMS,
                margin=0.05,
                reference_side=ServedModel(url="one"),
                candidate_side=ServedModel(url="other", variant="int4", is_quantised=True),
                samples=samples,
            )
            return await run(wish, lambda _name, _done, _total: None)

    return asyncio.run(once())


def test_a_deployment_is_equivalent_to_its_like() -> None:
    """A hundred sums, the same answers; the noise floor says that nothing wavers."""
    comparison = compared(SOUND, SOUND)
    assert comparison.verdict is Verdict.EQUIVALENT
    assert comparison.noise_floor is not None
    assert comparison.noise_floor.discordance == 0
    assert comparison.same_text == comparison.same_text_floor == 1
    assert comparison.candidate.variant == "int4"
    assert comparison.candidate.model == "scripted"
    # A batch of other width computes other last digits: how both were asked is part of the result.
    assert comparison.settings["concurrency"] == 8
    assert comparison.settings["temperature"] == 0.0


@pytest.mark.parametrize("samples", [1, 3])
def test_a_damaged_deployment_is_found_worse(samples: int) -> None:
    """Every fifth answer is wrong: 20 points, in the interval, also with several samples each."""
    comparison = compared(SOUND, DAMAGED, samples=samples)
    assert comparison.verdict is Verdict.WORSE
    assert comparison.difference == pytest.approx(-0.2, abs=0.001)
    assert comparison.interval.low < -0.2 < comparison.interval.high < 0
    assert comparison.minimum_detectable_effect < 0.2


def test_graded_answers_are_read_from_files(tmp_path: Path) -> None:
    """Rows of ours, and samples as lm-eval writes them."""
    path = tmp_path / "samples_gsm8k.jsonl"
    path.write_text('{"doc_id": 3, "exact_match": 1.0}\n{"question": "a", "right": false}\n')
    first, second = read_answers(path)
    assert (first.question, first.group, first.right) == ("gsm8k:3", "gsm8k", True)
    assert (second.question, second.right) == ("a", False)


@pytest.mark.parametrize("row", ["{}", '{"doc_id": 1}', '{"right": true}', "no json"])
def test_a_row_without_id_or_grade_is_an_error(tmp_path: Path, row: str) -> None:
    """A missing grade is not a wrong answer."""
    path = tmp_path / "answers.jsonl"
    path.write_text(row + "\n")
    with pytest.raises(HeavyliftError, match=r"USE07[57]"):
        read_answers(path)


def test_the_users_own_questions_are_read(tmp_path: Path) -> None:
    """One JSON object per line, as the records have it."""
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, SUMS[:3])))
    assert read_questions(path) == SUMS[:3]
    path.write_text('{"id": "x"}')
    with pytest.raises(HeavyliftError, match=r"USE07[57]"):
        read_questions(path)


# --- programs ------------------------------------------------------------------------------------

WRITTEN = """[reply]
text = '''```python
def double(x):
    {body}
```'''
"""


def test_programs_are_run_and_graded_by_what_they_return() -> None:
    """The reference doubles, the candidate never ends: a timeout, told from a wrong answer."""
    question = Question(
        id="p",
        group="code",
        language="en",
        text="Write double.",
        function="double",
        cases=(Case(arguments="[2]", expected="4"),),
    )

    async def once() -> Comparison:
        try:
            sandbox = await open_sandbox()
        except HeavyliftError as refusal:
            pytest.skip(f"no way to isolate a program here: {refusal}")
        hasty = HastySandbox(
            name=sandbox.name, command=sandbox.command, builds_root=sandbox.builds_root
        )
        async with (
            ScriptedServer(decode(WRITTEN.format(body="return 2 * x"), "test")) as one,
            ScriptedServer(decode(WRITTEN.format(body="while True: pass"), "test")) as other,
        ):
            assert await one.until(Then.READY)
            assert await other.until(Then.READY)
            wish = Wish(
                reference=Endpoint.parse(one.url),
                candidate=Endpoint.parse(other.url),
                questions=(question,),
                margin=0.05,
                reference_side=ServedModel(url="one"),
                candidate_side=ServedModel(url="other"),
                noise_floor=False,
                sandbox=hasty,
            )
            return await run(wish, lambda _name, _done, _total: None)

    comparison = asyncio.run(once())
    whole = comparison.contrasts[0]
    assert (whole.reference_rate, whole.candidate_rate) == (1.0, 0.0)
    assert whole.reference_failures == {}
    assert whole.candidate_failures == {"code_timeout": 1}
    assert comparison.divergence_missing == "not_asked"


class HastySandbox(Sandbox):
    """One with little patience."""

    async def run(self, program: str, seconds: float = 1.0) -> Ran:
        """Run a program for a second."""
        return await super().run(program, seconds)
