"""What reports of stages, and a deployment's own records, say of the points of a go-live report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cli.test_golive import VERIFICATION, bench, chat, recipe, run, save

from heavylift.bench.records import Found as FoundConcurrency
from heavylift.facts.catalog import Catalog
from heavylift.golive.evidence import Outcome, Proof
from heavylift.operate import bring_up, recipes
from heavylift.operate.golive import said, standing, subject
from heavylift.operate.licences import licence_of
from heavylift.records.bring_up import BringUp, Rung, RungKind, RungStatus
from heavylift.records.deployment import Alive, DeploymentStatus, Failure, Phase, ProcessState
from heavylift.records.fetched import Fetched
from heavylift.records.integrity import Integrity
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Status as Support
from heavylift.records.rehearsal import Rehearsal

__all__ = ["chat", "recipe"]  # fixtures of another module

INTEGRITY = Integrity(
    where="/m",
    files=(),
    defects=(),
    compared=0,
    compared_with=(),
    bytes_read=0,
    bytes_kept=0,
    seconds=0.0,
    bytes_per_s=None,
    sound=True,
)
FETCHED = Fetched(
    model="o/m",
    revision="main",
    host="hub",
    folder="/m",
    files=1,
    weights_bytes=1,
    total_bytes=1,
    needed_bytes=0,
    safe_bytes=0,
    free_bytes=1,
    licence=None,
    licence_from=None,
    transferred=True,
)
REHEARSAL = Rehearsal(
    name="r",
    model="m",
    engine="vllm",
    engine_version="1",
    recipe_digest="sha256:r",
    layers=4,
    passed=True,
    started_at="2026-11-30T00:00:00+00:00",
    seconds=9.0,
    ready_s=3.21,
)
BROUGHT_UP = BringUp(
    name="d",
    model="m",
    engine="vllm",
    engine_version="1",
    recipe_digest="sha256:r",
    recipe="/r",
    started_at="2026-11-30T00:00:00+00:00",
    updated_at="2026-11-30T01:00:00+00:00",
    release=3,
    rungs=(
        Rung(id="doctor", kind=RungKind.DOCTOR, status=RungStatus.PASSED),
        Rung(id="load", kind=RungKind.LOAD, status=RungStatus.PASSED),
        Rung(id="context.64", kind=RungKind.CONTEXT, status=RungStatus.PASSED, context_tokens=64),
        Rung(
            id="concurrency.4", kind=RungKind.CONCURRENCY, status=RungStatus.FAILED, concurrency=4
        ),
        Rung(id="concurrency.8", kind=RungKind.CONCURRENCY, concurrency=8),
    ),
)


def told(kind: str, record: object) -> dict[tuple[str, str], Proof]:
    """The proofs of a report by kind and reason."""
    raw = msgspec.json.encode(record)
    assert said.kind_of(msgspec.json.decode(raw)) == kind
    return {(each.kind, each.reason): each for each in said.proofs(kind, raw)}


# --- reports -------------------------------------------------------------------------------------


def test_a_bring_up_proves_as_far_as_its_rungs_went() -> None:
    """The longest context, the requests at once, the doctor; a rung that failed is a failure, one
    that was not climbed is nothing. All of it is bound to the release that it loaded.
    """
    found = told(said.BRING_UP, BROUGHT_UP)
    assert set(found) == {
        ("doctor", "doctor_rung"),
        ("ladder", "rung_context_tokens_passed"),
        ("bench", "rung_concurrency_failed"),
    }
    ladder = found["ladder", "rung_context_tokens_passed"]
    assert ladder.reach == {"context_tokens": 64}
    assert ladder.bound == {"deployment": "d", "recipe": "sha256:r", "release": "3"}
    failed = found["bench", "rung_concurrency_failed"]
    assert (failed.outcome, failed.reach) == (Outcome.FAILED, {})
    unloaded = told(said.BRING_UP, replace(BROUGHT_UP, release=None))
    assert "release" not in unloaded["doctor", "doctor_rung"].bound


def test_a_rehearsal_is_of_its_recipe() -> None:
    """And of why it did not pass."""
    (passed,) = told(said.REHEARSAL, REHEARSAL).values()
    assert (passed.outcome, passed.bound) == (Outcome.PASSED, {"recipe": "sha256:r"})
    assert passed.params["seconds"] == 3.2
    broken = replace(REHEARSAL, passed=False, ready_s=None, failure=Failure(code="RUN011"))
    (failed,) = told(said.REHEARSAL, broken).values()
    assert (failed.outcome, failed.params["why"]) == (Outcome.FAILED, "RUN011")


def test_files_that_nobody_vouches_for_are_read_and_not_proven() -> None:
    """A fetch says what its check said; one that only looked says nothing."""
    (unknown,) = told(said.CHECKSUM, INTEGRITY).values()
    assert unknown.outcome is Outcome.OPEN
    assert told(said.FETCH, FETCHED) == {}
    checked = replace(FETCHED, integrity=replace(INTEGRITY, compared=1))
    (proven,) = told(said.FETCH, checked).values()
    assert (proven.outcome, proven.bound) == (Outcome.PASSED, {"checkpoint": "/m"})


@pytest.mark.parametrize(
    ("failed", "ok", "outcome"),
    [
        (False, 5, Outcome.PASSED),
        (True, 5, Outcome.FAILED),
        (False, 0, Outcome.OPEN),
        (True, 0, Outcome.FAILED),
    ],
)
def test_the_doctor_is_counted(failed: bool, ok: int, outcome: Outcome) -> None:
    """By severity; unknown is shown beside the rest and is not ok: where nothing was seen, nothing
    is proven.
    """
    record = {
        "hosts": ["a"],
        "taken_at": ["2026-11-30T00:00:00+00:00"],
        "failed": failed,
        "counts": {"ok": ok, "unknown": 2, "fail": int(failed)},
    }
    (found,) = told(said.DOCTOR, record).values()
    assert found.outcome is outcome
    assert (found.params["unknown"], found.params["warn"]) == (2, 0)


def test_a_search_counts_for_what_it_found() -> None:
    """The stage that met its objectives, not the one beyond it; no stage says nothing."""
    report = bench(slo="ttft_p99=1s", met=True)
    (stage,) = report.stages
    more = replace(stage, load=replace(stage.load, concurrency=128), slo_met=False)
    searched = replace(
        report,
        stages=(stage, more),
        found=FoundConcurrency(concurrency=64, slo="ttft_p99=1s", ended_by="slo"),
    )
    found = told(said.BENCH, searched)
    assert found["bench", "bench_slo_passed"].reach == {"concurrency": 64}
    lost = replace(searched, found=replace(searched.found, concurrency=7))  # type: ignore[type-var]
    assert ("bench", "bench_slo_failed") in told(said.BENCH, lost)
    assert told(said.BENCH, replace(report, stages=())) == {}


def test_an_invalid_measurement_decides_nothing() -> None:
    """Neither for the load nor for the objectives. An open loop reaches no number at once."""
    report = bench(slo="ttft_p99=1s", met=True)
    invalid = told(said.BENCH, replace(report, valid=False, invalid_reasons=("x",)))
    assert {each.outcome for each in invalid.values()} == {Outcome.OPEN}
    (stage,) = report.stages
    opened = replace(stage, load=replace(stage.load, concurrency=None))
    for each in told(said.BENCH, replace(report, stages=(opened,))).values():
        assert each.reach == {}


def test_a_verification_of_a_file_has_no_address() -> None:
    """What a report does not state is not held against anything."""
    bare = replace(VERIFICATION, subject=replace(VERIFICATION.subject, url="answers", model=None))
    assert {tuple(each.bound) for each in told(said.VERIFY, bare).values()} == {()}
    assert said.kind_of({"anything": 1}) is None


# --- a deployment's own records ------------------------------------------------------------------


def own(name: str, **status: Any) -> dict[str, Proof]:
    """The proofs of a deployment's own records by kind, its status as stated."""
    found = subject.find(name)
    if status:
        base = DeploymentStatus(
            name=name,
            phase=Phase.READY,
            pid=1,
            url=None,
            ready=True,
            alive=Alive.ALIVE,
            release=2,
            wanted="up",
            model="m",
            engine="e",
        )
        found = replace(found, status=replace(base, **status))
    licence = licence_of(Catalog(), "kimi-k3")
    return {each.kind: each for each in standing.proofs(found, licence)}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ({"alive": Alive.ALIVE}, Outcome.PASSED),
        ({"alive": Alive.DEAD}, Outcome.FAILED),
        ({"alive": Alive.SUSPECT}, Outcome.FAILED),
        ({"alive": Alive.UNKNOWN}, Outcome.OPEN),
        ({"ready": False}, Outcome.OPEN),
        ({"ready": False, "alive": Alive.DEAD, "failure": Failure(code="RUN011")}, Outcome.FAILED),
    ],
)
def test_alive_is_what_works_now(chat: str, status: dict[str, Any], outcome: Outcome) -> None:
    """HTTP that answers is not enough, and what nobody can tell is open."""
    assert own(chat, **status)["alive"].outcome is outcome


def test_a_start_that_failed_says_in_which_phase(chat: str) -> None:
    """And names the log."""
    log = ProcessState(rank=0, host="127.0.0.1", log="/log")
    failure = Failure(code="RUN011", phase="weights")
    save(run(ready_s=None, failure=failure, processes=(log,), receipt_digest=None))
    found = own(chat)["load"]
    assert (found.outcome, found.params["phase"], found.path) == (Outcome.FAILED, "weights", "/log")
    assert "memory" not in own(chat)


def test_a_log_that_tells_no_memory_proves_none(chat: str) -> None:
    """It came up, and that is all that is known."""
    save(run(receipt_digest=None))
    assert own(chat)["memory"].outcome is Outcome.OPEN


def test_a_release_whose_recipe_is_gone_is_no_way_back(chat: str) -> None:
    """It verified once, and cannot be started."""
    (recipes.release_dir(chat, 1) / recipes.LAUNCH).unlink()
    assert own(chat)["rollback"].outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (Support.VERIFIED, Outcome.PASSED),
        (Support.REPORTED, Outcome.PASSED),
        (Support.UNVERIFIED, Outcome.OPEN),
        (Support.UNKNOWN, Outcome.OPEN),
        (Support.BROKEN, Outcome.FAILED),
        (Support.UNSUPPORTED, Outcome.FAILED),
        (None, Outcome.OPEN),
    ],
)
def test_support_is_somebodys_word(recipe: Path, status: Support | None, outcome: Outcome) -> None:
    """Verified or reported by somebody; listed is not run."""
    launch = recipe / recipes.LAUNCH
    spec = msgspec.json.decode(launch.read_bytes(), type=LaunchSpec)
    support = None
    if status is not None:
        assert spec.support is not None
        support = replace(spec.support, status=status)
    else:
        (recipe / recipes.PLAN).unlink()
    launch.write_bytes(msgspec.json.encode(replace(spec, support=support)))
    assert own(str(recipe))["support"].outcome is outcome


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"image": "a@sha256:0"}, "digests_image"),
        ({"image": "a:1", "image_digest": "sha256:0"}, "digests_image"),
        ({"image": "a:1"}, "image_by_tag"),
        ({"image": None}, "digests_version"),
        ({"image": None, "model_revision": None, "model": "o/m"}, "no_revision"),
    ],
)
def test_a_tag_is_no_digest(recipe: Path, change: dict[str, Any], reason: str) -> None:
    """Whoever owns the tag may put another image there tomorrow; so with a branch of weights."""
    launch = recipe / recipes.LAUNCH
    spec = msgspec.json.decode(launch.read_bytes(), type=LaunchSpec)
    launch.write_bytes(msgspec.json.encode(replace(spec, **change)))
    assert own(str(recipe))["digests"].reason == reason


def test_the_limit_is_what_the_server_says(chat: str) -> None:
    """By the proof of its start; without one nobody said."""
    assert standing.limit_of(subject.find(chat)) is None
    folder = Path(run().folder)
    folder.mkdir(parents=True)
    (folder / "verification.json").write_bytes(msgspec.json.encode(VERIFICATION))
    assert standing.limit_of(subject.find(chat)) == 4096


def test_a_bring_up_that_cannot_be_read_is_none(chat: str) -> None:
    """Its rungs are climbed anew."""
    bring_up.record_path(chat).write_text("{")
    assert bring_up.kept(chat) is None


@pytest.mark.parametrize("listed", [True, False])
def test_the_list_of_digests_is_named_where_it_lies(tmp_path: Path, listed: bool) -> None:
    """A `SHA256SUMS` beside the weights is part of the command; one that is not there is not."""
    weights = tmp_path / "model.gguf"
    weights.write_bytes(b"GGUF")
    sums = tmp_path / "SHA256SUMS"
    if listed:
        sums.write_text("00  model.gguf\n")
    for place in (weights, tmp_path):
        assert subject._sums(place) == (str(sums) if listed else None)
