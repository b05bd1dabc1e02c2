"""Keys: how they are made, judged and kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.gateway import keys
from heavylift.gateway.keys import Created, Denial, Key, Scope
from heavylift.gateway.quota import Limits
from heavylift.gateway.store import DATABASE, Store, open_store

NOW = 1_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with open_store(tmp_path) as opened:
        yield opened


def judged(
    store: Store,
    created: Created,
    *,
    key: str | None = None,
    scope: Scope = Scope.INFER,
    address: str | None = "127.0.0.1",
    now_epoch_s: float = NOW,
) -> Denial | None:
    """What becomes of a key that is presented."""
    return keys.judge(
        key or created.key,
        store.key(created.id),
        scope=scope,
        address=address,
        now_epoch_s=now_epoch_s,
    )


def test_a_new_key_opens_the_door(store: Store) -> None:
    """The key shown is the key that is known, by its id."""
    created = store.create_key("me", now_epoch_s=NOW)
    assert keys.id_of(created.key) == created.id
    assert judged(store, created) is None


def test_no_two_keys_are_alike(store: Store) -> None:
    """Id and secret are new each time, under the same name too."""
    made = [store.create_key("me", now_epoch_s=NOW) for _ in range(20)]
    assert len({one.key for one in made}) == len({one.id for one in made}) == 20


def test_of_the_secret_only_a_digest_is_kept(store: Store, tmp_path: Path) -> None:
    """No file of the store holds the secret, and no text of the record does."""
    created = store.create_key("me", now_epoch_s=NOW)
    secret = created.key.rpartition("_")[2]
    kept = b"".join(path.read_bytes() for path in tmp_path.glob(f"{DATABASE}*"))
    assert created.id.encode() in kept
    assert secret.encode() not in kept
    assert created.key[16:].encode() not in kept
    assert "digest" not in repr(store.key(created.id))


@pytest.mark.parametrize(
    "presented", ["", "hl_", "sk-other", "hl_zzzzzzzzzzzz_" + "a" * 43, "hl_00 0000000000_x"]
)
def test_what_is_not_of_our_making_has_no_id(presented: str) -> None:
    """It is not even looked up."""
    assert keys.id_of(presented) is None


def test_a_wrong_secret_is_unknown_whatever_the_key_s_state(store: Store) -> None:
    """Nothing is told of a key to one who does not hold it."""
    created = store.create_key("me", now_epoch_s=NOW, expires_at=NOW - 1)
    wrong = created.key[:-1] + ("A" if created.key[-1] != "A" else "B")
    assert judged(store, created, key=wrong) is Denial.UNKNOWN
    assert judged(store, created) is Denial.EXPIRED


def test_a_key_expires_at_its_second(store: Store) -> None:
    """Until then it is good."""
    created = store.create_key("me", now_epoch_s=NOW, expires_at=NOW + 60)
    assert judged(store, created, now_epoch_s=NOW + 59) is None
    assert judged(store, created, now_epoch_s=NOW + 60) is Denial.EXPIRED


def test_a_revoked_key_opens_nothing(store: Store) -> None:
    """By its id or by its name, and only once."""
    created = store.create_key("me", now_epoch_s=NOW)
    assert store.revoke_key("me", now_epoch_s=NOW).id == created.id
    assert judged(store, created) is Denial.REVOKED
    with pytest.raises(HeavyliftError, match="GW012"):
        store.revoke_key(created.id, now_epoch_s=NOW)


def test_one_name_for_two_keys_needs_the_id(store: Store) -> None:
    """A name that is not clear is refused with the ids it may mean."""
    first = store.create_key("me", now_epoch_s=NOW)
    store.create_key("me", now_epoch_s=NOW)
    with pytest.raises(HeavyliftError, match="GW013") as raised:
        store.revoke_key("me", now_epoch_s=NOW)
    assert first.id in str(raised.value.params["ids"])


def test_admin_keys_do_not_infer_and_others_do_not_manage(store: Store) -> None:
    """One scope each: a key that makes keys must not be able to spend."""
    admin = store.create_key("boss", now_epoch_s=NOW, scope=Scope.ADMIN)
    infer = store.create_key("me", now_epoch_s=NOW)
    assert judged(store, admin, scope=Scope.INFER) is Denial.SCOPE
    assert judged(store, admin, scope=Scope.ADMIN) is None
    assert judged(store, infer, scope=Scope.ADMIN) is Denial.SCOPE


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::1%eth0", True),
        ("11.0.0.1", False),
        ("::1", False),
        (None, False),
    ],
)
def test_a_key_is_used_from_its_networks_only(
    store: Store, address: str | None, allowed: bool
) -> None:
    """IPv4 written as IPv6 counts as IPv4; a peer without an address is outside."""
    created = store.create_key("me", now_epoch_s=NOW, networks=("10.0.0.0/8", "fd00::/8"))
    assert (judged(store, created, address=address) is None) is allowed


def test_a_rotated_key_keeps_its_id_and_gives_the_old_secret_grace(store: Store) -> None:
    """Both secrets open the same key, hence one quota, until the grace is over."""
    created = store.create_key("me", now_epoch_s=NOW, limits=Limits(tokens_per_day=5))
    rotated = store.rotate_key(created.id, now_epoch_s=NOW, grace_s=60)
    assert (rotated.id, rotated.key != created.key) == (created.id, True)
    assert judged(store, created, key=rotated.key) is None
    assert judged(store, created, now_epoch_s=NOW + 59) is None
    assert judged(store, created, now_epoch_s=NOW + 60) is Denial.UNKNOWN
    kept = store.key(created.id)
    assert kept is not None
    assert kept.limits == Limits(tokens_per_day=5)


def test_a_key_without_an_earlier_secret_has_no_second_one(store: Store) -> None:
    """Zeros stand in its place in the comparison and open nothing."""
    created = store.create_key("me", now_epoch_s=NOW)
    kept = store.key(created.id)
    assert kept is not None
    assert kept.previous_digest is None
    odd = replace(kept, previous_until=NOW + 60)
    judged_odd = keys.judge("x", odd, scope=Scope.INFER, address=None, now_epoch_s=NOW)
    assert judged_odd is Denial.UNKNOWN


def test_models_are_allowed_by_name() -> None:
    """An empty list allows all of them."""
    key = Key(id="1", name="n", shown="s", digest=b"", created_at=NOW)
    assert key.allows_model("any")
    assert not replace(key, models=("a",)).allows_model("b")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 121])
def test_a_name_is_one_line_of_text(store: Store, name: str) -> None:
    """It is shown in lists and written to logs."""
    with pytest.raises(HeavyliftError, match="GW010"):
        store.create_key(name, now_epoch_s=NOW)


def test_a_network_is_a_network(store: Store) -> None:
    """A typing error is found when the key is made, not when it is used."""
    with pytest.raises(HeavyliftError, match="GW011"):
        store.create_key("me", now_epoch_s=NOW, networks=("10.0.0.300",))


def test_a_key_has_the_limits_of_its_team(store: Store) -> None:
    """Set before or after the key was made, and changed for all at once."""
    created = store.create_key("me", now_epoch_s=NOW, team="lab")
    store.set_team("lab", Limits(concurrent=3))
    store.set_team("lab", Limits(concurrent=4))
    kept = store.key(created.id)
    assert kept is not None
    assert kept.team_limits == Limits(concurrent=4)
    assert store.keys()[0].team_limits.concurrent == 4


def test_the_store_is_a_database_of_ours(tmp_path: Path, store: Store) -> None:
    """It is opened like every other: a write-ahead log on a local disk."""
    assert store.keys() == ()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
