"""`heavylift recipe`: files, screens, statuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from heavylift.cli.recipe import command
from heavylift.cli.text import keys
from heavylift.errors import Exit, HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Plan

B300 = ("kimi-k3", "--on", "8xB300", "--engine", "vllm")
WIDTH = 80


def run(*args: str) -> Result:
    """The command in this process; its own return value is the status."""
    return CliRunner().invoke(command, list(args), standalone_mode=False, catch_exceptions=False)


def test_a_recipe_is_a_folder_that_can_be_read_back(tmp_path: Path) -> None:
    """plan.json, launch.json, a README and the target's files; the launch is of that plan."""
    folder = tmp_path / "k3"
    result = run(*B300, "--target", "docker", "-o", str(folder))
    assert result.return_value == Exit.OK
    plan = msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)
    launch = msgspec.json.decode((folder / "launch.json").read_bytes(), type=LaunchSpec)
    assert (plan.model, launch.model) == ("kimi-k3", "kimi-k3")
    assert launch.plan_digest.startswith("sha256:")
    others = {path.name for path in folder.iterdir()} - {"plan.json", "launch.json", "README.md"}
    assert others
    readme = (folder / "README.md").read_text("utf-8")
    assert all(f"`{setting.name}`" in readme for setting in launch.settings)
    assert "heavylift doctor --for launch.json" in readme


def test_the_same_request_writes_the_same_bytes(tmp_path: Path) -> None:
    """Nothing of the day, the folder or the machine is in a file."""
    for name in ("a", "b"):
        run(*B300, "--target", "compose", "-o", str(tmp_path / name))
    first = {p.name: p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()}
    second = {p.name: p.read_bytes() for p in (tmp_path / "b").rglob("*") if p.is_file()}
    assert first == second
    assert not any(str(tmp_path).encode() in content for content in first.values())


def test_a_refused_recipe_writes_nothing_and_says_what_works(tmp_path: Path) -> None:
    """Status 1, the reason, the nearest command last."""
    folder = tmp_path / "k3"
    result = run("kimi-k3", "--on", "8xH200", "--engine", "vllm", "-o", str(folder))
    assert result.return_value == Exit.NEGATIVE
    assert not folder.exists()
    assert "REFUSED" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("next: heavylift recipe kimi-k3 --on 2x8xH200")


def test_what_only_the_plan_refuses_names_no_source() -> None:
    """A release that lists the model is no source of what the numbers refuse."""
    result = run("kimi-k3", "--on", "8xb200", "--engine", "tensorrt-llm")
    assert result.return_value == Exit.NEGATIVE
    assert "UNSUPPORTED  by the numbers below" in result.stdout


def test_json_has_the_contract_of_programs() -> None:
    """files, argv per rank, env, status and sources."""
    recipe: dict[str, Any] = json.loads(run(*B300, "--json").stdout)
    assert recipe["status"] == "verified"
    assert recipe["argv"][0][:2] == ["vllm", "serve"]
    assert recipe["env"]["VLLM_ENGINE_READY_TIMEOUT_S"]
    assert {file["path"] for file in recipe["files"]} >= {"plan.json", "launch.json", "README.md"}
    assert any(source["recipe"] == "vllm-b300-tp8" for source in recipe["sources"])
    refused = json.loads(run("kimi-k3", "--on", "8xH200", "--engine", "vllm", "--json").stdout)
    assert refused["launch"] is None
    assert refused["refused"]["code"] == "does_not_fit"
    assert refused["refused"]["nearest"]


@pytest.mark.parametrize("engine", ["llamacpp", "ollama"])
def test_a_file_of_a_form_that_nobody_published_can_be_served(tmp_path: Path, engine: str) -> None:
    """A GGUF mix is planned by its rule; the file is the one that is given."""
    file = "/models/Qwen3-14B-Q4_K_M.gguf"
    asked = ("qwen3-14b", "--on", "1xRX 7900 XTX", "--variant", "q4_k_m", "--context", "16k")
    folder = tmp_path / "qwen"
    result = run(*asked, "--engine", engine, "--model-path", file, "-o", str(folder))
    assert result.return_value == Exit.OK
    assert any(file in path.read_text("utf-8") for path in folder.iterdir())


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    """A recipe is written over a recipe, and over nothing else."""
    (tmp_path / "thesis.txt").write_text("years", "utf-8")
    with pytest.raises(HeavyliftError) as caught:
        run(*B300, "-o", str(tmp_path))
    assert caught.value.code == "REC025"
    folder = tmp_path / "k3"
    for _ in range(2):
        assert run(*B300, "-o", str(folder)).return_value == Exit.OK


def test_the_next_command_can_be_typed() -> None:
    """What was typed, and a folder; after the folder, the host is judged."""
    last = run(*B300, "--text-only", "--context", "1M").stdout.splitlines()[-1]
    assert last == (
        "next: heavylift recipe kimi-k3 --on 8xB300 --engine vllm --context 1048576 --text-only "
        "-o kimi-k3-8xb300"
    )


def test_explain_names_every_word_with_its_source() -> None:
    """Each flag and variable, why it is there, and from where."""
    shown = " ".join(run(*B300, "--explain").stdout.split())
    assert "published recipe: vllm-b300-tp8, 2026-08-21" in shown
    assert "engine rule" in shown
    assert "computed: heavylift" in shown


def test_two_folders_or_versions_or_racks_are_compared(tmp_path: Path) -> None:
    """--diff takes each of them; what is the same is not shown."""
    for name, rack in (("a", "8xB300"), ("b", "8xGB300")):
        run("kimi-k3", "--on", rack, "--engine", "vllm", "-o", str(tmp_path / name))
    folders = run("--diff", str(tmp_path / "a"), str(tmp_path / "b"))
    assert "--nnodes" in folders.stdout
    racks = run(*B300, "--diff", "8xB300", "8xGB300")
    assert "--nnodes" in racks.stdout
    amd = ("kimi-k3", "--on", "8xMI355X", "--engine", "vllm")
    versions = json.loads(run(*amd, "--diff", "0.29.0", "0.32.0", "--json").stdout)
    names = {each["name"] for each in versions["differences"]}
    assert "VLLM_ROCM_USE_AITER_MOE_SITUV2" in names
    assert "--max-model-len" not in names


def test_a_folder_without_a_launch_cannot_be_compared(tmp_path: Path) -> None:
    """REC027, with the path."""
    with pytest.raises(HeavyliftError) as caught:
        run("--diff", str(tmp_path), str(tmp_path))
    assert caught.value.code == "REC027"


@pytest.mark.parametrize("odd", ["{host:x}", "-x", "a\nb", " "])
def test_words_that_are_no_words_are_refused(odd: str) -> None:
    """What would be a token, a flag or a control character in a command."""
    result = CliRunner().invoke(command, [*B300, "--served-name", odd])
    assert result.exit_code == Exit.USAGE


def test_screens_are_eighty_columns_but_for_commands() -> None:
    """Commands are there to be copied; everything else is wrapped."""
    shown = run(*B300, "--explain").stdout.splitlines()
    long = [line for line in shown if len(line) > WIDTH]
    assert all("{" in line or line.startswith("next:") for line in long)


def test_every_reason_and_remark_has_its_words() -> None:
    """Codes of the facts and of the code: none is shown bare."""
    catalog = Catalog()
    whys = {rule.why for engine in catalog.serving_ids() for rule in catalog.serving(engine).rules}
    source = Path(__file__).parents[3] / "src/heavylift/recipe"
    notes = set()
    for path in (*source.glob("*.py"), *source.glob("engines/*.py")):
        code = path.read_text("utf-8")
        notes |= set(re.findall(r'(?:\.note\(|Note\(code=)\s*"([a-z_]+)"', code))
        whys |= set(re.findall(r'(?:computed|exposure)\("([a-z_]+)"\)', code))
    assert notes
    assert {f"recipe.note.{code}" for code in notes} <= keys()
    assert {f"recipe.why.{why}" for why in whys} <= keys()
