"""The real vLLM on a CPU through `up`: phases from its log, KV tokens as planned, kills, down.

Runs by `make test-vllm` alone: HEAVYLIFT_VLLM_ENV names vLLM's environment,
HEAVYLIFT_VLLM_MODELS the folder of `make_models.py`. Skipped elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.deployments import Field, field_of_deployments, free_port, kill

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.operate import truth, watching
from heavylift.planning import Planning
from heavylift.records.deployment import Alive, Phase, RunState, Supervision
from heavylift.records.launch import LaunchSpec, RankSpec
from heavylift.records.plan import Plan, PlanRequest
from heavylift.records.watch import EngineNow, Sight
from heavylift.state.deployments import deployments_path, open_deployments
from heavylift.telemetry.engine_log import EngineWords, read
from heavylift.units import GIB
from heavylift.wire.client import Endpoint, ask
from heavylift.wire.reply import ChatRequest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        "HEAVYLIFT_VLLM_ENV" not in os.environ, reason="HEAVYLIFT_VLLM_ENV: see make test-vllm"
    ),
]

CONTEXT = 2048
START_S = 600.0
LARGEST_BLOCK = 128
"""Tokens of a block on a CPU, at most: what is left over below one is not counted."""

STATE_PAGES = 2
"""Of a recurrent layer and sequence: prefix caching keeps the state of the last block beside."""


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    """A field of deployments."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with field_of_deployments() as there:
        yield there


def recipe(folder: Path, model: str) -> Path:
    """A recipe of the real vLLM for one of the models: eager, one GiB of KV."""
    environment = Path(os.environ["HEAVYLIFT_VLLM_ENV"])
    port = free_port()
    rank = RankSpec(
        rank=0,
        host="127.0.0.1",
        argv=(
            str(environment / "bin" / "python"),
            "-m",
            "vllm.entrypoints.cli.main",
            "serve",
            str(Path(os.environ["HEAVYLIFT_VLLM_MODELS"]) / model),
            "--served-model-name=m",
            "--host=127.0.0.1",
            f"--port={port}",
            f"--max-model-len={CONTEXT}",
            "--max-num-seqs=4",
            "--enforce-eager",
            f"--chat-template={folder / 'chat.jinja'}",
        ),
        # The engine's own variables; nothing of this test's Python path reaches it.
        env={
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_NO_USAGE_STATS": "1",
            "PYTHONPATH": "",
        },
        secrets={"VLLM_API_KEY": "api-key"},
        ports={"api": port},
        name="serve-0",
        serves=True,
    )
    spec = LaunchSpec(
        engine="vllm",
        engine_version="0.32.0",
        image_digest=None,
        model=model,
        served_name="m",
        model_revision=None,
        ranks=(rank,),
        expected_phases=(),
        deadline_s=600,
        plan_digest="",
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chat.jinja").write_text(
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    )
    (folder / "launch.json").write_bytes(msgspec.json.encode(spec))
    rules = Supervision(grace_s=20.0, suspect_s=30.0, probe_timeout_s=60.0, heartbeat_s=5.0)
    (folder / "supervision.json").write_bytes(msgspec.json.encode(rules))
    return folder


def figures(run: RunState) -> dict[str, float]:
    """The figures in the log of a run."""
    path = truth.newest_log(run)
    assert path is not None
    words = EngineWords(Catalog().engine_logs(), "vllm")
    return read(path.read_text("utf-8", "replace").splitlines(), words).figures


def plan_of(folder: Path) -> Plan:
    """The planner's account of a checkpoint's folder for vLLM."""
    planning = Planning()
    _, rack = planning.rack("1xH100")
    assert rack is not None
    request = PlanRequest(
        model=str(folder),
        rack=rack,
        engine="vllm",
        engine_version="0.32.0",
        context_tokens=CONTEXT,
        concurrency=1,
        kv_cache_dtype="bf16",
    )
    return planning.plan(request, planning.knowledge(str(folder)), with_fixes=False)


def bytes_per_token(folder: Path) -> int:
    """The planned bytes of a token; by the config where the planner does not know the family."""
    try:
        return plan_of(folder).kv_bytes_per_token
    except HeavyliftError as error:
        if error.code != "PLAN051":
            raise
    config: dict[str, int] = json.loads((folder / "config.json").read_text())
    latent = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    return config["num_hidden_layers"] * latent * 2


def started(deployed: Field, tmp_path: Path, model: str) -> RunState:
    """A deployment of a model that serves."""
    run = deployed.follow(deployed.up(recipe(tmp_path / model, model)))
    assert run.phase is Phase.READY, run.failure
    assert {Phase.PROCESS, Phase.WEIGHTS, Phase.MEMORY, Phase.READY} <= set(deployed.phases)
    return run


@pytest.mark.parametrize("model", ["smollm2", "mla"])
def test_kv_tokens_are_those_of_the_plan(deployed: Field, tmp_path: Path, model: str) -> None:
    """One GiB of KV over the planned bytes of a token, down to whole blocks, is what vLLM says."""
    run = started(deployed, tmp_path, model)
    each = bytes_per_token(Path(os.environ["HEAVYLIFT_VLLM_MODELS"]) / model)
    told = figures(run)["kv_tokens"]
    assert 0 <= GIB // each - told < LARGEST_BLOCK, (each, told)
    status = deployed.until(lambda now: now.alive is Alive.ALIVE and now.alive_reason == "idle")
    assert status.url is not None


def test_a_hybrid_says_what_its_pages_hold(deployed: Field, tmp_path: Path) -> None:
    """Recurrent state and KV share pages of one size: sequences follow from their number."""
    run = started(deployed, tmp_path, "hybrid")
    path = Path(os.environ["HEAVYLIFT_VLLM_MODELS"]) / "hybrid" / "config.json"
    config: dict[str, Any] = json.loads(path.read_text())
    told = figures(run)
    block = int(told["block_tokens"])
    page = block * config["num_key_value_heads"] * config["head_dim"] * 2 * 2
    attention = config["layer_types"].count("full_attention")
    linear = len(config["layer_types"]) - attention
    pages = -(-CONTEXT // block) * attention + STATE_PAGES * linear
    assert told["most_sequences"] == pytest.approx(GIB / (pages * page), rel=0.01)
    assert told["kv_tokens"] == pytest.approx(told["most_sequences"] * CONTEXT, rel=0.01)


def test_a_killed_worker_is_noticed_and_nothing_of_it_stays(
    deployed: Field, tmp_path: Path
) -> None:
    """VLLM's processes are in the family: with its front end killed the core and its workers go
    too, and the next attempt finds the port free.
    """
    started(deployed, tmp_path, "smollm2")
    family = deployed.everything()
    assert len(family) >= 4  # keeper, front end, core, worker
    first = deployed.status().pid
    kill(first)
    again = deployed.until(lambda now: now.ready and now.attempt == 2, wait_s=START_S)
    assert again.pid != first
    assert not set(family) & set(deployed.everything())


def test_its_metrics_go_by_the_names_that_are_known(deployed: Field, tmp_path: Path) -> None:
    """Queue, cache, counters, times: every figure that a look has of an engine is told."""
    run = started(deployed, tmp_path, "smollm2")
    watch = watching.Watching(watching.find("d"))
    before = watch.look().engine
    assert run.url is not None
    endpoint = Endpoint.parse(run.url, watch.target.key)
    message = ({"role": "user", "content": "Describe a harbour in the morning."},)
    for _ in range(3):
        ask(endpoint, ChatRequest(model="m", messages=message, max_tokens=16))
    after = watch.look().engine
    assert after.sight is Sight.SEEN
    untold = [name for name in EngineNow.__slots__ if getattr(after, name) is None]
    assert untold == []
    # The supervisor asks for a few words of its own meanwhile.
    assert (after.generation_tokens or 0) - (before.generation_tokens or 0) >= 48
    assert after.ttft is not None
    assert after.ttft.basis == "window"
    assert after.ttft.count >= 3


def test_no_key_is_in_arguments_or_logs(deployed: Field, tmp_path: Path) -> None:
    """The key goes by the environment; its file is its owner's alone."""
    run = started(deployed, tmp_path, "smollm2")
    secrets = Path(run.folder).parents[1] / "secrets.env"
    assert secrets.stat().st_mode & 0o777 == 0o600
    key = re.search(r"api-key=(\S+)", secrets.read_text())
    assert key is not None
    log = truth.newest_log(run)
    assert log is not None
    assert key[1] not in log.read_text("utf-8", "replace")
    for pid in deployed.everything():
        assert key[1] not in Path(f"/proc/{pid}/cmdline").read_text()
    with open_deployments(deployments_path()) as store:
        assert key[1] not in str(store.runs("d"))
