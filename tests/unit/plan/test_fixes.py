"""The nearest changes that would hold, each planned again."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click
import pytest

from heavylift.cli.plan import command
from heavylift.plan.command import plan_command
from heavylift.planning import Planning
from heavylift.records.plan import Capacity, Plan, PlanRequest, PlanVerdict


def run(line: str) -> Any:
    """The exit status of a `heavylift plan …` line."""
    words = shlex.split(line)
    assert words[:2] == ["heavylift", "plan"]
    return command.main([*words[2:], "--json"], standalone_mode=False)


@pytest.mark.parametrize("on", ["8xH200", "8xB200", "8xGB200", "8xMI300X", "4xMI355X"])
def test_a_rack_that_does_not_hold_k3_is_told_what_would(
    make_plan: Callable[..., Plan], on: str
) -> None:
    """More GPUs of the same card is among the fixes, and so is another card where one exists."""
    plan = make_plan("kimi-k3", on, fixes=True)
    assert plan.verdict is PlanVerdict.DOES_NOT_FIT
    ids = {fix.id for fix in plan.fixes}
    assert "more_gpus" in ids
    if on != "4xMI355X":
        assert "other_card" in ids


def test_a_fix_command_makes_the_plan_it_promises(
    make_plan: Callable[..., Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each fix that promises a positive verdict ends with status 0 when its command is run."""
    plan = make_plan("kimi-k3", "8xH200", fixes=True)
    promised = [fix for fix in plan.fixes if fix.verdict.is_positive]
    assert promised
    for fix in promised:
        assert run(fix.command) == 0, fix.command
        assert f'"verdict": "{fix.verdict}"' in capsys.readouterr().out


def test_a_plan_that_fits_needs_no_fix(make_plan: Callable[..., Plan]) -> None:
    """No fixes are looked for where everything holds."""
    assert make_plan("kimi-k3", "8xB300", fixes=True).fixes == ()


def test_spreading_experts_is_a_fix_for_padding(make_plan: Callable[..., Plan]) -> None:
    """TP16 without EP on H200 is tight; spreading the experts makes it fit."""
    plan = make_plan("kimi-k3", "16xH200", engine="vllm", tensor=16, expert=1, fixes=True)
    assert plan.verdict is PlanVerdict.TIGHT
    fix = next(fix for fix in plan.fixes if fix.id == "expert_parallel")
    assert fix.verdict is PlanVerdict.FITS
    assert "--ep all" in fix.command


def test_less_context_and_fewer_sequences_are_fixes(make_plan: Callable[..., Plan]) -> None:
    """A dense model that is short of KV is told how much it can have."""
    plan = make_plan(
        "llama-3.1-70b", "2xH100", engine="vllm", context_tokens=32768, concurrency=4, fixes=True
    )
    params = {fix.id: fix.params for fix in plan.fixes}
    assert params["less_context"]["context"] == 10240
    assert params["fewer_sequences"]["sequences"] == 1


def test_narrow_kv_is_a_fix_where_it_changes_the_verdict(make_plan: Callable[..., Plan]) -> None:
    """With fp8 KV 16 sequences of 16k tokens of Llama-3.1-8B fit a card that bf16 overfills."""
    plan = make_plan(
        "llama-3.1-8b", "1xH100", engine="vllm", context_tokens=16384, concurrency=30, fixes=True
    )
    assert plan.capacity_verdict is Capacity.DOES_NOT_FIT
    assert "fp8_kv" in {fix.id for fix in plan.fixes}


def test_an_unknown_card_is_answered_with_a_known_one(make_plan: Callable[..., Plan]) -> None:
    """MI325X has the room but no record; each vendor's smallest card with one is named."""
    plan = make_plan("kimi-k3", "8xMI325X", fixes=True)
    cards = {fix.params["gpu"] for fix in plan.fixes if fix.id == "other_card"}
    assert cards == {"B300", "MI350X"}


def test_usage_errors_are_clicks(make_plan: Callable[..., Plan]) -> None:
    """A fix never invents a flag: its command parses."""
    plan = make_plan("kimi-k3", "8xB200", fixes=True, concurrency=3, context_tokens=40000)
    for fix in plan.fixes:
        words = shlex.split(fix.command)
        with click.Context(command) as context:
            command.make_parser(context).parse_args(words[2:])


def test_every_option_of_a_request_is_in_its_command() -> None:
    """The command written back makes the same request."""
    planning = Planning()
    _, rack = planning.rack("8xB300")
    assert rack is not None
    request = PlanRequest(
        model="kimi-k3",
        rack=rack,
        engine="vllm",
        engine_version="0.32.0",
        variant="native",
        context_tokens=2**20,
        output_tokens=2048,
        concurrency=2,
        kv_cache_dtype="fp8",
        layout_constraints={"tensor": 8, "expert": 0},
        gpu_memory_utilization=0.9,
        max_num_batched_tokens=8192,
        moe_backend="marlin",
        vision=False,
    )
    words = shlex.split(plan_command(request))
    with click.Context(command) as context:
        options, _, _ = command.make_parser(context).parse_args(words[2:])
    assert options["context"] == "1M"
    assert options["ep"] == "all"
    assert options["text_only"] is True
    assert (options["concurrency"], options["max_batched_tokens"]) == ("2", "8192")


def test_slots_that_share_a_context_are_not_told_to_be_fewer(
    make_plan: Callable[..., Plan],
) -> None:
    """llama.cpp divides one context among its slots: fewer of them take no less."""
    plan = make_plan(
        "kimi-k3", "8xMI300X", engine="llamacpp", context_tokens=2**20, concurrency=4, fixes=True
    )
    assert plan.verdict is not PlanVerdict.FITS
    assert "fewer_sequences" not in {fix.id for fix in plan.fixes}


def test_experts_already_spread_are_not_offered_again(make_plan: Callable[..., Plan]) -> None:
    """With EP stated, spreading experts is no change."""
    plan = make_plan("kimi-k3", "8xH200", engine="vllm", tensor=8, expert=8, fixes=True)
    assert "expert_parallel" not in {fix.id for fix in plan.fixes}
