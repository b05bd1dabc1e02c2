"""A request written back as the command that makes it."""

from __future__ import annotations

import shlex

from heavylift.records.plan import Layout, PlanRequest
from heavylift.units import format_tokens

_LAYOUT_FLAGS = {
    "tensor": "--tp",
    "pipeline": "--pp",
    "data": "--dp",
    "expert": "--ep",
    "decode_context": "--dcp",
}


def plan_command(request: PlanRequest, command: str = "plan") -> str:
    """The `heavylift plan …` line that makes this request, quoted for a shell."""
    words = ["heavylift", command, request.model, "--on", request.rack.label]
    for flag, value in (
        ("--engine", request.engine),
        ("--engine-version", request.engine_version),
        ("--variant", request.variant),
        ("--kv-dtype", request.kv_cache_dtype),
        ("--moe-backend", request.moe_backend),
        ("--state-strategy", request.state_strategy),
        # Other commands do not take one.
        ("--drafter", request.drafter if command == "plan" else None),
    ):
        if value is not None:
            words += [flag, value]
    for flag, number in (
        ("--context", request.context_tokens),
        ("--output", request.output_tokens),
    ):
        if number is not None:
            words += [flag, format_tokens(number).replace(",", "")]
    for flag, plain in (
        ("--concurrency", request.concurrency),
        ("--max-batched-tokens", request.max_num_batched_tokens),
        ("--max-num-seqs", request.max_num_seqs),
        ("--gpu-memory-utilization", request.gpu_memory_utilization),
    ):
        if plain is not None:
            words += [flag, str(plain)]
    for name, size in request.layout_constraints.items():
        words += [_LAYOUT_FLAGS[name], "all" if size == 0 else str(size)]
    if request.draft_tokens:
        words += ["--mtp", str(request.draft_tokens)]
    if request.vision is False:
        words.append("--text-only")
    return shlex.join(words)


def layout_flags(layout: Layout) -> str:
    """The flags that state a layout: `--tp 2 --dp 4 --ep 8`."""
    sizes = (
        ("--tp", layout.tensor_parallel_size),
        ("--pp", layout.pipeline_parallel_size),
        ("--dp", layout.data_parallel_size),
        ("--ep", layout.expert_parallel_size),
        ("--dcp", layout.decode_context_parallel_size),
    )
    return " ".join(f"{flag} {size}" for flag, size in sizes if flag == "--tp" or size > 1)
