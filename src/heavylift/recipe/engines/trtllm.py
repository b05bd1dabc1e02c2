"""TensorRT-LLM: started once per rank by MPI, settings in a YAML file beside the command."""

from __future__ import annotations

from typing import Any, Final

from heavylift.recipe.engines.common import (
    API,
    Built,
    computed,
    exposure,
    finish,
    planned,
    rank_name,
    secrets,
)
from heavylift.recipe.sheet import Sheet, canonical_json
from heavylift.records.launch import RankSpec, Rendezvous, file_token

CONFIG: Final = "trtllm.yaml"
LAUNCHER: Final = "trtllm-llmapi-launch"
_MPI_PORT: Final = 0


def build(sheet: Sheet) -> Built:
    """One entry per machine; the launcher gives each GPU its MPI rank and serves on the first."""
    job = sheet.job
    layout, why = job.plan.layout, computed("layout")
    port = job.engine_port
    # Attention data parallelism counts inside the tensor parallel ranks here.
    ranks = layout.tensor_parallel_size * layout.data_parallel_size
    sheet.flag("--host", job.engine_host, exposure("bind_host"))
    sheet.flag("--port", port, exposure("port"))
    sheet.flag("--tensor_parallel_size", ranks, why)
    if layout.pipeline_parallel_size > 1:
        sheet.flag("--pipeline_parallel_size", layout.pipeline_parallel_size, why)
    if layout.expert_parallel_size > 1:
        sheet.flag("--moe_expert_parallel_size", layout.expert_parallel_size, why)
    sheet.flag("--gpus_per_node", job.gpus_per_node, why)
    if job.plan.max_num_batched_tokens is not None:
        reason = planned(job, "max_num_batched_tokens", "batched_tokens")
        sheet.flag("--max_num_tokens", job.plan.max_num_batched_tokens, reason)
    budget = next((each for each in job.plan.budgets if each.fraction is not None), None)
    if budget is not None and budget.fraction is not None:
        reason = planned(job, budget.name, "memory_fraction")
        sheet.flag("--free_gpu_memory_fraction", round(budget.fraction, 3), reason)
    sheet.flag("--config", file_token(CONFIG), computed("config_file"))
    finish(sheet)
    entry = job.command.entries[0].split()
    launcher = (LAUNCHER,) if job.nodes > 1 else ()
    words = (*launcher, *entry, "serve", str(job.model_path), *sheet.words())
    head = rank_name(job, 0)
    return Built(
        ranks=tuple(
            RankSpec(
                rank=node,
                name=rank_name(job, node),
                role=job.role,
                node=node,
                host=rank_name(job, node),
                gpus=job.cards,
                serves=node == 0,
                argv=words,
                env=sheet.environment(),
                secrets=secrets(sheet) if node == 0 else {},
                ports={API: port} if node == 0 else {},
            )
            for node in range(job.nodes)
        ),
        rendezvous=Rendezvous(kind="mpi", head=head, port=_MPI_PORT) if job.nodes > 1 else None,
        files={CONFIG: _config(sheet)},
    )


def _config(sheet: Sheet) -> str:
    """What the command line has no flag for. JSON is YAML."""
    job = sheet.job
    layout = job.plan.layout
    config: dict[str, Any] = {
        "enable_attention_dp": layout.data_parallel_size > 1,
        "kv_cache_config": {
            "dtype": job.serving.kv_dtype_words.get(job.plan.kv_cache_dtype, "auto"),
            "tokens_per_block": job.plan.page_tokens or 64,
        },
    }
    return canonical_json(config) + "\n"
