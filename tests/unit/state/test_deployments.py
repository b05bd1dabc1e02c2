"""Deployments: releases that count up, the one to go back to, and receipts by what they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.records.plan import Layout
from heavylift.records.receipt import MeasuredTerm, Receipt
from heavylift.records.release import Release, Verdict
from heavylift.state.deployments import (
    Deployments,
    deployments_path,
    is_verified,
    open_deployments,
)

RELEASE = Release(
    deployment="chat",
    number=0,
    created_at="2026-11-30T09:00:00Z",
    recipe_digest="sha256:aa",
    plan_digest="sha256:bb",
    receipt_digest=None,
    engine="vllm",
    engine_version="0.32.0",
    image_digest=None,
    model_revision="main",
    driver="580.65",
)
RECEIPT = Receipt(
    model="kimi-k3",
    variant="native",
    engine="vllm",
    engine_version="0.32.0",
    backend="cuda",
    layout=Layout(tensor_parallel_size=8, pipeline_parallel_size=2),
    rack="2x8xH200",
    terms=(
        MeasuredTerm(
            term="weights", device="0", bytes=103_926_471_884, resolution_bytes=10_737_418, line="x"
        ),
    ),
    workload={"context_tokens": 16384, "kv_cache_dtype": "fp8"},
    taken_at="2026-11-30T09:00:00Z",
)
PASSED = Verdict(stage="verify", status="pass", at="2026-11-30T10:00:00Z")
FAILED = replace(PASSED, status="fail")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Deployments]:
    """An empty store."""
    with open_deployments(tmp_path / "deployments.db") as deployments:
        yield deployments


def test_releases_count_up_per_deployment(store: Deployments) -> None:
    """Each deployment has numbers of its own, from 1; newest first when listed."""
    assert [store.add_release(RELEASE).number for _ in range(3)] == [1, 2, 3]
    assert store.add_release(replace(RELEASE, deployment="other")).number == 1
    assert [release.number for release in store.releases("chat")] == [3, 2, 1]
    assert store.release("chat", 2) == replace(RELEASE, number=2)
    assert store.releases("nobody") == ()


def test_the_release_to_go_back_to_is_the_newest_whose_last_verification_passed(
    store: Deployments,
) -> None:
    """A pass counts until a later verification fails; other stages have no say."""
    for _ in range(3):
        store.add_release(RELEASE)
    assert store.latest_verified("chat") is None
    store.add_verdict("chat", 1, PASSED)
    store.add_verdict("chat", 2, FAILED)
    store.add_verdict("chat", 3, replace(PASSED, stage="bench"))
    assert store.latest_verified("chat") == replace(RELEASE, number=1, verdicts=(PASSED,))
    store.add_verdict("chat", 2, PASSED)
    latest = store.latest_verified("chat")
    assert latest is not None
    assert (latest.number, latest.verdicts) == (2, (FAILED, PASSED))
    store.add_verdict("chat", 2, FAILED)
    latest = store.latest_verified("chat")
    assert latest is not None
    assert latest.number == 1
    assert not is_verified(RELEASE)


def test_a_release_learns_its_receipt_later(store: Deployments) -> None:
    """The digest joins once the engine's log has been read; verdicts stay."""
    store.add_release(RELEASE)
    store.add_verdict("chat", 1, PASSED)
    known = store.add_receipt_digest("chat", 1, "sha256:cc")
    assert (known.receipt_digest, known.verdicts) == ("sha256:cc", (PASSED,))
    assert store.latest_verified("chat") == known


def test_a_release_that_is_not_there_is_an_error(store: Deployments) -> None:
    """STA006 says which."""
    uses: tuple[Callable[[], object], ...] = (
        lambda: store.release("chat", 9),
        lambda: store.add_verdict("chat", 9, PASSED),
        lambda: store.add_receipt_digest("chat", 9, "sha256:cc"),
    )
    for missing in uses:
        with pytest.raises(HeavyliftError) as caught:
            missing()
        assert caught.value.code == "STA006"
        assert caught.value.params == {"deployment": "chat", "number": 9}


def test_receipts_are_found_by_all_of_their_key_newest_first(store: Deployments) -> None:
    """Model, variant, engine, rack and layout must all be equal."""
    older, newer = RECEIPT, replace(RECEIPT, taken_at="2026-12-01T09:00:00Z")
    store.save_receipt(newer)
    store.save_receipt(older)
    found = store.receipts(
        model="kimi-k3",
        variant="native",
        engine="vllm",
        rack="2x8xH200",
        layout=Layout(tensor_parallel_size=8, pipeline_parallel_size=2),
    )
    assert found == (newer, older)
    key = {"model": "kimi-k3", "variant": "native", "engine": "vllm", "rack": "2x8xH200"}
    for name in key:
        changed = {**key, name: "other"}
        assert store.receipts(**changed, layout=RECEIPT.layout) == ()
    assert store.receipts(**key, layout=Layout(tensor_parallel_size=16)) == ()


def test_a_receipt_saved_twice_is_one(store: Deployments) -> None:
    """The digest is of the content, and the same content is kept once."""
    digest = store.save_receipt(RECEIPT)
    assert store.save_receipt(RECEIPT) == digest
    assert digest.startswith("sha256:")
    assert store.save_receipt(replace(RECEIPT, rack="8xH200")) != digest
    key = {"model": "kimi-k3", "variant": "native", "engine": "vllm", "rack": "2x8xH200"}
    assert len(store.receipts(**key, layout=RECEIPT.layout)) == 1


def test_releases_added_at_the_same_time_get_different_numbers(tmp_path: Path) -> None:
    """Four writers, one database: every number once."""
    path = tmp_path / "deployments.db"

    def add(_: int) -> int:
        with open_deployments(path) as deployments:
            return deployments.add_release(RELEASE).number

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(add, range(12))) == list(range(1, 13))


def test_the_store_lies_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place follows `HEAVYLIFT_HOME`."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path))
    assert deployments_path() == tmp_path / "state" / "deployments.db"


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    """What the disk does not take is STA009, and what was there before is still there."""
    with open_deployments(tmp_path / "deployments.db") as store:
        store.add_release(RELEASE)
        connection = store._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        large = replace(RELEASE, engine="x" * 100_000)
        with pytest.raises(HeavyliftError, match="STA009"):
            store.add_release(large)
        assert [each.engine for each in store.releases("chat")] == ["vllm"]
