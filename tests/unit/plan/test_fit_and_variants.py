"""What a rack holds, which published form to take, and rules of thumb beside an account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.plan.have import parse_have
from heavylift.plan.money import ON_DEMAND
from heavylift.plan.planner import Knowledge
from heavylift.plan.thumb import beside_weights
from heavylift.plan.variants import dominated_by, with_unreported
from heavylift.planning import Planning
from heavylift.records.plan import Capacity, Plan, PlanRequest, PlanVerdict, Rack
from heavylift.records.variants import Holds, Proof, VariantTable
from heavylift.units import GIB

TODAY = date(2026, 11, 30)


def table(planning: Planning, have: str | None = None) -> VariantTable:
    """K3's forms against what somebody has."""
    return planning.variants("kimi-k3", None if have is None else planning.have(have))


# --- what somebody has ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "memory", "unasked", "disk"),
    [
        ("512GB-mac", 504 * GIB, 384 * GIB, True),
        ("512 GB Mac Studio", 504 * GIB, 384 * GIB, True),
        ("8x96GB", 8 * 96 * 10**9, 8 * 96 * 10**9, False),
        ("8 × 96GiB", 8 * 96 * GIB, 8 * 96 * GIB, False),
        ("64GB+nvme", 64 * GIB, 64 * GIB, True),
        ("64GB", 64 * GIB, 64 * GIB, False),
        ("1.5TB RAM", 1536 * GIB, 1536 * GIB, False),
        ("128GB-strix-halo", 120 * GIB, 64 * GIB, True),
    ],
)
def test_what_somebody_has_is_read_as_it_is_said(
    planning: Planning, said: str, memory: int, unasked: int, disk: bool
) -> None:
    """Machines in GiB, as they are sold; cards in GB, the least that can mean."""
    have = planning.have(said)
    assert (have.memory_bytes, have.unasked_bytes, have.disk) == (memory, unasked, disk)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("512GB-amiga", "PLAN006"),
        ("0x96GB", "PLAN005"),
        ("0GB", "PLAN001"),
        ("8xH2000", "FACT011"),
        ("B200", "PLAN007"),
        ("", "PLAN001"),
    ],
)
def test_what_nobody_can_have_is_refused(planning: Planning, said: str, code: str) -> None:
    """A coded sentence for each."""
    with pytest.raises(HeavyliftError) as caught:
        planning.have(said)
    assert caught.value.code == code


SHARES = Planning().catalog.memory_shares()


@given(st.text(max_size=20) | st.from_regex(r"[0-9x.]{1,6} ?(GB|TB)[-+ a-z]{0,8}", fullmatch=True))
def test_any_text_is_a_machine_a_rack_or_refused(said: str) -> None:
    """Nothing a person types is another error; what is a machine has memory."""
    try:
        have = parse_have(said, SHARES, TODAY)
    except HeavyliftError as error:
        assert error.code in {"PLAN001", "PLAN005", "PLAN006"}  # noqa: PT017 - all are right
        return
    assert have is None or have.memory_bytes >= have.rack.gpu_count > 0


# --- published forms -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("have", "taken"),
    [
        ("512GB-mac", "reap576-iq2-xxs"),
        ("8x96GB", "qsrt-k2"),
        ("8xH20-141GB", "ud-q2-k-xl"),
        ("64GB+nvme", "warp"),
        ("3xDGX Spark", "neuron-iq1-s"),
        ("8xB300", "native"),
        ("8GB+nvme", "kimi-k3-in-c-8gb"),
    ],
)
def test_the_first_choice_is_what_was_seen_to_run_on_the_like(
    planning: Planning, have: str, taken: str
) -> None:
    """Before a larger form that nobody ran there."""
    found = table(planning, have)
    assert found.choices[0] == taken
    row = next(row for row in found.rows if row.id == taken)
    assert row.proof is not Proof.NONE
    assert row.holds is not None
    assert row.holds.is_positive


@pytest.mark.parametrize("have", ["48GB", "1xRTX4090", "1x24GB", "4xL40S"])
def test_no_is_an_answer(planning: Planning, have: str) -> None:
    """Where no form runs that anybody should use, none is named."""
    found = table(planning, have)
    assert found.choices == ()
    assert {row.holds for row in found.rows} <= {Holds.NO, Holds.UNKNOWN, None} | {Holds.STREAMS}


def test_forms_that_are_no_choice_are_never_taken(planning: Planning) -> None:
    """Dominated and unusable forms are in the table, say so, and are not among the choices."""
    for have in ("16x96GB", "2TB-mac"):
        found = table(planning, have)
        rows = {row.id: row for row in found.rows}
        assert all(
            not rows[name].unusable and not rows[name].dominated_by for name in found.choices
        )
    assert rows["ud-q4-k-xl"].dominated_by == "native"
    assert rows["redhat-fp8-block"].dominated_by == "native"
    assert rows["mlx-reap73-2bit"].unusable
    assert rows["mlx-2bit"].unusable
    assert rows["airllm"].unusable


def test_a_form_for_one_vendor_is_not_offered_to_another(planning: Planning) -> None:
    """MLX on eight B300, and on cards nobody named: no, and unknown."""
    rows = {row.id: row for row in table(planning, "8xB300").rows}
    assert rows["mlx-mxfp4"].holds is Holds.NO
    rows = {row.id: row for row in table(planning, "16x180GB").rows}
    assert rows["mlx-mxfp4"].holds is Holds.UNKNOWN


def test_a_planned_form_is_judged_by_its_plan(planning: Planning) -> None:
    """8 × 80 GB: 711 GB of weights are too many, 594 GB fit and leave room for a context."""
    rows = {row.id: row for row in table(planning, "8x80GB").rows}
    assert rows["ud-iq2-xxs"].holds is Holds.NO
    held = rows["ud-iq1-s"]
    assert held.holds in (Holds.FITS, Holds.TIGHT)
    assert (held.max_context_tokens or 0) > 16_384
    assert held.because is not None
    assert held.because.code == "planned"


def test_the_smallest_rack_of_a_form_holds_it(planning: Planning) -> None:
    """Its memory is more than the form's bytes, and no streaming form has one."""
    for row in table(planning).rows:
        if row.host == "stream":
            assert row.smallest_rack is None
        elif row.smallest_rack is not None and row.bytes_total is not None:
            assert row.smallest_rack.memory_bytes_total >= row.bytes_total


def test_every_variant_of_the_facts_is_in_the_table(planning: Planning) -> None:
    """Also of a model of which nobody reported anything."""
    for model in ("kimi-k3", "llama-3.1-8b"):
        found = planning.variants(model)
        ids = {row.id for row in found.rows}
        assert {variant.id for variant in planning.catalog.model(model).variants} <= ids
        sizes = [row.bytes_total or row.least_memory_bytes or 0 for row in found.rows]
        assert sizes == sorted(sizes, reverse=True)


def test_a_better_form_at_no_more_bytes_dominates(
    planning: Planning, knowledge_of: Callable[[str], Knowledge]
) -> None:
    """By the same measure only: REAP576 is larger and better than REAP640, so neither dominates."""
    book = planning.catalog.variant_reports("kimi-k3")
    reports = with_unreported(knowledge_of("kimi-k3"), book)
    by_id = {report.id: report for report in reports}
    assert dominated_by(by_id["reap640-iq1-s"], reports) is None
    assert dominated_by(by_id["reap576-iq2-xxs"], reports) is None
    assert dominated_by(by_id["ud-iq1-s"], reports) is None
    smaller = replace(by_id["ud-iq2-xxs"], id="made-up", bytes_total=500 * 10**9)
    assert dominated_by(by_id["ud-iq1-s"], (*reports, smaller)) == "made-up"


# --- what fits a rack ----------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["1xRTX 4090", "8xH100", "Strix Halo", "1xL40S"])
def test_everything_that_fits_is_listed_the_most_capable_first(planning: Planning, on: str) -> None:
    """Parameters fall down the list; every variant of the catalogue is a row or a miss."""
    found = planning.fit(on)
    sizes = [row.total_parameters or 0 for row in found.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert all(
        row.verdict not in (PlanVerdict.DOES_NOT_FIT, PlanVerdict.UNSUPPORTED) for row in found.rows
    )
    listed = {(row.model, row.variant) for row in found.rows}
    listed |= {(miss.model, miss.variant) for miss in found.misses}
    known = {
        (model, variant.id)
        for model in planning.catalog.ids("models")
        for variant in planning.catalog.model(model).variants
        if variant.engines
    }
    assert listed == known
    assert any(row.model == "llama-3.1-8b" for row in found.rows)


def test_a_row_that_fits_is_what_a_plan_says(
    planning: Planning, make_plan: Callable[..., Plan]
) -> None:
    """Same engine, layout and verdict as the plan of the same request."""
    row = next(row for row in planning.fit("8xH100").rows if row.variant == "ud-tq1-0")
    plan = make_plan("kimi-k3", "8xH100", variant="ud-tq1-0", concurrency=1)
    assert (row.engine, row.layout, row.verdict) == (plan.engine, plan.layout, plan.verdict)
    assert row.max_context_tokens == plan.capacity.max_context_tokens


def test_shared_memory_that_must_be_raised_says_so(planning: Planning) -> None:
    """On a Mac of 512 GB some forms fit only once macOS gives the GPU more."""
    found = planning.fit("M3 Ultra 512GB")
    assert found.raised_bytes == 504 * GIB
    assert found.setting
    raised = {row.variant for row in found.rows if row.raised}
    assert "ud-q1-0" in raised


@pytest.mark.parametrize("said", ["RTX 4090", "rtx4090", "4090", "B200", "24GB"])
def test_a_card_without_a_count_is_one_card_to_fill(planning: Planning, said: str) -> None:
    """Who asks what a card holds has one, as its name is written or by its memory alone."""
    found = planning.fit(said)
    assert found.rack.gpu_count == 1
    assert found.rack.label.startswith("1x")


# --- rules of thumb ------------------------------------------------------------------------------


def test_rules_of_thumb_stand_beside_the_account(
    planning: Planning, make_plan: Callable[..., Plan]
) -> None:
    """8 H200: all of them say no, as the account does; 16: each reckons with an even share."""
    plan = planning.with_rules_of_thumb(make_plan("kimi-k3", "2x8xH200"))
    assert {answer.id for answer in plan.rules_of_thumb} == {
        "reserve_20_30",
        "weights_1_2",
        "overhead_10_15",
    }
    for answer in plan.rules_of_thumb:
        assert answer.weights_bytes == -(-plan.checkpoint_bytes // 16)
        codes = {fault.code for fault in answer.faults}
        assert "same_for_any_context" in codes
        assert ("even_share" in codes) == (plan.per_gpu.weights_bytes.low > answer.weights_bytes)


def test_a_rule_that_calls_too_small_a_rack_enough_is_told_on(
    planning: Planning, make_plan: Callable[..., Plan]
) -> None:
    """TP16 on 16 H200 pads experts; an even share knows nothing of that."""
    plan = make_plan("kimi-k3", "16xH200", engine="vllm", tensor=16, expert=1, context_tokens=2**20)
    assert plan.capacity_verdict is Capacity.DOES_NOT_FIT
    answers = {a.id: a for a in planning.with_rules_of_thumb(plan).rules_of_thumb}
    assert answers["overhead_10_15"].holds is True
    codes = {fault.code for fault in answers["overhead_10_15"].faults}
    assert {"calls_it_enough", "even_share"} <= codes


def test_a_rule_that_keeps_too_much_says_what_it_wastes(
    planning: Planning, make_plan: Callable[..., Plan]
) -> None:
    """Spare bytes in tokens of KV cache, where the account has an upper bound."""
    plan = planning.with_rules_of_thumb(make_plan("kimi-k3", "8xB300", engine="vllm"))
    rest = beside_weights(plan)
    assert rest.high is not None
    rule = next(answer for answer in plan.rules_of_thumb if answer.id == "reserve_20_30")
    assert rule.reserve_bytes.low > rest.high
    fault = next(fault for fault in rule.faults if fault.code == "keeps_too_much")
    assert fault.params["spare"] == rule.reserve_bytes.low - rest.high


# --- speed and rent beside a comparison ----------------------------------------------------------


def test_named_racks_are_compared_with_speed_and_rent(
    planning: Planning, knowledge_of: Callable[[str], Knowledge]
) -> None:
    """What holds has a band of tokens per second; what is rented out, a price for the rack."""
    knowledge = knowledge_of("kimi-k3")
    racks = ("8xB300", "8xH200", "8xMI355X")

    def build(rack: Rack) -> PlanRequest:
        return PlanRequest(model="kimi-k3", rack=rack)

    held, short, other = planning.compare(racks, build, knowledge, with_speed=True).rows
    assert held.speed is not None
    rate, cost = held.speed.output_tokens_per_s, held.speed.usd_per_million_output
    assert 0 < rate.low < rate.high
    assert short.speed is None
    assert held.rent_usd_per_hour is not None
    asked = [
        rental.usd_per_gpu_hour
        for rental in planning.catalog.prices().rentals
        if (rental.gpu, rental.term) == ("b300", ON_DEMAND) and rental.usd_per_gpu_hour is not None
    ]
    assert held.rent_usd_per_hour.low == 8 * min(asked)
    assert cost is not None
    assert cost.low == pytest.approx(held.rent_usd_per_hour.low / rate.high / 3600 * 1e6)
    assert other.speed is not None
    assert other.speed.usd_per_million_output is None
    bare = planning.compare(racks, build, knowledge).rows
    assert [row.speed for row in bare] == [None, None, None]
