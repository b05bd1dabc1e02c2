"""Every file of every target is taken by the tools that read it: shells, linters, schemas."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

from heavylift.recipe.targets.records import Rendering, Runtime, TargetFile
from heavylift.records.launch import LaunchSpec

Rendered = Callable[..., Rendering]

LEADER_WORKER_SET = json.loads(
    Path(__file__).with_name("leaderworkerset.schema.json").read_text("utf-8")
)
# Commands are as long as they are; everything else is as yamllint wants it by default.
YAML_RULES = YamlLintConfig("{extends: default, rules: {line-length: disable}}")
# A dollar in single quotes is meant: values go through as they are.
SHELLCHECK = ("--severity=style", "--exclude=SC2016")
KUBERNETES = kubernetes_validate.latest_version()


def tool(name: str) -> str:
    """The path of a tool, of this environment first; skips with a reason where it is absent."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def put(rendering: Rendering, folder: Path) -> Path:
    """The files on disk, as a user has them."""
    for file in rendering.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, "utf-8")
        path.chmod(file.mode)
    return folder


def scripts(rendering: Rendering) -> list[str]:
    """The shell scripts among the files."""
    return [each.path for each in rendering.files if each.path.endswith((".sh", ".sbatch"))]


def run(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A tool's verdict."""
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", ["shell", "docker", "systemd", "slurm"])
def test_scripts_parse_and_pass_shellcheck(
    target: str, spec: LaunchSpec, rendered: Rendered, tmp_path: Path
) -> None:
    """`bash -n` parses every script and shellcheck has nothing to say, remarks included."""
    rendering = rendered(target, spec)
    folder = put(rendering, tmp_path)
    names = scripts(rendering)
    assert names
    for name in names:
        parsed = run("bash", "-n", name, cwd=folder)
        assert parsed.returncode == 0, parsed.stderr
    checked = run(tool("shellcheck"), *SHELLCHECK, *names, cwd=folder)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("runtime", [Runtime.HOST, Runtime.DOCKER])
def test_slurm_scripts_pass_whatever_runs_the_ranks(
    runtime: Runtime, spec: LaunchSpec, rendered: Rendered, tmp_path: Path
) -> None:
    """The same for engines on the nodes and in Docker."""
    rendering = rendered("slurm", spec, runtime=runtime, partition="gpu", time_limit="2-00:00:00")
    folder = put(rendering, tmp_path)
    checked = run(tool("shellcheck"), *SHELLCHECK, *scripts(rendering), cwd=folder)
    assert checked.returncode == 0, checked.stdout


def test_compose_files_follow_the_specification(
    spec: LaunchSpec, rendered: Rendered, tmp_path: Path
) -> None:
    """check-jsonschema finds them sound by the compose specification."""
    rendering = rendered("compose", spec, rdma=True)
    folder = put(rendering, tmp_path)
    names = [each.path for each in rendering.files if each.path.endswith(".yaml")]
    assert names
    checked = run(
        tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", *names, cwd=folder
    )
    assert checked.returncode == 0, checked.stdout


def test_the_compose_check_can_fail(spec: LaunchSpec, rendered: Rendered, tmp_path: Path) -> None:
    """A misspelt key of a service is refused by the same check."""
    rendering = rendered("compose", spec)
    folder = put(rendering, tmp_path)
    name = next(each.path for each in rendering.files if each.path.endswith(".yaml"))
    path = folder / name
    path.write_text(path.read_text("utf-8").replace("ipc:", "ipcc:"), "utf-8")
    checked = run(
        tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", name, cwd=folder
    )
    assert checked.returncode == 1


def documents(rendering: Rendering) -> list[dict[str, Any]]:
    """All objects of all manifests."""
    return [
        document
        for each in rendering.files
        if each.path.endswith(".yaml")
        for document in yaml.safe_load_all(each.text)
    ]


def pods_of(group: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pod templates of a LeaderWorkerSet as pods of their own."""
    template = group["spec"]["leaderWorkerTemplate"]
    for role in ("leaderTemplate", "workerTemplate"):
        metadata = {"name": role.lower(), **template[role].get("metadata", {})}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": template[role]["spec"],
        }


def check(document: dict[str, Any]) -> None:
    """Validate an object of Kubernetes, strictly; a LeaderWorkerSet by our schema and its pods."""
    if document["kind"] == "LeaderWorkerSet":
        jsonschema.validate(document, LEADER_WORKER_SET)
        for each in pods_of(document):
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
        return
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_manifests_are_valid_objects(spec: LaunchSpec, rendered: Rendered) -> None:
    """Strict validation takes every object; pod templates of a group are validated as pods."""
    rendering = rendered(
        "kubernetes",
        spec,
        namespace="models",
        model_bytes=1_560_860_324_864,
        rdma=True,
        extra_resources={"rdma/hca": "1"},
        cache_claim="cache",
    )
    found = documents(rendering)
    for document in found:
        check(document)
    assert {"Service"} <= {document["kind"] for document in found}


def test_the_manifest_check_can_fail(
    spec_of: Callable[[str], LaunchSpec], rendered: Rendered
) -> None:
    """An unknown field of a pod template and of the group are refused by the same check."""
    rendering = rendered("kubernetes", spec_of("vllm-two-nodes"))
    group = next(each for each in documents(rendering) if each["kind"] == "LeaderWorkerSet")
    check(group)
    group["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["restarts"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        check(group)
    group["spec"]["sizee"] = 2
    with pytest.raises(jsonschema.ValidationError):
        check(group)


@pytest.mark.parametrize("target", ["compose", "kubernetes"])
def test_yaml_is_clean(target: str, spec: LaunchSpec, rendered: Rendered) -> None:
    """Yamllint has nothing to say."""
    for each in rendered(target, spec).files:
        if each.path.endswith(".yaml"):
            problems = list(linter.run(each.text, YAML_RULES))
            assert not problems, (each.path, problems)


@pytest.mark.parametrize("runtime", [Runtime.HOST, Runtime.DOCKER])
def test_units_are_verified_by_systemd(
    runtime: Runtime, spec: LaunchSpec, rendered: Rendered, tmp_path: Path
) -> None:
    """`systemd-analyze verify` takes every unit; Docker's own unit is a stand-in."""
    rendering = rendered("systemd", spec, runtime=runtime)
    units = [each for each in rendering.files if each.path.endswith(".service")]
    assert units
    for unit in units:
        (tmp_path / unit.path).write_text(unit.text, "utf-8")
    stand_in = "[Service]\nExecStart=/bin/true\n"
    (tmp_path / "docker.service").write_text(stand_in, "utf-8")
    names = [str(tmp_path / unit.path) for unit in units]
    checked = run(tool("systemd-analyze"), "verify", "--man=no", *names, cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert not complaints(checked.stderr, units)


def complaints(said: str, units: list[TargetFile]) -> list[str]:
    """What systemd says of our units; it passes what it does not understand with a remark."""
    return [line for line in said.splitlines() if any(unit.path in line for unit in units)]


def test_the_unit_check_can_fail(
    spec_of: Callable[[str], LaunchSpec], rendered: Rendered, tmp_path: Path
) -> None:
    """A kill mode that systemd does not know is complained of."""
    rendering = rendered("systemd", spec_of("atom-amd"), runtime=Runtime.HOST)
    unit = next(each for each in rendering.files if each.path.endswith(".service"))
    path = tmp_path / unit.path
    path.write_text(unit.text.replace("KillMode=mixed", "KillMode=mixd"), "utf-8")
    checked = run(tool("systemd-analyze"), "verify", "--man=no", str(path), cwd=tmp_path)
    assert complaints(checked.stderr, [unit])
