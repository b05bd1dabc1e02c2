"""The simulator against published closed loops of K3 on 16 H200."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from heavylift.planning import Planning

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def simulate() -> Iterator[ModuleType]:
    """The benchmark as a module, with the one it reads rows with."""
    loaded = []
    for name in ("speed_accuracy", "simulate"):
        path = ROOT / "benchmarks" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # It imports the other, and dataclasses look their module up, by name.
        sys.modules[name] = module
        loaded.append(name)
        spec.loader.exec_module(module)
    yield module
    for name in loaded:
        del sys.modules[name]


def test_the_bands_hold_the_published_sweeps(simulate: ModuleType, planning: Planning) -> None:
    """Of 23 rows of five layouts: three figures of four inside, throughput in nine rows of ten."""
    judged = list(simulate.judge_sweeps(simulate.sweep_rows(), planning))
    assert len({each.row.id for each in judged}) == 23
    assert sum(each.inside for each in judged) >= simulate.INSIDE_LIMIT * len(judged)
    rates = [each for each in judged if each.figure == "tok/s"]
    assert sum(each.inside for each in rates) >= 0.9 * len(rates)


def test_the_order_of_the_layouts_comes_out(simulate: ModuleType, planning: Planning) -> None:
    """With one client PP2 is fastest, then TP16, then TEP16, as measured; and nobody said so."""
    rows = [row for row in simulate.sweep_rows() if row.concurrency == 1 and row.dp == 1]
    found = {
        (each.row.pp, each.row.ep): each.middle
        for each in simulate.judge_sweeps(rows, planning)
        if each.figure == "TPOT ms"
    }
    assert found[2, 1] < found[1, 1] < found[1, 16]


@pytest.mark.shared
def test_the_reference_sweeps_are_held(
    simulate: ModuleType, planning: Planning, shared: Path
) -> None:
    """The same rows as their source states them."""
    rows = simulate.sweep_rows(shared / "data" / "measured" / "speed.jsonl")
    assert len(rows) >= 15
    judged = list(simulate.judge_sweeps(rows, planning))
    assert sum(each.inside for each in judged) >= simulate.INSIDE_LIMIT * len(judged)
