"""Planned against observed memory, from a plan and the engine's own log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heavylift.devserver.library import load
from heavylift.records.plan import Plan
from heavylift.telemetry.gpu_readings import GpuReading
from heavylift.verify.memory import gpu_results, memory_results, peaks
from heavylift.verify.records import CheckResult, Status, Verification

LOG = Path(__file__).parents[2] / "logs/fixtures/llamacpp_smollm2_4x1024.log"
SERVED = "smollm2-135m-instruct"
GIB = 2**30


def test_each_term_of_the_log_is_a_check(make_plan: Callable[..., Plan]) -> None:
    """SmolLM2 with four slots of 1024 tokens, as the log has it: nothing departs from the plan."""
    plan = make_plan(SERVED, "this-machine", engine="embedded", context_tokens=4096, concurrency=4)
    results = memory_results(plan, LOG.read_text("utf-8").splitlines())
    assert {"memory.weights", "memory.kv_cache"} <= {check.id for check in results}
    assert all(check.status is Status.PASS for check in results)
    assert all(check.figures["measured_bytes"] > 0 for check in results)
    assert all(check.evidence for check in results)


def test_memory_that_was_not_planned_fails_with_the_line_of_the_log(
    make_plan: Callable[..., Plan],
) -> None:
    """A plan for half of the context expects half of the cache."""
    plan = make_plan(SERVED, "this-machine", engine="embedded", context_tokens=2048, concurrency=4)
    results = memory_results(plan, LOG.read_text("utf-8").splitlines())
    cache = next(check for check in results if check.id == "memory.kv_cache")
    assert cache.status is Status.FAIL
    assert cache.reasons == {"memory_differs": 1}
    assert "KV" in cache.evidence[0]


# --- the GPUs during generation ------------------------------------------------------------------


def held(*used_gib: float, total_gib: float = 288.0) -> list[GpuReading]:
    """A reading of each card with so many GiB in it, and an earlier one with less."""
    return [
        GpuReading(
            at_s=at_s,
            gpu=gpu,
            memory_used_bytes=int(share * used * GIB),
            memory_total_bytes=int(total_gib * GIB),
        )
        for at_s, share in ((0.0, 0.9), (1.0, 1.0))
        for gpu, used in enumerate(used_gib)
    ]


def found(results: tuple[CheckResult, ...]) -> dict[str, CheckResult]:
    """The checks by id."""
    return {check.id: check for check in results}


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    """Kimi K3 on eight MI355X."""
    return make_plan("kimi-k3", "8xMI355X", engine="atom", context_tokens=131_072, concurrency=4)


def test_the_peak_of_each_card_in_use_is_shown() -> None:
    """A card with nothing but a driver on it is not the engine's."""
    seen = peaks(held(200.0, 201.0, 0.4))
    assert [(peak.gpu, peak.used_bytes // GIB) for peak in seen] == [(0, 200), (1, 201)]
    checks = found(gpu_results(held(200.0, 201.0), None))
    assert checks["memory.gpu_use"].figures["gpu1_peak_bytes"] == 201 * GIB
    assert checks["memory.gpu_balance"].status is Status.PASS
    assert "memory.gpu_planned" not in checks


def test_cards_that_hold_unlike_amounts_are_named() -> None:
    """A quarter less on one of two."""
    balance = found(gpu_results(held(200.0, 150.0), None))["memory.gpu_balance"]
    assert (balance.status, balance.reasons) == (Status.WARN, {"memory_imbalance": 1})
    assert balance.figures["spread_ratio"] == pytest.approx(0.25)


def test_what_the_cards_hold_is_held_against_the_plan(plan: Plan) -> None:
    """Up to the budget as planned; less than the weights, or fewer cards, is another start."""
    low, high = plan.per_gpu.certain_total_bytes / GIB, plan.per_gpu.budget_bytes / GIB
    cases = {
        "inside": held(*[(low + high) / 2] * 8),
        "memory_below_plan": held(*[low - 5] * 8),
        "gpus_differ": held(*[high] * 4),
    }
    for reason, readings in cases.items():
        planned = found(gpu_results(readings, plan))["memory.gpu_planned"]
        assert planned.reasons == ({} if reason == "inside" else {reason: 1})


def test_a_plan_that_nothing_could_be_held_against_is_unknown(plan: Plan) -> None:
    """Neither a log nor a tool: said, not passed over."""
    (planned,) = gpu_results((), plan)
    assert (planned.status, planned.reasons) == (Status.UNKNOWN, {"gpus_not_seen": 1})
    assert gpu_results((), None) == ()


def test_the_cards_are_read_while_the_server_generates(
    verify: Callable[..., Verification], tmp_path: Path
) -> None:
    """By a program that prints as the vendor's tool does."""
    tool = tmp_path / "tool"
    tool.write_text(
        "#!/bin/sh\necho 'index, memory.used [MiB], memory.total [MiB], power.draw [W]'\n"
        "echo '0, 70000 MiB, 81559 MiB, 512.3 W'\necho '1, 69000 MiB, 81559 MiB, [N/A]'\n"
    )
    tool.chmod(0o755)
    verification = verify(load("obliging"), only=("basics", "memory"), gpu_command=(str(tool),))
    checks = found(verification.checks)
    assert checks["memory.gpu_use"].figures["gpu0_peak_bytes"] == 70000 * 2**20
    assert checks["memory.gpu_balance"].status is Status.PASS
