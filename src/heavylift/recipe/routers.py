"""The router in front of several servers: which addresses it is given, in its own words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.flags import FlagTable, Presence
from heavylift.recipe.job import DECODE, PREFILL, ROUTER, Job
from heavylift.records.launch import RankSpec, Setting, host_token

VLLM_ROUTER: Final = "vllm-router"
SMG: Final = "smg"
BOOTSTRAP_PORT: Final = 8998
_API: Final = "api"
_KV_CONNECTORS: Final = {"nixl": "nixl", "mooncake": "mooncake", "moriio": "moriio"}

Words = tuple[str, ...]


def router(
    job: Job, table: FlagTable, ranks: Sequence[RankSpec], deadline_s: int
) -> tuple[RankSpec, tuple[Setting, ...]]:
    """The router's process and why it has each flag. Raises REC010 for a flag its version lacks."""
    kind = table.facts.engine
    port = job.start.port or job.serving.port
    halves = any(rank.role == PREFILL for rank in ranks)
    make = _SPLIT[kind] if halves else _EVEN[kind]
    parts: list[tuple[str, Words, str]] = [
        ("--host", (job.start.bind_host,), "bind_host"),
        ("--port", (str(port),), "port"),
        *make(job, [rank for rank in ranks if rank.serves]),
        ("--worker-startup-timeout-secs", (str(deadline_s),), "deadline"),
    ]
    version = table.newest
    words: list[str] = []
    settings = []
    for flag, values, why in parts:
        found = table.flag(flag)
        if found is None or table.flag_presence(found.name, version) is not Presence.PRESENT:
            raise HeavyliftError(
                "REC010",
                {"flag": flag, "engine": kind, "version": version, "presence": "absent"},
            )
        words += [flag, *values]
        settings.append(
            Setting(
                name=flag,
                value=" ".join(values),
                origin="computed",
                source=table.facts.source,
                why=why,
                role=ROUTER,
            )
        )
    rank = RankSpec(
        rank=len(ranks),
        name="router-0",
        role=ROUTER,
        node=0,
        host="router-0",
        gpus=0,
        serves=True,
        argv=(*_ENTRY[kind], *words),
        ports={_API: port},
        package=f"{kind}=={version}",
    )
    return rank, tuple(settings)


def _url(rank: RankSpec) -> str:
    return f"http://{host_token(rank.name)}:{rank.ports[_API]}"


def _even_vllm(job: Job, ranks: Sequence[RankSpec]) -> list[tuple[str, Words, str]]:
    del job
    return [
        ("--policy", ("cache_aware",), "cache_aware"),
        ("--worker-urls", tuple(map(_url, ranks)), "workers"),
    ]


def _even_smg(job: Job, ranks: Sequence[RankSpec]) -> list[tuple[str, Words, str]]:
    return _even_vllm(job, ranks)


def _split_vllm(job: Job, ranks: Sequence[RankSpec]) -> list[tuple[str, Words, str]]:
    parts: list[tuple[str, Words, str]] = [
        ("--vllm-pd-disaggregation", (), "split_router"),
        ("--policy", ("round_robin",), "round_robin"),
        ("--kv-connector", (_KV_CONNECTORS[job.start.connector],), "transfer"),
    ]
    bootstrap = (str(BOOTSTRAP_PORT),) if job.start.connector == "mooncake" else ()
    parts += [
        ("--prefill", (_url(rank), *bootstrap), "workers") for rank in ranks if rank.role == PREFILL
    ]
    parts += [("--decode", (_url(rank),), "workers") for rank in ranks if rank.role == DECODE]
    return parts


def _split_smg(job: Job, ranks: Sequence[RankSpec]) -> list[tuple[str, Words, str]]:
    del job
    parts: list[tuple[str, Words, str]] = [
        ("--pd-disaggregation", (), "split_router"),
        ("--policy", ("round_robin",), "round_robin"),
    ]
    parts += [
        ("--prefill", (_url(rank), str(BOOTSTRAP_PORT)), "workers")
        for rank in ranks
        if rank.role == PREFILL
    ]
    parts += [("--decode", (_url(rank),), "workers") for rank in ranks if rank.role == DECODE]
    return parts


_Make = Callable[[Job, Sequence[RankSpec]], list[tuple[str, Words, str]]]
_ENTRY: Final[dict[str, Words]] = {VLLM_ROUTER: (VLLM_ROUTER,), SMG: (SMG, "launch")}
_EVEN: Final[dict[str, _Make]] = {VLLM_ROUTER: _even_vllm, SMG: _even_smg}
_SPLIT: Final[dict[str, _Make]] = {VLLM_ROUTER: _split_vllm, SMG: _split_smg}
