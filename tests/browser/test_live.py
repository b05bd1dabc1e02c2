"""The live page in a real browser: a start goes by, keys are shown to who has one for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.browser.conftest import Picture
from tests.browser.driver import Browser
from tests.e2e.deployments import Field, write_recipe

from heavylift.gateway.keys import Scope
from heavylift.gateway.store import default_folder, open_store
from heavylift.state.series import open_series, series_path

pytestmark = pytest.mark.browser

SLOW = """
[[start]]
line = "starting"

[[start]]
after_s = 3.0
line = "ready"
then = "listen"

[[start]]
after_s = 0.1
line = "ready"
then = "ready"
"""


def test_a_start_goes_by_and_the_engine_serves(  # noqa: PLR0917 - fixtures
    page: Browser,
    pages: str,
    picture: Picture,
    deployments: Field,
    violations: Callable[[], list[Any]],
    tmp_path: Path,
) -> None:
    """Its phases are marked one by one, without a reload; then it serves."""
    page.open(f"{pages}live")
    begun = deployments.up(write_recipe(tmp_path / "recipe", SLOW), "k3")
    page.wait("document.querySelector('.phase-now')")
    picture("live-starts")
    deployments.follow(begun)
    with open_series(series_path("k3")) as store:
        lengths = {f"engine.prompt_length.{most}": 1.0 + most % 7 for most in (50, 500, 5000)}
        store.add(time.time() - 300, lengths)
        store.add(time.time() - 20, lengths | {"engine.e2e_p50_s": 7.5, "engine.e2e_p99_s": 20.0})
    page.wait("document.querySelector('.state-serves')")
    page.wait("document.querySelector('.heat')")
    assert page.text(".deployment h3").endswith("k3")
    assert page.run("return document.querySelectorAll('.phase-done').length") == 10
    assert violations() == []
    picture("live-serves")


def test_an_admin_key_shows_usage_and_is_kept_nowhere(
    page: Browser, pages: str, picture: Picture, home: Path
) -> None:
    """It leaves the field, is in no address, no storage and no cookie."""
    assert default_folder().is_relative_to(home)
    with open_store(default_folder()) as store:
        key = store.create_key("root", scope=Scope.ADMIN, now_epoch_s=time.time()).key
    page.open(f"{pages}live")
    page.type("#key-form input", f"{key[:-1]}\n")
    page.wait("document.querySelector('#r-keys .failure')")
    page.type("#key-form input", f"{key}\n")
    page.wait("document.querySelectorAll('#r-keys td').length > 0")
    assert "root" in page.text("#r-keys")
    assert page.run("return document.querySelector('#key-form input').value") == ""
    kept = page.run("return location.href + document.cookie + JSON.stringify(localStorage)")
    assert key not in kept
    picture("live-keys")
