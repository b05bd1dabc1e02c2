"""vLLM: one process per machine, found by its own rendezvous.

Tensor and pipeline ranks that span machines use `--nnodes`; data parallel replicas that do not use
the data parallel address instead: the two do not go together.
"""

from __future__ import annotations

from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.engines.common import (
    API,
    Built,
    computed,
    exposure,
    finish,
    rank_name,
    secrets,
)
from heavylift.recipe.engines.vllm_transfer import transfer
from heavylift.recipe.sheet import Sheet
from heavylift.records.launch import SELF, RankSpec, Rendezvous, host_token
from heavylift.records.plan import Plan

MASTER_PORT: Final = 29501
RPC_PORT: Final = 13345


def spreads(plan: Plan) -> bool:
    """False for data parallel replicas that each span machines: there is no rendezvous for both."""
    layout, rack = plan.layout, plan.rack
    group = layout.tensor_parallel_size * layout.pipeline_parallel_size
    return rack.nodes == 1 or layout.data_parallel_size == 1 or group <= rack.gpus_per_node


def build(sheet: Sheet) -> Built:
    """The processes of one replica. Raises REC013 for a layout that vLLM cannot spread."""
    job = sheet.job
    layout = job.plan.layout
    by_data = job.nodes > 1 and layout.data_parallel_size > 1
    if not spreads(job.plan):
        raise HeavyliftError(
            "REC013",
            {
                "layout": layout.label,
                "engine": job.serving.title,
                "nodes": job.nodes,
                "gpus": job.gpus_per_node,
            },
        )
    port = job.engine_port
    sheet.flag("--served-model-name", job.served_name, exposure("served_name"))
    sheet.flag("--host", job.engine_host, exposure("bind_host"))
    sheet.flag("--port", port, exposure("port"))
    _layout(sheet)
    transfer(sheet)
    finish(sheet)
    if job.nodes > 1:
        sheet.env("VLLM_HOST_IP", host_token(SELF), computed("own_address"))
    head = rank_name(job, 0)
    words = (*job.command.entries[0].split(), job.weights, *sheet.words())
    hybrid = sheet.has("--data-parallel-hybrid-lb")
    ranks = tuple(
        _rank(sheet, node, words, head, port, by_data=by_data, hybrid=hybrid)
        for node in range(job.nodes)
    )
    if job.nodes == 1:
        return Built(ranks=ranks)
    return Built(
        ranks=ranks,
        rendezvous=Rendezvous(
            kind="native",
            head=head,
            port=RPC_PORT if by_data else MASTER_PORT,
            head_flag="--data-parallel-address" if by_data else "--master-addr",
            rank_flag="--data-parallel-start-rank" if by_data else "--node-rank",
        ),
    )


def _layout(sheet: Sheet) -> None:
    layout, why = sheet.job.plan.layout, computed("layout")
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


def _rank(
    sheet: Sheet,
    node: int,
    words: tuple[str, ...],
    head: str,
    port: int,
    *,
    by_data: bool,
    hybrid: bool,
) -> RankSpec:
    job = sheet.job
    serves = node == 0 or hybrid
    return RankSpec(
        rank=node,
        name=rank_name(job, node),
        role=job.role,
        node=node,
        host=rank_name(job, node),
        gpus=job.cards,
        serves=serves,
        argv=(*words, *_place(sheet, node, head, by_data=by_data, serves=serves)),
        env=sheet.environment(),
        secrets=secrets(sheet) if serves else {},
        ports={API: port} if serves else {},
    )


def _place(sheet: Sheet, node: int, head: str, *, by_data: bool, serves: bool) -> tuple[str, ...]:
    """The words that tell the machines of one pool apart."""
    job = sheet.job
    if job.nodes == 1:
        return ()
    meets, quiet = computed("rendezvous"), computed("headless")
    local = job.plan.layout.data_parallel_size // job.nodes
    if by_data:
        flags = [
            ("--data-parallel-size-local", local),
            ("--data-parallel-start-rank", node * local),
            ("--data-parallel-address", host_token(head)),
            ("--data-parallel-rpc-port", RPC_PORT),
        ]
    else:
        flags = [
            ("--nnodes", job.nodes),
            ("--node-rank", node),
            ("--master-addr", host_token(head)),
            ("--master-port", MASTER_PORT),
        ]
    words = [word for flag, value in flags for word in sheet.placed(flag, str(value), meets)]
    return (*words, *(() if serves else sheet.placed("--headless", None, quiet)))
