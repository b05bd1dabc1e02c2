"""TensorRT-LLM: one process per card, started by MPI; settings in a YAML file beside the command.

The file is JSON, which is YAML.
"""

from __future__ import annotations

from typing import Final

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
    """One entry per machine, started once per GPU; the launcher serves on the first."""
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
    sheet.flag("--config", file_token(CONFIG), computed("config_file"))
    _keys(sheet)
    finish(sheet)
    _kv_dtype(sheet)
    entry = job.command.entries[0].split()
    launcher = (LAUNCHER,) if job.nodes > 1 else ()
    words = (*launcher, *entry, job.weights, *sheet.words())
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
                # MPI takes one task to a card; on one machine the server starts them itself.
                tasks=job.cards if job.nodes > 1 else 1,
                serves=node == 0,
                argv=words,
                env=sheet.environment(),
                secrets=secrets(sheet) if node == 0 else {},
                ports={API: port} if node == 0 else {},
            )
            for node in range(job.nodes)
        ),
        rendezvous=Rendezvous(kind="mpi", head=head, port=_MPI_PORT) if job.nodes > 1 else None,
        files={CONFIG: canonical_json(sheet.settings_file()) + "\n"},
    )


def _keys(sheet: Sheet) -> None:
    """What the command line has no flag for, in every version that was read."""
    job = sheet.job
    if job.plan.layout.data_parallel_size > 1:
        sheet.key("enable_attention_dp", True, computed("layout"))
    if job.plan.page_tokens is not None:
        sheet.key("kv_cache_config.tokens_per_block", job.plan.page_tokens, computed("block"))


def _kv_dtype(sheet: Sheet) -> None:
    """The KV dtype in the file of settings, where the version has no flag for it."""
    job = sheet.job
    if not sheet.has("--kv_cache_dtype"):
        word = job.serving.kv_dtype_words.get(job.plan.kv_cache_dtype, job.plan.kv_cache_dtype)
        reason = planned(job, "kv_cache_dtype", "kv_dtype")
        sheet.key("kv_cache_config.dtype", word, reason)
