"""Decisions about money at a simulated SLO point."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from heavylift.cli.main import main
from heavylift.cli.simulated import read_simulation
from heavylift.errors import HeavyliftError
from heavylift.plan.simulated import simulated_point
from heavylift.records.plan import Plan
from heavylift.records.simulation import Simulation
from heavylift.records.speed import Band

SLO = "ttft_p99=8s,tpot_p99=90ms"


def ask(*words: str) -> tuple[int, str]:
    """Exit status and standard output of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as caught:
        main([*words])
    return int(caught.value.code or 0), out.getvalue()


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """K3 on a B300 machine, chat, as simulate printed it."""
    path = tmp_path_factory.mktemp("simulated") / "answer.json"
    words = ("simulate", "kimi-k3", "--on", "8xB300", "--engine", "sglang", "--slo", SLO)
    path.write_text(ask(*words, "--requests", "500", "--processes", "1", "--json")[1])
    return path


@pytest.fixture(scope="module")
def found(answer: Path) -> Simulation:
    """The same as a record."""
    return read_simulation(answer)


@pytest.fixture(scope="module")
def plan(make_plan: Callable[..., Plan]) -> Plan:
    """The plan it was made of."""
    return make_plan("kimi-k3", "8xB300", engine="sglang", context_tokens=1411)


def test_the_point_is_the_highest_rate_of_one_rack(found: Simulation, plan: Plan) -> None:
    """Two racks that serve twice as much are the same point; tokens are those of the answers."""
    point = simulated_point(found, plan)
    highest = found.highest_rate_per_s
    assert highest is not None
    assert point.requests_per_s == highest
    assert point.output_tokens_per_s.low == highest.low * found.traffic.output_tokens
    doubled = replace(
        found,
        fleet=replace(found.fleet, racks=2),
        highest_rate_per_s=Band(low=highest.low * 2, high=highest.high * 2),
    )
    assert simulated_point(doubled, plan).requests_per_s == highest


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model": "other"}, "PLAN090"),
        ({"engine": "other"}, "PLAN090"),
        ({"highest_rate_per_s": None}, "PLAN091"),
        ({"highest_rate_per_s": Band(low=0.0, high=2.0)}, "PLAN092"),
    ],
)
def test_what_is_no_point_of_this_plan_is_refused(
    found: Simulation, plan: Plan, changes: dict[str, object], code: str
) -> None:
    """Another service, no objectives, or none served at the slow end."""
    with pytest.raises(HeavyliftError, match=code):
        simulated_point(replace(found, **changes), plan)  # type: ignore[arg-type] # fields


def test_a_decision_rests_on_the_simulation(answer: Path, found: Simulation) -> None:
    """Lengths and rate are the simulation's; the limits and clients of the forecast are gone."""
    words = ("decide", "kimi-k3", "--on", "8xB300", "--engine", "sglang")
    status, out = ask(*words, "--simulated", str(answer), "--json")
    told = json.loads(out)
    highest = found.highest_rate_per_s
    assert status == 0
    assert highest is not None
    assert told["workload"]["input_tokens"] == round(found.traffic.input_tokens)
    assert told["simulated"]["requests_per_s"]["high"] == pytest.approx(highest.high)
    assert (told["tpot_limit_s"], told["point_concurrency"], told["point_ttft_s"]) == (None,) * 3
    status, out = ask(*words, "--simulated", str(answer))
    assert SLO in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_objectives_are_simulated_on_the_spot() -> None:
    """Poisson arrivals of the stated lengths; tighter objectives cost more per token."""
    words = ("decide", "kimi-k3", "--on", "8xB300", "--engine", "sglang", "--isl", "1000")
    costs = []
    for slo in ("ttft_p99=20s,tpot_p99=200ms", "ttft_p99=6s,tpot_p99=80ms"):
        status, out = ask(*words, "--osl", "200", "--slo", slo, "--json")
        assert status == 0
        costs.append(json.loads(out)["options"][0]["usd_per_million_output"]["low"])
    assert costs[0] < costs[1]


@pytest.mark.parametrize(
    "options", [("--slo", SLO, "--tpot", "50ms"), ("--slo", SLO, "--concurrency", "3")]
)
def test_limits_beside_simulated_objectives_are_refused(options: tuple[str, ...]) -> None:
    """They would say nothing."""
    assert ask("decide", "kimi-k3", "--on", "8xB300", *options)[0] == 2


def test_a_file_that_is_no_simulation_is_named(tmp_path: Path) -> None:
    """PLAN093, bad input."""
    path = tmp_path / "other.json"
    path.write_text('{"schema": 1}')
    status = ask("decide", "kimi-k3", "--on", "8xB300", "--simulated", str(path))[0]
    assert status == 3
