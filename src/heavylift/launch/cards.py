"""Whether the cards of this machine do anything, by the kernel or the driver's tool."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_NVIDIA: Final = Path("/dev/nvidiactl")
_AMD: Final = Path("/dev/kfd")
_AMD_BUSY: Final = "card*/device/gpu_busy_percent"
_QUERY: Final = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
_TIMEOUT_S: Final = 10.0


def are_there() -> bool:
    """True when this machine has cards of a kind that computes."""
    return _NVIDIA.exists() or _AMD.exists()


def are_idle(drm: Path = Path("/sys/class/drm")) -> bool | None:
    """True when every card is at 0 %; None when that cannot be read. May take seconds: a driver
    that hangs is given up on.
    """
    shares = list(_amd(drm)) or list(_nvidia())
    return None if not shares else not any(shares)


def _amd(drm: Path) -> Iterator[int]:
    for file in sorted(drm.glob(_AMD_BUSY)):
        with contextlib.suppress(OSError, ValueError):
            yield int(file.read_text("ascii"))


def _nvidia() -> Iterator[int]:
    if not _NVIDIA.exists():
        return
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        result = subprocess.run(  # noqa: S603 - a constant
            _QUERY, capture_output=True, check=True, text=True, timeout=_TIMEOUT_S
        )
        yield from map(int, result.stdout.split())
