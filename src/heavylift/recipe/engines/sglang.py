"""SGLang: one process per machine; its data parallelism is of the attention."""

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
from heavylift.recipe.job import PREFILL
from heavylift.recipe.sheet import Sheet
from heavylift.records.launch import RankSpec, Rendezvous, host_token

INIT_PORT: Final = 5000
BOOTSTRAP_PORT: Final = 8998
_BACKENDS: Final = {"nixl": "nixl", "mooncake": "mooncake", "moriio": "mori"}


def build(sheet: Sheet) -> Built:
    """The processes of one replica."""
    job = sheet.job
    port = job.engine_port
    sheet.flag("--model-path", job.weights, exposure("model"))
    sheet.flag("--served-model-name", job.served_name, exposure("served_name"))
    sheet.flag("--host", job.engine_host, exposure("bind_host"))
    sheet.flag("--port", port, exposure("port"))
    _layout(sheet)
    _transfer(sheet)
    finish(sheet)
    head = rank_name(job, 0)
    words = (*job.command.entries[0].split(), *sheet.words())
    ranks = tuple(
        RankSpec(
            rank=node,
            name=rank_name(job, node),
            role=job.role,
            node=node,
            host=rank_name(job, node),
            gpus=job.cards,
            serves=node == 0,
            argv=(*words, *_place(sheet, node, head)),
            env=sheet.environment(),
            secrets=secrets(sheet) if node == 0 else {},
            ports={API: port} if node == 0 else {},
        )
        for node in range(job.nodes)
    )
    if job.nodes == 1:
        return Built(ranks=ranks)
    rendezvous = Rendezvous(
        kind="native",
        head=head,
        port=INIT_PORT,
        head_flag="--dist-init-addr",
        rank_flag="--node-rank",
    )
    return Built(ranks=ranks, rendezvous=rendezvous)


def _layout(sheet: Sheet) -> None:
    layout, why = sheet.job.plan.layout, computed("layout")
    data = layout.data_parallel_size
    # Attention data parallelism counts inside the tensor parallel ranks here.
    sheet.flag("--tp-size", layout.tensor_parallel_size * data, why)
    for flag, size in (
        ("--pp-size", layout.pipeline_parallel_size),
        ("--ep-size", layout.expert_parallel_size),
        ("--dcp-size", layout.decode_context_parallel_size),
        ("--dp-size", data),
    ):
        if size > 1:
            sheet.flag(flag, size, why)
    if data > 1:
        sheet.flag("--enable-dp-attention", None, why)


def _transfer(sheet: Sheet) -> None:
    job = sheet.job
    if not job.is_split:
        return
    backend = _BACKENDS.get(job.start.connector)
    if backend is None:
        raise HeavyliftError(
            "REC014", {"connector": job.start.connector, "known": ", ".join(_BACKENDS)}
        )
    why = computed("transfer")
    sheet.flag("--disaggregation-mode", job.role, why)
    sheet.flag("--disaggregation-transfer-backend", backend, why)
    if job.role == PREFILL:
        sheet.flag("--disaggregation-bootstrap-port", BOOTSTRAP_PORT, computed("side_channel"))


def _place(sheet: Sheet, node: int, head: str) -> tuple[str, ...]:
    if sheet.job.nodes == 1:
        return ()
    meets = computed("rendezvous")
    return (
        *sheet.placed("--nnodes", str(sheet.job.nodes), meets),
        *sheet.placed("--node-rank", str(node), meets),
        *sheet.placed("--dist-init-addr", f"{host_token(head)}:{INIT_PORT}", meets),
    )
