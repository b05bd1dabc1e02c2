"""What grows with tokens and sequences: windows, entries of several tokens, states, scales."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heavylift.facts.catalog import Catalog
from heavylift.plan.cache_parts import TokenPart
from heavylift.plan.stages import Stage
from heavylift.plan.unified_pages import WITHOUT_END, UnifiedPages
from heavylift.records.plan import Kind, Plan, Status
from heavylift.units import MIB

ONE_STAGE = Stage(
    index=0,
    count=1,
    first_layer=0,
    last_layer=9,
    layers_total=10,
    everywhere=(),
    on_host=(),
)


def term(plan: Plan, name: str) -> int:
    """The low of a term in bytes."""
    return next(each for each in plan.terms if each.id == name).bytes.low


def test_a_windowed_layer_stops_growing(make_plan: Callable[..., Plan]) -> None:
    """gpt-oss-120b on SGLang: 18 layers grow with the context, 18 keep 128 tokens."""
    short, long = (
        term(
            make_plan("gpt-oss-120b", "1xH100", engine="sglang", context_tokens=tokens), "kv_cache"
        )
        for tokens in (10_000, 20_000)
    )
    assert long - short == 10_000 * 36_864
    assert short == 10_000 * 36_864 + 128 * 36_864


def test_a_window_longer_than_the_context_is_the_context(make_plan: Callable[..., Plan]) -> None:
    """min(window, context): 100 tokens of gpt-oss-120b are 100 in every layer."""
    plan = make_plan("gpt-oss-120b", "1xH100", engine="sglang", context_tokens=100)
    assert term(plan, "kv_cache") == 100 * 2 * 36_864


def test_unified_pages_grow_by_the_full_layers_alone(make_plan: Callable[..., Plan]) -> None:
    """Gemma 4 on vLLM: twice the context costs the full layers of the other half."""
    plans = [
        make_plan("gemma-4-26b-a4b", "8xH100", engine="vllm", tensor=1, context_tokens=tokens)
        for tokens in (65_536, 131_072)
    ]
    growth = term(plans[1], "kv_cache") - term(plans[0], "kv_cache")
    assert growth == 65_536 * 20_480


def test_heads_beyond_the_ranks_are_split_and_fewer_are_held_whole(
    make_plan: Callable[..., Plan],
) -> None:
    """Gemma 4 at tp4: 8 windowed KV heads are 2 a rank, 2 global ones are 1 on each."""
    plan = make_plan("gemma-4-26b-a4b", "4xH100", engine="sglang", tensor=4)
    assert plan.kv_bytes_per_token == 5 * 1 * 512 * 2 * 2


def test_a_scale_beside_each_key_and_value_counts(make_plan: Callable[..., Plan]) -> None:
    """int8_per_token_head: a byte an element and four for each key and value of a head."""
    plan = make_plan("qwen2.5-7b", "1xH100", engine="vllm", kv_cache_dtype="int8_per_token_head")
    assert plan.kv_bytes_per_token == 28 * (2 * 4 * 128 + 2 * 4 * 4)


def test_a_drafted_token_takes_a_state_more(make_plan: Callable[..., Plan]) -> None:
    """VLLM admits a hybrid with two states free for a sequence, and one for each drafted token."""
    given = {"engine": "vllm", "kv_cache_dtype": "bf16"}
    plans = [make_plan("qwen3.6-35b", "1xH200", draft_tokens=n, **given) for n in (1, 3)]
    states = [next(t for t in plan.terms if t.segment == "recurrent_state").bytes for plan in plans]
    assert states[0].high == 3 * states[0].low // 2
    assert states[1].high == 5 * states[1].low // 4


def test_prediction_layers_cost_nothing_until_they_draft(make_plan: Callable[..., Plan]) -> None:
    """Weights and KV of the heads appear with the first drafted token, tables of them never."""
    given = {"engine": "vllm", "tensor": 8}
    without = make_plan("deepseek-v3", "8xH200", **given)
    drafting = make_plan("deepseek-v3", "8xH200", draft_tokens=1, **given)
    assert drafting.kv_bytes_per_token * 61 == without.kv_bytes_per_token * 62
    more = drafting.per_gpu.weights_bytes.low - without.per_gpu.weights_bytes.low
    assert 1400 * MIB < more < 1700 * MIB


def test_what_a_checkpoint_has_scales_for_is_its_kv_dtype(make_plan: Callable[..., Plan]) -> None:
    """Unless told otherwise: NVFP4 copies of ModelOpt come with FP8 KV; a stated dtype holds."""
    given = {"engine": "vllm", "variant": "nvfp4"}
    assert make_plan("qwen3.5-122b", "1xB300", **given).kv_cache_dtype == "fp8"
    stated = make_plan("qwen3.5-122b", "1xB300", kv_cache_dtype="bf16", **given)
    assert stated.kv_cache_dtype == "bf16"


def test_states_of_each_kind_are_split_over_ranks(make_plan: Callable[..., Plan]) -> None:
    """Mamba-2 on SGLang: 23 layers of 64 heads x 64 x 128 in F32, and convolutions in BF16."""
    one, two = (
        make_plan("nemotron-3-nano", on, engine="sglang", tensor=n).state_bytes_per_sequence
        for on, n in (("1xH100", 1), ("2xH100", 2))
    )
    assert one == 23 * (64 * 64 * 128 * 4 + (64 * 64 + 2 * 8 * 128) * 3 * 2)
    assert one == 2 * two


def test_experts_of_other_forms_are_not_rounded_up(make_plan: Callable[..., Plan]) -> None:
    """The backends' multiples were read for MXFP4: 1,536 columns of FP8 over 8 ranks stay 192."""
    plan = make_plan("qwen3-235b", "8xH100", engine="vllm", tensor=8)
    whole = make_plan("qwen3-235b", "8xH100", engine="vllm", tensor=8, expert=8)
    experts = [
        next(p for p in each.terms[0].parts if p.id.endswith("experts.{e}.up_proj.weight")).bytes
        for each in (plan, whole)
    ]
    assert experts[0] == experts[1]


def test_an_encoder_keeps_nothing() -> None:
    """No caches, no states: no pages, and no end to what a room holds."""
    rule = Catalog().engine("vllm").caches[-1]
    model = UnifiedPages(rule, (), (), 1, 8192)
    assert model.kv_parts(ONE_STAGE, 512, 4) == ()
    assert model.state_parts(ONE_STAGE, 4, reserved=True) == ()
    assert model.sequences_in(ONE_STAGE, 2**30, 512, reserved=True) == WITHOUT_END
    assert model.tokens_in(ONE_STAGE, 2**30, 4, reserved=True) == WITHOUT_END
    assert model.pool_tokens(ONE_STAGE, 2**30) == WITHOUT_END


@pytest.mark.parametrize(("narrow", "tokens"), [(512, 32), (768, 16)])
def test_a_smaller_page_holds_more_tokens_or_is_padded(narrow: int, tokens: int) -> None:
    """Half a page goes twice into the larger one; three quarters are filled up."""
    rule = Catalog().engine("vllm").caches[-1]
    wide = TokenPart(id="wide", layers=(0, 1, 2, 3, 4), layer_bytes=1024, formula="", window=256)
    full = TokenPart(id="full", layers=(5, 6, 7, 8, 9), layer_bytes=narrow, formula="")
    model = UnifiedPages(rule, (wide, full), (), 1, 128)
    parts = {part.id: part for part in model.kv_parts(ONE_STAGE, 4096, 1)}
    assert f"of {tokens} tokens" in parts["full"].formula
    assert parts["full"].bytes == 4096 // tokens * 5 * 16 * 1024
    assert parts["wide"].bytes == (-(-(255 + 2 * 128) // 16) + 1) * 5 * 16 * 1024


def test_support_of_a_model_no_release_runs_is_said(make_plan: Callable[..., Plan]) -> None:
    """Kimi K3.1 on vLLM and SGLang: unsupported, by whose word; its weights are an inference."""
    for engine in ("vllm", "sglang"):
        plan = make_plan("kimi-k3.1-pro", "8xB300", engine=engine, tensor=8)
        assert plan.support.status is Status.UNSUPPORTED
        assert plan.support.source == "wheels-without-k3.1"
        assert plan.terms[0].kind is Kind.ASSUMED
