"""Racks as people name them beside a command."""

from __future__ import annotations

import pytest

from heavylift.lint.hardware import host_memory_bytes, named_racks
from heavylift.linting import Linting


@pytest.mark.parametrize(
    ("text", "racks"),
    [
        ("8xMI300X", [("mi300x", None, 8)]),
        ("2x8xH200", [("h200", 2, 8)]),
        ("2x8 H200 (sm90)", [("h200", 2, 8)]),
        ("1x8 H200 141 GB", [("h200", 1, 8)]),
        ("8 × AMD Instinct MI355X", [("mi355x", None, 8)]),
        ("8x MI300X/MI325X", [("mi300x", None, 8), ("mi325x", None, 8)]),
        ("2 nodes of 8 H100", [("h100", 2, 8)]),
        ("mi355x:8", [("mi355x", None, 8)]),
        ("H200 x8", [("h200", None, 8)]),
        ("GB300", [("gb300", None, None)]),
        ("8x H20 141 GB", [("h20-141", None, 8)]),
        ("cloud 8x A100 40 GB", [("a100-40", None, 8)]),
        ("any", []),
        ("the MI300Xs of before", []),
        ("", []),
    ],
)
def test_named_racks(
    text: str, racks: list[tuple[str, int | None, int | None]], linting: Linting
) -> None:
    """Counts stand before or after the card, for nodes and per node; longer names win."""
    found = named_racks(text, linting.library.cards)
    assert [(rack.card.id, rack.nodes, rack.per_node) for rack in found] == racks


def test_gpus_in_all(linting: Linting) -> None:
    """GPUs are nodes times GPUs per node, and unknown where no count stands."""
    counted = named_racks("2x8 H200, H100", linting.library.cards)
    assert [rack.gpus for rack in counted] == [16, None]


@pytest.mark.parametrize(
    ("text", "size"), [("64 GB RAM", 64), ("M3 Ultra 512 GB", 512), ("8x H200", None)]
)
def test_host_memory(text: str, size: int | None) -> None:
    """Memory of the host is read where it is written in GB."""
    assert host_memory_bytes(text) == (None if size is None else size * 10**9)
