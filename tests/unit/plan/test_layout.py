"""Which layouts an engine allows, and the reason for each refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from heavylift.errors import HeavyliftError
from heavylift.plan.defaults import resolve
from heavylift.plan.layout import candidates, refusal
from heavylift.plan.planner import Knowledge
from heavylift.plan.subject import Subject
from heavylift.planning import Planning
from heavylift.records.plan import Layout, Plan, PlanRequest

SubjectOf = Callable[..., Subject]


@pytest.fixture
def subject_of(planning: Planning, knowledge_of: Callable[[str], Knowledge]) -> SubjectOf:
    """A resolved subject: `subject_of("kimi-k3", "8xB300", "vllm")`."""

    def of(model: str, on: str, engine: str, **given: Any) -> Subject:
        knowledge = knowledge_of(model)
        _, rack = planning.rack(on)
        assert rack is not None
        machine = knowledge.machines[rack.gpu]
        request = PlanRequest(model=model, rack=rack, engine=engine, **given)
        return resolve(
            request, knowledge.model, knowledge.engines[engine], machine.gpu, machine.node
        )

    return of


@pytest.mark.parametrize(
    ("what", "layout", "code"),
    [
        (("kimi-k3", "8xB300", "vllm"), {"tensor_parallel_size": 4}, "world_size"),
        (("kimi-k3", "8xB300", "llamacpp"), {"tensor_parallel_size": 8}, "splits_layers"),
        (("kimi-k3", "2x8xB200", "llamacpp"), {"pipeline_parallel_size": 16}, "not_offered"),
        (("llama-3.1-8b", "8xB300", "vllm"), {"tensor_parallel_size": 8}, None),
        (("kimi-k3", "3x8xH200", "vllm"), {"tensor_parallel_size": 24}, "vocabulary"),
        (("llama-3.1-8b", "3x8xH200", "vllm"), {"tensor_parallel_size": 24}, "heads"),
        (
            ("llama-3.1-8b", "8xB300", "vllm"),
            {"tensor_parallel_size": 8, "expert_parallel_size": 8},
            "no_experts",
        ),
        (
            ("kimi-k3", "8xB300", "vllm"),
            {"tensor_parallel_size": 8, "expert_parallel_size": 4},
            "expert_ranks",
        ),
        (
            ("kimi-k3", "8xB300", "sglang"),
            {"tensor_parallel_size": 8, "expert_parallel_size": 4},
            None,
        ),
        (
            ("kimi-k3", "8xB300", "sglang"),
            {"tensor_parallel_size": 8, "expert_parallel_size": 5},
            "experts",
        ),
        (
            ("kimi-k3", "8xB300", "vllm"),
            {"tensor_parallel_size": 8, "decode_context_parallel_size": 3},
            "decode_context_ranks",
        ),
        (("llama-3.1-8b", "16x4xGB300", "vllm"), {"pipeline_parallel_size": 64}, "pipeline"),
        (
            ("kimi-k3", "8xB300", "llamacpp"),
            {"pipeline_parallel_size": 8, "expert_parallel_size": 8},
            "not_offered",
        ),
    ],
)
def test_a_layout_is_refused_for_the_first_rule_it_breaks(
    subject_of: SubjectOf, what: tuple[str, str, str], layout: dict[str, int], code: str | None
) -> None:
    """The refusal names the rule; an allowed layout has none."""
    found = refusal(subject_of(*what), Layout(**layout))
    assert (found.code if found else None) == code


def test_tensor_sizes_an_engine_does_not_take_are_refused(subject_of: SubjectOf) -> None:
    """Where an engine lists its tensor sizes, others are refused."""
    subject = subject_of("kimi-k3", "8xB300", "vllm")
    rule = replace(subject.engine.layouts[0], allowed_tensor_parallel=(1, 2))
    engine = replace(subject.engine, layouts=(rule,))
    limited = replace(subject, scope=replace(subject.scope, engine=engine))
    found = refusal(limited, Layout(tensor_parallel_size=8))
    assert found is not None
    assert (found.code, found.params["allowed"]) == ("tensor_size", "1, 2")


def test_an_engine_without_a_layout_rule_is_an_error_of_its_facts(subject_of: SubjectOf) -> None:
    """No rule on layouts is a hole in the facts, not a permission."""
    subject = subject_of("kimi-k3", "8xB300", "vllm")
    bare = replace(
        subject, scope=replace(subject.scope, engine=replace(subject.engine, layouts=()))
    )
    with pytest.raises(HeavyliftError) as caught:
        refusal(bare, Layout(tensor_parallel_size=8))
    assert caught.value.code == "PLAN022"


def test_candidates_use_every_gpu_once(subject_of: SubjectOf) -> None:
    """Each candidate's ranks are the rack's GPUs, and none comes twice."""
    found = list(candidates(subject_of("kimi-k3", "2x8xH200", "vllm"), {}))
    assert all(layout.world_size == 16 for layout in found)
    assert len(found) == len(set(found))


def test_candidates_keep_to_what_is_stated(subject_of: SubjectOf) -> None:
    """A stated size is the only one tried; `all` spreads experts over tensor and data ranks."""
    subject = subject_of("kimi-k3", "2x8xH200", "vllm")
    found = list(candidates(subject, {"tensor": 8, "data": 2, "expert": 0}))
    assert [layout.label for layout in found] == ["tp8·dp2·ep16"]


def test_no_allowed_layout_is_an_error_that_says_why(make_plan: Callable[..., Plan]) -> None:
    """When every layout is refused, the error holds the first refusal."""
    with pytest.raises(HeavyliftError) as caught:
        make_plan("kimi-k3", "2x8xB200", engine="llamacpp")
    assert (caught.value.code, caught.value.params["refusal"]) == ("PLAN030", "not_offered")


def test_sizes_that_do_not_multiply_to_the_rack_leave_no_layout(
    make_plan: Callable[..., Plan],
) -> None:
    """Eight tensor ranks in three stages on 16 GPUs are nothing to try."""
    with pytest.raises(HeavyliftError) as caught:
        make_plan("kimi-k3", "2x8xB200", engine="vllm", tensor=8, pipeline=3)
    assert (caught.value.code, caught.value.params["gpus"]) == ("PLAN032", 16)


@pytest.mark.parametrize(
    ("on", "stages", "layers"),
    [("2x8xH200", 2, [47, 46]), ("4x8xH200", 4, [23, 23, 24, 23]), ("8xB300", 8, None)],
)
def test_layers_are_dealt_as_vllm_deals_them(
    make_plan: Callable[..., Plan], on: str, stages: int, layers: list[int] | None
) -> None:
    """The remainder goes to the stages before the last (vLLM `get_pp_indices`)."""
    plan = make_plan("kimi-k3", on, engine="vllm", pipeline=stages, data=1)
    sizes = [stage.last_layer - stage.first_layer + 1 for stage in plan.stages]
    assert sum(sizes) == 93
    if layers is not None:
        assert sizes == layers


def test_sglang_gives_the_remainder_to_the_last_stage(make_plan: Callable[..., Plan]) -> None:
    """SGLang deals 93 layers to two stages as 46 and 47."""
    plan = make_plan("kimi-k3", "2x8xB200", engine="sglang", tensor=8, pipeline=2)
    assert [stage.last_layer - stage.first_layer + 1 for stage in plan.stages] == [46, 47]


def test_llama_cpp_leaves_the_token_table_on_the_host(make_plan: Callable[..., Plan]) -> None:
    """No GPU holds token_embd; the output lies on the last one."""
    plan = make_plan("kimi-k3", "8xMI355X", engine="llamacpp")
    table = 163840 * 7168 * 2
    whole = plan.checkpoint_bytes
    assert plan.totals.weights_bytes_total == whole - table


def test_experts_stay_split_where_other_sizes_are_stated(make_plan: Callable[..., Plan]) -> None:
    """With tp and dp stated and EP not, EP is off, as leaving the engine's flag out means."""
    plan = make_plan("kimi-k3", "2x8xH200", engine="vllm", tensor=8, data=2)
    assert plan.layout.label == "tp8·dp2"


def test_decode_context_parallelism_is_not_chosen_for_room(make_plan: Callable[..., Plan]) -> None:
    """DCP 8 on MI355X was run and holds more, but plain TP8 is taken unasked."""
    plan = make_plan("kimi-k3", "8xMI355X", engine="vllm", engine_version="9.9")
    assert plan.layout.decode_context_parallel_size == 1
    assert "tp8·dcp8" in {rejected.layout.label for rejected in plan.rejected}


def test_more_than_was_published_is_another_experiment(make_plan: Callable[..., Plan]) -> None:
    """A published run does not vouch for more sequences, context or less memory than it had."""
    given = {"engine": "vllm", "tensor": 8, "data": 2, "context_tokens": 32768}
    assert make_plan("kimi-k3", "2x8xH200", concurrency=5, **given).verdict == "unknown"
    assert make_plan("kimi-k3", "2x8xH200", concurrency=6, **given).verdict == "does_not_fit"
    less = make_plan("kimi-k3", "2x8xH200", concurrency=5, gpu_memory_utilization=0.9, **given)
    assert less.verdict == "does_not_fit"


def test_a_form_without_a_tower_is_text_only(make_plan: Callable[..., Plan]) -> None:
    """K3's GGUF files hold no vision tower, whatever the model has."""
    assert not make_plan("kimi-k3", "8xB300", engine="llamacpp").vision
    assert not make_plan("kimi-k3", "8xB300", engine="llamacpp", variant="ud-q2-k-xl").vision


def test_a_backend_for_whole_experts_refuses_split_ones(make_plan: Callable[..., Plan]) -> None:
    """deep_gemm_mega_moe takes experts spread whole: without EP it is refused."""
    with pytest.raises(HeavyliftError) as caught:
        make_plan("kimi-k3", "8xB300", engine="vllm", moe_backend="deep_gemm_mega_moe", expert=1)
    assert caught.value.params["refusal"] == "backend_spreads"


def test_sequence_parallel_experts_hold_what_others_split(make_plan: Callable[..., Plan]) -> None:
    """With EP over data ranks on one stage shared experts are whole; over two they are not."""

    def shared(**sizes: int) -> str:
        plan = make_plan("kimi-k3", "4x8xB200", engine="vllm", **sizes)
        part = next(p for p in plan.terms[0].parts if "shared_experts.gate" in p.id)
        return part.rule

    assert shared(tensor=8, data=4, expert=32) == "replicated"
    assert shared(tensor=8, data=2, pipeline=2, expert=16) == "tensor"


def test_a_receiving_stage_keeps_what_it_receives(make_plan: Callable[..., Plan]) -> None:
    """Stage 1 of PP2 holds 4 + 1 blocks of 8192 tokens: 0.547 GiB (vLLM source)."""
    plan = make_plan(
        "kimi-k3",
        "2x8xB200",
        engine="vllm",
        tensor=8,
        pipeline=2,
        max_num_batched_tokens=8192,
        concurrency=400,
        context_tokens=2**20,
    )
    assert plan.worst_stage == 1
    found = {term.id: term.bytes.low for term in plan.terms}
    assert found["workspace.pipeline_receive"] == 8192 * 5 * 7168 * 2
    assert found["workspace.attn_res"] == 8192 * 8 * 7168 * 2
