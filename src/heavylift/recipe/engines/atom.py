"""ATOM's own OpenAI server: one machine."""

from __future__ import annotations

from heavylift.recipe.engines.common import (
    API,
    Built,
    computed,
    exposure,
    finish,
    rank_name,
    secrets,
)
from heavylift.recipe.sheet import Sheet
from heavylift.records.launch import RankSpec


def build(sheet: Sheet) -> Built:
    """The one process. `--server-port` is the HTTP port; `--port` is its own rendezvous."""
    job = sheet.job
    layout, why = job.plan.layout, computed("layout")
    port = job.engine_port
    sheet.flag("--model", job.weights, exposure("model"))
    if sheet.offers("--served-model-name"):
        sheet.flag("--served-model-name", job.served_name, exposure("served_name"))
    sheet.flag("--host", job.engine_host, exposure("bind_host"))
    sheet.flag("--server-port", port, exposure("port"))
    sheet.flag("--tensor-parallel-size", layout.tensor_parallel_size, why)
    for flag, size in (
        ("--pipeline-parallel-size", layout.pipeline_parallel_size),
        ("--data-parallel-size", layout.data_parallel_size),
        ("--decode-context-parallel-size", layout.decode_context_parallel_size),
    ):
        if size > 1:
            sheet.flag(flag, size, why)
    if layout.expert_parallel_size > 1:
        sheet.flag("--enable-expert-parallel", None, why)
    finish(sheet)
    rank = RankSpec(
        rank=0,
        name=rank_name(job, 0),
        role=job.role,
        node=0,
        host=rank_name(job, 0),
        gpus=job.cards,
        serves=True,
        argv=("python3", *job.command.entries[0].split(), *sheet.words()),
        env=sheet.environment(),
        secrets=secrets(sheet),
        ports={API: port},
    )
    return Built(ranks=(rank,))
