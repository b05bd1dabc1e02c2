"""Numbers that are none, in texts of other people: the linter goes on."""

from __future__ import annotations

import pytest

from heavylift.linting import Linting

_MANY = "9" * 5000
_COMPOSE = """services:
  vllm:
    image: vllm/vllm-openai:v0.11.0
    shm_size: {size}
    command: --model m --tensor-parallel-size 2
    healthcheck:
      test: curl -f http://localhost:8000/health
      start_period: {seconds}s
"""
_POD = """apiVersion: v1
kind: Pod
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.11.0
      args: [--model, m, --tensor-parallel-size, "2"]
      volumeMounts:
        - {{name: shm, mountPath: /dev/shm}}
  volumes:
    - name: shm
      emptyDir: {{medium: Memory, sizeLimit: {size}}}
"""


@pytest.mark.parametrize(
    "text",
    [
        "docker run --shm-size 1.2.3g vllm/vllm-openai --model m --tensor-parallel-size 2",
        f"docker run --shm-size {_MANY} vllm/vllm-openai --model m",
        "vllm serve m --tensor-parallel-size _ --max-model-len __k",
        f"vllm serve m --tensor-parallel-size {_MANY} --max-model-len {_MANY}",
        f"docker run vllm/vllm-openai:v{_MANY}.{_MANY} --model moonshotai/Kimi-K3",
        f"./stream-moe --model Kimi-K3 --ram-gb {_MANY} --threads 16",
        _COMPOSE.format(size="1.2.3g", seconds=_MANY),
        _COMPOSE.format(size="..", seconds="1.2.3"),
        _POD.format(size="1.2.3Gi"),
        f"[Service]\nTimeoutStartSec={_MANY}\nExecStart=/usr/bin/vllm serve m\n",
    ],
)
def test_a_number_that_is_none_is_passed_over(text: str, linting: Linting) -> None:
    """The text is judged by all else that it says."""
    report = linting.lint(text, rack="laptop with 64 GB RAM")
    assert report.engines or report.findings
