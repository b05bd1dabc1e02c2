"""Rules that hold for every plan, whatever the numbers."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heavylift.plan.planner import Knowledge
from heavylift.planning import Planning
from heavylift.records.plan import Plan, PlanRequest, Segment

PLANNING = Planning()
K3 = PLANNING.knowledge("kimi-k3")
RACKS = ("8xMI355X", "8xB300", "2x8xH200", "2x8xB200", "8xMI300X", "4x4xGB200", "8xMI325X")
ENGINES = ("vllm", "sglang", "atom", "llamacpp")
# llama.cpp splits layers within one machine only; ATOM runs K3 on eight GPUs of one.
PLACES = [
    (on, engine)
    for on in RACKS
    for engine in ENGINES
    if engine not in ("llamacpp", "atom") or on.count("x") == 1
]
QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

contexts = st.integers(min_value=256, max_value=2**20)
sequences = st.integers(min_value=1, max_value=64)


def plan(on: str, engine: str, knowledge: Knowledge = K3, /, **fields: object) -> Plan:
    """A plan without fixes."""
    _, rack = PLANNING.rack(on)
    assert rack is not None
    request = PlanRequest(
        model="kimi-k3",
        rack=rack,
        engine=engine,
        **fields,  # type: ignore[arg-type] # the fields are the request's own
    )
    return PLANNING.plan(request, knowledge, with_fixes=False)


@QUICK
@given(st.sampled_from(PLACES), contexts, sequences)
def test_terms_and_headroom_close_to_the_budget(
    place: tuple[str, str], context: int, count: int
) -> None:
    """Known terms of the budget and the headroom add up to the budget, to the byte."""
    on, engine = place
    found = plan(on, engine, context_tokens=context, concurrency=count)
    pool = found.budgets[0]
    inside = sum(term.bytes.low for term in found.terms if term.segment in pool.inside)
    assert inside + found.per_gpu.headroom_bytes == pool.bytes
    assert sum(term.bytes.low for term in found.terms) == found.per_gpu.known_total_bytes


@QUICK
@given(st.sampled_from(PLACES), contexts, sequences)
def test_every_interval_is_in_order(place: tuple[str, str], context: int, count: int) -> None:
    """No interval of a plan has its high end below its low end."""
    on, engine = place
    found = plan(on, engine, context_tokens=context, concurrency=count)
    held = found.capacity
    intervals = [term.bytes for term in found.terms]
    intervals += [held.kv_tokens, held.max_sequences, held.max_context_tokens]
    assert all(each.high is None or each.low <= each.high for each in intervals)


@QUICK
@given(st.sampled_from(("8xB300", "8xMI355X")), st.sampled_from((1, 2, 4)))
def test_more_tensor_ranks_never_raise_the_weights_of_one(on: str, tensor: int) -> None:
    """Doubling tensor parallelism without data parallelism never adds weights to a rank."""
    fewer = plan(
        on, "sglang", layout_constraints={"tensor": tensor, "pipeline": 8 // tensor, "expert": 1}
    )
    more = plan(
        on,
        "sglang",
        layout_constraints={"tensor": 2 * tensor, "pipeline": 4 // tensor, "expert": 1},
    )
    assert more.totals.weights_bytes_total >= fewer.totals.weights_bytes_total
    per_rank = [sum(stage.weights_bytes for stage in each.stages) for each in (fewer, more)]
    assert per_rank[1] <= per_rank[0]


@QUICK
@given(st.sampled_from(ENGINES), contexts, contexts)
def test_more_context_never_takes_less_kv(engine: str, one: int, other: int) -> None:
    """A longer context never needs fewer bytes of KV."""
    short, long = sorted((one, other))
    a = plan("8xMI355X", engine, context_tokens=short)
    b = plan("8xMI355X", engine, context_tokens=long)
    assert a.per_gpu.kv_cache_bytes.low <= b.per_gpu.kv_cache_bytes.low


@QUICK
@given(
    st.sampled_from(
        (("8xMI355X", "vllm"), ("8xMI355X", "atom"), ("8xB300", "vllm"), ("2x8xB200", "vllm"))
    ),
    contexts,
)
def test_capacity_inverts_the_account(place: tuple[str, str], context: int) -> None:
    """As many sequences as a plan says it holds fit when they are planned; one more does not."""
    on, engine = place
    found = plan(on, engine, context_tokens=context)
    layout = {
        "tensor": found.layout.tensor_parallel_size,
        "pipeline": found.layout.pipeline_parallel_size,
        "expert": 1,
        "decode_context": 1,
    }
    most = found.capacity.max_sequences.high or 0
    assert most > 0

    def headroom(count: int) -> int:
        full = plan(
            on, engine, context_tokens=context, concurrency=count, layout_constraints=layout
        )
        reserved = full.page_bytes or 0
        stage = min(
            full.budgets[0].bytes - s.weights_bytes - s.kv_cache_bytes - s.recurrent_state_bytes
            for s in full.stages
        )
        fixed = sum(
            t.bytes.low
            for t in full.terms
            if t.segment in (Segment.WORKSPACE, Segment.OUTSIDE_POOL)
        )
        # One block is never given out by engines with unified pages: up to 24 pages.
        return stage - fixed - (24 * reserved if engine == "vllm" else 0)

    assert headroom(most) >= 0
    assert headroom(most + 1) < 24 * (found.page_bytes or 0)


@QUICK
@given(st.sampled_from(PLACES), contexts, sequences)
def test_kv_of_a_million_tokens_is_never_that_of_plain_attention(
    place: tuple[str, str], context: int, count: int
) -> None:
    """No plan prices KV as 93 layers of 96 heads, which gives 2580.75 GiB for 1M tokens."""
    on, engine = place
    found = plan(on, engine, context_tokens=context, concurrency=count)
    naive = 93 * 2 * 96 * 74 * 2
    assert found.kv_bytes_per_token * 95 < naive
    assert found.per_gpu.kv_cache_bytes.low < naive * context * count


def test_same_request_gives_the_same_plan(make_plan: Callable[..., Plan]) -> None:
    """Planning is pure: the same request gives an equal plan."""
    assert make_plan("kimi-k3", "8xMI355X") == make_plan("kimi-k3", "8xMI355X")


@QUICK
@given(
    st.sampled_from(("vllm", "sglang")),
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from((1, 2, 3, 4, 6, 11)),
)
def test_every_number_of_stages_is_planned(engine: str, tensor: int, nodes: int) -> None:
    """Stages without an attention layer, or with little else, are stages like others."""
    stages = 8 * nodes // tensor
    found = plan(
        f"{nodes}x8xH100",
        engine,
        layout_constraints={"tensor": tensor, "pipeline": stages, "expert": 1},
    )
    assert sum(s.last_layer - s.first_layer + 1 for s in found.stages) == 93
    assert (found.capacity.kv_tokens.high or 0) < 2**60
