"""Recipes as folders: read, kept, and put on machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import msgspec
import pytest

from heavylift.cli.up import Asked, wanted
from heavylift.errors import HeavyliftError
from heavylift.operate import recipes
from heavylift.records.launch import LaunchSpec, RankSpec


def rank(name: str, *, role: str, node: int | None, gpus: int | None = 8) -> RankSpec:
    """A rank as recipes write it: its host is yet to be named."""
    return RankSpec(
        rank=0,
        host=name,
        argv=("engine",),
        name=name,
        role=role,
        node=node,
        gpus=gpus,
        serves=name in ("serve-0", "router-0"),
    )


def write(folder: Path, *ranks: RankSpec, **more: object) -> Path:
    """A recipe of such ranks."""
    spec = LaunchSpec(
        engine="vllm",
        engine_version="0.32.0",
        image_digest=None,
        model="moonshotai/Kimi-K3",
        model_revision=None,
        ranks=ranks,
        expected_phases=(),
        deadline_s=60,
        plan_digest="",
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "launch.json").write_bytes(
        msgspec.json.encode(replace(spec, **more))  # type: ignore[arg-type]
    )
    return folder


def hosts_of(folder: Path) -> dict[str, str]:
    """Where each rank stands."""
    return {rank.name: rank.host for rank in recipes.read(folder).spec.ranks}


def test_a_recipe_for_one_machine_runs_here(tmp_path: Path) -> None:
    """Nobody has to name this machine; a host that was written stays."""
    folder = write(tmp_path / "a", rank("serve-0", role="serve", node=0))
    recipes.with_hosts(folder, ())
    assert hosts_of(folder) == {"serve-0": "127.0.0.1"}
    written = replace(rank("serve-0", role="serve", node=0), host="10.0.0.7")
    folder = write(tmp_path / "b", written)
    recipes.with_hosts(folder, ())
    assert hosts_of(folder) == {"serve-0": "10.0.0.7"}


def test_machines_are_counted_by_role_and_node(tmp_path: Path) -> None:
    """Prefill 0 and decode 0 are two machines; a router without cards stands on the first."""
    folder = write(
        tmp_path,
        rank("prefill-0", role="prefill", node=0),
        rank("decode-0", role="decode", node=0),
        rank("decode-1", role="decode", node=1),
        rank("router-0", role="router", node=0, gpus=0),
    )
    with pytest.raises(HeavyliftError) as caught:
        recipes.with_hosts(folder, ("a", "b"))
    assert caught.value.params == {"hosts": 2, "nodes": 3}
    recipes.with_hosts(folder, ("a", "b", "c"))
    assert hosts_of(folder) == {"prefill-0": "a", "decode-0": "b", "decode-1": "c", "router-0": "a"}


def test_an_api_on_another_machine_s_loopback_is_refused(tmp_path: Path) -> None:
    """It could never be asked whether it is ready."""
    ranks = tuple(rank(f"serve-{node}", role="serve", node=node) for node in range(2))
    folder = write(tmp_path, *ranks, bind_host="127.0.0.1")
    with pytest.raises(HeavyliftError, match="REC051"):
        recipes.with_hosts(folder, ("a", "b"))
    recipes.with_hosts(folder, ("127.0.0.1", "b"))


def test_a_kept_recipe_is_whole_without_what_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Templates and scripts beside the launch are part of it, weights are not."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path / "home"))
    folder = write(tmp_path / "r", rank("serve-0", role="serve", node=0), stop_grace_s=120)
    (folder / "templates").mkdir()
    (folder / "templates" / "chat.jinja").write_text("x")
    (folder / "weights.bin").write_bytes(bytes(2 << 20))
    kept = recipes.keep(folder, "chat", 1)
    assert sorted(path.name for path in kept.rglob("*") if path.is_file()) == [
        "chat.jinja",
        "launch.json",
    ]
    assert recipes.read(kept).digest == recipes.read(folder).digest
    assert recipes.read(kept).rules.grace_s == 120.0


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"engine": 1}'])
def test_a_launch_that_is_none_is_said_with_its_place(tmp_path: Path, content: bytes) -> None:
    """What is wrong, and in which file."""
    (tmp_path / "launch.json").write_bytes(content)
    with pytest.raises(HeavyliftError) as caught:
        recipes.read(tmp_path)
    assert caught.value.code == "REC041"
    assert caught.value.params["path"] == str(tmp_path / "launch.json")


def test_a_name_is_made_from_the_model_s() -> None:
    """Small letters, digits, dots and dashes; another wish is refused."""
    spec = LaunchSpec(
        engine="e",
        engine_version="1",
        image_digest=None,
        model="moonshotai/Kimi-K3",
        model_revision=None,
        ranks=(),
        expected_phases=(),
        deadline_s=1,
        plan_digest="",
    )
    assert recipes.name_of(None, spec) == "kimi-k3"
    assert recipes.name_of("chat.1", spec) == "chat.1"
    for name in ("Chat", "../x", "", "-a"):
        with pytest.raises(HeavyliftError, match="USE080"):
            recipes.name_of(name, spec)


def test_embeddings_are_the_embedded_engine_s() -> None:
    """What is asked for by `up` is in the wish; another engine has a recipe of its own for it."""
    wish = wanted("smollm2", Asked(embeddings=True))
    assert isinstance(wish, recipes.EmbeddedWish)
    assert wish.embeddings
    with pytest.raises(click.UsageError, match="--embeddings"):
        wanted("kimi-k3", Asked(engine="vllm", embeddings=True))
