"""The live page over real stores: deployments, kept figures, batches; no path is told."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.e2e.deployments import QUICK, field_of_deployments, write_recipe
from tests.unit.web.conftest import Site

from heavylift.batch.store import open_journal
from heavylift.records.deployment import Alive, DeploymentStatus, Phase
from heavylift.records.series import Bucket, FigureHistory, History
from heavylift.records.watch import EngineNow, GpuNow, HostNow, Sight, TermNow, WatchReport
from heavylift.state.series import open_series, series_path
from heavylift.web import live, render
from heavylift.web.board import BOARD, HEIGHT, WIDTH, panels
from heavylift.web.serve import Settings

SERVES = """
[[start]]
line = "ready"
then = "listen"

[[start]]
after_s = 0.05
line = "ready"
then = "ready"
"""
SPAN_S = 3600.0
NOW_S = 1_000_000.0


def history(**figures: list[tuple[int, float]]) -> History:
    """A history of seconds: names with an underscore twice for the point."""
    return History(
        name="k3",
        span_s=SPAN_S,
        period_s=1,
        figures=tuple(
            FigureHistory(
                name=name.replace("__", "."),
                buckets=tuple(
                    Bucket(at_s=at, period_s=1, count=1, low=v, high=v, mean=v, last=v)
                    for at, v in points
                ),
            )
            for name, points in figures.items()
        ),
    )


def test_charts_come_in_the_order_of_the_board() -> None:
    """Latency, throughput, TPOT, scheduler, TTFT, cache and lengths, as people know it; empty ones
    are left out.
    """
    at = int(NOW_S) - 10
    drawn = panels(
        history(
            engine__ttft_p99_s=[(at, 0.5)],
            engine__waiting=[(at, 1.0)],
            engine__output_tokens_per_s=[(at, 50.0)],
            gpu__host__0__power_w=[(at, 700.0)],
        ),
        NOW_S,
    )
    assert [panel.key for panel in drawn] == ["throughput", "scheduler", "ttft", "gpu_power"]
    assert [panel.key for panel in BOARD][:8] == [
        "e2e",
        "throughput",
        "tpot",
        "scheduler",
        "ttft",
        "cache",
        "prompt_length",
        "output_length",
    ]
    assert drawn[2].lines[0].last == pytest.approx(500.0)


def test_an_idle_engine_has_an_axis() -> None:
    """Of nothing but zeros: it ends at one."""
    (panel,) = panels(history(engine__running=[(int(NOW_S) - 10, 0.0)]), NOW_S)
    assert panel.top == 1.0


def test_lengths_are_a_heat_map() -> None:
    """A row for each length, the longest on top; a column for each two minutes; the fullest place
    is the darkest.
    """
    at = int(NOW_S) - 10
    (panel,) = panels(
        history(
            engine__prompt_length__1000=[(at - 600, 2.0), (at, 1.0), (at + 1, 3.0)],
            engine__prompt_length__200=[(at, 1.0)],
            engine__prompt_length__more=[(at - 10**6, 9.0)],
        ),
        NOW_S,
    )
    assert (panel.key, panel.rows) == ("prompt_length", ("200", "1000", "more"))
    assert [(cell.label, cell.share) for cell in panel.cells] == [
        ("1000", 0.5),
        ("200", 0.25),
        ("1000", 1.0),
    ]
    first, low, high = panel.cells
    assert first.x < low.x == high.x
    assert high.y < low.y
    assert all(c.x >= 0 and c.x + c.width <= WIDTH for c in panel.cells)
    assert all(c.y >= 0 and c.y + c.height <= HEIGHT for c in panel.cells)


def test_a_line_is_broken_where_nothing_was_seen() -> None:
    """A pause is no straight line; a single look is a short stroke."""
    at = int(NOW_S) - 100
    line = panels(history(engine__running=[(at, 1.0), (at + 1, 2.0), (at + 60, 3.0)]), NOW_S)[0]
    assert len(line.lines[0].paths) == 2
    assert line.lines[0].paths[1].endswith("h1.5")


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=20))
def test_no_line_leaves_its_chart(values: list[float]) -> None:
    """Whatever a figure does, it is drawn inside."""
    first = int(NOW_S) - len(values)
    (panel,) = panels(
        history(engine__running=[(first + at, value) for at, value in enumerate(values)]), NOW_S
    )
    for path in panel.lines[0].paths:
        for place in path.removeprefix("M").removesuffix("h1.5").split("L"):
            x, y = map(float, place.split())
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


def test_a_deployment_is_shown_as_it_runs(home: Path) -> None:
    """State, release and the kept figures; where its files lie is not said."""
    site = Site(Settings(port=0, gateway=home / "gateway"))
    with field_of_deployments() as field:
        field.follow(field.up(write_recipe(home / "recipe", SERVES), "k3"))
        with open_series(series_path("k3")) as store:
            # Its supervisor keeps figures as well, but sees no such GPU.
            store.add(time.time() - 30, {"gpu.elsewhere.3.power_w": 712.0})
            store.add(time.time() - 30, {"engine.prompt_length.500": 2.0, "engine.e2e_p50_s": 7.5})
        part, record = site.ask("/part/live", "/api/live")
    assert "serves" in part.text
    assert "release 1" in part.text
    assert "GPU 3 <strong>712</strong>" in part.text
    assert "Requests by prompt length" in part.text
    assert '<rect class="heat"' in part.text
    assert "Whole request, s" in part.text
    assert str(home) not in part.text
    assert str(home) not in record.text
    stopped = site.get("/part/live").text
    assert "stopped" in stopped


DIES = """
[[start]]
line = "loading"

[[start]]
after_s = 0.05
line = "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345 is not valid"

[[start]]
after_s = 0.05
line = "giving up"
then = "exit"
"""


def test_a_failed_start_says_why_without_paths_and_secrets(home: Path) -> None:
    """The error of the start in words, its log by name, and no token of the log."""
    site = Site(Settings(port=0, gateway=home / "gateway"))
    rules = replace(QUICK, restart_limit=0)
    with field_of_deployments() as field:
        run = field.follow(field.up(write_recipe(home / "recipe", DIES, rules=rules), "k3"))
        assert run.failure is not None
        part, record = site.ask("/part/live", "/api/live")
    assert "failed" in part.text
    assert run.failure.code in part.text
    for answer in (part, record):
        assert str(home) not in answer.text
        assert "hf_abc" not in answer.text


def test_gpus_and_terms_are_held_against_their_plan() -> None:
    """A bar per GPU with what was planned marked on it; a term outside its interval says so."""
    gib = 2**30
    look = WatchReport(
        at="",
        at_s=0.0,
        name="k3",
        url=None,
        title=None,
        sight=Sight.SEEN,
        gpus=(
            GpuNow(
                gpu=5,
                host="h",
                memory_used_bytes=250 * gib,
                memory_total_bytes=288 * gib,
                planned_low_bytes=206 * gib,
                planned_high_bytes=262 * gib,
            ),
        ),
        engine=EngineNow(sight=Sight.SEEN),
        host=HostNow(name="h"),
        terms=(
            TermNow(
                term="workspace",
                planned_low_bytes=gib,
                planned_high_bytes=2 * gib,
                observed_bytes=3 * gib,
                is_inside=False,
            ),
        ),
    )
    status = DeploymentStatus(
        name="k3",
        phase=Phase.READY,
        pid=1,
        url=None,
        ready=True,
        alive=Alive.ALIVE,
        release=1,
        wanted="up",
        model="kimi-k3",
        engine="vllm",
    )
    seen = live.Live(
        deployments=(live.DeploymentView(status=status, releases=(), look=look),),
        batches=(),
        has_gateway=False,
    )
    template = render.environment().get_template("part_live.html")
    html = template.render(live=seen, error=None, start=live.START, charts={})
    assert "GPU 5: 250.00 of 288.00 GiB in use, at least 206.00 planned" in html
    assert "1.000 – 2.000" in html
    assert "3.000" in html
    assert re.search(r"✕</span> no", html)


def test_a_batch_is_shown_with_its_progress(home: Path) -> None:
    """By the name of its folder; one that cannot be read by its code."""
    folder = home / "answers"
    folder.mkdir()
    with open_journal(folder):
        pass
    empty = home / "empty"
    empty.mkdir()
    site = Site(Settings(port=0, gateway=home / "gateway", batches=(folder, empty)))
    found = json.loads(site.get("/api/live").text)["batches"]
    assert [batch["name"] for batch in found] == ["answers", "empty"]
    assert found[0]["status"]["counts"]["input"] == 0
    assert found[1]["failure"] == "BAT003"
    assert str(home) not in site.get("/part/live").text
