"""`top` and `metrics` on the command line, over a scripted engine and tools that print what real
ones print.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Ran
from tests.unit.cli.test_prove import playing

from heavylift.cli.screens import history as history_screen
from heavylift.cli.screens import top as screen
from heavylift.cli.text import text
from heavylift.observe import running
from heavylift.records.plan import Plan
from heavylift.records.ranges import Interval
from heavylift.records.series import Bucket
from heavylift.records.watch import (
    CurvePoint,
    EngineNow,
    GpuNow,
    HostNow,
    Quantiles,
    Sight,
    WatchReport,
)
from heavylift.units import GIB
from heavylift.wire.client import Endpoint, ask
from heavylift.wire.reply import ChatRequest

Run = Callable[..., Ran]

SMI = (
    "index, name, memory.used [MiB], memory.total [MiB], power.draw [W], utilization.gpu [%]\n"
    "0, NVIDIA B300, 200000 MiB, 275040 MiB, 912.30 W, 97 %\n"
    "1, NVIDIA B300, 120000 MiB, 275040 MiB, [N/A], [N/A]\n"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, a machine without NVML."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return tmp_path / "home"


@pytest.fixture
def smi(tmp_path: Path) -> Path:
    """A program that prints what nvidia-smi prints."""
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{SMI}END\n")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """A healthy engine that has answered once."""
    with playing("engine", "obliging") as url:
        message = ({"role": "user", "content": "hello"},)
        ask(Endpoint.parse(url), ChatRequest(model="scripted", messages=message, max_tokens=4))
        yield url


def test_a_look_has_gpus_engine_and_host(run: Run, engine: str, smi: Path) -> None:
    """The contract of `--once --json`; what a tool does not tell is null."""
    ran = run("top", engine, "--once", "--json", "--gpu-tool", str(smi), "--interval", "0.1")
    assert ran.status == 0
    look = json.loads(ran.out)
    assert [gpu["memory_used_bytes"] for gpu in look["gpus"]] == [200_000 * 2**20, 120_000 * 2**20]
    assert [gpu["power_w"] for gpu in look["gpus"]] == [912.3, None]
    assert look["engine"]["sight"] == "seen"
    assert look["engine"]["running"] == 0.0
    assert look["engine"]["output_tokens_per_s"] == 0.0
    assert look["engine"]["ttft"]["basis"] == "since_start"
    assert look["host"]["memory_total_bytes"] > 0
    assert [each["code"] for each in look["findings"]] == ["observe.memory_imbalance"]


def test_a_machine_without_gpus_says_unknown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the screen and in the document; it is no failure."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("heavylift.telemetry.collect_gpus.DRM", tmp_path / "no")
    ran = run("top", "--once", "--json")
    look = json.loads(ran.out)
    assert (look["gpus"], look["sight"], look["engine"]["sight"]) == ([], "no_tool", "no_engine")
    ran = run("top", "--once")
    assert "? GPUs unknown" in ran.out
    assert "? engine unknown" in ran.out


def test_gpus_of_another_machine_are_not_guessed(run: Run) -> None:
    """And an engine that does not answer is status 5."""
    ran = run("top", "http://192.0.2.1:9", "--once", "--json", "--interval", "0.1")
    look = json.loads(ran.out)
    assert ran.status == 5
    assert (look["sight"], look["engine"]["sight"]) == ("elsewhere", "no_answer")


def test_an_unknown_deployment_is_bad_input(run: Run) -> None:
    """With the names there are."""
    ran = run("top", "nobody", "--once")
    assert ran.status == 3
    assert "OPS001" in ran.err


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_recording_is_replayed(run: Run, smi: Path, tmp_path: Path, suffix: str) -> None:
    """What was seen is shown again, as lines of JSON or as screens."""
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"looks.{suffix}"
    run("top", "--gpu-tool", str(smi), "--count", "2", "--interval", "0.1", "--record", str(path))
    ran = run("top", "--replay", str(path), "--json")
    looks = [json.loads(line) for line in ran.out.splitlines()]
    assert len(looks) == 2
    assert looks[0]["at_s"] < looks[1]["at_s"]
    once = json.loads(run("top", "--replay", str(path), "--once", "--json").out)
    assert once == looks[1]
    assert run("top", "--replay", str(path)).out.count("seen through nvidia-smi") == 2
    assert run("top", "x", "--replay", str(path)).status == 2


@pytest.fixture(scope="module")
def k3(make_plan: Callable[..., Plan]) -> Plan:
    """K3 on eight MI355X, by a plan that knows what lies outside of the pool."""
    plan = make_plan("kimi-k3", "8xMI355X", engine="atom", tensor=8)
    outside = Interval(low=0, high=4 * GIB)
    return replace(plan, per_gpu=replace(plan.per_gpu, outside_pool_bytes=outside))


def looked(plan: Plan | None, *used_gib: float) -> WatchReport:
    """A look at GPUs of 288 GiB that hold so much."""
    gpus = [
        GpuNow(
            gpu=number,
            host="rack-7",
            memory_used_bytes=round(gib * GIB),
            memory_total_bytes=288 * GIB,
            use_ratio=0.93,
            temperature_c=61.0,
            power_w=1012.0,
        )
        for number, gib in enumerate(used_gib)
    ]
    placed = running.by_drift(running.with_plan(gpu, plan) for gpu in gpus)
    engine = EngineNow(
        sight=Sight.SEEN,
        running=44.0,
        waiting=1203.0,
        kv_use_ratio=0.61,
        preemptions=12_345.0,
        preemptions_in_window=3.0,
        prefix_hit_ratio=0.37,
        output_tokens_per_s=3100.0,
        prompt_tokens_per_s=123_456.0,
        ttft=Quantiles(p50_s=0.4, p99_s=1.9, basis="window", count=212),
        window_s=60.0,
    )
    host = HostNow(name="rack-7", memory_total_bytes=2304 * GIB, swap_used_bytes=90 * GIB)
    return WatchReport(
        at="2026-11-30T13:00:00+00:00",
        at_s=0.0,
        name="kimi-k3",
        url="http://127.0.0.1:8000",
        title="Kimi-K3 · ATOM",
        sight=Sight.SEEN,
        gpus=placed,
        engine=engine,
        host=host,
        sources=("amd-smi",),
        phase="ready",
        reserves=True,
        findings=running.findings(plan, [placed], (), engine, host),
        notes=running.notes(plan, placed, engine),
        terms=running.terms(plan, (), placed),
        curve=(CurvePoint(max_model_len=2**20, need_bytes=205 * GIB, held_bytes=267 * GIB),),
    )


def test_the_screen_is_eighty_columns_and_says_what_it_shows(k3: Plan) -> None:
    """With every finding there is, and the largest numbers of a rack."""
    shown = "\n".join(str(line) for line in screen.lines(looked(k3, 287.9, *[266.0] * 6, 12.0)))
    assert max(len(line) for line in shown.splitlines()) <= 80
    for words in ("93%", "61°", "1,012 W", "KV 61%", "3,100.0 tok/s", "p99 1.9 s", "kv_cache"):
        assert words in shown
    assert "Used memory is no need" in shown
    assert text("top.curve_reserved").split()[0] in shown


def test_the_bar_shows_used_against_planned(k3: Plan) -> None:
    """Certain, allowed, beyond the plan, planned and not used, free."""
    full = screen.bar(looked(k3, 287.9).gpus[0])
    assert [full.count(sign) > 0 for sign in "█▓!·"] == [True, True, True, False]
    assert full == "".join(sorted(full, key="█▓!".index))
    empty = screen.bar(looked(k3, 1.0).gpus[0])
    assert "▒" in empty
    assert "█" not in empty.replace("▒", "")
    bare = screen.bar(looked(None, 144.0).gpus[0])
    assert bare.count("█") == bare.count("·") == len(bare) / 2
    unknown = replace(looked(None, 1.0).gpus[0], memory_used_bytes=None)
    assert screen.bar(unknown).strip() == "?"


def test_the_gpu_furthest_from_the_plan_is_the_first_row(k3: Plan) -> None:
    """Marked, with the word in a finding below."""
    rows = [str(line) for line in screen.lines(looked(k3, 230.0, 230.0, 287.9))]
    first = next(row for row in rows if row.startswith(("0 ", "1 ", "2 ")))
    assert first.startswith("2 ")
    assert first.endswith("!")


def test_dashboard_and_alerts_are_written(run: Run, tmp_path: Path) -> None:
    """Into a folder that need not be there."""
    folder = tmp_path / "a" / "b"
    assert run("metrics", "dashboard", "-o", str(folder)).status == 0
    assert run("metrics", "alerts", "-o", str(folder)).status == 0
    assert json.loads((folder / "heavylift-dashboard.json").read_text())["panels"]
    assert "HeavyliftEngineStalled" in (folder / "heavylift-alerts.yml").read_text()


def test_the_exporter_serves_and_keeps_what_it_sees(engine: str, smi: Path, home: Path) -> None:
    """On the loopback, until SIGTERM; the figures of an engine that is not ours are kept."""
    environment = os.environ | {"HEAVYLIFT_HOME": str(home), "PATH": f"{smi.parent}:/usr/bin:/bin"}
    command = (sys.executable, "-m", "heavylift", "metrics")
    with subprocess.Popen(
        [*command, "--port", "0", "--url", engine, "--interval", "0.5"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as exporter:
        assert exporter.stderr is not None
        url = exporter.stderr.readline().split()[-1]
        try:
            assert url.startswith("http://127.0.0.1:")
            page = ""
            while "heavylift_gpus_seen" not in page:
                with urllib.request.urlopen(url) as reply:  # noqa: S310 - of this test
                    page = reply.read().decode()
        finally:
            exporter.send_signal(signal.SIGTERM)
        assert exporter.wait() == 0
    label = f'{{deployment="{engine}"}}'
    assert f"heavylift_gpus_seen{label} 2.0" in page
    assert f"heavylift_engine_requests_running{label} 0.0" in page
    shown = subprocess.run(
        [*command, "history", "--json", "--figure", "engine."],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    kept = json.loads(shown.stdout)
    assert kept["period_s"] == 1
    assert "engine.running" in {figure["name"] for figure in kept["figures"]}


def test_a_history_of_nothing_says_so(run: Run) -> None:
    """And what to type."""
    ran = run("metrics", "history")
    assert ran.status == 0
    assert ran.out.splitlines()[0] == text("history.nothing")
    assert run("metrics", "history", "nobody").status == 3


def test_a_course_is_drawn_between_its_extremes() -> None:
    """Means, in order of time, thinned to the width."""
    buckets = [
        Bucket(at_s=at, period_s=1, count=1, low=at, high=at, mean=at, last=at) for at in range(100)
    ]
    drawn = history_screen.drawn(buckets)
    assert len(drawn) <= 24
    assert (drawn[0], drawn[-1]) == ("▁", "█")
    assert drawn == "".join(sorted(drawn))
