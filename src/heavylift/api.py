"""Heavylift from Python: `plan`, `compare`, `lint`, `diagnose`. This is what stays stable.

Everything returned is a frozen record of `heavylift.records` (or of the linter), the same that
`--json` writes. Errors are `heavylift.errors.HeavyliftError` with a code and parameters. Names,
parameters and fields here are kept for at least two minor versions after a DeprecationWarning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from heavylift.lint.check import Report
    from heavylift.plan.compare import Comparison
    from heavylift.records.diagnosis import Diagnosis
    from heavylift.records.plan import Plan, PlanRequest, Rack
    from heavylift.records.receipt import Receipt

__all__ = ["ALL", "Workload", "compare", "diagnose", "lint", "plan"]

ALL: Final = 0
"""As an expert parallel size: as far as the layout goes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What is asked of a plan beside model and rack; None = the engine's or the model's own value.

    Lengths in tokens. Sizes are those of the parallel layout; unset ones are searched.
    """

    engine: str | None = None
    engine_version: str | None = None
    variant: str | None = None
    context_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    expert_parallel_size: int | None = None
    decode_context_parallel_size: int | None = None
    gpu_memory_utilization: float | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    moe_backend: str | None = None
    state_strategy: str | None = None
    vision: bool | None = None


def plan(
    model: str | PathLike[str],
    on: str,
    workload: Workload | None = None,
    *,
    receipt: Receipt | None = None,
) -> Plan:
    """What a model needs on a rack, byte by byte per GPU, and whether it fits.

    `model`: an id or name of the catalogue, or a folder with a checkpoint (its headers are read,
    nothing in it is run). `on`: `8xMI355X`, `2x8xH200`, or a card alone for the smallest count.
    `receipt`: what a start of the engine showed; its terms take the place of assumed ones.

    Raises FACT010 to FACT012 for unknown names, PLAN001 to PLAN004 for a rack or layout that is
    none, CKPT codes for a checkpoint that cannot be read.
    """
    from heavylift.planning import Planning

    planning = Planning()
    knowledge = planning.knowledge(fspath(model))
    gpu, rack = planning.rack(on)
    build = _requests(fspath(model), workload or Workload(), planning.engine)
    request = build if rack is None else build(rack)
    return planning.plan(request, knowledge, gpu=gpu, receipt=receipt)


def compare(
    model: str | PathLike[str], on: Iterable[str], workload: Workload | None = None
) -> Comparison:
    """A plan per rack, in order. A rack that cannot be planned is a failure with its code, not an
    error. Raises FACT010 and FACT012 for an unknown model or engine.
    """
    from heavylift.planning import Planning

    planning = Planning()
    build = _requests(fspath(model), workload or Workload(), planning.engine)
    return planning.compare(tuple(on), build, planning.knowledge(fspath(model)))


def lint(
    text: str, *, on: str | None = None, model: str | None = None, version: str | None = None
) -> Report:
    """What is wrong with the commands of a script, compose file, manifest or unit, with sources,
    and the mended text. `on`, `model` and the engine's `version` are taken where the text does not
    say them.
    """
    from heavylift.linting import Linting

    return Linting().lint(text, rack=on, model=model, version=version)


def diagnose(*logs: str | PathLike[str]) -> Diagnosis:
    """The first cause in the logs of a failed run, ranked, with line, fix and source.

    Several logs are those of the ranks of one run; a folder stands for the logs in it. Raises
    DIA001 and DIA002 for logs that are not there.
    """
    from heavylift.diagnose import evidence, match
    from heavylift.diagnose.symptoms import CompiledSymptoms
    from heavylift.facts.catalog import Catalog

    symptoms = CompiledSymptoms(Catalog().symptoms())
    return match.diagnose(evidence.read(tuple(fspath(log) for log in logs), symptoms), "en")


_SIZES: Final = {
    "tensor": "tensor_parallel_size",
    "pipeline": "pipeline_parallel_size",
    "data": "data_parallel_size",
    "expert": "expert_parallel_size",
    "decode_context": "decode_context_parallel_size",
}


def _requests(
    model: str, wanted: Workload, engine: Callable[[str | None], str | None]
) -> Callable[[Rack], PlanRequest]:
    from heavylift.records.plan import PlanRequest

    sizes = {name: getattr(wanted, field) for name, field in _SIZES.items()}
    constraints = {name: size for name, size in sizes.items() if size is not None}

    def build(rack: Rack) -> PlanRequest:
        return PlanRequest(
            model=model,
            rack=rack,
            engine=engine(wanted.engine),
            engine_version=wanted.engine_version,
            variant=wanted.variant,
            context_tokens=wanted.context_tokens,
            output_tokens=wanted.output_tokens,
            concurrency=wanted.concurrency,
            kv_cache_dtype=wanted.kv_cache_dtype,
            layout_constraints=constraints,
            gpu_memory_utilization=wanted.gpu_memory_utilization,
            max_num_batched_tokens=wanted.max_num_batched_tokens,
            max_num_seqs=wanted.max_num_seqs,
            moe_backend=wanted.moe_backend,
            state_strategy=wanted.state_strategy,
            vision=wanted.vision,
        )

    return build
