"""Where files go."""

from __future__ import annotations

from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.state import paths

VARIABLES = ("HEAVYLIFT_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine decides a test."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", "/home/user")


def test_defaults_are_the_xdg_ones() -> None:
    """Data, cache and state lie apart."""
    assert paths.data_dir() == Path("/home/user/.local/share/heavylift")
    assert paths.cache_dir() == Path("/home/user/.cache/heavylift")
    assert paths.state_dir() == Path("/home/user/.local/state/heavylift")


def test_xdg_variables_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An absolute one counts, a relative one does not, as XDG says."""
    monkeypatch.setenv("XDG_DATA_HOME", "/big/disk")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert paths.data_dir() == Path("/big/disk/heavylift")
    assert paths.cache_dir() == Path("/home/user/.cache/heavylift")


def test_one_home_holds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """HEAVYLIFT_HOME goes before XDG."""
    monkeypatch.setenv("HEAVYLIFT_HOME", "/srv/heavylift")
    monkeypatch.setenv("XDG_DATA_HOME", "/big/disk")
    assert paths.data_dir() == Path("/srv/heavylift/data")
    assert paths.state_dir() == Path("/srv/heavylift/state")
    assert paths.engine_dir("embedded", "1.0") == Path("/srv/heavylift/data/engines/embedded/1.0")


def test_no_home_at_all_is_a_coded_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home directory is told which variable to set."""

    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(HeavyliftError, match="ENV010"):
        paths.data_dir()
