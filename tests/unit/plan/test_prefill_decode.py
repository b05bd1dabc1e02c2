"""Split services: exact bytes, matched rates, and verdicts that were measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from heavylift.errors import HeavyliftError
from heavylift.plan.planner import Knowledge
from heavylift.plan.prefill_decode import CLEAR_GAIN, Split, batch_within, handover
from heavylift.plan.speed import Forecaster, forecaster
from heavylift.planning import Planning
from heavylift.records.plan import Plan
from heavylift.records.prefill_decode import SplitVerdict
from heavylift.records.speed import AnchorPoint, SpeedWorkload

K3_STATE_BYTES = 449_372_160

Unit = Callable[..., Forecaster]


@pytest.fixture
def unit(
    planning: Planning, make_plan: Callable[..., Plan], knowledge_of: Callable[[str], Knowledge]
) -> Unit:
    """`unit("8xB300", engine="sglang", …)`: a unit of K3, for 8,192 tokens in and 1,024 out."""

    def make(
        rack: str,
        *,
        tokens: int = 9216,
        anchors: tuple[AnchorPoint, ...] = (),
        **given: object,
    ) -> Forecaster:
        plan = make_plan("kimi-k3", rack, context_tokens=tokens, **given)
        return forecaster(plan, knowledge_of("kimi-k3"), planning.catalog.speed(), anchors)

    return make


@pytest.fixture
def b300(unit: Unit) -> Forecaster:
    """Eight B300 with SGLang, FP8 cache."""
    return unit("8xB300", engine="sglang", tensor=8, kv_cache_dtype="fp8")


def split(
    decode: Forecaster,
    limit_s: float,
    *,
    prompt: int = 8192,
    answer: int = 1024,
    cached: float = 0.0,
    clients: int | None = None,
) -> Split:
    """A question with the same unit for both pools."""
    work = SpeedWorkload(
        concurrency=clients or 1,
        input_tokens=prompt,
        output_tokens=answer,
        cached_ratio=cached,
    )
    return Split(
        prefill=decode, decode=decode, workload=work, tpot_limit_s=limit_s, clients=clients
    )


@pytest.mark.parametrize(("dtype", "per_token"), [("fp8", 13_824), ("bf16", 27_648)])
def test_k3_hands_over_its_state_and_its_latents(unit: Unit, dtype: str, per_token: int) -> None:
    """449,372,160 B of state, and per token 24 layers × 576 values (config of Kimi K3)."""
    found = handover(unit("8xB300", engine="sglang", tensor=8, kv_cache_dtype=dtype), 8192)
    assert found.state_bytes == K3_STATE_BYTES
    assert found.kv_bytes_per_token == per_token
    assert found.logical_bytes == K3_STATE_BYTES + 8192 * per_token


@pytest.mark.parametrize(
    ("tokens", "gigabytes"), [(1024, 0.56), (8192, 1.36), (32_768, 4.07), (131_072, 14.9)]
)
def test_the_latent_goes_to_every_receiving_rank(
    b300: Forecaster, tokens: int, gigabytes: float
) -> None:
    """Wire bytes from eight ranks to eight (design, prefill and decode)."""
    found = handover(b300, tokens)
    assert found.wire_copies == 8
    assert found.wire_bytes / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_decode_context_parallelism_sends_each_latent_once(unit: Unit) -> None:
    """With dcp 8 every rank holds its own eighth of the tokens."""
    found = handover(unit("8xB300", engine="sglang", tensor=8, decode_context=8), 8192)
    assert found.wire_copies == 1
    assert found.wire_bytes == found.logical_bytes


def test_the_state_goes_to_the_ranks_that_own_its_heads(b300: Forecaster) -> None:
    """Split by heads: no copies."""
    found = handover(b300, 1)
    assert found.wire_state_bytes == found.state_bytes


def test_a_handover_takes_its_bytes_over_the_link(b300: Forecaster) -> None:
    """8K over 400, 50, 12.5 and 3.7 GB/s: 3.4, 27, 108 and 366 ms (design)."""
    times = {t.gb_per_s: t.seconds * 1000 for t in split(b300, 0.05).answer().times}
    expected = {400: 3.4, 50: 27, 12.5: 108, 3.7: 366}
    assert {rate: times[rate] for rate in expected} == pytest.approx(expected, rel=0.01)


def test_rates_are_matched(b300: Forecaster) -> None:
    """Prefill units per decode unit = decode rate / prefill rate, at either end of the band."""
    answer = split(b300, 0.05).answer()
    assert answer.ratio is not None
    slow = answer.decode.requests_per_s.low / answer.prefill.requests_per_s.low
    fast = answer.decode.requests_per_s.high / answer.prefill.requests_per_s.high
    assert {answer.ratio.low, answer.ratio.high} == {slow, fast}
    middle = (answer.ratio.low * answer.ratio.high) ** 0.5
    assert answer.prefill_units / answer.decode_units == pytest.approx(middle, rel=0.1)


def test_the_prefill_rate_of_k3_on_b300_was_measured(b300: Forecaster) -> None:
    """21.7K tokens/s of prefill alone, 2.65 prompts of 8K a second, 2.11 in a split service."""
    rate = split(b300, 0.05).answer().prefill.requests_per_s
    assert 2.11 in rate
    assert 2.65 in rate


def test_splitting_k3_for_32_clients_does_not_pay(b300: Forecaster) -> None:
    """Measured on B300: 188 output tokens/s per GPU whole, 135 split (whn09, 8K in, 1K out)."""
    answer = split(b300, 0.02, clients=32).answer()
    assert answer.verdict is SplitVerdict.DOES_NOT_PAY
    assert {"few_clients", "state_outweighs_kv"} <= {note.code for note in answer.reasons}


def test_splitting_k3_on_h200_does_not_pay(unit: Unit) -> None:
    """Measured: 229 output tokens/s on 32 GPUs split, 379 on 16 whole (mnmehta/kimi-k3)."""
    h200 = unit("2x8xH200", tokens=2000, engine="vllm", tensor=16, expert=16)
    answer = split(h200, 0.08, prompt=1000, answer=1000, clients=32).answer()
    assert answer.verdict is SplitVerdict.DOES_NOT_PAY
    assert "short_prompts" in {note.code for note in answer.reasons}


def test_a_tight_limit_and_long_prompts_with_short_answers_pay(unit: Unit) -> None:
    """Where a prompt weighs as much as its answer's steps, small batches decode dearly."""
    point = AnchorPoint(concurrency=1, input_tokens=1024, output_tokens=1024, tpot_s=0.0085)
    tied = unit("8xB300", engine="sglang", tensor=8, kv_cache_dtype="fp8", anchors=(point,))
    short = split(tied, 0.012, prompt=4096, answer=256).answer()
    assert short.verdict is SplitVerdict.PAYS
    assert short.gain is not None
    assert short.gain.low > CLEAR_GAIN
    long = split(tied, 0.012, prompt=4096, answer=4096).answer()
    assert long.verdict is SplitVerdict.DOES_NOT_PAY


def test_a_gain_at_the_fast_end_alone_is_not_promised(b300: Forecaster) -> None:
    """At the slow end of the class not even one sequence meets the limit."""
    answer = split(b300, 0.01, answer=256).answer()
    assert answer.verdict is SplitVerdict.DEPENDS
    assert "limit_at_the_edge" in {note.code for note in answer.reasons}


def test_a_limit_below_the_bytes_is_out_of_reach(b300: Forecaster) -> None:
    """One sequence needs 3.5 ms of weights alone."""
    answer = split(b300, 0.002).answer()
    assert answer.verdict is SplitVerdict.NOT_POSSIBLE
    assert answer.ratio is None
    assert answer.split_per_gpu is None
    assert "limit_out_of_reach" in {note.code for note in answer.reasons}


def test_the_hit_rate_is_the_lever(b300: Forecaster) -> None:
    """90 % cached prompts need a fraction of the prefill units."""
    cold, warm = split(b300, 0.05).answer(), split(b300, 0.05, cached=0.9).answer()
    assert cold.ratio is not None
    assert warm.ratio is not None
    assert warm.ratio.high < 0.5 * cold.ratio.high
    assert "high_hit_rate" in {note.code for note in warm.reasons}


def test_the_gate_against_lost_state_is_always_named(b300: Forecaster) -> None:
    """State lost in transfer decodes fluently (ATOM pull request 2154)."""
    codes = [note.code for note in split(b300, 0.05).answer().risks]
    assert codes == ["state_lost_is_fluent", "equality_gate"]


def test_what_turns_the_verdict_was_planned_again(b300: Forecaster) -> None:
    """Each named change really gives the verdict it names."""
    found = split(b300, 0.02, clients=200)
    changed = {
        "limit_halved": replace(found, tpot_limit_s=0.01),
        "limit_doubled": replace(found, tpot_limit_s=0.04),
        "nothing_cached": found,
        "mostly_cached": split(b300, 0.02, clients=200, cached=0.9),
    }
    for note in found.answer().depends_on:
        assert changed[note.code].verdict.value == note.params["verdict"] != found.verdict.value


def test_pools_are_checked_for_room(b300: Forecaster) -> None:
    """A decode unit never holds more than its seats, however loose the limit."""
    answer = split(b300, 10.0).answer()
    assert answer.decode.batch is not None
    assert answer.decode.batch.high <= (answer.decode.room_sequences.high or 0)


def test_the_largest_batch_meets_the_limit_and_one_more_does_not(b300: Forecaster) -> None:
    """The edge is found by halving."""
    service = b300.service(SpeedWorkload(concurrency=1, input_tokens=8192, output_tokens=1024))
    batch = batch_within(service, 0.03)
    assert service.tpot_s(batch) <= 0.03 < service.tpot_s(batch * 1.001)
    assert batch_within(service, 1e-6) == 0
    assert batch_within(service, 1e6) == service.seats


@pytest.mark.parametrize(
    ("prompt", "answer", "cached", "units"), [(65_536, 1, 0.0, (8, 1)), (64, 9000, 0.9, (1, 8))]
)
def test_units_stay_whole_and_few(
    b300: Forecaster, prompt: int, answer: int, cached: float, units: tuple[int, int]
) -> None:
    """Ratios beyond eight to one are shown as eight to one; the band has the figure."""
    found = split(b300, 0.05, prompt=prompt, answer=answer, cached=cached).answer()
    assert (found.prefill_units, found.decode_units) == units


def test_a_model_without_state_hands_over_its_cache_alone(
    planning: Planning, make_plan: Callable[..., Plan], knowledge_of: Callable[[str], Knowledge]
) -> None:
    """Kimi K2.5: 61 layers × 576 values × 2 B per token; nothing is said of a state."""
    plan = make_plan("kimi-k2.5", "8xB200", engine="vllm", tensor=8, context_tokens=9216)
    unit = forecaster(plan, knowledge_of("kimi-k2.5"), planning.catalog.speed())
    answer = split(unit, 0.05).answer()
    assert (answer.handover.state_bytes, answer.handover.kv_bytes_per_token) == (0, 70_272)
    assert "state_outweighs_kv" not in {note.code for note in answer.reasons}


def test_a_fast_link_is_no_reason_against(b300: Forecaster) -> None:
    """Where every listed link is faster than the prompt, none is named."""
    links = tuple(link for link in b300.facts.links if link.gb_per_s >= 50)
    fast = replace(b300, facts=replace(b300.facts, links=links))
    codes = {note.code for note in split(fast, 0.05).answer().reasons}
    assert "handover_slower_than_prompt" not in codes


def test_without_prompts_there_is_nothing_to_split(b300: Forecaster) -> None:
    """PLAN077."""
    with pytest.raises(HeavyliftError) as caught:
        split(b300, 0.05, prompt=0).answer()
    assert caught.value.code == "PLAN077"


def test_a_prompt_cached_whole_still_takes_a_pass(b300: Forecaster) -> None:
    """Its last token is computed: the floor of a prefill, not nothing."""
    rate = split(b300, 0.05, cached=1.0).answer().prefill.requests_per_s
    assert 1 < rate.low < rate.high < 100
