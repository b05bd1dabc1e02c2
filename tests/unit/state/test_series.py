"""Figures over time: merged, thinned, let go of, and bounded whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavylift.observe.series import figures, level_for
from heavylift.records.series import LEVELS, Level
from heavylift.state.db import open_database
from heavylift.state.series import SCHEMA, Series, open_series, series_path

SMALL = (Level(period_s=1, keep_s=10), Level(period_s=5, keep_s=60))


def opened(path: Path, levels: tuple[Level, ...] = SMALL, most: int = 4) -> Series:
    """A store of its own in a folder."""
    return Series(open_database(path / "series.db", SCHEMA), levels=levels, most_figures=most)


def test_every_level_gets_every_look(tmp_path: Path) -> None:
    """Extremes, mean and last of what fell into a bucket."""
    store = opened(tmp_path)
    for at, value in ((100.0, 1.0), (100.4, 3.0), (103.0, 8.0)):
        assert store.add(at, {"x": value}) == 1
    fine = store.read("x", level=SMALL[0])
    assert [(b.at_s, b.count, b.low, b.high, b.mean, b.last) for b in fine] == [
        (100, 2, 1.0, 3.0, 2.0, 3.0),
        (103, 1, 8.0, 8.0, 8.0, 8.0),
    ]
    (coarse,) = store.read("x", level=SMALL[1])
    assert (coarse.at_s, coarse.count, coarse.low, coarse.high) == (100, 3, 1.0, 8.0)
    assert store.read("x", level=SMALL[0], since_s=101) == fine[1:]


def test_what_is_old_goes_level_by_level_and_a_figure_with_its_last(tmp_path: Path) -> None:
    """Fine first; the name is free again when nothing of it is left."""
    store = opened(tmp_path)
    store.add(100.0, {"x": 1.0})
    store.add(112.0, {"y": 1.0})
    assert store.read("x", level=SMALL[0]) == ()
    assert len(store.read("x", level=SMALL[1])) == 1
    store.add(200.0, {"y": 1.0})
    assert store.names() == ("y",)


def test_no_more_figures_than_there_is_room_for(tmp_path: Path) -> None:
    """Those that are known go on; what is no number is not kept."""
    store = opened(tmp_path)
    assert store.add(1.0, {f"f{n}": 1.0 for n in range(9)}) == 4
    assert store.add(2.0, {"f0": 1.0, "f8": 1.0}) == 1
    assert store.add(2.0, {"f0": float("nan"), "f1": float("inf")}) == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 400, allow_nan=False),
            st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-1e9, 1e9), max_size=8),
        ),
        max_size=60,
    )
)
def test_the_size_is_bounded_however_the_clock_jumps(
    tmp_path_factory: pytest.TempPathFactory, looks: list[tuple[float, dict[str, float]]]
) -> None:
    """Times in any order: never more buckets than levels and figures allow."""
    store = opened(tmp_path_factory.mktemp("series"))
    most = 4 * sum(level.most_buckets for level in SMALL)
    for at_s, values in looks:
        store.add(at_s, values)
        assert store.size() <= most
        assert len(store.names()) <= 4


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_thinning_keeps_extremes_mean_and_count(
    tmp_path_factory: pytest.TempPathFactory, values: list[float]
) -> None:
    """A spike of one look is seen at every level."""
    store = opened(tmp_path_factory.mktemp("series"))
    for number, value in enumerate(values):
        store.add(1000 + number / len(values), {"x": value})
    (bucket,) = store.read("x", level=SMALL[1])
    assert (bucket.low, bucket.high) == (min(values), max(values))
    assert (bucket.count, bucket.last) == (len(values), values[-1])
    assert bucket.mean == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_the_file_does_not_grow_when_the_old_goes(tmp_path: Path) -> None:
    """A day of looks in small: pages that were let go of are used again."""
    path = tmp_path / "s.db"
    with open_series(path, levels=SMALL, most_figures=4) as store:
        for at_s in range(400):
            store.add(float(at_s), {"a": 1.0, "b": 2.0})
        before = _pages(store)
        for at_s in range(400, 1200):
            store.add(float(at_s), {"a": 1.0, "b": 2.0})
        assert _pages(store) <= before


def _pages(store: Series) -> int:
    return int(store._connection.execute("PRAGMA page_count").fetchone()[0])


def test_the_levels_are_seconds_for_an_hour_minutes_for_a_day_ten_for_a_month() -> None:
    """The finest that keeps the span is read; longer than a month, the coarsest."""
    hour, day = 3600.0, 86_400.0
    assert [level_for(span).period_s for span in (60.0, hour, 2 * hour, day, 20 * day)] == [
        1,
        1,
        60,
        60,
        600,
    ]
    assert level_for(400 * day) == LEVELS[-1]
    assert sum(level.most_buckets for level in LEVELS) < 10_000


def test_each_deployment_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One writer each."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path))
    assert series_path("a") != series_path("b") != series_path() != series_path("a")


def test_a_look_becomes_figures_by_name() -> None:
    """What is unknown has no figure; quantiles since the start are none either."""
    from tests.unit.observe.test_exported import REPORT  # noqa: PLC0415 - one use

    found = figures(REPORT)
    assert found["gpu.rack-7.0.memory_used_bytes"] == 2 * 2**30
    assert found["engine.ttft_p99_s"] == 1.9
    assert "engine.tpot_p99_s" not in found
    assert "gpu.rack-7.0.power_w" not in found
    assert found["host.disk_free_bytes./"] == 5.0
