"""What is around the package: container file, workflow, what the wheel carries."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import heavylift

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def only_in_a_checkout() -> None:
    """These files are not part of an installed package."""
    if not (ROOT / "Containerfile").is_file():
        pytest.skip("not a checkout")


def test_the_container_file_is_clean() -> None:
    """Hadolint has nothing to say, and the image does not run as root."""
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, ROOT / "Containerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "USER 10001" in (ROOT / "Containerfile").read_text()


def test_the_workflow_runs_what_continuous_integration_runs() -> None:
    """One script, on every Python that the package names as supported."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    job = workflow["jobs"]["check"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line}
    assert named == set(job["strategy"]["matrix"]["python"])


def test_the_files_a_contributor_looks_for_are_there() -> None:
    """Changelog, contributing, security, conduct, licence, and the design notes in one count."""
    for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT"):
        assert (ROOT / f"{name}.md").stat().st_size > 200
    assert (ROOT / "LICENSE").is_file()
    notes = sorted((ROOT / "design").glob("[0-9]*.md"))
    numbers = [int(note.name[:4]) for note in notes]
    assert numbers == sorted(set(numbers))
    titles = [note.read_text("utf-8").partition("\n")[0].removeprefix("# ") for note in notes]
    index = (ROOT / "design" / "README.md").read_text("utf-8")
    assert [
        f"{number}. {title}"
        for number, title in re.findall(r"^(\d+)\. \[(.+)\]\(", index, re.MULTILINE)
    ] == titles


def test_the_map_of_the_package_names_every_part_in_its_layer() -> None:
    """The head of the package, its folders and files, and the layers that are enforced agree."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = [
        {part.strip().removeprefix("heavylift.") for part in layer.split("|")}
        for layer in contracts["contracts"][0]["layers"]
    ]
    drawn = re.findall(r"^    (\w+(?: \w+)*)(?:  .*)?$", heavylift.__doc__ or "", re.MULTILINE)
    assert [set(row.split()) for row in reversed(drawn)] == layers
    here = {path.stem for path in (ROOT / "src/heavylift").iterdir() if path.suffix in ("", ".py")}
    assert set().union(*layers) == here - {"__init__", "__main__", "__pycache__", "py"}


def test_the_package_is_typed() -> None:
    """`py.typed` travels with it."""
    assert (ROOT / "src/heavylift/py.typed").is_file()
