"""TokenSpeed: one process per machine."""

from __future__ import annotations

from typing import Final

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
from heavylift.records.launch import RankSpec, Rendezvous, host_token

INIT_PORT: Final = 5000


def build(sheet: Sheet) -> Built:
    """The processes of one replica."""
    job = sheet.job
    layout, why = job.plan.layout, computed("layout")
    port = job.engine_port
    sheet.flag("--model", job.weights, exposure("model"))
    sheet.flag("--served-model-name", job.served_name, exposure("served_name"))
    sheet.flag("--host", job.engine_host, exposure("bind_host"))
    sheet.flag("--port", port, exposure("port"))
    sheet.flag("--tensor-parallel-size", layout.tensor_parallel_size, why)
    if layout.data_parallel_size > 1:
        sheet.flag("--data-parallel-size", layout.data_parallel_size, why)
    if layout.expert_parallel_size > 1:
        sheet.flag("--enable-expert-parallel", None, why)
    finish(sheet)
    head = rank_name(job, 0)
    words = (*job.command.entries[0].split(), *sheet.words())
    ranks = []
    for node in range(job.nodes):
        place: tuple[str, ...] = ()
        if job.nodes > 1:
            meets = computed("rendezvous")
            place = (
                *sheet.placed("--world-size", str(layout.world_size), meets),
                *sheet.placed("--nnodes", str(job.nodes), meets),
                *sheet.placed("--node-rank", str(node), meets),
                *sheet.placed("--dist-init-addr", f"{host_token(head)}:{INIT_PORT}", meets),
            )
        ranks.append(
            RankSpec(
                rank=node,
                name=rank_name(job, node),
                role=job.role,
                node=node,
                host=rank_name(job, node),
                gpus=job.cards,
                serves=node == 0,
                argv=(*words, *place),
                env=sheet.environment(),
                secrets=secrets(sheet) if node == 0 else {},
                ports={API: port} if node == 0 else {},
            )
        )
    rendezvous = Rendezvous(
        kind="native",
        head=head,
        port=INIT_PORT,
        head_flag="--dist-init-addr",
        rank_flag="--node-rank",
    )
    return Built(ranks=tuple(ranks), rendezvous=rendezvous if job.nodes > 1 else None)
