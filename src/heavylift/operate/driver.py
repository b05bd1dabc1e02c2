"""The driver of the cards: what a roll-back names and cannot bring back."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

_NVIDIA: Final = Path("/proc/driver/nvidia/version")
_AMD: Final = Path("/sys/module/amdgpu/version")
_NUMBER: Final = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")


def version(nvidia: Path = _NVIDIA, amd: Path = _AMD) -> str | None:
    """Vendor and version as the kernel's module tells them; None where there is none."""
    with contextlib.suppress(OSError):
        found = _NUMBER.search(nvidia.read_text("utf-8", "replace"))
        if found is not None:
            return f"nvidia {found[1]}"
    with contextlib.suppress(OSError):
        return f"amdgpu {amd.read_text('utf-8', 'replace').strip()}"
    return None
