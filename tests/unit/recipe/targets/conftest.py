"""Launches of every kind, written by hand: what the engine layer would hand over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pytest

from heavylift.facts.access_schema import CardAccess
from heavylift.facts.catalog import Catalog
from heavylift.recipe.targets import render
from heavylift.recipe.targets.records import Rendering, TargetOptions
from heavylift.records.launch import (
    Health,
    LaunchSpec,
    Mount,
    RankSpec,
    Rendezvous,
    Setting,
    host_token,
)

DIGEST: Final = "sha256:" + "0123456789abcdef" * 4
KEY: Final = {"ENGINE_API_KEY": "api-key"}
MODEL: Final = Mount(source="/srv/models/Kimi-K3", target="/models/Kimi-K3")
CACHE: Final = Mount(source="/var/cache/engine", target="/root/.cache/vllm", read_only=False)
DEADLINE_S: Final = 4830


def _spec(**given: object) -> LaunchSpec:
    """A launch of vLLM on eight NVIDIA cards unless `given` says otherwise."""
    fields: dict[str, object] = {
        "engine": "vllm",
        "engine_version": "0.32.0",
        "image": "vllm/vllm-openai:v0.32.0",
        "image_digest": DIGEST,
        "model": "kimi-k3",
        "model_revision": "a527b42c",
        "expected_phases": ("weights", "api"),
        "deadline_s": DEADLINE_S,
        "plan_digest": DIGEST,
        "gpu_vendor": "nvidia",
        "gpus_per_node": 8,
        "model_path": MODEL.target,
        "model_mount": MODEL,
        "served_name": "kimi-k3",
        "bind_host": "127.0.0.1",
        "served_port": 8000,
        "health": Health(path="/health", start_period_s=DEADLINE_S),
        "cache_mounts": (CACHE,),
        "shm_bytes": 34359738368,
        "stop_grace_s": 120,
        "settings": (
            Setting(name="--max-model-len", value="131072", origin="computed", source="heavylift"),
        ),
        **given,
    }
    return LaunchSpec(**fields)  # type: ignore[arg-type]


def _two_nodes() -> LaunchSpec:
    """vLLM, TP8·PP2 on two nodes of eight, meeting by its own flags."""
    shared = (
        *("vllm", "serve", MODEL.target, "--served-model-name", "kimi-k3"),
        *("--tensor-parallel-size", "8", "--pipeline-parallel-size", "2", "--nnodes", "2"),
        *("--master-addr", host_token("serve-0"), "--master-port", "29500"),
        *("--attention-config", '{"use_prefill_query_quantization":true}'),
    )
    env = {
        "VLLM_ENGINE_READY_TIMEOUT_S": str(DEADLINE_S),
        "VLLM_HOST_IP": host_token("self"),
        "NCCL_CUMEM_ENABLE": "1",
    }
    head = RankSpec(
        rank=0,
        host="",
        name="serve-0",
        node=0,
        gpus=8,
        argv=(*shared, "--node-rank", "0", "--host", "127.0.0.1", "--port", "8000"),
        env=env,
        secrets=KEY,
        ports={"api": 8000},
        serves=True,
    )
    worker = RankSpec(
        rank=1,
        host="",
        name="serve-1",
        node=1,
        gpus=8,
        argv=(*shared, "--node-rank", "1", "--headless"),
        env=env,
        serves=False,
    )
    meeting = Rendezvous(kind="native", head="serve-0", port=29500, rank_flag="--node-rank")
    return _spec(
        ranks=(head, worker), rendezvous=(meeting,), topology="multi_node", host_network=True
    )


def _amd() -> LaunchSpec:
    """ATOM on eight MI355X of one node, an image known by its tag."""
    rank = RankSpec(
        rank=0,
        host="",
        name="serve-0",
        gpus=8,
        argv=(
            *("python3", "-m", "atom.entrypoints.openai_server", "--model", MODEL.target),
            *("-tp", "8", "--kv_cache_dtype", "fp8", "--trust-remote-code"),
            *("--host", "127.0.0.1", "--server-port", "8000"),
        ),
        env={"AITER_LOG_LEVEL": "WARNING", "ODD": "a 'quoted' $value \"here\""},
        ports={"api": 8000},
    )
    return _spec(
        engine="atom",
        engine_version="2026-08-22",
        image="rocm/atom:20260822",
        image_digest=None,
        gpu_vendor="amd",
        ranks=(rank,),
    )


def _sglang() -> LaunchSpec:
    """SGLang, TP16 on two nodes."""

    def argv(number: int) -> tuple[str, ...]:
        return (
            *("python3", "-m", "sglang.launch_server", "--model-path", MODEL.target),
            *("--tp-size", "16", "--nnodes", "2", "--node-rank", str(number)),
            *("--dist-init-addr", f"{host_token('serve-0')}:20000"),
            *("--host", "127.0.0.1", "--port", "30000"),
        )

    ranks = tuple(
        RankSpec(
            rank=number,
            host="",
            name=f"serve-{number}",
            gpus=8,
            argv=argv(number),
            secrets=KEY if number == 0 else {},
            ports={"api": 30000} if number == 0 else {},
            serves=number == 0,
        )
        for number in range(2)
    )
    meeting = Rendezvous(kind="native", head="serve-0", port=20000, rank_flag="--node-rank")
    return _spec(
        engine="sglang",
        engine_version="0.5.23",
        image="lmsysorg/sglang:v0.5.23",
        served_port=30000,
        ranks=ranks,
        rendezvous=(meeting,),
        host_network=True,
    )


def _llamacpp() -> LaunchSpec:
    """llama-server on one card: no shared memory, a template from the recipe's folder."""
    rank = RankSpec(
        rank=0,
        host="",
        name="serve-0",
        gpus=1,
        argv=(
            *("/app/llama-server", "--model", "/models/model.gguf", "--n-gpu-layers", "999"),
            *("--chat-template-file", "{file:template.jinja}", "--host=127.0.0.1"),
            *("--port", "8080"),
        ),
        secrets={"LLAMA_API_KEY": "api-key"},
        ports={"api": 8080},
        serves=True,
    )
    return _spec(
        engine="llamacpp",
        engine_version="b11549",
        image="ghcr.io/ggml-org/llama.cpp:server-cuda-b11549",
        ranks=(rank,),
        served_port=8080,
        shm_bytes=None,
        stop_grace_s=None,
        cache_mounts=(),
        files={"template.jinja": "{{ messages }}\n"},
        prepare=(("llama-server", "--version"), ("cat", "{file:template.jinja}")),
    )


def _prefill_decode() -> LaunchSpec:
    """Prefill on two nodes, decode on one, and a router that takes no cards."""

    def engine(role: str, number: int, *words: str, serves: bool = True) -> RankSpec:
        return RankSpec(
            rank=number,
            host="",
            name=f"{role}-{number}",
            role=role,
            node=number,
            gpus=8,
            argv=(
                *("vllm", "serve", MODEL.target),
                *("--kv-transfer-config", f'{{"kv_role":"{role}"}}'),
                *words,
                *(("--host", host_token("self"), "--port", "8001") if serves else ("--headless",)),
            ),
            env={"VLLM_NIXL_SIDE_CHANNEL_HOST": host_token("self")},
            secrets=KEY if serves else {},
            ports={"api": 8001} if serves else {},
            serves=serves,
        )

    router = RankSpec(
        rank=0,
        host="",
        name="router-0",
        role="router",
        gpus=0,
        image="vllm/vllm-router:v0.1.17",
        argv=(
            *("vllm-router", "--vllm-pd-disaggregation"),
            *("--prefill", f"http://{host_token('prefill-0')}:8001"),
            *("--decode", f"http://{host_token('decode-0')}:8001"),
            *("--host", "127.0.0.1", "--port", "8000"),
        ),
        secrets=KEY,
        ports={"api": 8000},
        serves=True,
    )
    address = ("--nnodes", "2", "--master-addr", host_token("prefill-0"))
    ranks = (
        engine("prefill", 0, *address, "--node-rank", "0"),
        engine("prefill", 1, *address, "--node-rank", "1", serves=False),
        engine("decode", 0),
        router,
    )
    meeting = Rendezvous(kind="native", head="prefill-0", port=29500, rank_flag="--node-rank")
    return _spec(ranks=ranks, rendezvous=(meeting,), topology="prefill_decode", host_network=True)


SPECS: Final[Mapping[str, Callable[[], LaunchSpec]]] = {
    "vllm-two-nodes": _two_nodes,
    "atom-amd": _amd,
    "sglang-two-nodes": _sglang,
    "llamacpp-one-card": _llamacpp,
    "prefill-decode": _prefill_decode,
}


@pytest.fixture(params=list(SPECS))
def spec(request: pytest.FixtureRequest) -> LaunchSpec:
    """Each of the launches in turn."""
    return SPECS[request.param]()


@pytest.fixture
def spec_of() -> Callable[[str], LaunchSpec]:
    """A launch by name."""
    return lambda name: SPECS[name]()


@pytest.fixture(scope="session")
def access_of() -> Callable[[LaunchSpec], CardAccess | None]:
    """How the cards of a launch are reached."""
    catalog = Catalog()

    def access(spec: LaunchSpec) -> CardAccess | None:
        return None if spec.gpu_vendor is None else catalog.card_access(spec.gpu_vendor)

    return access


@pytest.fixture
def rendered(
    access_of: Callable[[LaunchSpec], CardAccess | None],
) -> Callable[..., Rendering]:
    """`rendered("docker", spec, partition="h200")`: the launch as files of a target."""

    def write(target: str, spec: LaunchSpec, **given: object) -> Rendering:
        options = TargetOptions(
            name="kimi-k3",
            header=("Kimi K3 for a test", "a second line"),
            **given,  # type: ignore[arg-type]
        )
        return render(target, spec, options, access_of(spec))

    return write
