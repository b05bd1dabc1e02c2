"""Crafted safetensors files, byte by byte: sound ones and broken ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Header = Mapping[str, Any] | bytes
Craft = Callable[..., Path]


@pytest.fixture
def craft(tmp_path: Path) -> Craft:
    """Writes a file of a header and so many bytes of data (default: as the header says).

    A mapping becomes JSON, bytes are taken as they are; `length` is the length stated before them.
    """

    def write(
        name: str, header: Header, data_bytes: int | None = None, *, length: int | None = None
    ) -> Path:
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        if data_bytes is None:
            entries = {} if isinstance(header, bytes) else header
            ends = [entry["data_offsets"][1] for entry in entries.values()]
            data_bytes = max(ends, default=0)
        stated = len(raw) if length is None else length
        path = tmp_path / name
        path.write_bytes(stated.to_bytes(8, "little") + raw)
        with path.open("r+b") as file:
            file.truncate(8 + len(raw) + data_bytes)
        return path

    return write


@pytest.fixture
def entry() -> Callable[..., dict[str, Any]]:
    """One tensor of a header: BF16 [2, 3], 12 bytes from `begin`, unless told otherwise."""

    def make(begin: int = 0, **changes: Any) -> dict[str, Any]:
        return {
            "dtype": "BF16",
            "shape": [2, 3],
            "data_offsets": [begin, begin + 12],
            **changes,
        }

    return make
