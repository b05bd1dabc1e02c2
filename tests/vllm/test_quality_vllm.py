"""Divergence over forced tokens on real vLLM: a model against itself and against a noisy copy.

Slow, and it needs a Python with vLLM: `make test-vllm-quality`.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.vllm.serving import served

from heavylift.quality.forced import compared
from heavylift.quality.records import Divergence
from heavylift.wire.client import Client, Endpoint

PYTHON = os.environ.get("HEAVYLIFT_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="HEAVYLIFT_VLLM_PYTHON names no Python with vLLM"),
]

TINY_MODEL = Path(__file__).with_name("tiny_model.py")
PROMPTS = (
    "What is the capital of France?",
    "How many apples are left?",
    "The lighthouse keeper climbs the stairs",
    "The bridge of the northern road",
)


def diverged(reference: str, candidate: str) -> Divergence:
    """The divergence between two servers."""

    async def once() -> Divergence:
        async with (
            Client(Endpoint.parse(reference)) as one,
            Client(Endpoint.parse(candidate)) as other,
        ):
            chance = random.Random(1).random
            return await compared((one, "tiny"), (other, "tiny"), PROMPTS, chance)

    return asyncio.run(once())


def test_a_noisy_copy_diverges_and_the_model_itself_does_not(tmp_path: Path) -> None:
    """Noise of a tenth of the weights' spread; the model scored twice is the floor."""
    folders = [tmp_path / name for name in ("sound", "noisy")]
    for folder, noise in zip(folders, ("0", "0.1"), strict=True):
        subprocess.run([PYTHON, str(TINY_MODEL), str(folder), noise], check=True)
    with ExitStack() as stack:
        sound, noisy = (
            stack.enter_context(served(PYTHON, folder, tmp_path / f"{folder.name}.log"))
            for folder in folders
        )
        itself, other = diverged(sound, sound), diverged(sound, noisy)
    assert itself.positions > 100
    assert itself.forward.mean < 0.001
    assert itself.top1_agreement > 0.99
    assert itself.floor_mean is not None
    assert itself.floor_mean < 0.001
    assert other.forward.interval.low > 0.05
    assert other.backward.interval.low > 0.05
    assert other.top1_agreement < itself.top1_agreement
    assert other.probability_change_rms is not None
    assert other.probability_change_rms > 0.01
    assert 0 < other.uncovered_reference_mean < 0.5
