"""Keys and usage on the live page: for an admin key, and for nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.unit.web.conftest import Site

from heavylift.gateway.keys import Scope
from heavylift.gateway.store import open_store
from heavylift.locale.text import text
from heavylift.web.serve import Settings


@pytest.fixture
def keys(home: Path) -> dict[str, str]:
    """A key of each scope and a revoked admin key, by name."""
    made = {}
    with open_store(home / "gateway") as store:
        for name, scope in (("alice", Scope.INFER), ("root", Scope.ADMIN), ("old", Scope.ADMIN)):
            made[name] = store.create_key(name, scope=scope, now_epoch_s=time.time()).key
        store.revoke_key("old", now_epoch_s=time.time())
    return made


@pytest.fixture
def guarded(home: Path) -> Site:
    """The pages beside a gateway's store."""
    return Site(Settings(port=0, gateway=home / "gateway"))


def test_an_admin_key_shows_keys_and_usage(guarded: Site, keys: dict[str, str]) -> None:
    """Names and beginnings, never a secret."""
    answer = guarded.get("/part/keys", Authorization=f"Bearer {keys['root']}")
    assert "alice" in answer.text
    assert not any(key in answer.text for key in keys.values())


@pytest.mark.parametrize("name", ["alice", "old", "wrong", "none"])
def test_any_other_key_shows_nothing(guarded: Site, keys: dict[str, str], name: str) -> None:
    """An inference key, a revoked one, a made-up one, none at all."""
    wrong = keys["root"][:-4] + "AAAA"
    presented = {**keys, "wrong": wrong, "none": ""}[name]
    answer = guarded.get("/part/keys", Authorization=f"Bearer {presented}")
    assert "alice" not in answer.text
    assert "<table" not in answer.text
    assert text("web.keys.refused") in answer.text
    unasked = guarded.get("/part/keys").text
    assert text("web.keys.needed") in unasked
    assert text("web.keys.refused") not in unasked


def test_a_key_in_an_address_opens_nothing(guarded: Site, keys: dict[str, str]) -> None:
    """Addresses are kept by browsers: only the header counts."""
    assert "alice" not in guarded.get(f"/part/keys?key={keys['root']}").text


def test_without_a_gateway_there_is_nothing_to_open(site: Site, home: Path) -> None:
    """And looking makes no store."""
    assert site.get("/part/keys", Authorization="Bearer hl_x").status == 200
    assert not (home / "gateway").exists()
