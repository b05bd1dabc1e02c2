"""The embedded engine for real: installed, started, asked, measured and stopped."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from heavylift.errors import HeavyliftError
from heavylift.launch.embedded import launch
from heavylift.launch.runner import Served
from heavylift.recipe.engines.embedded import EmbeddedSettings

pytestmark = pytest.mark.e2e

Serve = Callable[[EmbeddedSettings], AbstractContextManager[Served]]
SLOTS = 4
SLOT_TOKENS = 1024


def settings(model: Path, name: str) -> EmbeddedSettings:
    """Four slots of 1024 tokens."""
    return EmbeddedSettings(model_path=str(model), model=name, slot_tokens=SLOT_TOKENS, slots=SLOTS)


def ask(
    address: str, path: str, key: str | None, body: dict[str, Any] | None = None
) -> tuple[int, Any]:
    """Status and document of one call."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    method = "GET" if body is None else "POST"
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    content = response.read().decode()
    connection.close()
    try:
        return response.status, json.loads(content)
    except json.JSONDecodeError:
        return response.status, content


def running(pid: int) -> bool:
    """True while the process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(pid: int, within_s: float = 30) -> bool:
    """True when the process ends in time."""
    end = time.monotonic() + within_s
    while running(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not running(pid)


def test_smollm2_answers_a_question_and_stops(start: Serve, smollm2: Path, api_key: str) -> None:
    """The model knows the capital of France; afterwards no process is left."""
    with start(settings(smollm2, "smollm2")) as served:
        status, answer = ask(
            served.address,
            "/v1/completions",
            api_key,
            {
                "model": "smollm2",
                "prompt": "The capital of France is",
                "max_tokens": 8,
                "temperature": 0,
            },
        )
        pid = served.pid
    assert status == 200
    assert "Paris" in answer["choices"][0]["text"]
    assert not running(pid)


def test_the_api_listens_on_loopback_and_wants_the_key(
    start: Serve, smollm2: Path, api_key: str
) -> None:
    """Without the key there is no model list, no metrics and no slots, and the key is not shown."""
    with start(settings(smollm2, "smollm2")) as served:
        assert urlsplit(served.address).hostname == "127.0.0.1"
        for path in ("/v1/models", "/metrics", "/slots", "/props"):
            assert ask(served.address, path, None)[0] == 401, path
            assert ask(served.address, path, api_key)[0] == 200, path
        arguments = Path(f"/proc/{served.pid}/cmdline").read_text()
        assert api_key not in arguments + "\n".join(served.log_lines())


def test_a_model_that_is_no_model_ends_with_the_engine_s_own_words(
    start: Serve, tmp_path: Path
) -> None:
    """The engine's error is in ours, within the deadline."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(HeavyliftError) as caught, start(settings(broken, "broken")):
        pass
    assert caught.value.code == "RUN011"
    assert "GGUF" in str(caught.value.params["lines"])


def test_the_child_refuses_to_serve_without_a_key(smollm2: Path) -> None:
    """An open API is not started by accident."""
    spec = launch(settings(smollm2, "smollm2"), plan_digest="")
    result = subprocess.run(
        spec.ranks[0].argv, check=False, capture_output=True, text=True, timeout=30, env={}
    )
    assert result.returncode == 2
    assert "HEAVYLIFT_API_KEY is not set" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_heavylift_ends_the_engine(
    smollm2: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C, a polite end and a kill of the process that serves: the engine is gone after each."""
    program = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from heavylift.launch.embedded import launch
        from heavylift.launch.runner import serve
        from heavylift.recipe.engines.embedded import EmbeddedSettings
        settings = EmbeddedSettings(model_path=sys.argv[1], model="m", slot_tokens=256)
        spec = launch(settings, plan_digest="")
        with serve(spec, secrets={"api-key": "k" * 16}, log=Path(sys.argv[2])) as served:
            print(served.pid, flush=True)
            time.sleep(60)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(smollm2), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as runner:
        assert runner.stdout is not None
        engine = int(runner.stdout.readline())
        assert running(engine)
        runner.send_signal(number)
        runner.wait(timeout=60)
    assert ends(engine)
