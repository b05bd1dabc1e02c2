"""Programs in the sandbox: what they may, what they may not, and grading what they return."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from heavylift.errors import Exit, HeavyliftError
from heavylift.quality import sandbox as module
from heavylift.quality.grade import grade
from heavylift.quality.programs import TASKS, is_right, program, programs
from heavylift.quality.records import Case, Question
from heavylift.quality.sandbox import Ran, Sandbox, open_sandbox
from heavylift.wire.reply import Reply

QUESTION = Question(
    id="q",
    group="code",
    language="en",
    text="double",
    function="double",
    cases=(Case(arguments="[2]", expected="4"), Case(arguments="[0]", expected="0")),
)
RIGHT = "Here it is:\n```python\ndef double(x):\n    return 2 * x\n```\nDone."


@pytest.fixture(scope="module", params=["bubblewrap", "unshare"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Each way to isolate that holds here; where none does the command refuses, which has a test
    of its own.
    """
    way = next((each for each in module.ways() if each.name == request.param), None)
    if way is None:
        pytest.skip(f"{request.param} is not installed here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ways", lambda: (way,))
        try:
            return asyncio.run(open_sandbox())
        except HeavyliftError as refusal:
            pytest.skip(f"{request.param} isolates nothing here: {refusal}")


def ran(sandbox: Sandbox, source: str, seconds: float = 10.0) -> Ran:
    """What became of a program."""
    return asyncio.run(sandbox.run(source, seconds))


def test_a_program_runs_and_its_output_comes_back(sandbox: Sandbox) -> None:
    """With the standard library, and a folder of its own to write in."""
    source = "import math, pathlib\npathlib.Path('/tmp/x').write_text('7')\nprint(math.gcd(12, 18))"
    assert ran(sandbox, source) == Ran(output="6\n", status=0)


@pytest.mark.parametrize(
    "source",
    [
        "import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=1)",
        "open({secret!r}).read()",
        "open('/usr/mine', 'w')",
        "open('/mine', 'w')",
        "bytearray(3 * 2**30)",
        "open('/tmp/big', 'wb').write(b'x' * 2**25)",
        "import os\nos.chroot('/tmp')",
        "import os\nos.kill({pid}, 0)",
    ],
)
def test_a_program_may_not(sandbox: Sandbox, source: str, tmp_path: Path) -> None:
    """Use the network, read or write the host's files, take all memory, see other processes."""
    import os  # noqa: PLC0415 - only here
    import socket  # noqa: PLC0415 - only here

    secret = tmp_path / "secret"
    secret.write_text("hidden")
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = source.format(port=server.getsockname()[1], secret=str(secret), pid=os.getpid())
        found = ran(sandbox, text)
    assert found.status not in (0, None)
    assert "Error" in found.errors


@pytest.mark.parametrize("source", ["while True: pass", "while True: print('x' * 1000)"])
def test_a_program_without_end_is_ended(sandbox: Sandbox, source: str) -> None:
    """By its time, whatever it prints."""
    assert ran(sandbox, source, seconds=1.0).status is None


def test_a_sandbox_that_leaks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that isolates nothing is found out before anything is run in it; so is having none."""
    open_one = Sandbox(name="none", command=("/usr/bin/env",), builds_root=False)
    monkeypatch.setattr(module, "ways", lambda: (open_one,))
    with pytest.raises(HeavyliftError, match="ENV061") as caught:
        asyncio.run(open_sandbox())
    assert caught.value.exit_status is Exit.ENVIRONMENT
    monkeypatch.setattr(module, "ways", tuple)
    with pytest.raises(HeavyliftError, match="not found"):
        asyncio.run(open_sandbox())


def test_a_home_that_is_the_folder_for_temporary_files_is_no_leak(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in many containers: what is written there does not arrive outside."""
    monkeypatch.setenv("HOME", "/tmp")  # noqa: S108 - as it is in containers
    assert asyncio.run(module._leak(sandbox)) is None


def test_what_arrives_outside_is_a_leak_and_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is called inside."""
    monkeypatch.setenv("HOME", str(tmp_path))
    open_one = Sandbox(name="none", command=("/usr/bin/env",), builds_root=False)
    assert asyncio.run(module._leak(open_one)) == "writing"
    assert not list(tmp_path.iterdir())


# --- grading -------------------------------------------------------------------------------------


def test_an_answer_is_right_when_every_case_returns_what_it_must(sandbox: Sandbox) -> None:
    """Found in its code block, run, compared outside of the sandbox."""
    source = program(QUESTION, RIGHT)
    assert source is not None
    assert '"4"' not in source
    assert is_right(QUESTION, ran(sandbox, source).output)
    wrong = program(QUESTION, RIGHT.replace("2 * x", "x + 2"))
    assert wrong is not None
    assert not is_right(QUESTION, ran(sandbox, wrong).output)


@pytest.mark.parametrize(
    ("text", "printed", "right", "failure"),
    [
        (RIGHT, "heavylift-result 4\nheavylift-result 0\n", True, None),
        (RIGHT, "heavylift-result 4\n", False, None),
        (RIGHT, "heavylift-result 4\nheavylift-result broken\n", False, None),
        ("I would rather not", None, False, "unparsable"),
        ("As an AI I do not write programs", None, False, "refused"),
    ],
)
def test_programs_are_graded_by_what_they_printed(
    text: str, printed: str | None, right: bool, failure: str | None
) -> None:
    """No program is told from a wrong one."""
    answer = grade(QUESTION, Reply(text=text, finish_reason="stop"), printed)
    assert (answer.right, answer.failure) == (right, failure)


def test_a_text_without_the_function_is_no_program() -> None:
    """With or without a code block."""
    assert program(QUESTION, "```python\nprint(4)\n```") is None
    assert program(QUESTION, "def double(x): return 2 * x") is not None


def test_tasks_are_asked_in_both_languages_and_have_answers() -> None:
    """Twenty functions, each in English and Chinese, with cases that JSON can carry."""
    asked = programs(random.Random(2).random, 2 * len(TASKS))
    assert {question.language for question in asked} == {"en", "zh"}
    assert len({question.id for question in asked}) == len(asked) == 40
    for question in asked:
        assert question.function is not None
        assert f"{question.function}(" in question.text
        for case in question.cases:
            assert isinstance(json.loads(case.arguments), list)
            json.loads(case.expected)
