"""vLLM: how KV moves between a prefill and a decode pool, or into a store that outlives both."""

from __future__ import annotations

from typing import Any, Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.engines.common import computed
from heavylift.recipe.job import PREFILL, Job
from heavylift.recipe.sheet import Sheet, canonical_json
from heavylift.records.launch import SELF, host_token

CONNECTORS: Final = {
    "nixl": "NixlConnector",
    "mooncake": "MooncakeConnector",
    "moriio": "MoRIIOConnector",
}
STORES: Final = ("embedded", "centralised")
BOOTSTRAP_PORT: Final = 8998
STORE_PORT: Final = 50051
STORE_FILE: Final = "mooncake.json"
STORE_NAME: Final = "store-0"
_SIDE_PORTS: Final = {"prefill": 5557, "decode": 5558}
# MoRI-IO: ports of one process, and the router's port that it announces itself to.
_MORIIO_PORTS: Final = {"handshake_port": "6301", "notify_port": "61005"}
_PING_PORT: Final = "36367"


def transfer(sheet: Sheet) -> None:
    """The connector's flag and variables. Raises REC014 for a connector that is not known."""
    job = sheet.job
    parts = []
    if job.is_split:
        parts.append(_between_pools(sheet))
    if job.start.store is not None:
        parts.append({"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"})
        sheet.env("MOONCAKE_CONFIG_PATH", "{file:" + STORE_FILE + "}", computed("store"))
    if not parts:
        return
    config: dict[str, Any] = parts[0]
    if len(parts) > 1:
        config = {
            "kv_connector": "MultiConnector",
            "kv_role": parts[0]["kv_role"],
            "kv_connector_extra_config": {"connectors": parts},
        }
    sheet.flag("--kv-transfer-config", canonical_json(config), computed("transfer"))


def _between_pools(sheet: Sheet) -> dict[str, Any]:
    job = sheet.job
    kind = job.start.connector
    if kind not in CONNECTORS:
        raise HeavyliftError("REC014", {"connector": kind, "known": ", ".join(CONNECTORS)})
    config: dict[str, Any] = {
        "kv_connector": CONNECTORS[kind],
        "kv_role": "kv_producer" if job.role == PREFILL else "kv_consumer",
    }
    if kind == "nixl":
        # A transfer that failed must not be decoded from.
        config["kv_load_failure_policy"] = "fail"
        port = _SIDE_PORTS[job.role]
        sheet.env("VLLM_NIXL_SIDE_CHANNEL_HOST", host_token(SELF), computed("own_address"))
        sheet.env("VLLM_NIXL_SIDE_CHANNEL_PORT", str(port), computed("side_channel"))
    elif kind == "mooncake":
        if job.role == PREFILL:
            sheet.env("VLLM_MOONCAKE_BOOTSTRAP_PORT", str(BOOTSTRAP_PORT), computed("side_channel"))
    else:
        config["kv_connector_extra_config"] = _moriio(job)
    return config


def _moriio(job: Job) -> dict[str, str]:
    return {
        **_MORIIO_PORTS,
        "host_ip": host_token(SELF),
        "http_port": str(job.engine_port),
        "proxy_ip": host_token("router-0"),
        "proxy_ping_port": _PING_PORT,
    }


def store_file(job: Job) -> str:
    """The configuration that every process of a Mooncake store reads."""
    centralised = job.start.store == "centralised"
    master = host_token(STORE_NAME) if centralised else host_token("serve-0")
    return canonical_json(
        {
            "global_segment_size": "0" if centralised else "64GB",
            "local_buffer_size": "4GB",
            "master_server_address": f"{master}:{STORE_PORT}",
            "metadata_server": "P2PHANDSHAKE",
            "protocol": "rdma",
        }
    )
