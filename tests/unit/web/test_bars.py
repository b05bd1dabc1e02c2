"""Bars: every byte of the account is drawn once, on one scale, per GPU."""

from __future__ import annotations

import pytest

from heavylift.locale.text import text
from heavylift.records.plan import Plan, Segment
from heavylift.web.bars import HEADROOM, Bars, bars
from heavylift.web.planner import Planner
from heavylift.web.question import Question
from heavylift.web.render import tip

RACKS = {
    "fits": Question(model="kimi-k3", on="8xMI355X", engine="atom", context=1 << 20),
    "misses": Question(model="kimi-k3", on="8xB200", context=131072, concurrency=16),
    "stages": Question(model="kimi-k3", on="16xH200", engine="vllm", context=32768, pp=2, tp=8),
    "outside": Question(model="kimi-k3", on="8xB300", engine="sglang"),
    "layers": Question(model="kimi-k3", on="8xMI355X", engine="llamacpp"),
}


@pytest.fixture(scope="module", params=RACKS)
def drawn(request: pytest.FixtureRequest, planner: Planner) -> tuple[Plan, Bars]:
    """A plan of each kind with its bars."""
    plan = planner.plan(RACKS[request.param])
    return plan, bars(plan)


def test_there_is_a_bar_for_every_gpu(drawn: tuple[Plan, Bars]) -> None:
    """Numbered from 0, machine by machine."""
    plan, rows = drawn
    assert [bar.gpu for bar in rows.bars] == list(range(plan.rack.gpu_count))
    assert [bar.machine for bar in rows.bars] == sorted(bar.machine for bar in rows.bars)
    assert len({bar.machine for bar in rows.bars}) == plan.rack.nodes


def test_the_worst_gpu_adds_up_to_the_account_of_the_plan(drawn: tuple[Plan, Bars]) -> None:
    """Known pieces sum to the known total; each segment to its own bytes."""
    plan, rows = drawn
    worst = next(bar for bar in rows.bars if bar.stage == plan.worst_stage)
    assert worst.used_bytes == plan.per_gpu.known_total_bytes
    assert worst.left_bytes == plan.per_gpu.headroom_bytes
    for segment in Segment:
        low = sum(term.bytes.low for term in plan.terms if term.segment == segment)
        known = [p for p in worst.pieces if p.name == segment and p.is_sure]
        assert sum(p.size for p in known) * rows.scale_bytes == pytest.approx(low, abs=1)


def test_pieces_neither_overlap_nor_leave_the_scale(drawn: tuple[Plan, Bars]) -> None:
    """They are drawn from left to right, inside the picture."""
    _, rows = drawn
    for bar in rows.bars:
        at = 0.0
        for piece in bar.pieces:
            assert piece.start >= at - 1e-9
            at = piece.start + piece.size
        assert at <= 1 + 1e-9


def test_headroom_ends_at_the_budget_line(drawn: tuple[Plan, Bars]) -> None:
    """What is left is what lies between the most that is needed and the engine's budget."""
    _, rows = drawn
    for bar in rows.bars:
        for piece in bar.pieces:
            if piece.name == HEADROOM:
                assert piece.start + piece.size == pytest.approx(rows.budget_at)


def test_a_plan_that_misses_runs_over_the_budget_line(planner: Planner) -> None:
    """Nothing is squeezed to fit: known pieces end beyond the line."""
    plan = planner.plan(RACKS["misses"])
    rows = bars(plan)
    end = max(p.start + p.size for bar in rows.bars for p in bar.pieces if p.is_sure)
    assert end > rows.budget_at
    assert all(bar.left_bytes < 0 for bar in rows.bars)


def test_gpus_of_a_stage_are_those_of_its_tensor_ranks(planner: Planner) -> None:
    """Two stages of eight: the first machine holds the first stage."""
    rows = bars(planner.plan(RACKS["stages"]))
    assert [bar.stage for bar in rows.bars] == [0] * 8 + [1] * 8


def test_a_stretch_says_whether_it_may_be_or_is(drawn: tuple[Plan, Bars]) -> None:
    """Only a stretch that is drawn paler says so; what is left has no need of a formula."""
    plan, rows = drawn
    for bar in rows.bars:
        for piece in bar.pieces:
            said = tip(plan, bar, piece)
            assert f"GPU {bar.gpu}" in said
            if piece.name != HEADROOM:
                assert (text("web.bar.may_be") in said) is not piece.is_sure
