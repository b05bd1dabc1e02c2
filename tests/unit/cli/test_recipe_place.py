"""The folder of a recipe for a place: images, names of a cluster, parts of the README."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heavylift.cli.pages import recipe_checklist as checklist
from heavylift.recipe.targets.records import Rendering
from heavylift.records.finding import Finding, Severity
from heavylift.records.launch import LaunchSpec, RankSpec
from heavylift.records.plan import Note

Run = Callable[..., Any]
DIGEST = "sha256:" + "ab" * 32
K3 = ("recipe", "kimi-k3", "--on", "2x8xB200", "--engine", "vllm", "--key")


def launch(*notes: str, topology: str = "multi_node") -> LaunchSpec:
    """A launch of one engine and a router."""
    ranks = tuple(
        RankSpec(rank=0, host=name, name=name, role=name.partition("-")[0], argv=("x",))
        for name in ("serve-0", "router-0")
    )
    return LaunchSpec(
        engine="e",
        engine_version="1",
        image_digest=None,
        model="m",
        model_revision=None,
        ranks=ranks,
        expected_phases=(),
        deadline_s=60,
        plan_digest="sha256:0",
        notes=tuple(Note(code=code) for code in notes),
        topology=topology,
    )


def exposed(*names: str) -> Rendering:
    """Files that open these ranks to others without a key."""
    return Rendering(
        target="shell",
        files=(),
        steps=(),
        findings=tuple(
            Finding(
                id="exposed_without_key",
                code="exposed_without_key",
                severity=Severity.WARN,
                subject=name,
            )
            for name in names
        ),
        deadline_at=("serve-0.sh: X",),
    )


def test_a_folder_for_a_cluster_holds_what_was_typed(run: Run, tmp_path: Path) -> None:
    """Image by digest, namespace, claims and a resource for RDMA stand in the manifest."""
    folder = tmp_path / "k3"
    typed = (
        *("--target", "kubernetes", "--image", f"own/vllm:v1@{DIGEST}", "--namespace", "models"),
        *("--claim", "weights", "--cache-claim", "cache", "--rdma", "--resource", "rdma/hca=1"),
    )
    assert run(*K3, *typed, "--model-path", "/models/k3", "-o", str(folder)).status == 0
    manifest = (folder / "serve-0.yaml").read_text("utf-8")
    for words in (
        f"own/vllm:v1@{DIGEST}",
        "namespace: models",
        "claimName: weights",
        "claimName: cache",
        "rdma/hca: '1'",
        "IPC_LOCK",
    ):
        assert words in manifest
    assert (folder / "secrets.env.example").stat().st_mode & 0o777 == 0o600
    readme = (folder / "README.md").read_text("utf-8")
    assert "serve-0.yaml: startupProbe.failureThreshold" in readme
    assert "serve-0.yaml: VLLM_ENGINE_READY_TIMEOUT_S" in readme
    assert readme.count("- [ ]") >= 9


def test_a_batch_script_holds_what_was_typed(run: Run, tmp_path: Path) -> None:
    """Partition, account, time limit, and the engine as installed on the nodes."""
    folder = tmp_path / "k3"
    typed = (
        *("--target", "slurm", "--runtime", "host", "--partition", "b200"),
        *("--account", "team", "--time-limit", "2-00:00:00", "-o", str(folder)),
    )
    assert run(*K3, *typed).status == 0
    script = (folder / "job.sbatch").read_text("utf-8")
    assert "#SBATCH --partition=b200" in script
    assert "#SBATCH --account=team" in script
    assert "#SBATCH --time=2-00:00:00" in script
    assert "container-image" not in script


@pytest.mark.parametrize(
    "typed",
    [
        ("--namespace", "a b"),
        ("--partition", "a\n#SBATCH --exclusive"),
        ("--image", "a b"),
        ("--image", "=x"),
        ("--resource", "rdma"),
        ("--account", "-x"),
    ],
)
def test_a_name_that_a_file_could_read_otherwise_is_a_usage_error(
    typed: tuple[str, str], run: Run
) -> None:
    """Nothing typed becomes a line, a flag or a key of its own."""
    left = run(*K3, *typed)
    assert (left.status, left.out) == (2, "")
    assert typed[0] in left.err


def test_the_readme_says_a_thing_once() -> None:
    """What a note of the launch says already is no finding again; a router's is its own."""
    words = "\n".join(checklist.findings(launch(), exposed("serve-0", "router-0")))
    assert words.count("asks for no key") == 2
    words = "\n".join(checklist.findings(launch("pool_ports_open"), exposed("serve-0", "router-0")))
    assert "serve-0" not in words
    assert "router-0" in words
    assert not list(checklist.findings(launch("open_without_key"), exposed("serve-0")))


def test_a_split_is_handed_over_with_its_equality() -> None:
    """The checklist of a split deployment has one point more."""
    plain = "\n".join(checklist.hand_over(launch()))
    split = "\n".join(checklist.hand_over(launch(topology="prefill_decode")))
    assert split.count("- [ ]") == plain.count("- [ ]") + 1
