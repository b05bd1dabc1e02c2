"""What engines print of the host they run on: vLLM's collect_env and Ollama's start lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from heavylift.telemetry.values import known, pairs, size_bytes, unreadable


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchEnvironment:
    """`python collect_env.py`: the PyTorch build against the driver."""

    torch: str | None
    cuda_build: str | None
    rocm_build: str | None
    cuda_available: bool | None
    gpus: str | None
    driver: str | None


def parse_collect_env(text: str) -> TorchEnvironment:
    """The lines of collect_env. Raises PRE101 when PyTorch is not among them."""
    values = pairs(text, ":")
    if "PyTorch version" not in values:
        raise unreadable("collect_env", text.strip()[:80] or "empty")
    available = known(values.get("Is CUDA available"))
    return TorchEnvironment(
        torch=known(values.get("PyTorch version")),
        cuda_build=known(values.get("CUDA used to build PyTorch")),
        rocm_build=known(values.get("ROCM used to build PyTorch")),
        cuda_available=None if available is None else available == "True",
        gpus=known(values.get("GPU models and configuration")),
        driver=known(values.get("Nvidia driver version")),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OllamaDevice:
    """A device Ollama found at start; `library` is `CUDA`, `ROCm`, `cpu` or another of its own."""

    identifier: str
    library: str
    description: str | None
    driver: str | None
    total_bytes: int | None
    available_bytes: int | None


_PAIR: Final = re.compile(r'([A-Za-z_]+)=("(?:[^"\\]|\\.)*"|\S*)')


def parse_ollama_devices(text: str) -> tuple[OllamaDevice, ...]:
    """The `inference compute` lines of `ollama serve`; empty when there are none."""
    devices = []
    for line in text.splitlines():
        if '"inference compute"' not in line:
            continue
        values = {key: value.strip('"') for key, value in _PAIR.findall(line)}
        devices.append(
            OllamaDevice(
                identifier=values.get("id", ""),
                library=values.get("library", ""),
                description=known(values.get("description") or values.get("name")),
                driver=known(values.get("driver")),
                total_bytes=size_bytes(values.get("total")),
                available_bytes=size_bytes(values.get("available")),
            )
        )
    return tuple(devices)
