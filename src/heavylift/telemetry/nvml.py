"""GPUs through NVML, NVIDIA's library: no process for each look. Needs the extra `nvidia`.

Source: https://docs.nvidia.com/deploy/nvml-api/, device queries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from heavylift.errors import HeavyliftError, reason
from heavylift.telemetry.gpu_readings import GpuReading

T = TypeVar("T")


def is_here() -> bool:
    """True when the package and the driver's library both are."""
    try:
        with _library():
            return True
    except HeavyliftError:
        return False


def read(at_s: float) -> tuple[GpuReading, ...]:
    """Every GPU that the driver shows. Raises PRE101 without package, library or driver."""
    with _library() as nvml:
        try:
            count = int(nvml.nvmlDeviceGetCount())
            return tuple(_reading(nvml, gpu, at_s) for gpu in range(count))
        except nvml.NVMLError as problem:
            raise _failed(problem) from problem


@contextlib.contextmanager
def _library() -> Iterator[Any]:
    try:
        import pynvml  # noqa: PLC0415 - an extra
    except ImportError as problem:
        raise _failed(problem) from problem
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        raise _failed(problem) from problem
    try:
        yield pynvml
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _failed(problem: Exception) -> HeavyliftError:
    return HeavyliftError("PRE101", {"what": "NVML", "reason": reason(problem)})


def _reading(nvml: Any, gpu: int, at_s: float) -> GpuReading:
    device = nvml.nvmlDeviceGetHandleByIndex(gpu)

    def told(ask: Callable[[], T]) -> T | None:
        """The answer; None for what this card or driver does not tell."""
        try:
            return ask()
        except (nvml.NVMLError, AttributeError):
            return None

    # The second version leaves out what the driver reserves for itself, as nvidia-smi does.
    memory = told(lambda: nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)) or told(
        lambda: nvml.nvmlDeviceGetMemoryInfo(device)
    )
    name = told(lambda: nvml.nvmlDeviceGetName(device))
    power_mw = told(lambda: nvml.nvmlDeviceGetPowerUsage(device))
    limit_mw = told(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(device))
    use = told(lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu)
    temperature = told(lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))
    return GpuReading(
        at_s=at_s,
        gpu=gpu,
        name=name.decode() if isinstance(name, bytes) else name,
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        power_w=None if power_mw is None else power_mw / 1000,
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        use_ratio=None if use is None else use / 100,
        temperature_c=None if temperature is None else float(temperature),
    )
