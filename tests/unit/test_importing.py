"""Other planners' outputs against our memory: recipe pages and result folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from heavylift.cli.screens import imported as screen
from heavylift.errors import HeavyliftError
from heavylift.importing import Importing
from heavylift.records.imported import Imported, ImportedRow
from heavylift.records.plan import Capacity

RECIPE = """
meta:
  hardware: {gb200: verified, b300: verified, h200: verified, no_such_card: verified}
model:
  model_id: moonshotai/Kimi-K3
  base_args: ["--trust-remote-code", "--gpu-memory-utilization", "0.95", "--max-num-seqs", "many"]
variants:
  default: {vram_minimum_gb: 1680}
  small: {vram_minimum_gb: 1, model_id: nobody/knows}
  none: {description: "without a minimum"}
compatible_strategies: [single_node_tp, multi_node_tep, multi_node_tp_pp, pd_cluster]
strategy_hardware:
  multi_node_tp_dp: {gb200: supported}
  multi_node_tep: {h200: unsupported}
strategy_min_gpus: {single_node_tp: 8, multi_node_tp_dp: 8, multi_node_tp_pp: 16}
hardware_overrides:
  hopper: {extra_args: ["--gpu-memory-utilization 0.97", "--max-model-len", "32768"]}
"""
RESULTS = (
    "model,isl,osl,bs,tp,pp,dp,moe_tp,moe_ep,kvcache,memory,backend,system\n"
    "moonshotai/Kimi-K3,8000,1000,8,8,1,1,8,1,float16,199.319,vllm,b300_sxm\n"
    "moonshotai/Kimi-K3,8000,1000,8,16,1,1,16,1,float16,113.96,vllm,h200_sxm\n"
    "Qwen/Qwen3-32B,8000,1000,64,1,1,1,1,1,fp8,70.5,trtllm,h100_sxm\n"
    "Qwen/Qwen3-32B,8000,1000,8,1,1,1,1,1,fp8,,trtllm,tpu_v9\n"
)
DISAGG = (
    "model,isl,osl,(p)tp,(p)pp,(p)dp,(p)bs,(p)memory,(p)system,(p)backend,"
    "(d)tp,(d)pp,(d)dp,(d)bs,(d)memory,(d)system,(d)backend\n"
    "Qwen/Qwen3-32B,8000,1000,1,1,1,1,66.0,h200_sxm,vllm,2,1,1,32,50.0,h200_sxm,vllm\n"
)


@pytest.fixture
def recipe(tmp_path: Path) -> Imported:
    """The page above, read."""
    path = tmp_path / "page.yaml"
    path.write_text(RECIPE)
    return Importing().read(path)


def of(found: Imported, rack: str) -> dict[str, ImportedRow]:
    """The default offers on a rack, by strategy."""
    return {
        row.label.removeprefix("default · "): row
        for row in found.rows
        if row.rack == rack and row.label.startswith("default")
    }


def test_a_page_s_minimum_becomes_racks_and_each_is_planned(recipe: Imported) -> None:
    """1,680 GB are one machine of B300; the bytes of each layout are ours."""
    row = of(recipe, "8xB300")["single_node_tp"]
    assert (row.word, row.said_total, row.said_bytes) == ("verified", True, 1680 * 10**9)
    assert row.layout is not None
    assert row.layout.tensor_parallel_size == 8
    assert row.capacity is Capacity.FITS
    assert row.known_bytes is not None
    assert 190 * 2**30 < row.known_bytes < 230 * 2**30


def test_strategies_go_by_card(recipe: Imported) -> None:
    """What a page rules out for a card is not offered there, what it grants to one only there."""
    assert set(of(recipe, "2x8xH200")) == {"multi_node_tp_pp"}
    assert "multi_node_tp_dp" in of(recipe, "3x4xGB200")
    assert not any("tp_dp" in name for name in of(recipe, "2x8xB300"))


def test_what_cannot_be_planned_says_why(recipe: Imported) -> None:
    """A card and a copy that nobody knows are rows with a reason, no end."""
    codes = {row.code for row in recipe.rows if row.capacity is None}
    assert {"FACT011", "PLAN059"} <= codes
    shown = "\n".join(map(str, screen.lines(recipe)))
    assert "no_such_card" in shown
    assert "more" in shown


@pytest.mark.parametrize("minimum", [".nan", ".inf", "-.inf", "-5", "1.0e+300", "text", "[]"])
def test_a_minimum_that_is_none_offers_nothing(tmp_path: Path, minimum: str) -> None:
    """No number, no amount of memory, more than there is: the other forms are planned."""
    path = tmp_path / "page.yaml"
    path.write_text(RECIPE.replace("vram_minimum_gb: 1,", f"vram_minimum_gb: {minimum},"))
    found = Importing().read(path)
    assert {row.label.partition(" · ")[0] for row in found.rows} == {"default"}


def test_numbers_of_a_page_that_no_engine_takes_are_left_out(tmp_path: Path) -> None:
    """A fraction that is none, counts below one; a card counted as none is a card nobody knows."""
    bad = (
        "--gpu-memory-utilization nan --max-model-len -5 --max-num-seqs 0"
        " --max-num-batched-tokens 1e9"
    )
    page = RECIPE.replace('"--max-num-seqs", "many"', f'"{bad}"')
    path = tmp_path / "page.yaml"
    path.write_text(page.replace("no_such_card:", "b300_0x:"))
    found = Importing().read(path)
    row = of(found, "8xB300")["single_node_tp"]
    assert row.capacity is Capacity.FITS
    (none,) = (row for row in found.rows if row.rack == "b300_0x" and "default" in row.label)
    assert (none.code, none.capacity) == ("FACT011", None)


def test_a_figure_without_end_is_none(tmp_path: Path) -> None:
    """Four hundred digits of memory are no figure; the row is planned all the same."""
    rows = RESULTS.splitlines()[:2]
    text = "\n".join(rows).replace("199.319", "9" * 400)
    (tmp_path / "best_config_topn.csv").write_text(text)
    (row,) = Importing().read(tmp_path).rows
    assert (row.said_bytes, row.capacity) == (None, Capacity.FITS)


def test_a_result_folder_is_compared_a_gpu(tmp_path: Path) -> None:
    """Its figure of Kimi K3 on 16 H200 leaves out the padding of the experts: 131 GiB, not 114."""
    (tmp_path / "agg").mkdir()
    (tmp_path / "agg" / "best_config_topn.csv").write_text(RESULTS)
    (tmp_path / "disagg").mkdir()
    (tmp_path / "disagg" / "best_config_topn.csv").write_text(DISAGG)
    found = Importing().read(tmp_path)
    assert found.form == "results"
    first, second, third, fourth, prefill, decode = found.rows
    assert (first.rack, first.capacity) == ("8xB300", Capacity.FITS)
    assert second.known_bytes is not None
    assert second.said_bytes is not None
    assert second.known_bytes > 1.1 * second.said_bytes
    assert (third.engine, third.capacity) == ("tensorrt-llm", Capacity.DOES_NOT_FIT)
    assert (fourth.code, fourth.said_bytes) == ("FACT011", None)
    assert (prefill.label, prefill.rack) == ("disagg 1 prefill", "1xH200")
    assert (decode.label, decode.rack) == ("disagg 1 decode", "2xH200")
    assert found.wrong == (third,)


@pytest.mark.parametrize(
    ("content", "code"),
    [("a: 1", "PLAN062"), ("- [", "PLAN063"), ("x" * (4 * 2**20 + 1), "PLAN063"), ("", "PLAN062")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, code: str) -> None:
    """No page, no YAML, too large, empty."""
    path = tmp_path / "other"
    path.write_text(content)
    with pytest.raises(HeavyliftError) as raised:
        Importing().read(path)
    assert (raised.value.code, raised.value.exit_status) == (code, 3)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    """It has no results."""
    with pytest.raises(HeavyliftError) as raised:
        Importing().read(tmp_path)
    assert raised.value.code == "PLAN062"
