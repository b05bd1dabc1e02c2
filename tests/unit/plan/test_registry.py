"""Support from the lists of the engines' own releases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from heavylift.facts.registry_schema import ListedNames, RegistryFacts
from heavylift.facts.schema import FactKind
from heavylift.plan.planner import best_plan
from heavylift.planning import Planning
from heavylift.records.plan import Plan, PlanRequest, PlanVerdict, Status


def planned(model: str, on: str, architecture: str | None, engine: str = "vllm") -> Plan:
    """A plan of a model whose config names another class."""
    planning = Planning()
    knowledge = planning.knowledge(model)
    stated = knowledge.model.model.hf_architecture
    assert stated is not None
    fact = None if architecture is None else replace(stated, value=architecture)
    facts = replace(knowledge.model.model, hf_architecture=fact)
    changed = replace(knowledge, model=replace(knowledge.model, model=facts))
    _, rack = planning.rack(on)
    assert rack is not None
    return best_plan(PlanRequest(model=model, rack=rack, engine=engine), changed)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_model_that_a_release_lists_is_unverified_and_judged_by_its_bytes(
    make_plan: Callable[..., Plan], engine: str
) -> None:
    """DeepSeek-V3 on eight H200: every release read declares its class, nobody is cited to have
    run this rack; the verdict is that of the bytes.
    """
    plan = make_plan("deepseek-v3", "8xH200", engine=engine)
    assert (plan.support.status, plan.support.note) == (Status.UNVERIFIED, "in_registry")
    assert plan.verdict in (PlanVerdict.FITS, PlanVerdict.TIGHT)
    assert plan.support.source.startswith(engine)


def test_a_record_of_a_run_comes_before_any_list(make_plan: Callable[..., Plan]) -> None:
    """Kimi K3 is listed too, and verified on eight B300."""
    assert make_plan("kimi-k3", "8xB300", engine="vllm").support.status is Status.VERIFIED


def test_a_class_in_no_list_is_unsupported() -> None:
    """A version that was read and has no such class refuses it, whatever the bytes."""
    plan = planned("llama-3.1-8b", "1xH100", "NobodysForCausalLM")
    assert (plan.verdict, plan.support.note) == (PlanVerdict.UNSUPPORTED, "not_in_registry")


def test_a_class_that_came_later_is_unsupported_before(make_plan: Callable[..., Plan]) -> None:
    """Muse-Glimmer stands in vLLM's list from 0.28.0 on."""
    before = make_plan("muse-glimmer-30b", "8xH100", engine="vllm", engine_version="0.27.1")
    after = make_plan("muse-glimmer-30b", "8xH100", engine="vllm", engine_version="0.28.0")
    assert after.support.status is Status.UNVERIFIED
    # Its class is also one of the Transformers library, which vLLM may run: not known.
    assert (before.support.status, before.support.note) == (Status.UNKNOWN, "library_class")


def test_a_class_that_nobody_stated_is_unknown() -> None:
    """Without a config's word there is nothing to look up."""
    plan = planned("llama-3.1-8b", "1xH100", None)
    assert (plan.verdict, plan.support.note) == (PlanVerdict.UNKNOWN, "no_recipe")


def test_a_version_nobody_read_is_unknown(make_plan: Callable[..., Plan]) -> None:
    """Lists of other versions say nothing of it."""
    plan = make_plan("deepseek-v3", "8xH200", engine="vllm", engine_version="0.99.0")
    assert (plan.verdict, plan.support.status) == (PlanVerdict.UNKNOWN, Status.UNKNOWN)


def test_encoders_stand_in_the_same_lists() -> None:
    """A class that only embeds is listed by vLLM and SGLang, and by llama.cpp in its own words."""
    registries = {name: Planning().catalog.registry(name) for name in ("vllm", "sglang")}
    assert all("BertModel" in each.architectures.names for each in registries.values())
    llamacpp = Planning().catalog.registry("llamacpp")
    assert llamacpp.known_as["BertModel"] in llamacpp.architectures.names


def test_a_form_that_a_release_no_longer_reads_is_unsupported(
    make_plan: Callable[..., Plan],
) -> None:
    """Bitsandbytes left vLLM's list with 0.28.0."""
    given = {"engine": "vllm", "variant": "bnb-4bit"}
    before = make_plan("qwen2.5-0.5b", "1xRTX4090", engine_version="0.27.1", **given)
    after = make_plan("qwen2.5-0.5b", "1xRTX4090", engine_version="0.28.0", **given)
    assert before.support.status is Status.UNVERIFIED
    assert (after.verdict, after.support.note) == (
        PlanVerdict.UNSUPPORTED,
        "form_not_in_registry",
    )


@pytest.mark.parametrize(
    ("gpu", "table", "note"),
    [
        ("1xA100-80", ListedNames(names=("fp8",), capability={"fp8": 89}), "form_needs_newer_card"),
        ("1xH100", ListedNames(names=("fp8",), capability={"fp8": 89}), "in_registry"),
        ("1xMI300X", ListedNames(names=("fp8",), vendors={"amd": ("awq",)}), "form_not_on_card"),
        ("1xMI300X", ListedNames(names=("fp8",), vendors={"amd": ("fp8",)}), "in_registry"),
        ("1xMI300X", ListedNames(names=("fp8",), capability={"fp8": 89}), "in_registry"),
        ("1xH100", ListedNames(names=("awq",)), "form_not_in_registry"),
        ("1xH100", None, "in_registry"),
    ],
)
def test_a_form_may_need_another_card(gpu: str, table: ListedNames | None, note: str) -> None:
    """FP8 weights: by the least compute capability, and by what the maker's cards may use."""
    planning = Planning()
    knowledge = planning.knowledge("minimax-m2.5")
    registry = RegistryFacts(
        engine="vllm",
        read=("0.32.0",),
        kind=FactKind.DERIVED,
        source="vllm-0.32.0",
        as_of=planning.catalog.registry("vllm").as_of,
        architectures=ListedNames(names=("MiniMaxM2ForCausalLM",)),
        quantisations=table,
    )
    changed = replace(knowledge, model=replace(knowledge.model, registries={"vllm": registry}))
    _, rack = planning.rack(gpu)
    assert rack is not None
    plan = best_plan(PlanRequest(model="minimax-m2.5", rack=rack, engine="vllm"), changed)
    assert plan.support.note == note


def test_a_scheme_without_a_named_method_is_not_judged() -> None:
    """Where nobody said what checkpoints call a form, the list of forms says nothing."""
    planning = Planning()
    knowledge = planning.knowledge("minimax-m2.5")
    changed = replace(knowledge, model=replace(knowledge.model, methods={}))
    _, rack = planning.rack("8xH200")
    assert rack is not None
    plan = best_plan(PlanRequest(model="minimax-m2.5", rack=rack, engine="vllm"), changed)
    assert plan.support.note == "in_registry"


def test_kernels_made_for_another_card_leave_it_unknown(make_plan: Callable[..., Plan]) -> None:
    """Kimi K3's class is in every list, but its AMD kernels say gfx950: MI325X stays unknown."""
    for engine in ("vllm", "sglang", "tokenspeed"):
        plan = make_plan("kimi-k3", "8xMI325X", engine=engine)
        assert (plan.support.status, plan.support.note) == (Status.UNKNOWN, "kernels_for_gfx950")


@pytest.mark.parametrize(
    "table",
    [
        ListedNames(names=("A",), since={"A": "2"}),
        ListedNames(names=("A",), until={"A": "2"}),
        ListedNames(names=()),
    ],
)
def test_a_list_knows_when_names_came_and_went(table: ListedNames) -> None:
    """`since` is the first version with a name, `until` the first without."""
    registry = RegistryFacts(
        engine="e",
        read=("1", "2", "3"),
        kind=FactKind.DERIVED,
        source="s",
        as_of=Planning().catalog.registry("vllm").as_of,
        architectures=table,
    )
    listed = [registry.lists(table, "A", version) for version in registry.read]
    came, went = table.since.get("A"), table.until.get("A")
    assert listed == [
        bool(table.names) and (came is None or v >= came) and (went is None or v < went)
        for v in "123"
    ]
