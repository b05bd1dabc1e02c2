"""What `heavylift dev sparse-checkpoint` wrote."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.text import text
from heavylift.devserver.sparse_checkpoint import SparseCheckpoint
from heavylift.units import format_gb


def lines(written: SparseCheckpoint) -> Iterator[str]:
    """The screen, line by line."""
    yield text(
        "dev.sparse_checkpoint",
        folder=written.folder,
        files=written.files,
        tensors=f"{written.tensors:,}",
    )
    yield text(
        "dev.sparse_checkpoint.size",
        apparent_gb=format_gb(written.file_bytes),
        disk_gb=format_gb(written.disk_bytes, 3),
    )
