"""What the examples run against: the embedded engine and a scripted one behind one gateway."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from tests.e2e.conftest import engine_home, engine_store, smollm2

from heavylift.gateway.quota import Limits
from heavylift.gateway.store import open_store
from heavylift.launch.embedded import launch
from heavylift.launch.runner import serve
from heavylift.recipe.engines.embedded import KEY_SECRET, EmbeddedSettings

__all__ = ["engine_home", "engine_store", "smollm2"]

REPOSITORY: Final = Path(__file__).parents[2]
EXAMPLES: Final = REPOSITORY / "examples"
REAL: Final = "smollm2"
SCRIPTED: Final = "scripted"
THOUGHTS: Final = (
    '  First thought.\n\n\tZürich 中文 思考 🏗️ \u2028 and <tags> & "quotes" \\n ',
    "\nSecond thought: the name was wrong. ",
)
"""What must come back as it was: spaces at both ends, empty lines, characters of every kind."""


@dataclass(frozen=True)
class Service:
    """A gateway in front of both engines, and the engine's own address."""

    url: str
    folder: Path
    engine_url: str
    engine_key: str
    scripted_url: str

    def key(self, name: str = "test", **limits: int) -> str:
        """A new key."""
        with open_store(self.folder) as store:
            created = store.create_key(name, now_epoch_s=time.time(), limits=Limits(**limits))
        return created.key

    def requests(self, key_name: str, count: int) -> list[dict[str, Any]]:
        """The bodies of `count` requests of a key as the gateway got them, oldest first. A line of
        the audit is written when its request has ended, which may be after its client went on.
        """
        found: list[dict[str, Any]] = []
        end = time.monotonic() + 30
        while len(found) < count and time.monotonic() < end:
            whole, _, _ = (self.folder / "audit.jsonl").read_text("utf-8").rpartition("\n")
            records = [json.loads(line) for line in whole.split("\n") if line]
            found = [
                json.loads(each["body"]) for each in records if each.get("key_name") == key_name
            ]
            time.sleep(0.01)
        return found


def quoted(text: str) -> str:
    """As a TOML string."""
    return json.dumps(text, ensure_ascii=False)


SCENARIO: Final = f"""
[server]
models = ["{SCRIPTED}"]

[[rule]]
match = {{ prompt_contains = "break" }}
fault = {{ kind = "error_event", after_tokens = 3, done = true }}

[[rule]]
match = {{ prompt_contains = "weather" }}
[[rule.reply.tool_calls]]
name = "get_weather"
arguments = '{{"city": "Zürich"}}'

[[rule]]
match = {{ prompt_contains = '"free_gb": 1430' }}
reply = {{ text = "Zürich-3 has 1430 GB." }}

[[rule]]
match = {{ prompt_contains = "no machine" }}
[rule.reply]
reasoning = {quoted(THOUGHTS[1])}
[[rule.reply.tool_calls]]
name = "free_disk"
arguments = '{{"machine": "Zürich-3"}}'

[[rule]]
match = {{ prompt_contains = "free disk" }}
[rule.reply]
reasoning = {quoted(THOUGHTS[0])}
[[rule.reply.tool_calls]]
name = "free_disk"
arguments = '{{"machine": "zurich"}}'
"""
"""Turns of a model that thinks, calls a tool with a wrong name, mends it, and answers."""


@contextlib.contextmanager
def listening(*arguments: str, **environment: str) -> Iterator[str]:
    """The address of a heavylift process that listens; ended with the block."""
    command = [sys.executable, "-m", "heavylift", "--lang", "en", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    ) as child:  # fmt: skip
        try:
            assert child.stderr is not None
            said = []
            for line in child.stderr:
                said.append(line)
                if line.startswith("listening on "):
                    break
            else:
                raise AssertionError("".join(said))
            yield line.removeprefix("listening on ").strip()
        finally:
            child.terminate()
            child.communicate(timeout=30)


@pytest.fixture(scope="session")
def service(
    engine_home: Path,  # noqa: ARG001 - the engine must be there
    smollm2: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """Started once for all examples."""
    folder = tmp_path_factory.mktemp("service")
    scenario, config = folder / "scenario.toml", folder / "gateway.toml"
    scenario.write_text(SCENARIO, "utf-8")
    config.write_text("[times]\nprobe_s = 0.1\ndrain_notice_s = 0.0\ndrain_limit_s = 1.0\n")
    key = secrets.token_urlsafe(24)
    settings = EmbeddedSettings(
        model_path=str(smollm2), model=REAL, slot_tokens=2048, slots=4, embeddings=True
    )
    spec = launch(settings, plan_digest="sha256:none")
    with (
        serve(spec, secrets={KEY_SECRET: key}, log=folder / "engine.log") as engine,
        listening("dev", "engine", str(scenario), "--port", "0") as scripted,
        listening(
            *("gateway", "--upstream", engine.address, "--upstream", scripted, "--port", "0"),
            *("--state", str(folder), "--config", str(config), "--audit-bodies"),
            HEAVYLIFT_UPSTREAM_KEY=key,
        ) as url,
    ):
        yield Service(
            url=url, folder=folder, engine_url=engine.address, engine_key=key, scripted_url=scripted
        )


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`example("sdks/openai_chat.py", …)`: the exit status of a program, run in this process."""

    def run(name: str, *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        status: int = program(name).main()
        return status

    return run


def program(name: str) -> ModuleType:
    """An example's program as a module."""
    path = EXAMPLES / name
    known = f"examples.{path.parent.name}.{path.stem}".replace("-", "_")
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[known] = module
        spec.loader.exec_module(module)
    return sys.modules[known]


@pytest.fixture
def as_client(service: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`as_client("name", concurrent=1)`: the environment of a client with a key of its own."""

    def enter(name: str = "test", **limits: int) -> None:
        key = service.key(name, **limits)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{service.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", key)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", service.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", key)

    return enter


@pytest.fixture
def heavylift_command(tmp_path: Path) -> Path:
    """An executable `heavylift` of this checkout."""
    path = tmp_path / "bin" / "heavylift"
    path.parent.mkdir()
    path.write_text(
        f'#!/bin/sh\nPYTHONPATH={REPOSITORY / "src"} exec {sys.executable} -m heavylift "$@"\n'
    )
    path.chmod(0o755)
    return path
