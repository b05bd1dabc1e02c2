"""The planner behind the page: the command line's answers, kept, and quick while a slider moves."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from heavylift.api import Workload, plan
from heavylift.errors import HeavyliftError
from heavylift.records.plan import Kind, Segment
from heavylift.records.receipt import MeasuredTerm, Receipt
from heavylift.records.speed import AnchorPoint, Evidence
from heavylift.state.deployments import deployments_path, open_deployments
from heavylift.web.planner import Planner
from heavylift.web.question import Question, keep_text

K3 = Question(model="kimi-k3", on="8xMI355X", engine="atom", context=1 << 20, text_only=True)
DAY = date(2026, 11, 30)


def test_the_page_plans_what_the_command_plans(planner: Planner) -> None:
    """One planner: the record is equal to the public call's, but for the fixes that come later."""
    wished = Workload(engine="atom", context_tokens=1 << 20, vision=False)
    assert planner.plan(K3) == replace(plan("kimi-k3", "8xMI355X", wished), fixes=())


@pytest.mark.parametrize("concurrency", [1, 4, 64])
def test_an_answer_on_the_kept_layout_is_the_plan_of_that_layout(
    planner: Planner, concurrency: int
) -> None:
    """While a slider moves the layout stays; its bytes are those a stated layout gets."""
    shown = planner.plan(Question(model="kimi-k3", on="16xH200", context=32768))
    keep = keep_text(shown.engine, shown.layout)
    moved = Question(model="kimi-k3", on="16xH200", context=65536, concurrency=concurrency)
    quick = planner.plan_kept(moved, keep)
    assert quick.layout == shown.layout
    layout = shown.layout
    stated = replace(
        moved,
        engine=shown.engine,
        tp=layout.tensor_parallel_size,
        pp=layout.pipeline_parallel_size,
        dp=layout.data_parallel_size,
        ep=layout.expert_parallel_size,
        dcp=layout.decode_context_parallel_size,
    )
    assert quick.terms == planner.plan(stated).terms
    assert quick.request.layout_constraints == {}


@pytest.mark.parametrize(
    "moved",
    [
        Question(model="kimi-k3", on="8xB300", context=32768),
        Question(model="kimi-k3", on="16xH200", engine="sglang"),
        Question(model="kimi-k3", on="16xH200", tp=16),
    ],
)
def test_a_question_that_does_not_allow_the_kept_layout_is_searched(
    planner: Planner, moved: Question
) -> None:
    """Another rack, engine or stated size: the best plan, not a stale one."""
    assert planner.plan_kept(moved, "vllm/8/2/1/1/1") == planner.plan(moved)


def test_answers_are_kept(planner: Planner) -> None:
    """Asked twice, computed once."""
    assert planner.plan(K3) is planner.plan(K3)


@pytest.mark.parametrize("model", ["/etc", "./x", "~", "owner/name", "../../etc/passwd", "nope"])
def test_only_models_of_the_catalogue_are_planned(planner: Planner, model: str) -> None:
    """An address opens no folder of this machine and asks no hub."""
    with pytest.raises(HeavyliftError) as raised:
        planner.plan(Question(model=model, on="8xB300"))
    assert raised.value.code == "FACT010"


def test_this_machine_is_not_planned_on_a_page(planner: Planner) -> None:
    """What this machine has is nobody's to ask from a link."""
    with pytest.raises(HeavyliftError, match="WEB001"):
        planner.plan(Question(model="kimi-k3", on="this-machine"))


def test_a_card_alone_is_the_smallest_rack_of_it(planner: Planner) -> None:
    """`B300` is planned as the command line plans it."""
    assert planner.plan(Question(model="kimi-k3", on="B300")).rack.gpu_count == 8


def test_the_band_of_speed_ends_where_the_room_does(planner: Planner) -> None:
    """The points of the curve include the last concurrency that has room."""
    curve = planner.speed(Question(model="kimi-k3", on="16xH200"))
    assert curve is not None
    held = [point.workload.concurrency for point in curve.points if point.refusal is None]
    beyond = [point.workload.concurrency for point in curve.points if point.refusal is not None]
    assert max(held) < min(beyond)
    assert max(held) not in {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}


def test_an_anchor_narrows_the_band() -> None:
    """A measured point of the user's own makes the forecast rest on it."""
    question = Question(model="kimi-k3", on="16xH200")
    free = Planner().speed(question)
    assert free is not None
    point = AnchorPoint(concurrency=1, input_tokens=8192, output_tokens=1024, tpot_s=0.02)
    tied = Planner(anchors=(point,)).speed(question)
    assert tied is not None
    assert tied.asked.basis.evidence is Evidence.ANCHORED
    assert tied.asked.tpot_s.width < free.asked.tpot_s.width


def test_what_does_not_fit_has_no_speed_and_no_cost(planner: Planner) -> None:
    """There is nothing to forecast where not one sequence fits."""
    question = Question(model="kimi-k3", on="8xB200")
    assert planner.speed(question) is None
    assert planner.cost(question, DAY) is None


def test_a_stated_rent_is_taken(planner: Planner) -> None:
    """A card without a public price is priced by what the user pays."""
    question = Question(model="kimi-k3", on="8xMI355X", engine="atom")
    with pytest.raises(HeavyliftError, match="PLAN080"):
        planner.cost(question, DAY)
    decision = planner.cost(replace(question, rent=2.0), DAY)
    assert decision is not None
    assert decision.options[0].usd_per_hour.low == pytest.approx(16.0)


def test_the_recipe_starts_the_layout_that_is_shown(planner: Planner) -> None:
    """The engine's command states the sizes of the plan beside it."""
    recipe = planner.recipe(Question(model="kimi-k3", on="8xB300"))
    assert recipe.plan.layout == planner.plan(Question(model="kimi-k3", on="8xB300")).layout
    assert recipe.argv


def test_what_an_earlier_start_showed_is_taken(planner: Planner) -> None:
    """As the command does: measured terms take the place of assumed ones from then on."""
    before = planner.plan(K3)
    term = next(term for term in before.terms if term.segment is Segment.WORKSPACE)
    receipt = Receipt(
        model=before.model,
        variant=before.variant,
        engine=before.engine,
        engine_version=before.engine_version,
        backend=before.rack.gpu,
        layout=before.layout,
        rack=before.rack.label,
        terms=(
            MeasuredTerm(
                term=term.id, device="0", bytes=12345678, resolution_bytes=1, line="as logged"
            ),
        ),
        taken_at="2026-11-30T09:00:00Z",
    )
    with open_deployments(deployments_path()) as store:
        store.save_receipt(receipt)
    after = planner.plan(K3)
    assert after.receipt == "2026-11-30T09:00:00Z"
    measured = next(each for each in after.terms if each.id == term.id)
    assert (measured.kind, measured.bytes.low) == (Kind.MEASURED, 12345678)
