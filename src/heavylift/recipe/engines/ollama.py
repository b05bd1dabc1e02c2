"""Ollama: a Modelfile and variables. It chooses layers and memory itself."""

from __future__ import annotations

from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.engines.common import (
    API,
    Built,
    computed,
    engine_rules,
    exposure,
    planned,
    rank_name,
)
from heavylift.recipe.engines.llamacpp import slot_tokens
from heavylift.recipe.sheet import Sheet
from heavylift.records.launch import RankSpec, file_token

MODELFILE: Final = "Modelfile"
GFX_OVERRIDE: Final = "HSA_OVERRIDE_GFX_VERSION"


def build(sheet: Sheet) -> Built:
    """The server, and the command that makes the model from its file beforehand.

    Raises REC012 for a model it cannot run, REC015 when no file is known.
    """
    job = sheet.job
    plan = job.plan
    engine_rules(sheet)
    source = job.start.model_path or (f"hf.co/{job.variant_repo}" if job.variant_repo else None)
    if source is None:
        raise HeavyliftError("REC015", {"variant": plan.variant, "engine": job.serving.title})
    port = job.start.port or job.serving.port
    sheet.env("OLLAMA_HOST", f"{job.start.bind_host}:{port}", exposure("bind_host"))
    sheet.env("OLLAMA_NUM_PARALLEL", str(plan.concurrency), planned(job, "concurrency", "slots"))
    sheet.env("OLLAMA_MAX_LOADED_MODELS", "1", computed("one_model"))
    sheet.env("OLLAMA_KEEP_ALIVE", "-1", computed("keep_loaded"))
    if plan.rack.gpu_count > 1:
        sheet.env("OLLAMA_SCHED_SPREAD", "1", computed("all_cards"))
    if job.gpu.vendor == "amd":
        # Named, not set: a wrong value makes kernels of another card run.
        sheet.note("gfx_override", variable=GFX_OVERRIDE, architecture=job.gpu.architecture)
    if job.start.key:
        sheet.note("key_needs_gateway", engine=job.serving.title)
    sheet.note("ollama_decides")
    modelfile = f"FROM {source}\nPARAMETER num_ctx {slot_tokens(plan.context_tokens)}\n"
    rank = RankSpec(
        rank=0,
        name=rank_name(job, 0),
        role=job.role,
        node=0,
        host=rank_name(job, 0),
        gpus=job.cards,
        serves=True,
        argv=("ollama", "serve"),
        env=sheet.environment(),
        ports={API: port},
    )
    return Built(
        ranks=(rank,),
        files={MODELFILE: modelfile},
        prepare=(("ollama", "create", job.served_name, "-f", file_token(MODELFILE)),),
    )
