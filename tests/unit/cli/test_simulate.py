"""`heavylift simulate` as a person and a program see it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from rich.cells import cell_len

from heavylift.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    with pytest.raises(SystemExit) as caught:
        main(["simulate", *arguments])
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


HERE = ("--processes", "1", "--requests", "300")
B300 = ("kimi-k3", "--on", "8xB300", "--engine", "sglang", *HERE)
SLO = ("--slo", "ttft_p95=10s,tpot_p95=200ms")
MOONCAKE = "".join(
    json.dumps(
        {
            "timestamp": 900 * number,
            "input_length": 2000 + number,
            "output_length": 50,
            "hash_ids": [0, 1, 10 + number, 50 + number],
        }
    )
    + "\n"
    for number in range(40)
)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:{number:02}.9799600,{400 + number},{20 + number}\n" for number in range(40)
)

FAILING = ("--router", "affinity", "--fail-every", "0.2", "--no-search")
SPLIT = ("--racks", "3", "--prefill-on", "8xB300", "--link", "50", "--rate", "2", *FAILING)
SCREENS = [
    pytest.param((*B300, *SLO, "--rate", "2/s"), id="asked"),
    pytest.param((*B300, *SLO), id="at-the-highest-rate"),
    pytest.param((*B300, "--trace", "conversation", "--rate", "1/s"), id="no-objectives"),
    pytest.param((*B300, *SLO, "--concurrency", "16", "--isl", "1000"), id="closed"),
    pytest.param((*B300, *SLO, "--rate", "40/s", "--no-search"), id="overloaded"),
    pytest.param((*B300, "--slo", "ttft_p99=1ms", "--rate", "1"), id="impossible"),
    pytest.param(
        (*B300, *SLO, *SPLIT),
        id="split-and-failing",
    ),
    pytest.param(
        ("llama-3.1-8b", "--on", "1xH100", *HERE, *SLO, "--rate", "1/s", "--no-search"), id="dense"
    ),
    pytest.param(
        ("kimi-k3", "--on", "8xMI355X", "--engine", "atom", *HERE, "--rate", "1", "--no-search"),
        id="no-rent",
    ),
]


@pytest.mark.parametrize("command", SCREENS)
def test_screens_keep_to_80_columns_and_end_with_the_next_command(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """Counted in cells; the last line may be a longer command to copy."""
    status, out, _ = run(capsys, *command)
    *lines, last = out.splitlines()
    assert [line for line in lines if cell_len(line) > 80] == []
    assert last.startswith("next: heavylift ")
    assert status == (1 if "MISSES" in lines[0] else 0)


def test_a_program_gets_the_same_answer_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON, equal for an equal seed, other for another."""
    command = (*B300, *SLO, "--rate", "2/s", "--no-search", "--json")
    _, first, _ = run(capsys, *command)
    _, second, _ = run(capsys, *command)
    _, other, _ = run(capsys, *command, "--seed", "7")
    assert first == second
    assert json.loads(first)["runs"] != json.loads(other)["runs"]


def test_the_bands_are_ordered(capsys: pytest.CaptureFixture[str]) -> None:
    """The slow end is slower; what it holds is less and what it costs is more."""
    _, out, _ = run(capsys, *B300, *SLO, "--rate", "1/s", "--json")
    answer = json.loads(out)
    slow, middle, fast = answer["runs"]
    assert (slow["pace"], middle["pace"], fast["pace"]) == ("slow", "middle", "fast")
    for figure in ("ttft_s", "tpot_s", "e2e_s"):
        assert slow[figure]["p50"] > middle[figure]["p50"] > fast[figure]["p50"]
    assert answer["highest_rate_per_s"]["low"] < answer["highest_rate_per_s"]["high"]
    assert answer["cost"]["usd_per_million_output"]["low"] > 0
    needed = answer["racks_needed"]
    assert needed[0] <= needed[1]
    assert {gain["change"] for gain in answer["gains"]} == {"one_more_rack", "more_hits"}
    assert all(gain["ratio"] >= 0.95 for gain in answer["gains"])


def test_two_processes_give_what_one_gives(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a run is made does not change it."""
    command = [*B300, *SLO, "--rate", "2/s", "--no-search", "--json"]
    _, one, _ = run(capsys, *command)
    command[command.index("--processes") + 1] = "2"
    _, two, _ = run(capsys, *command)
    assert one == two


@pytest.mark.parametrize(("content", "hits"), [(MOONCAKE, True), (AZURE, False)])
def test_recorded_traffic_is_replayed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, hits: bool
) -> None:
    """At its own rate; shared blocks are found in caches where the trace names them."""
    path = tmp_path / "trace"
    path.write_text(content)
    status, out, _ = run(capsys, *B300, "--trace", str(path), "--json")
    answer = json.loads(out)
    assert status == 0
    assert answer["traffic"]["recorded"] is True
    assert answer["traffic"]["rate_per_s"] == pytest.approx(1 / 0.9 if hits else 1.0, rel=0.01)
    assert (answer["runs"][1]["hit_ratio"] > 0.3) is hits


def test_without_a_prefix_cache_nothing_is_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And the prompts take longer."""
    command = (*B300, "--trace", "conversation", "--rate", "1/s", "--json")
    _, kept, _ = run(capsys, *command)
    _, none, _ = run(capsys, *command, "--no-prefix-cache")
    assert json.loads(none)["runs"][1]["hit_ratio"] == 0
    assert json.loads(kept)["runs"][1]["hit_ratio"] > 0.1


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--rate", "fast"), 2, "2/s, 90/min or 3M/day"),
        (("--trace", "nothing"), 2, "chat, conversation, agent"),
        (("--concurrency", "4", "--rate", "1"), 2, "closed loop"),
        (("--slo", "soon"), 2, "USE060"),
        (("--slo", "itl_p99=1s"), 2, "USE092"),
        (("--prefill-on", "8xB300"), 2, "--link"),
        (("--ray", "local"), 4, "ENV079"),
    ],
)
def test_mistakes_are_said(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, said: str
) -> None:
    """With the status of their kind."""
    if "--ray" in arguments and importlib.util.find_spec("ray") is not None:
        pytest.skip("Ray is installed")
    found, _, err = run(capsys, *B300, *arguments)
    assert found == status
    assert said in err


def test_a_broken_trace_is_named_with_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Not skipped."""
    path = tmp_path / "trace.jsonl"
    path.write_text(MOONCAKE + "{broken\n")
    status, _, err = run(capsys, *B300, "--trace", str(path))
    assert status == 2
    assert "line 41" in err


def test_what_does_not_fit_is_shown_as_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to simulate."""
    status, out, _ = run(capsys, "kimi-k3", "--on", "8xH100", *HERE)
    assert status == 1
    assert "DOES NOT FIT" in out


def test_requests_wait_for_the_seats_of_the_layouts_own_recipe_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Five seats of a recipe for another layout do not bound this one; 64 of its own do."""
    h200 = ("kimi-k3", "--on", "2x8xH200", *HERE, "--rate", "0.5", "--no-search", "--json")
    _, out, _ = run(capsys, *h200, "--tp", "8", "--pp", "2")
    assert json.loads(out)["seats"] == 32
    atom = ("kimi-k3", "--on", "8xMI355X", "--engine", "atom", *HERE, "--rate", "0.5", "--json")
    _, out, _ = run(capsys, *atom, "--no-search")
    assert json.loads(out)["seats"] == 64
