"""The plan against llama.cpp itself: what it would take, and what it took."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from heavylift.checkpoint.gguf_file import read_gguf
from heavylift.checkpoint.inventory import from_facts
from heavylift.devserver.tiny_k3 import TINY_ID, tiny_model
from heavylift.launch.embedded import forecast
from heavylift.launch.runner import Served
from heavylift.plan.planner import Knowledge
from heavylift.planning import THIS_MACHINE, Planning
from heavylift.recipe.engines.embedded import SMOLLM2_ID, EmbeddedSettings
from heavylift.records.plan import Kind, Plan, PlanRequest
from heavylift.records.receipt import MeasuredTerm, Receipt
from heavylift.telemetry import llamacpp
from heavylift.units import MIB

pytestmark = pytest.mark.e2e

Serve = Callable[[EmbeddedSettings], AbstractContextManager[Served]]
SLOTS = 4
SLOT_TOKENS = 1024
# Of the settings above; a formula stands for each.
PREDICTED = ("weights", "kv_cache", "workspace.output_buffer")
STATE = ("recurrent_state.kda_recurrent", "recurrent_state.kda_conv")


def plan(
    knowledge: Knowledge, slots: int, context_tokens: int, receipt: Receipt | None = None
) -> Plan:
    """A plan for the embedded engine on this machine; context of all slots together."""
    planning = Planning()
    _, rack = planning.rack(THIS_MACHINE)
    assert rack is not None
    request = PlanRequest(
        model=knowledge.model.model.id,
        rack=rack,
        engine="embedded",
        context_tokens=context_tokens,
        concurrency=slots,
    )
    return planning.plan(request, knowledge, receipt=receipt, with_fixes=False)


def bytes_of(plan: Plan) -> dict[str, int]:
    """The low end of each term."""
    return {str(term.id): term.bytes.low for term in plan.terms}


def tiny_knowledge() -> Knowledge:
    """What a planner knows of the tiny K3."""
    knowledge = Planning().knowledge("kimi-k3")
    model = tiny_model(knowledge.model.model)
    inventories = {
        variant.id: from_facts(model, knowledge.model.family, variant) for variant in model.variants
    }
    return replace(knowledge, model=replace(knowledge.model, model=model, inventories=inventories))


def measured(
    start: Serve, path: Path, model: str, variant: str
) -> tuple[Receipt, dict[str, MeasuredTerm]]:
    """The receipt of one start of the engine, and its terms by id."""
    settings = EmbeddedSettings(
        model_path=str(path), model=model, slot_tokens=SLOT_TOKENS, slots=SLOTS
    )
    with start(settings) as served:
        memory = llamacpp.parse(served.log_lines())
    receipt = llamacpp.receipt(
        memory,
        model=model,
        variant=variant,
        engine="embedded",
        engine_version=served.spec.engine_version,
        rack=THIS_MACHINE,
        taken_at="2026-11-30T00:00:00Z",
    )
    return receipt, {term.term: term for term in receipt.terms}


def assert_equal_as_printed(
    predicted: dict[str, int], seen: dict[str, MeasuredTerm], terms: tuple[str, ...]
) -> None:
    """Each prediction is closer to the log than its last printed digit."""
    for term in terms:
        difference = abs(predicted[term] - seen[term].bytes)
        assert difference < seen[term].resolution_bytes, f"{term}: off by {difference} B"


def test_smollm2_takes_what_its_plan_says(start: Serve, smollm2: Path) -> None:
    """Weights, KV and output buffer of a dense model, to the printed digit."""
    _, seen = measured(start, smollm2, SMOLLM2_ID, "q4-1-gguf")
    predicted = bytes_of(plan(Planning().knowledge(SMOLLM2_ID), SLOTS, SLOTS * SLOT_TOKENS))
    assert_equal_as_printed(predicted, seen, PREDICTED)
    assert predicted["weights"] == read_gguf(smollm2).tensor_bytes
    assert f"{seen['kv_cache'].bytes / MIB:.2f}" == "90.00"


def test_the_tiny_k3_takes_what_its_plan_says(start: Serve, tiny_k3: Path) -> None:
    """Also both kinds of recurrent state: 6.00 and 0.42 MiB, and 13.50 MiB of latent cache."""
    _, seen = measured(start, tiny_k3, TINY_ID, "mxfp4-gguf")
    predicted = bytes_of(plan(tiny_knowledge(), SLOTS, SLOTS * SLOT_TOKENS))
    assert_equal_as_printed(predicted, seen, (*PREDICTED, *STATE))
    assert predicted["weights"] == read_gguf(tiny_k3).tensor_bytes
    assert [f"{seen[term].bytes / MIB:.2f}" for term in ("kv_cache", *STATE)] == [
        "13.50",
        "6.00",
        "0.42",
    ]


def test_a_receipt_replaces_what_the_plan_did_not_know(start: Serve, tiny_k3: Path) -> None:
    """The compute buffer has no formula: unknown before the first start, measured after it."""
    knowledge = tiny_knowledge()
    receipt, seen = measured(start, tiny_k3, TINY_ID, "mxfp4-gguf")

    def compute(receipt: Receipt | None) -> tuple[Kind, int, int | None]:
        made = plan(knowledge, SLOTS, SLOTS * SLOT_TOKENS, receipt)
        (term,) = (term for term in made.terms if term.id == "workspace.compute_buffer")
        return term.kind, term.bytes.low, term.bytes.high

    size = seen["workspace.compute_buffer"].bytes
    assert compute(None) == (Kind.UNKNOWN, 0, None)
    assert compute(receipt) == (Kind.MEASURED, size, size)


@pytest.mark.usefixtures("engine_home")
@pytest.mark.parametrize(
    ("slots", "context", "mib"),
    [
        (1, 131_072, ("3456.00", "443.11")),
        (1, 1_048_576, ("27648.00", "443.11")),
        (4, 262_144, ("6912.00", "1772.44")),
        (8, 1_048_576, ("27648.00", "3544.88")),
    ],
)
def test_llama_cpp_forecasts_the_whole_k3_as_the_plan_does(
    k3_header: Path, tmp_path: Path, slots: int, context: int, mib: tuple[str, str]
) -> None:
    """KV and state of 2.78 T parameters, from llama.cpp's own projection without the weights."""
    settings = EmbeddedSettings(
        model_path=str(k3_header), model="kimi-k3", slot_tokens=context // slots, slots=slots
    )
    fit = forecast(settings, log=tmp_path / "fit.log")
    assert fit.memory.kv is not None
    assert fit.memory.recurrent is not None
    printed = (
        f"{fit.memory.kv.size.bytes / MIB:.2f}",
        f"{fit.memory.recurrent.size.bytes / MIB:.2f}",
    )
    made = plan(Planning().knowledge("kimi-k3"), slots, context).per_gpu
    planned = (
        f"{made.kv_cache_bytes.low / MIB:.2f}",
        f"{made.recurrent_state_bytes.low / MIB:.2f}",
    )
    assert printed == planned == mib
    # The forecast's table is in whole MiB, rounded down for each of two buffers.
    assert 0 <= made.weights_bytes.low / MIB - fit.model_mib < 2
