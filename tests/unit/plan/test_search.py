"""The search: what it leaves out could not have won."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from heavylift.facts.schema import FactKind
from heavylift.plan.assemble import candidate, hoped, hopeless
from heavylift.plan.bounds import cannot_hold, least_weights_bytes
from heavylift.plan.compare import rack_sizes
from heavylift.plan.defaults import with_kv_dtype
from heavylift.plan.memory import capacity_at_best
from heavylift.plan.planner import (
    Knowledge,
    choose,
    engine_order,
    place,
    ranked,
    sifted,
    subjects,
)
from heavylift.plan.search import search
from heavylift.plan.subject import Subject
from heavylift.plan.support import refused_by_engine
from heavylift.planning import Planning
from heavylift.records.plan import Capacity, Plan, PlanRequest, PlanVerdict, Rack, Segment

RACKS = ("8xB300", "2x8xH200", "3x8xH100", "8xMI325X", "4xMI455X", "8xB200", "2x8xMI300X")
ENGINES = ("vllm", "sglang", "tokenspeed", "tensorrt-llm")


def subject_of(
    planning: Planning, knowledge: Knowledge, on: str, engine: str, model: str = "kimi-k3"
) -> Subject:
    """A model on a rack and an engine."""
    _, rack = planning.rack(on)
    assert rack is not None
    (found,) = subjects(PlanRequest(model=model, rack=rack, engine=engine), knowledge)
    assert isinstance(found, Subject)
    return found


@pytest.mark.parametrize("on", RACKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_search_finds_what_weighing_every_layout_finds(
    planning: Planning, knowledge_of: Callable[[str], Knowledge], on: str, engine: str
) -> None:
    """Of all layouts weighed in full, the first by the same order is the one that was taken."""
    subject = subject_of(planning, knowledge_of("kimi-k3"), on, engine)
    allowed, _ = sifted(subject, {})
    every = [candidate(subject, layout) for layout in allowed]
    first = min(range(len(every)), key=lambda at: (place(every[at]), at))
    taken = ranked(subject, {}).best
    assert taken.layout == every[first].layout
    assert (taken.verdict, taken.kv_tokens) == (every[first].verdict, every[first].kv_tokens)


@pytest.mark.parametrize(
    ("model", "on", "engine"),
    [
        ("deepseek-r1", "8xH100", "vllm"),
        ("deepseek-v3", "8xH100", "sglang"),
        ("glm-5.1", "8xB200", "vllm"),
        ("kimi-k2.5", "8xH100", "sglang"),
        ("qwen3.5-397b", "4xGB200", "tensorrt-llm"),
    ],
)
def test_where_nothing_fits_the_layout_taken_misses_by_least(
    planning: Planning,
    knowledge_of: Callable[[str], Knowledge],
    model: str,
    on: str,
    engine: str,
) -> None:
    """Some layouts do not hold the weights, others hold them and nothing more: none is preferred
    for its weights alone, and what it misses by is the whole of it.
    """
    subject = subject_of(planning, knowledge_of(model), on, engine, model)
    allowed, _ = sifted(subject, {})
    without = [hopeless(subject, layout) for layout in allowed]
    assert {each is None for each in without} == {True, False}
    taken = ranked(subject, {}).best
    assert taken.verdict is PlanVerdict.DOES_NOT_FIT
    every = [candidate(subject, layout) for layout in allowed]
    assert place(taken) == min(map(place, every))
    assert taken.headroom_bytes == candidate(subject, taken.layout).headroom_bytes


@pytest.mark.parametrize(
    ("sequences", "context", "verdict"),
    [(1, 2**20, PlanVerdict.FITS), (64, 2**20, PlanVerdict.DOES_NOT_FIT)],
)
def test_a_recipe_vouches_for_no_more_tokens_than_its_longest_sequence(
    make_plan: Callable[..., Plan], sequences: int, context: int, verdict: PlanVerdict
) -> None:
    """The recipe of 8 B300 states 1M tokens and no number of sequences: that 64 of them are short
    by hundreds of GiB is no doubt about its word.
    """
    plan = make_plan(
        "kimi-k3", "8xB300", engine="vllm", concurrency=sequences, context_tokens=context
    )
    assert (plan.support.status, plan.verdict) == ("verified", verdict)


@pytest.mark.parametrize("on", RACKS)
def test_a_hopeless_layout_does_not_fit_when_weighed(
    planning: Planning, knowledge_of: Callable[[str], Knowledge], on: str
) -> None:
    """What is left out for its weights alone is left out rightly, and misses by no less."""
    subject = subject_of(planning, knowledge_of("kimi-k3"), on, "vllm")
    allowed, _ = sifted(subject, {})
    for layout in allowed:
        without = hopeless(subject, layout)
        whole = candidate(subject, layout)
        if without is not None:
            assert whole.fits is Capacity.DOES_NOT_FIT
            assert whole.headroom_bytes <= without.headroom_bytes
            assert without.kv_tokens == 0


@pytest.mark.parametrize("on", RACKS)
def test_a_hope_is_never_below_what_it_turns_out_to_be(
    planning: Planning, knowledge_of: Callable[[str], Knowledge], on: str
) -> None:
    """The verdict hoped for is the best one that the layout's support allows."""
    subject = subject_of(planning, knowledge_of("kimi-k3"), on, "vllm")
    allowed, _ = sifted(subject, {})
    order = list(PlanVerdict)
    for layout in allowed:
        hope, found = hoped(subject, layout), candidate(subject, layout)
        assert order.index(hope.verdict) <= order.index(found.verdict)
        assert hope.kv_tokens >= found.kv_tokens


@pytest.mark.parametrize("on", ["8xH200", "8xRTX 4090", "1xB300", "8xH100"])
def test_a_rack_too_small_for_the_weights_holds_no_plan(
    planning: Planning, knowledge_of: Callable[[str], Knowledge], on: str
) -> None:
    """The bound says no only where every layout does."""
    knowledge = knowledge_of("kimi-k3")
    subject = subject_of(planning, knowledge, on, "vllm")
    assert cannot_hold(subject)
    best = ranked(subject, {}).best
    assert best.fits is Capacity.DOES_NOT_FIT
    weights = best.memory.worst.of(Segment.WEIGHTS).low
    assert least_weights_bytes(subject) <= weights


def test_engines_with_other_facts_share_nothing(
    planning: Planning, knowledge_of: Callable[[str], Knowledge]
) -> None:
    """What was worked out by one engine's facts is not taken for another's of the same name."""
    knowledge = knowledge_of("kimi-k3")
    subject = subject_of(planning, knowledge, "16xH200", "vllm")
    engine = subject.engine
    bare = replace(engine, expert_padding=(), moe_backends=())
    other = replace(subject, scope=replace(subject.scope, engine=bare), moe_backend_multiple=None)
    (layout, *_) = [each for each in sifted(subject, {})[0] if each.tensor_parallel_size == 16]
    padded, plain = candidate(subject, layout), candidate(other, layout)
    assert padded.memory.worst.of(Segment.WEIGHTS).low > plain.memory.worst.of(Segment.WEIGHTS).low


def test_the_whole_search_names_the_best_of_each_card(
    planning: Planning, knowledge_of: Callable[[str], Knowledge]
) -> None:
    """Thousands of ways on every rack; a card's way is one that a plan of it confirms."""
    knowledge = knowledge_of("kimi-k3")

    def build(rack: Rack) -> PlanRequest:
        return PlanRequest(model="kimi-k3", rack=rack)

    found = planning.search(build, knowledge)
    assert found.candidates > 2000
    assert found.engines >= 4
    assert found.candidates > found.refused + found.too_small > 0
    cards = [way.rack.split("x")[-1] for way in found.best]
    assert len(set(cards)) == len(cards)
    first = found.best[0]
    assert first.verdict is PlanVerdict.FITS
    _, rack = planning.rack(first.rack)
    assert rack is not None
    asked = replace(build(rack), engine=first.engine, kv_cache_dtype=first.kv_cache_dtype)
    best = choose(asked, knowledge).best
    assert (best.layout, best.verdict) == (first.layout, first.verdict)


def test_a_card_alone_is_answered_with_its_smaller_counts(
    make_plan: Callable[..., Plan],
) -> None:
    """`--on B200`: 16 hold it; one to eight do not, and the plan says what they lack."""
    plan = make_plan("kimi-k3", "B200")
    assert plan.rack.gpu_count == 16
    assert [each.gpus for each in plan.smaller] == [1, 2, 4, 8]
    assert all(each.weights_alone for each in plan.smaller)
    eight = plan.smaller[-1]
    assert eight.need_bytes > eight.have_bytes == plan.per_gpu.visible_bytes


def test_smaller_counts_are_told_apart_by_what_they_lack(
    make_plan: Callable[..., Plan],
) -> None:
    """Two machines of eight H100 do not even hold the weights; three hold everything."""
    plan = make_plan("kimi-k3", "H100")
    sixteen = next(each for each in plan.smaller if each.gpus == 16)
    assert plan.rack.gpu_count == 24
    assert sixteen.need_bytes > sixteen.have_bytes
    assert {each.gpus for each in plan.smaller if each.weights_alone} == {1, 2, 4, 8, 16}


def test_a_count_without_a_layout_is_among_the_smaller_ones(
    make_plan: Callable[..., Plan],
) -> None:
    """Four ranks were stated: one card and two can run it in no layout, and that is said."""
    plan = make_plan("llama-3.1-8b", "B300", engine="vllm", tensor=4)
    assert plan.rack.gpu_count == 4
    assert [(each.gpus, each.code) for each in plan.smaller] == [(1, "PLAN032"), (2, "PLAN032")]


def test_every_engine_asked_is_on_the_plan(make_plan: Callable[..., Plan]) -> None:
    """On 8 MI355X: who has a recipe, and who refuses, with its reason."""
    plan = make_plan("kimi-k3", "8xMI355X")
    asked = {each.engine: each for each in plan.engines}
    assert asked["vllm"].support.recipe
    assert asked["atom"].support.status == "verified"
    refuses = asked["tensorrt-llm"]
    assert (refuses.layout, refuses.support.note) == (None, "nvidia_only")
    assert plan.engine == plan.engines[0].engine
    assert make_plan("kimi-k3", "8xMI355X", engine="atom").engines == ()


def test_an_engine_that_does_not_run_here_is_no_answer(make_plan: Callable[..., Plan]) -> None:
    """8 MI300X have no room on engines that run there; room on one that refuses is none."""
    plan = make_plan("kimi-k3", "8xMI300X")
    assert plan.verdict is PlanVerdict.DOES_NOT_FIT
    assert plan.engine != "tensorrt-llm"


# --- engines that were read for this -------------------------------------------------------------


def test_tokenspeed_counts_as_its_source_does(make_plan: Callable[..., Plan]) -> None:
    """TP8: pages of 1,536 tokens in fp8, its recipe's twelve of 128; 0.95, with a tower 0.9."""
    plan = make_plan("kimi-k3", "8xB300", engine="tokenspeed", vision=False, kv_cache_dtype="fp8")
    assert plan.page_tokens == 12 * 128
    assert plan.support.status == "verified"
    assert plan.budgets[0].base == "free_before_load"
    bare = make_plan("kimi-k3", "8xH200", engine="tokenspeed")
    text = make_plan("kimi-k3", "8xH200", engine="tokenspeed", vision=False)
    assert (bare.budgets[0].fraction, text.budgets[0].fraction) == (0.9, 0.95)


def test_tensorrt_llm_takes_a_fraction_of_what_is_left_after_load(
    make_plan: Callable[..., Plan],
) -> None:
    """0.25 of what weights and states leave, as its guide sets it: states lie outside the pool."""
    plan = make_plan("kimi-k3", "8xGB300", engine="trtllm", vision=False)
    held = plan.per_gpu.weights_bytes.low + plan.per_gpu.recurrent_state_bytes.low
    assert plan.budgets[0].base == "free_after_load"
    assert plan.budgets[0].inside == ("kv_cache",)
    assert plan.budgets[0].bytes == int(0.25 * (plan.per_gpu.visible_bytes - held))
    assert (plan.support.status, plan.page_tokens) == ("verified", 64)


def test_tensorrt_llm_has_kimi_k3_from_a_candidate_on(make_plan: Callable[..., Plan]) -> None:
    """K3 takes the candidate that has it, other models the release; the release refuses K3."""
    assert make_plan("kimi-k3", "16xGB200", engine="trtllm").engine_version == "1.3.0rc27"
    other = make_plan("qwen3-32b", "2xH200", engine="trtllm")
    assert (other.engine_version, other.page_tokens) == ("1.2.1", 32)
    assert (other.max_num_batched_tokens, other.max_num_seqs) == (8192, 2048)
    old = make_plan("kimi-k3", "16xGB300", engine="trtllm", engine_version="1.2.1")
    assert (old.verdict, old.support.note) == (PlanVerdict.UNSUPPORTED, "not_in_registry")
    unread = make_plan("kimi-k3", "16xGB300", engine="trtllm", engine_version="0.20.0")
    assert unread.verdict is PlanVerdict.UNKNOWN


def test_a_release_before_the_first_of_a_recipe_ran_nothing_of_it(
    make_plan: Callable[..., Plan],
) -> None:
    """The recipes of vLLM are from 0.27.1 on: what 0.27.0 does with the model nobody published."""
    layout = {"tensor": 8, "engine": "vllm", "vision": False}
    assert make_plan("kimi-k3", "8xB300", **layout).support.status == "verified"
    before = make_plan("kimi-k3", "8xB300", engine_version="0.27.0", **layout)
    assert before.support.status == "unverified"


def test_tensorrt_llm_has_no_pool_where_nothing_is_left(make_plan: Callable[..., Plan]) -> None:
    """A card that the weights overflow leaves a budget of zero, never a negative one."""
    plan = make_plan("kimi-k3", "8xH200", engine="trtllm")
    assert plan.budgets[0].bytes == 0
    assert plan.verdict is PlanVerdict.DOES_NOT_FIT


def test_ollama_counts_as_llamacpp_does(make_plan: Callable[..., Plan]) -> None:
    """It starts llama.cpp's server: same bytes; for K3 there is no local tag, and that is said."""
    theirs = make_plan("kimi-k3", "8xB300", engine="llamacpp")
    plan = make_plan("kimi-k3", "8xB300", engine="ollama")
    assert plan.per_gpu.weights_bytes == theirs.per_gpu.weights_bytes
    assert plan.per_gpu.kv_cache_bytes == theirs.per_gpu.kv_cache_bytes
    assert plan.verdict is PlanVerdict.UNSUPPORTED
    assert plan.support.note == "no_local_tag"


@pytest.mark.parametrize(
    ("engine", "version"),
    [("tokenspeed", "0.1.1"), ("tensorrt-llm", "1.2.1"), ("ollama", "0.32.15")],
)
def test_versions_are_those_of_releases(planning: Planning, engine: str, version: str) -> None:
    """The release list, the wheel or the release's own pages say so, and every one was read."""
    facts = planning.catalog.engine(engine)
    assert facts.default_version == version
    assert version in [each.id for each in facts.versions]
    assert all(each.read and each.source != "recalled" for each in facts.versions)


# --- cards ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("card", ["RTX 4090", "RTX 5090", "RX 7900XTX", "R9700", "RTX PRO 4000"])
def test_cards_of_a_workstation_come_in_ones_twos_fours_and_eights(
    planning: Planning, knowledge_of: Callable[[str], Knowledge], card: str
) -> None:
    """And not in racks of machines."""
    gpu, _ = planning.rack(card.replace("7900XTX", "7900 XTX"))
    sizes = rack_sizes(knowledge_of("kimi-k3"), gpu.id)
    assert [rack.gpu_count for rack in sizes] == [1, 2, 4, 8]


@pytest.mark.parametrize(("card", "ratio"), [("Strix Halo", 0.5), ("M3 Ultra 512GB", 0.75)])
def test_shared_memory_shows_what_its_driver_gives_unasked(
    planning: Planning, card: str, ratio: float
) -> None:
    """Half of it, or three quarters; a setting gives all but what the system keeps."""
    gpu, _ = planning.rack(card)
    shares = {share.id: share for share in planning.catalog.memory_shares()}
    assert gpu.memory_share is not None
    share = shares[gpu.memory_share]
    memory = int(gpu.memory_nameplate.value) * 2**30
    assert gpu.memory_visible.value == share.unasked_bytes(memory) == memory * ratio
    assert share.most_bytes(memory) == memory - share.kept_bytes > gpu.memory_visible.value
    assert share.setting


def test_nothing_is_to_be_set_where_the_driver_gives_everything(planning: Planning) -> None:
    """DGX Spark: CUDA shows nearly all of it, and there is no more to ask for."""
    gpu, _ = planning.rack("DGX Spark")
    share = next(s for s in planning.catalog.memory_shares() if s.id == gpu.memory_share)
    assert share.setting is None
    assert share.most_bytes(128 * 2**30) == share.unasked_bytes(128 * 2**30)


def test_a_card_of_two_dies_is_counted_by_its_devices(planning: Planning) -> None:
    """MI250X: the driver shows 64 GiB twice, and eight devices are four cards."""
    gpu, rack = planning.rack("8xMI250X")
    assert rack is not None
    assert (gpu.devices_per_card, rack.nodes, rack.gpus_per_node) == (2, 1, 8)
    assert gpu.memory_nameplate.value == 64


def test_pci_ids_are_of_one_vendor_and_one_card(planning: Planning) -> None:
    """`10de:2330` means one card only, and each id is two words of four hex digits."""
    owner: dict[str, str] = {}
    vendors = {"nvidia": "10de", "amd": "1002"}
    for gpu in planning.catalog.gpus():
        for identifier in [] if gpu.pci_ids is None else gpu.pci_ids.value.split():
            vendor, device = identifier.split(":")
            assert vendor == vendors[gpu.vendor]
            assert len(device) == 4
            assert int(device, 16) > 0
            assert owner.setdefault(identifier, gpu.id) == gpu.id
    assert len(owner) > 25


def test_what_nobody_said_of_a_card_is_left_out(planning: Planning) -> None:
    """No bandwidth was found for Ascend 950PR: there is none, and not a zero."""
    assert planning.catalog.gpu("Ascend 950PR").memory_bandwidth is None
    recalled = planning.catalog.gpu("H20").memory_bandwidth
    assert recalled is not None
    assert recalled.kind is FactKind.ASSUMED


# --- the quick way and the whole one ------------------------------------------------------------


def plainly(
    knowledge: Knowledge, build: Callable[[Rack], PlanRequest], racks: list[Rack]
) -> tuple[dict[str, tuple[object, ...]], int]:
    """The best way on every card with every way weighed whole, and how many ways there were."""
    best: dict[str, tuple[list[int], tuple[object, ...]]] = {}
    count = 0
    for rack in racks:
        for engine in subjects(build(rack), knowledge):
            if not isinstance(engine, Subject) or refused_by_engine(engine):
                continue
            for dtype in engine.scope.all(engine.engine.kv_dtypes):
                asked = replace(build(rack), engine=engine.engine.id, kv_cache_dtype=dtype.name)
                (subject,) = subjects(asked, knowledge)
                assert isinstance(subject, Subject)
                allowed, refused = sifted(subject, {})
                count += len(allowed) + len(refused)
                if not allowed:
                    continue
                every = [candidate(subject, layout) for layout in allowed]
                found = min(every, key=place)
                if found.verdict in (PlanVerdict.DOES_NOT_FIT, PlanVerdict.UNSUPPORTED):
                    continue
                at = [*engine_order(found), rack.gpu_count, -found.kv_tokens]
                if rack.gpu not in best or at < best[rack.gpu][0]:
                    way = (rack.label, subject.engine.id, subject.kv_dtype, found.layout)
                    best[rack.gpu] = (at, (*way, found.verdict, found.kv_tokens))
    return {gpu: way for gpu, (_, way) in best.items()}, count


@pytest.mark.parametrize(
    ("model", "card"),
    [
        ("kimi-k3", "mi355x"),
        ("kimi-k3", "mi300x"),
        ("kimi-k3", "h100"),
        ("deepseek-v3", "h200"),
        ("gpt-oss-120b", "rtx-4090"),
    ],
)
def test_the_search_answers_as_if_every_way_were_weighed(
    knowledge_of: Callable[[str], Knowledge], model: str, card: str
) -> None:
    """Of all racks of a card up to forty, engines, KV dtypes and layouts, each weighed whole, the
    best is the one that the search names; and it counts them all.
    """
    knowledge = knowledge_of(model)
    racks = [rack for rack in rack_sizes(knowledge, card) if rack.gpu_count <= 40]

    def build(rack: Rack) -> PlanRequest:
        return PlanRequest(model=model, rack=rack)

    plain, count = plainly(knowledge, build, racks)
    found = search(knowledge, racks, build)
    ways = {
        each.rack: (
            each.rack,
            each.engine,
            each.kv_cache_dtype,
            each.layout,
            each.verdict,
            each.kv_tokens,
        )
        for each in found.best
    }
    assert tuple(ways.values()) == tuple(plain.values())
    assert found.candidates == count


@pytest.mark.parametrize("on", RACKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_heaviest_stage_promises_no_less_than_the_whole(
    planning: Planning, knowledge_of: Callable[[str], Knowledge], on: str, engine: str
) -> None:
    """What one stage allows is never below what all of them do, so that nothing is left out for
    it that would have held.
    """
    subject = subject_of(planning, knowledge_of("kimi-k3"), on, engine)
    order = (Capacity.FITS, Capacity.TIGHT, Capacity.DOES_NOT_FIT)
    for layout in sifted(subject, {})[0]:
        whole = candidate(subject, layout).fits
        assert order.index(capacity_at_best(subject, layout)) <= order.index(whole)


def test_a_kv_dtype_is_the_same_put_in_afterwards_as_stated(
    planning: Planning, knowledge_of: Callable[[str], Knowledge]
) -> None:
    """The search resolves an engine once: each of its KV dtypes makes the subject that a request
    with it does.
    """
    knowledge = knowledge_of("kimi-k3")
    for engine in ENGINES:
        subject = subject_of(planning, knowledge, "16xH200", engine)
        for dtype in subject.scope.all(subject.engine.kv_dtypes):
            asked = PlanRequest(
                model="kimi-k3", rack=subject.rack, engine=engine, kv_cache_dtype=dtype.name
            )
            (stated,) = subjects(asked, knowledge)
            assert with_kv_dtype(subject, dtype) == stated


def test_a_drafter_of_unknown_size_leaves_the_plan_open(make_plan: Callable[..., Plan]) -> None:
    """Nobody said how much it takes: the term is named, has no upper end, and nothing fits for it;
    what does not fit without it does not fit with it.
    """
    without = make_plan("gpt-oss-120b", "8xH200", engine="vllm", tensor=8)
    plan = make_plan("gpt-oss-120b", "8xH200", engine="vllm", tensor=8, drafter="some/drafter")
    assert without.verdict.is_positive
    assert plan.verdict is PlanVerdict.UNKNOWN
    assert plan.capacity_verdict is Capacity.TIGHT
    (term,) = [each for each in plan.terms if each.id == "weights.drafter"]
    assert (term.bytes.low, term.bytes.high, term.formula) == (0, None, "some/drafter")
    assert plan.per_gpu.weights_bytes.low == without.per_gpu.weights_bytes.low
    assert [note.params["drafter"] for note in plan.notes if note.code == "drafter_unknown"]
    small = make_plan("kimi-k3", "8xH200", engine="vllm", drafter="some/drafter")
    assert small.verdict is PlanVerdict.DOES_NOT_FIT


@pytest.mark.parametrize(
    ("on", "engine", "context", "note", "verdict"),
    [
        ("1xRTX 4090", "vllm", None, "start_context_does_not_fit", PlanVerdict.TIGHT),
        ("1xRTX 4090", "vllm", 16384, None, PlanVerdict.FITS),
        ("1xB300", "vllm", None, None, PlanVerdict.FITS),
        # Its pool may be smaller than one sequence of the whole length: it starts all the same.
        ("1xRTX 5090", "sglang", None, "whole_context_does_not_fit", PlanVerdict.FITS),
    ],
)
def test_a_plan_without_a_context_is_judged_as_the_engine_starts(
    make_plan: Callable[..., Plan],
    *,
    on: str,
    engine: str,
    context: int | None,
    note: str | None,
    verdict: PlanVerdict,
) -> None:
    """16,384 tokens are planned where none were stated; an engine that takes 131,072 and refuses to
    start without room for them is no bare yes.
    """
    plan = make_plan(
        "llama-3.1-8b", on, engine=engine, tensor=1, context_tokens=context, fixes=True
    )
    found = [each for each in plan.notes if "_context_" in each.code]
    assert [each.code for each in found] == ([] if note is None else [note])
    assert (plan.verdict, plan.capacity_verdict.value) == (verdict, verdict.value)
    assert plan.context_tokens == 16384
    for each in found:
        assert {**each.params, "engine": ""} == {"context": 16384, "whole": 131072, "engine": ""}


def test_a_start_whose_whole_context_is_tight_is_not_called_fits(
    make_plan: Callable[..., Plan],
) -> None:
    """405B in FP8 on eight cards of 80 GB, with nothing stated, ran out of memory at its start."""
    model = "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8"
    plan = make_plan(model, "8xH100", engine="vllm", tensor=8, fixes=True)
    assert plan.verdict is PlanVerdict.TIGHT
    assert "start_context_tight" in [each.code for each in plan.notes]
    stated = make_plan(model, "8xH100", engine="vllm", tensor=8, context_tokens=16384, fixes=True)
    assert stated.verdict is PlanVerdict.FITS


@pytest.mark.parametrize(
    ("version", "given", "blocks"),
    [
        ("0.23.0", {}, 243),
        # No more are admitted than there are blocks; older releases did not look.
        ("0.23.0", {"max_num_seqs": 16}, None),
        ("0.17.0", {}, None),
    ],
)
def test_a_start_with_more_sequences_than_blocks_of_states_is_tight(
    make_plan: Callable[..., Plan], version: str, given: dict[str, int], blocks: int | None
) -> None:
    """VLLM wants a block for each sequence that it may admit: this start was refused for 184."""
    settings = {"gpu_memory_utilization": 0.9, "context_tokens": 32768}
    wanted = {"engine_version": version, "variant": "fp8", "tensor": 1}
    start = {"engine": "vllm", "fixes": True, **settings, **wanted, **given}
    plan = make_plan("qwen3.6-27b", "1xL40S", **start)
    found = [each for each in plan.notes if each.code == "too_few_state_blocks"]
    assert [each.params["blocks"] for each in found] == ([] if blocks is None else [blocks])
    fits = PlanVerdict.FITS if blocks is None else PlanVerdict.TIGHT
    assert plan.verdict is fits


def test_other_caches_want_no_block_for_each_sequence(make_plan: Callable[..., Plan]) -> None:
    """DeepSeek-V4's compressor states are no states of that kind, before 0.29.0 either."""
    plan = make_plan(
        "deepseek-v4-flash", "2xH20", engine="vllm", engine_version="0.26.0", tensor=2, fixes=True
    )
    assert "too_few_state_blocks" not in [each.code for each in plan.notes]
