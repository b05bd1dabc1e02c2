"""llama.cpp: whole layers per GPU, one process, one pot of context for all slots."""

from __future__ import annotations

from heavylift.errors import HeavyliftError
from heavylift.recipe.engines.common import (
    API,
    Built,
    computed,
    deadline,
    engine_rules,
    exposure,
    follow,
    planned,
    rank_name,
    secrets,
)
from heavylift.recipe.sheet import Sheet
from heavylift.records.launch import RankSpec

CONTEXT_MULTIPLE = 256


def slot_tokens(context: int) -> int:
    """A context in cells: llama.cpp rounds the cells of each slot up to 256."""
    return -(-context // CONTEXT_MULTIPLE) * CONTEXT_MULTIPLE


def build(sheet: Sheet) -> Built:
    """The one process. Raises REC015 when no file of the variant is known."""
    job = sheet.job
    plan = job.plan
    port = job.engine_port
    slots = plan.concurrency
    _model(sheet)
    sheet.flag("--alias", job.served_name, exposure("served_name"))
    sheet.flag("--host", job.engine_host, exposure("bind_host"))
    sheet.flag("--port", port, exposure("port"))
    context = planned(job, "context_tokens", "context_shared")
    sheet.flag("--ctx-size", slot_tokens(plan.context_tokens) * slots, context)
    sheet.flag("--parallel", slots, planned(job, "concurrency", "slots"))
    if not job.on_host:
        sheet.flag("--n-gpu-layers", 999, computed("all_layers"))
        gpus = plan.layout.pipeline_parallel_size
        if gpus > 1:
            sheet.flag("--split-mode", "layer", computed("layer_split"))
            sheet.flag("--tensor-split", ",".join("1" for _ in range(gpus)), computed("even_split"))
    word = job.serving.kv_dtype_words.get(plan.kv_cache_dtype, plan.kv_cache_dtype)
    for flag in ("--cache-type-k", "--cache-type-v"):
        sheet.flag(flag, word, planned(job, "kv_cache_dtype", "kv_dtype"))
    if plan.max_num_batched_tokens is not None:
        reason = planned(job, "max_num_batched_tokens", "batched_tokens")
        sheet.flag("--ubatch-size", plan.max_num_batched_tokens, reason)
    deadline(sheet)
    engine_rules(sheet)
    follow(sheet)
    rank = RankSpec(
        rank=0,
        name=rank_name(job, 0),
        role=job.role,
        node=0,
        host=rank_name(job, 0),
        gpus=job.cards,
        serves=True,
        argv=(*job.command.entries[0].split(), *sheet.words()),
        env=sheet.environment(),
        secrets=secrets(sheet),
        ports={API: port},
    )
    return Built(ranks=(rank,))


def _model(sheet: Sheet) -> None:
    """A file stated, or the quantisation of a repository, which the server fetches."""
    job = sheet.job
    if job.start.model_path is not None:
        sheet.flag("--model", job.start.model_path, exposure("model"))
        return
    if job.variant_repo is None:
        raise HeavyliftError("REC015", {"variant": job.plan.variant, "engine": job.serving.title})
    quantisation = job.plan.variant.upper().replace("-", "_").replace("UD_", "UD-", 1)
    sheet.flag("--hf-repo", f"{job.variant_repo}:{quantisation}", exposure("model"))
