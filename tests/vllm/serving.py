"""Starting the real vLLM on a CPU for tests, and waiting until it answers."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

READY_S = 600.0
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


@contextmanager
def served(
    python: str, folder: Path, log: Path, *more: str, max_model_len: int = 512
) -> Iterator[str]:
    """The address of vLLM with a model under the name `tiny`; `more` joins its command. Its log is
    kept for a start that fails.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    options = {
        "model": str(folder), "served-model-name": "tiny", "host": "127.0.0.1", "port": str(port),
        "max-model-len": str(max_model_len), "max-num-seqs": "8", "dtype": "float32",
    }  # fmt: skip
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager", *more]
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **ENVIRONMENT}
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, process, log)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"vLLM ended: {log.read_text('utf-8', 'replace')[-2000:]}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 - our own server
                return
        except OSError:
            time.sleep(1)
    pytest.fail(f"vLLM did not start: {log.read_text('utf-8', 'replace')[-2000:]}")
