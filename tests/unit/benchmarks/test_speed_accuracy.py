"""The accuracy that the bands promise, on the rows in the repository and on reference rows."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from heavylift.planning import Planning

ROOT = Path(__file__).parents[3]
ROWS = ROOT / "benchmarks" / "speed" / "rows.csv"


@pytest.fixture(scope="module")
def accuracy() -> Iterator[ModuleType]:
    """The benchmark as a module."""
    path = ROOT / "benchmarks" / "speed_accuracy.py"
    spec = importlib.util.spec_from_file_location("speed_accuracy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_shipped_classes_keep_what_they_promise(accuracy: ModuleType) -> None:
    """Known: 75 % inside, at most 2.5 wide. Left out: 70 %, at most 7. One anchor: at most 2.0."""
    bench = accuracy.Bench.load()
    cases, left_out = accuracy.cases_of(accuracy.read_rows(ROWS), bench)
    assert len(cases) >= 200
    assert set(left_out) <= {
        "acceptance unknown",
        "no card",
        "no shape",
        "the cards do not hold that batch",
    }
    book = bench.catalog.speed().book
    scores = {score.setting: score for score in accuracy.as_shipped(cases, book)}
    assert scores["class known"].inside >= 0.75
    assert scores["class known"].width <= 2.5
    assert scores["class left out"].inside >= 0.70
    assert scores["class left out"].width <= 7
    assert scores["one anchor"].inside >= 0.70
    assert scores["one anchor"].width <= 2.0


def test_rows_that_judge_do_not_fit(accuracy: ModuleType) -> None:
    """Cross-validated: each sweep by the other sweeps, each class by the other classes."""
    cases, _ = accuracy.cases_of(accuracy.read_rows(ROWS), accuracy.Bench.load())
    known, thin, unseen, anchored = accuracy.cross_validated(cases)
    assert known.rows > 100
    assert (known.inside >= 0.75, known.width <= 2.5) == (True, True)
    assert thin.rows > 30
    assert thin.inside >= 0.75
    assert (unseen.inside >= 0.70, unseen.width <= 7) == (True, True)
    assert (anchored.inside >= 0.70, anchored.width <= 2.0) == (True, True)


def test_half_of_the_rows_foretells_the_other_half(accuracy: ModuleType) -> None:
    """Rows that nobody fitted: ten random halves, each judged by facts made of the other one. Half
    of the rows say less than all, so that a single draw may miss the 75 % of known classes.
    """
    cases, _ = accuracy.cases_of(accuracy.read_rows(ROWS), accuracy.Bench.load())
    halves = accuracy.by_halves(cases, 10)
    known = sorted(score.inside for score in halves["class known"])
    assert known[len(known) // 5] >= 0.75
    assert all(score.width <= 2.5 for score in halves["class known"])
    assert all(score.inside >= 0.70 for score in halves["class left out"])


def test_a_band_is_widened_up_to_what_known_may_be(accuracy: ModuleType) -> None:
    """Towards the careful one on both sides; where that is too wide, a part of the way."""
    assert accuracy.widened((0.8, 1.5), (0.7, 1.6)) == pytest.approx((0.7, 1.6))
    low, high = accuracy.widened((0.8, 1.5), (0.1, 9.0))
    assert high / low == pytest.approx(2.5, rel=0.01)
    assert low < 0.8
    assert high > 1.5
    assert accuracy.widened((0.8, 1.5), (0.9, 1.2)) == pytest.approx((0.8, 1.5))


def test_every_row_has_a_source_and_figures(accuracy: ModuleType) -> None:
    """An address, and a positive time per token."""
    rows = accuracy.read_rows(ROWS)
    assert all(row.source.startswith("https://") and row.tpot_ms > 0 for row in rows)
    assert len({row.id for row in rows}) == len(rows)
    known = set(accuracy.Bench.load().catalog._sources)
    assert {row.publisher for row in rows} <= known


def test_the_benchmark_has_k3_as_the_catalogue_has_it(accuracy: ModuleType) -> None:
    """Dense, replicated and active sums of the inventory; the others have no inventory here."""
    shape = accuracy.Bench.load().shapes["kimi-k3"]
    known = Planning().knowledge("kimi-k3").model
    inventory = known.inventories["native"]
    read = [
        group
        for group in inventory.groups
        if group.shard != "expert" and not group.is_vision and group.role != "embed"
    ]
    whole = [group for group in read if group.shard == "replicated"]
    sums = {
        "dense_gb": sum(group.bytes_total for group in read) / 1e9,
        "replicated_gb": sum(group.bytes_total for group in whole) / 1e9,
        "active_params": inventory.active_params(known.model),
    }
    assert {name: shape[name] for name in sums} == pytest.approx(sums, rel=1e-3)


def test_rows_written_read_back(accuracy: ModuleType, tmp_path: Path) -> None:
    """Read ∘ write is the identity: empty stays unknown, never 0."""
    rows = accuracy.read_rows(ROWS)
    accuracy.write_rows(rows, tmp_path / "rows.csv")
    assert accuracy.read_rows(tmp_path / "rows.csv") == rows


def test_recorded_answers_of_others_stand_beside_ours(accuracy: ModuleType) -> None:
    """What was said, what was measured, and our band with the refusal."""
    lines = list(accuracy.rival_lines())
    assert any("said 883.7" in line for line in lines)
    assert any("measured 192.4" in line for line in lines)
    assert any("384 at once refused" in line for line in lines)


@pytest.mark.shared
def test_the_rows_are_those_of_the_reference_data(accuracy: ModuleType, shared: Path) -> None:
    """Nothing was left out or changed that says how fast decoding was."""
    reference = accuracy.read_rows(shared / "data" / "measured" / "speed.jsonl")
    assert reference == accuracy.read_rows(ROWS)
