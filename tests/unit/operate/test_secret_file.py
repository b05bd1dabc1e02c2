"""The secrets of a deployment: made up, taken over, kept from others."""

from __future__ import annotations

from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.operate import secret_file
from heavylift.records.launch import LaunchSpec, RankSpec


def spec(**secrets: str) -> LaunchSpec:
    """A launch with such secrets: variable to name."""
    rank = RankSpec(rank=0, host="127.0.0.1", argv=("true",), secrets=secrets)
    return LaunchSpec(
        engine="e",
        engine_version="1",
        image_digest=None,
        model="m",
        model_revision=None,
        ranks=(rank,),
        expected_phases=(),
        deadline_s=1,
        plan_digest="",
    )


def test_a_key_is_made_up_once_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    """The same after a second start, so that clients keep theirs."""
    path = secret_file.prepare(tmp_path, spec(VLLM_API_KEY="api-key"), None)
    assert path.stat().st_mode & 0o777 == 0o600
    first = secret_file.read(path)["api-key"]
    assert len(first) >= 24
    secret_file.prepare(tmp_path, spec(VLLM_API_KEY="api-key"), None)
    assert secret_file.read(path)["api-key"] == first


def test_other_secrets_come_from_a_file_or_the_environment_or_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their own name or the variable's; a value that is nowhere is named with its variable."""
    wanted = spec(HF_TOKEN="hub-token")  # noqa: S106 - a name
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(HeavyliftError) as caught:
        secret_file.prepare(tmp_path / "a", wanted, None)
    assert caught.value.params == {"name": "hub-token", "variable": "HF_TOKEN"}
    given = tmp_path / "given.env"
    given.touch(mode=0o600)
    given.write_text("# mine\nHF_TOKEN = hf_from_file\n")
    path = secret_file.prepare(tmp_path / "b", wanted, given)
    assert secret_file.read(path) == {"hub-token": "hf_from_file"}
    monkeypatch.setenv("HF_TOKEN", "hf_from_environment")
    path = secret_file.prepare(tmp_path / "c", wanted, None)
    assert secret_file.read(path) == {"hub-token": "hf_from_environment"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """With the command that mends it."""
    given = tmp_path / "given.env"
    given.write_text("a=b\n")
    given.chmod(mode)
    with pytest.raises(HeavyliftError) as caught:
        secret_file.read(given)
    assert (caught.value.code, caught.value.hint_command) == ("REC045", f"chmod 600 {given}")


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(HeavyliftError, match="REC046"):
        secret_file.read(tmp_path / "absent")
