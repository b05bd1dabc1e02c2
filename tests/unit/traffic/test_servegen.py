"""ServeGen's clients: windows of rates and histograms of sizes, made into requests."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.simulating import requests_of, trace_figures
from heavylift.stats import mean
from heavylift.traffic.read import open_trace
from heavylift.traffic.servegen import arrivals, parse_client

TRACE = "0,2.0,1.0,Gamma,1.0,0.5\n600,0,0,,0,0\n1200,0.5,3.0,Weibull,0.4,0.6\n"
DATASET = """{
  "0": {"input_tokens": "{100: 0.25, 200: 0.75}", "output_tokens": "{1: 0.5, 9: 0.5}"},
  "600": {"input_tokens": "{}", "output_tokens": "{}"},
  "1200": {"input_tokens": "{700: 1.0}", "output_tokens": "{30: 1.0}"}
}"""


def drawn(seed: int = 1) -> list[tuple[float, int, int]]:
    """Requests of the client above."""
    client = parse_client(TRACE.splitlines(), DATASET, "trace", "dataset")
    return [
        (each.at_s or 0.0, each.input_tokens or 0, each.output_tokens or 0)
        for each in arrivals([client], random.Random(seed).random)
    ]


def test_a_window_holds_its_rate_times_its_length() -> None:
    """1,200 in the first ten minutes, none in the next, 300 in the last; in order."""
    found = drawn()
    windows = Counter(int(at_s // 600) for at_s, _, _ in found)
    assert windows == {0: 1200, 2: 300}
    assert found == sorted(found, key=lambda each: each[0])


def test_sizes_have_the_parts_of_their_histograms() -> None:
    """A quarter of the first window's prompts is short; the last window has one size."""
    found = drawn()
    first = [tokens for at_s, tokens, _ in found if at_s < 600]
    assert first.count(100) / len(first) == pytest.approx(0.25, abs=0.04)
    assert set(first) == {100, 200}
    assert {(given, made) for at_s, given, made in found if at_s >= 1200} == {(700, 30)}


def test_gaps_are_as_bursty_as_their_law() -> None:
    """Weibull of shape 0.4: squared variation of 8.6; in the first window 1 (exponential)."""
    found = [at_s for at_s, _, _ in drawn()]

    def variation(low: float, high: float) -> float:
        times = [at_s for at_s in found if low <= at_s < high]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        about = mean(gaps)
        return mean([(gap - about) ** 2 for gap in gaps]) / about**2

    assert variation(0, 600) == pytest.approx(1.0, rel=0.25)
    assert variation(1200, 1800) > 4


def test_the_same_chance_gives_the_same_requests() -> None:
    """And another gives others."""
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_a_folder_of_clients_is_a_trace(tmp_path: Path) -> None:
    """All clients merged in time, the same each time it is read; one file is one client."""
    for name in ("chunk-0", "chunk-1"):
        (tmp_path / f"{name}-trace.csv").write_text(TRACE)
        (tmp_path / f"{name}-dataset.json").write_text(DATASET)
    both = [(request.arrival_s, request.input_tokens) for request in requests_of(tmp_path)]
    assert len(both) == 3000
    assert both == sorted(both, key=lambda each: each[0])
    assert both == [(r.arrival_s, r.input_tokens) for r in requests_of(tmp_path)]
    assert trace_figures(tmp_path / "chunk-0-trace.csv").requests == 1500


def test_a_folder_without_clients_is_no_trace(tmp_path: Path) -> None:
    """USE071, like an empty file."""
    with pytest.raises(HeavyliftError, match="USE071"):
        list(open_trace(tmp_path, random.Random(1).random))


@pytest.mark.parametrize(
    ("trace", "dataset", "where"),
    [
        ("0,1.0,1.0,Gamma\n", DATASET, ("trace", 1)),
        ("0,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", DATASET, ("trace", 2)),
        ("0,-1,1,Gamma,1,1\n", DATASET, ("trace", 1)),
        ("0,1,1,Pareto,1,1\n", DATASET, ("trace", 1)),
        ("0,nan,1,Gamma,1,1\n", DATASET, ("trace", 1)),
        (TRACE, "{", ("dataset", 1)),
        (TRACE, '{"0": {"input_tokens": "{}", "output_tokens": "{}"}}', ("dataset", 1)),
    ],
)
def test_what_is_no_client_is_named(trace: str, dataset: str, where: tuple[str, int]) -> None:
    """The file and its line."""
    with pytest.raises(HeavyliftError, match="USE061") as caught:
        parse_client(trace.splitlines(), dataset, "trace", "dataset")
    assert (caught.value.params["path"], caught.value.params["line"]) == where
