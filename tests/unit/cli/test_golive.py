"""`heavylift golive` over a state that is made up here: nothing runs, and it says so."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from tests.unit.golive.test_judge import parse

from heavylift.bench.records import Report
from heavylift.cli.cells import WIDTH, cell_len
from heavylift.cli.main import cli
from heavylift.cli.pages import golive as page
from heavylift.cli.screens import golive as screen
from heavylift.cli.text import text
from heavylift.facts.catalog import Catalog
from heavylift.gateway import told
from heavylift.gateway.quota import Limits
from heavylift.gateway.store import AUDIT, default_folder, open_store
from heavylift.gateway.told import ToldSettings
from heavylift.golive.evidence import Outcome
from heavylift.locale import catalogue
from heavylift.observe.alerts import RULES
from heavylift.operate import recipes, reporting
from heavylift.operate.golive import gather, said, subject
from heavylift.operate.golive.report import report
from heavylift.operate.licences import acknowledge, licence_of
from heavylift.quality.records import Comparison
from heavylift.quality.records import Verdict as QualityVerdict
from heavylift.records.deployment import Deployment, Phase, RunState
from heavylift.records.finding import Finding, Severity
from heavylift.records.golive import GoLive, Standing, Waiver
from heavylift.records.integrity import CheckedFile, FileState, Integrity
from heavylift.records.launch import LaunchSpec, RankSpec
from heavylift.records.plan import Plan
from heavylift.records.release import Release, Verdict
from heavylift.records.served_model import ServedModel
from heavylift.state import paths, reports
from heavylift.state.deployments import deployments_path, open_deployments
from heavylift.state.digests import DigestStore
from heavylift.stats import Interval
from heavylift.verify.records import CheckResult, Profile, Status, Verification

from .test_languages import FIGURES, STAGE

URL = "http://127.0.0.1:8123"
STARTED = datetime.now(UTC) - timedelta(hours=2)
ANSWERED = (STARTED + timedelta(minutes=10)).isoformat(timespec="seconds")
MEASURED = (STARTED + timedelta(hours=1)).isoformat(timespec="seconds")
VERIFICATION = Verification(
    subject=ServedModel(url=URL, model="kimi-k3", context_tokens=4096),
    profile=Profile.ACCEPTANCE,
    started_at=MEASURED,
    heavylift_version="0",
    seconds=9.0,
    verdict=Status.PASS,
    checks=(
        CheckResult(
            id="context.4k",
            status=Status.PASS,
            rate=1.0,
            interval=None,
            trials=6,
            required_rate=1.0,
            figures={"prompt_tokens": 4000.0, "prefill_tokens_per_s": 9.0},
        ),
    ),
)


@pytest.fixture
def recipe(tmp_path: Path, make_plan: Callable[..., Plan]) -> Path:
    """A recipe of K3 for eight cards; the engine's image is named by a tag."""
    plan = make_plan("kimi-k3", "8xMI355X", engine="atom", context_tokens=4096, concurrency=8)
    spec = LaunchSpec(
        engine="atom",
        engine_version=plan.engine_version,
        image_digest=None,
        image="rocm/atom:latest",
        model="kimi-k3",
        model_revision="f831ab6",
        ranks=(RankSpec(rank=0, host="127.0.0.1", argv=("atom",), ports={"api": 8123}),),
        expected_phases=(),
        deadline_s=3600,
        plan_digest="sha256:0",
        bind_host="127.0.0.1",
        support=plan.support,
    )
    folder = tmp_path / "recipe"
    folder.mkdir()
    (folder / recipes.LAUNCH).write_bytes(msgspec.json.encode(spec))
    (folder / recipes.PLAN).write_bytes(msgspec.json.encode(plan))
    return folder


@pytest.fixture
def chat(recipe: Path) -> str:
    """A deployment that came up two hours ago, as its second release; nothing of it runs now."""
    digest = recipes.read(recipe).digest
    with open_deployments(deployments_path()) as store:
        for _ in range(2):
            release = store.add_release(
                Release(
                    deployment="chat",
                    number=0,
                    created_at=STARTED.isoformat(),
                    recipe_digest=digest,
                    plan_digest="sha256:0",
                    receipt_digest=None,
                    engine="atom",
                    engine_version="1",
                    image_digest=None,
                    model_revision="f831ab6",
                    driver=None,
                )
            )
            recipes.keep(recipe, "chat", release.number)
            verdict = Verdict(stage="verify", status="pass", at=ANSWERED)
            store.add_verdict("chat", release.number, verdict)
        deployment = Deployment(name="chat", wanted="up", release=2, model="kimi-k3", engine="atom")
        store.save_deployment(deployment)
        store.save_run(run())
    return "chat"


def run(**more: Any) -> RunState:
    """The run of release 2."""
    base = RunState(
        id="r",
        deployment="chat",
        release=2,
        folder=str(paths.deployment_dir("chat") / "runs" / "r"),
        started_at=STARTED.isoformat(),
        boot_id="of another day",
        phase=Phase.READY,
        phase_at=ANSWERED,
        url=URL,
        ready_at=ANSWERED,
        ready_s=600.0,
        receipt_digest="sha256:1",
        verdict="pass",
    )
    return replace(base, **more)


def save(state: RunState) -> None:
    """Keep a run as it stands."""
    with open_deployments(deployments_path()) as store:
        store.save_run(state)


def golive(*words: str) -> tuple[int, GoLive]:
    """The status and the record that the command prints."""
    result = CliRunner().invoke(cli, ("golive", *words, "--json"), standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, msgspec.json.decode(result.stdout, type=GoLive)


def points(*words: str) -> dict[str, tuple[Standing, str]]:
    """Every point by name: its standing and reason."""
    return {each.id: (each.standing, each.reason) for each in golive(*words)[1].points}


def hand_in(path: Path, record: object) -> str:
    """A report as `--json` printed it elsewhere."""
    path.write_bytes(msgspec.json.encode(record))
    return str(path)


# --- what it is of -------------------------------------------------------------------------------


def test_what_nobody_deployed_is_refused(run: Callable[..., Any]) -> None:
    """The error names what there is; a folder without a recipe is none either."""
    found = run("golive", "nobody")
    assert (found.status, "OPS001" in found.err) == (3, True)


@pytest.mark.parametrize("name", ["", " "])
def test_no_name_is_a_usage_error(name: str, run: Callable[..., Any]) -> None:
    """It is not taken for the folder one is in."""
    found = run("golive", name)
    assert (found.status, text("usage.golive_name") in found.err) == (2, True)


def test_a_recipe_is_judged_before_it_was_ever_started(recipe: Path) -> None:
    """That eight cards load it is said in numbers, and that this proves nothing of traffic. Its
    `launch.json` stands for it.
    """
    status, found = golive(str(recipe))
    assert golive(str(recipe / recipes.LAUNCH))[1].name == found.name
    assert (status, found.passed, found.release) == (1, False, None)
    assert found.gpus == 8
    assert found.weights_bytes is not None
    assert found.weights_bytes < (found.budget_bytes or 0)
    by_name = {each.id: each for each in found.points}
    assert by_name["plan"].standing is Standing.PROVEN
    assert by_name["load"].command == f"heavylift up {recipe}"
    assert {each.figure: (each.promised, each.proven) for each in found.reach} == {
        "context_tokens": (4096, None),
        "concurrency": (8, None),
    }
    assert [each.settled == each.points for each in found.levels] == [False, False, False]


def test_a_plan_is_judged_before_there_is_a_recipe(recipe: Path) -> None:
    """Its memory and who ran it; everything else begins with a recipe, which is the command."""
    (recipe / recipes.LAUNCH).unlink()
    for where in (recipe, recipe / recipes.PLAN):
        _, found = golive(str(where))
        by_name = {each.id: each for each in found.points}
        assert (found.engine, found.gpus) == ("atom", 8)
        assert by_name["plan"].standing is by_name["recipe"].standing is Standing.PROVEN
        for name in ("rehearsal", "load", "acceptance", "doctor"):
            assert (by_name[name].command or "").startswith("heavylift recipe kimi-k3 --on ")


def test_every_command_it_names_parses(chat: str, recipe: Path) -> None:
    """Of a deployment and of a folder: click takes each as it is printed, quoted as it is."""
    commands = [each.command for name in (chat, str(recipe)) for each in golive(name)[1].points]
    assert sum(each is not None for each in commands) > 20
    for command in filter(None, commands):
        program, *words = shlex.split(command)
        assert program == "heavylift"
        parse(words)


def test_what_is_kept_of_a_deployment_proves_its_points(chat: str) -> None:
    """Its start, its verification, its memory, its roll-back; it does not run now, and says so."""
    found = points(chat)
    for name in ("plan", "load", "memory", "smoke", "rollback", "rehearsal", "exposure"):
        assert found[name][0] is Standing.PROVEN, name
    assert found["digests"] == (Standing.MISSING, "image_by_tag")
    assert found["alive"] == (Standing.MISSING, "not_running")
    assert found["keys"] == (Standing.MISSING, "no_gateway")


def test_what_it_links_to_is_there(chat: str, recipe: Path) -> None:
    """Of a deployment and of a folder: no gateway was started, so nobody is sent to its folder."""
    for name in (chat, str(recipe)):
        report = golive(name)[1]
        linked = [point.evidence.path for point in report.points if point.evidence is not None]
        assert [path for path in linked if path is not None and not Path(path).exists()] == []
        assert any(path is not None for path in linked)


def test_a_start_that_failed_fails_with_its_numbers(chat: str) -> None:
    """And a term of memory that was not as planned, by its two values."""
    odd = Finding(
        id="run.memory.term",
        code="run.memory.term",
        severity=Severity.WARN,
        subject="weights",
        observed=3 * 2**30,
        expected=2 * 2**30,
    )
    save(run(findings=(odd,)))
    _, found = golive(chat)
    memory = next(each for each in found.points if each.id == "memory")
    assert memory.standing is Standing.FAILED
    assert (memory.params["observed"], memory.params["expected"]) == ("3.00 GiB", "2.00 GiB")


# --- evidence ------------------------------------------------------------------------------------


def test_a_report_from_elsewhere_is_taken_for_the_release_that_ran_then(
    chat: str, tmp_path: Path
) -> None:
    """By address, model and time; its ladder counts as well."""
    path = hand_in(tmp_path / "v.json", VERIFICATION)
    found = points(chat, "--evidence", path)
    assert found["acceptance"] == (Standing.PROVEN, "verify_passed")
    assert found["ladder"] == (Standing.PROVEN, "ladder_passed")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"subject": replace(VERIFICATION.subject, url="http://10.0.0.9:8000")}, "other_url"),
        ({"subject": replace(VERIFICATION.subject, model="llama")}, "other_model"),
        ({"subject": replace(VERIFICATION.subject, release="1")}, "other_release"),
        ({"started_at": "2019-05-05T00:00:00+00:00"}, "unbound"),
        ({"started_at": "2099-05-05T00:00:00+00:00"}, "future"),
        ({"started_at": "at noon"}, "unbound"),
        ({"narrowed": True}, "verify_narrowed"),
        ({"verdict": Status.UNKNOWN}, "verify_open"),
    ],
)
def test_evidence_of_something_else_proves_nothing(
    chat: str, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    """Another server, model, release or time, a part of the checks, no word: missing."""
    path = hand_in(tmp_path / "v.json", replace(VERIFICATION, **change))
    assert points(chat, "--evidence", path)["acceptance"] == (Standing.MISSING, reason)


def test_figures_and_dates_that_cannot_be_are_no_traceback(chat: str, tmp_path: Path) -> None:
    """A latency longer than any clock, a file written in a year that no calendar has, an audit with
    lines of any kind: each is judged, none is a proof.
    """
    record = bench(slo="ttft_p99=1s", met=False)
    stage = record.stages[0]
    assert stage.ttft_s is not None
    endless = replace(stage, ttft_s=replace(stage.ttft_s, p99=1e308))
    path = hand_in(tmp_path / "b.json", replace(record, stages=(endless,)))
    assert points(chat, "--evidence", path)["bench"] == (Standing.FAILED, "bench_slo_failed")
    path = hand_in(tmp_path / "v.json", replace(VERIFICATION, started_at=""))
    os.utime(path, (1e12, 1e12))
    assert points(chat, "--evidence", path)["acceptance"][0] is Standing.MISSING
    folder = default_folder()
    with served({}) as url:
        gateway(url)
        odd = '{"outcome": "lines_lost", "lines": %s}\n'
        (folder / AUDIT).write_text("".join(odd % each for each in ("null", "[1]", "Infinity")))
        (folder / AUDIT).chmod(0o600)
        assert points(chat)["audit"] == (Standing.PROVEN, "audit_whole")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"a"', b"{}", b'{"subject": 1}', b"\xff"])
def test_a_file_that_is_no_report_is_refused(
    chat: str, tmp_path: Path, content: bytes, run: Callable[..., Any]
) -> None:
    """Status 3, by its name; a report cut short is none either."""
    path = tmp_path / "x.json"
    path.write_bytes(content)
    for each in (path, tmp_path / "absent.json"):
        found = run("golive", chat, "--evidence", str(each))
        assert (found.status, "OPS010" in found.err) == (3, True)


def test_a_kept_report_that_is_spoilt_is_told_and_is_no_proof(chat: str) -> None:
    """The others count on."""
    reporting.keep("verify", VERIFICATION, name=chat)
    assert points(chat)["acceptance"][0] is Standing.PROVEN
    for path, _ in reports.kept(chat):
        path.write_bytes(path.read_bytes()[:200])
    assert points(chat)["acceptance"] == (Standing.MISSING, "unreadable")


def test_a_kept_report_of_an_older_release_is_stale(chat: str) -> None:
    """Both releases are named."""
    reporting.keep("verify", VERIFICATION, name=chat)
    ((path, kept),) = reports.kept(chat)
    assert kept is not None
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(kept, release=1)))
    _, found = golive(chat)
    point = next(each for each in found.points if each.id == "acceptance")
    assert (point.reason, point.params) == ("other_release", {"theirs": "1", "ours": "2"})


def test_a_benchmark_is_held_against_its_objectives(chat: str, tmp_path: Path) -> None:
    """Without any it proves the load and not the objectives; a miss is a failure with numbers; one
    against others than those asked for is another measurement.
    """
    measured = bench(slo=None, met=None)
    path = hand_in(tmp_path / "b.json", measured)
    found = points(chat, "--evidence", path)
    assert found["load_test"] == (Standing.PROVEN, "bench_passed")
    assert found["bench"] == (Standing.MISSING, "bench_without_slo")
    path = hand_in(tmp_path / "b.json", bench(slo="ttft_p99=1s", met=False))
    assert points(chat, "--evidence", path)["bench"] == (Standing.FAILED, "bench_slo_failed")
    path = hand_in(tmp_path / "b.json", bench(slo="ttft_p99=1s", met=True))
    assert points(chat, "--evidence", path)["bench"][0] is Standing.PROVEN
    asked = points(chat, "--evidence", path, "--slo", "ttft_p99=2s")
    assert asked["bench"] == (Standing.MISSING, "other_slo")


def bench(slo: str | None, met: bool | None) -> Report:
    """A benchmark of 64 at once."""
    figures = {**FIGURES, "valid": True, "invalid_reasons": ()}
    stage = replace(STAGE, slo_met=met, valid=True, invalid_reasons=())
    return Report(
        target=ServedModel(url=URL, model="kimi-k3"),
        started_at=MEASURED,
        heavylift_version="0",
        seed=0,
        settings={"slo": slo},
        stages=(stage,),
        **figures,
    )


@pytest.mark.parametrize(
    ("verdict", "standing"),
    [
        (QualityVerdict.WORSE, Standing.FAILED),
        (QualityVerdict.EQUIVALENT, Standing.PROVEN),
        (QualityVerdict.NOT_ENOUGH_DATA, Standing.PROVEN),
    ],
)
def test_the_makers_own_checkpoint_is_no_copy_but_may_be_worse(
    chat: str, tmp_path: Path, verdict: QualityVerdict, standing: Standing
) -> None:
    """K3 as it was published needs no comparison; one that says worse counts all the same."""
    interval = Interval(low=-0.2, high=-0.1)
    comparison = Comparison(
        reference=ServedModel(url="http://10.0.0.1:8000"),
        candidate=ServedModel(url=URL),
        started_at=MEASURED,
        heavylift_version="0",
        margin=0.05,
        verdict=verdict,
        difference=-0.15,
        interval=interval,
        minimum_detectable_effect=0.01,
        detectable_beforehand=0.01,
        contrasts=(),
    )
    path = hand_in(tmp_path / "q.json", comparison)
    assert points(chat, "--evidence", path)["quality"][0] is standing


def test_weights_that_changed_after_their_check_are_unchecked(recipe: Path, tmp_path: Path) -> None:
    """A check counts for the files as they were, and for these files; one that holds a part of the
    weights against nothing is none.
    """
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    launch = recipe / recipes.LAUNCH
    spec = msgspec.json.decode(launch.read_bytes(), type=LaunchSpec)
    launch.write_bytes(msgspec.json.encode(replace(spec, model_path=str(weights))))
    checked = Integrity(
        where=str(weights),
        files=(CheckedFile(path="config.json", state=FileState.OK),),
        defects=(),
        compared=1,
        compared_with=("list",),
        bytes_read=2,
        bytes_kept=0,
        seconds=1.0,
        bytes_per_s=2.0,
        sound=True,
    )
    reporting.keep("checksum", checked)
    assert points(str(recipe))["checkpoint"] == (Standing.PROVEN, "checksum_passed")
    later = datetime.now(UTC).timestamp() + 60
    os.utime(weights / "config.json", (later, later))
    assert points(str(recipe))["checkpoint"] == (Standing.MISSING, "changed_since")
    bad = hand_in(tmp_path / "c.json", replace(checked, sound=False, defects=()))
    assert points(str(recipe), "--evidence", bad)["checkpoint"][0] is Standing.FAILED
    reporting.keep("checksum", replace(checked, where="/another/model"))
    assert points(str(recipe))["checkpoint"] == (Standing.MISSING, "changed_since")
    shards = (
        CheckedFile(path="1.safetensors", state=FileState.OK, expected="0" * 64),
        CheckedFile(path="2.safetensors", state=FileState.RECORDED),
    )
    partly = msgspec.json.encode(replace(checked, files=shards))
    (only,) = said.proofs("checksum", partly)
    assert (only.outcome, only.reason) == (Outcome.OPEN, "checksum_partly")
    assert only.params["first"] == "2.safetensors"


@pytest.mark.parametrize("url", ["http://[", "http://h:99999", "", "no address"])
def test_an_address_that_is_none_is_anothers(chat: str, tmp_path: Path, url: str) -> None:
    """A file may say whatever it likes."""
    said = replace(VERIFICATION, subject=replace(VERIFICATION.subject, url=url, model=None))
    path = hand_in(tmp_path / "v.json", said)
    reason = "other_url" if "://" in url else "unbound"
    assert points(chat, "--evidence", path)["acceptance"] == (Standing.MISSING, reason)


def test_a_recipe_that_is_gone_is_told(chat: str) -> None:
    """What depends on it is missing; what the release itself says still counts."""
    (recipes.release_dir(chat, 2) / recipes.LAUNCH).write_text("{")
    found = points(chat)
    assert found["plan"] == (Standing.MISSING, "recipe_unreadable")
    assert found["load"][0] is Standing.PROVEN


# --- waivers and what is required ----------------------------------------------------------------


def test_a_waiver_is_kept_with_who_why_and_until(chat: str, tmp_path: Path) -> None:
    """The next report has it without asking; a pipeline that requires the point passes."""
    until = (datetime.now(UTC) + timedelta(days=3)).date().isoformat()
    words = ("--waive", "alerts", "--who", "kim", "--why", "ours, elsewhere", "--until", until)
    assert golive(chat, "--require", "alerts")[0] == 1
    assert golive(chat, *words, "--require", "alerts")[0] == 0
    _, found = golive(chat)
    waiver = next(each for each in found.points if each.id == "alerts").waiver
    assert waiver is not None
    assert (waiver.who, waiver.why, waiver.until) == ("kim", "ours, elsewhere", until)
    path = hand_in(tmp_path / "v.json", VERIFICATION)
    assert golive(chat, "--evidence", path, "--require", "alerts,acceptance")[0] == 0
    assert golive(chat, "--require", "alerts,acceptance")[0] == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--require", "acceptance,no_such"), "USE100"),
        (("--waive", "no_such", "--who", "a", "--why", "b", "--until", "2099-01-01"), "USE100"),
        (("--waive", "bench", "--who", "a", "--why", "b", "--until", "2020-01-01"), "USE101"),
        (("--waive", "bench", "--who", "a", "--why", "b", "--until", "2099-01-01"), "USE103"),
        (("--waive", "bench", "--who", "a", "--why", "b"), "--until"),
        (("--waive", "bench", "--who", "a", "--why", "b", "--until", ""), "--until"),
        (("--waive", "bench", "--who", "a", "--why", "b", "--until", "soon"), "--until"),
        (("--waive", "bench", "--who", "a", "--why", "b", "--until", "20990101"), "--until"),
        (("--waive", "bench", "--who", "a", "--why", " ", "--until", "2099-01-01"), "--why"),
        (("--who", "a"), "--waive"),
        (("--require", ","), "--require"),
        (("--require", ""), "--require"),
        (("--slo", "fast"), "USE060"),
    ],
)
def test_a_point_that_is_none_and_half_a_waiver_are_refused(
    chat: str, run: Callable[..., Any], words: tuple[str, ...], code: str
) -> None:
    """Status 2; the points there are stand beside one that is none."""
    found = run("golive", chat, *words)
    assert (found.status, code in found.err) == (2, True), found.err
    if code == "USE100":
        assert found.err.count("load_test") == 1
    assert not (paths.deployment_dir("chat") / "waivers.json").exists()


def test_waivers_that_cannot_be_read_waive_nothing(chat: str, run: Callable[..., Any]) -> None:
    """Somebody has to look at the file: status 4."""
    (paths.deployment_dir("chat") / "waivers.json").write_text("[{")
    found = run("golive", chat)
    assert (found.status, "STA008" in found.err) == (4, True)


# --- the front -----------------------------------------------------------------------------------


@contextmanager
def served(answer: object, status: int = 200) -> Iterator[str]:
    """A server that answers everything with one document."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def gateway(url: str, **more: Any) -> None:
    """A gateway that was told to lead to the deployment."""
    base = ToldSettings(
        url=url,
        host="127.0.0.1",
        tls=False,
        upstreams=(URL,),
        keeps_bodies=False,
        own_rules=False,
        shares_database=False,
        started_at=MEASURED,
        pid=1,
        heavylift_version="0",
    )
    folder = default_folder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / told.FILE).write_bytes(msgspec.json.encode(replace(base, **more)))


def test_a_gateway_in_front_is_judged_by_what_it_was_told(chat: str) -> None:
    """Keys with quotas, an audit that is whole and private, bodies left out; each can fail."""
    folder = default_folder()
    with served({}) as url:
        gateway(url)
        assert points(chat)["keys"] == (Standing.MISSING, "keys_elsewhere")
        with open_store(folder) as store:
            store.create_key("a", now_epoch_s=1.0, limits=Limits(tokens_per_day=9))
        (folder / AUDIT).write_text('{"outcome": "ok"}\n')
        (folder / AUDIT).chmod(0o600)
        found = points(chat)
        assert found["keys"] == (Standing.PROVEN, "keys_with_quota")
        assert found["audit"] == (Standing.PROVEN, "audit_whole")
        assert found["data"] == (Standing.PROVEN, "bodies_left_out")
        assert found["exposure"] == (Standing.PROVEN, "exposure_gateway_local")
        with open_store(folder) as store:
            store.create_key("b", now_epoch_s=1.0)
        (folder / AUDIT).write_text('{"outcome": "lines_lost", "lines": 3}\nnot json\n')
        gateway(url, keeps_bodies=True, host="0.0.0.0")  # noqa: S104 - what is judged here
        found = points(chat)
        assert found["keys"] == (Standing.FAILED, "keys_without_quota")
        assert found["audit"] == (Standing.FAILED, "audit_lost")
        assert found["data"] == (Standing.FAILED, "bodies_kept")
        assert found["exposure"] == (Standing.FAILED, "gateway_plain")
        (folder / AUDIT).chmod(0o644)
        assert points(chat)["audit"] == (Standing.FAILED, "audit_readable")
        gateway(url, upstreams=("http://10.0.0.9:1",))
        assert points(chat)["keys"] == (Standing.MISSING, "gateway_elsewhere")
    gateway(url)
    assert points(chat)["keys"] == (Standing.MISSING, "gateway_gone")


def test_a_verification_through_the_gateway_is_one_of_the_deployment(
    chat: str, tmp_path: Path
) -> None:
    """Its address is the gateway's."""
    with served({}) as url:
        gateway(url)
        through = replace(VERIFICATION, subject=replace(VERIFICATION.subject, url=url))
        path = hand_in(tmp_path / "v.json", through)
        assert points(chat, "--evidence", path)["acceptance"][0] is Standing.PROVEN


def test_an_engine_that_others_reach_is_a_failure(recipe: Path) -> None:
    """Without a key, and with one but in the clear; one that logs prompts is told of."""
    launch = recipe / recipes.LAUNCH
    spec = msgspec.json.decode(launch.read_bytes(), type=LaunchSpec)
    open_to_all = replace(spec, bind_host="0.0.0.0")  # noqa: S104 - what is judged here
    launch.write_bytes(msgspec.json.encode(open_to_all))
    assert points(str(recipe))["exposure"] == (Standing.FAILED, "engine_open")
    logging = replace(spec.ranks[0], argv=("vllm", "serve", "--enable-log-requests"))
    launch.write_bytes(msgspec.json.encode(replace(spec, engine="vllm", ranks=(logging,))))
    notes = {each.code for each in golive(str(recipe))[1].data_notes}
    assert "engine_logs_prompts" in notes


# --- what the command proves itself --------------------------------------------------------------


def test_alert_rules_are_asked_of_the_prometheus_that_judges_them(
    chat: str, run: Callable[..., Any]
) -> None:
    """All loaded: proven; one missing: failed, by name; another server: an error."""
    rules = [{"name": rule.name} for rule in RULES]
    with served({"data": {"groups": [{"rules": rules[1:]}]}}) as url:
        assert points(chat, "--prometheus", url)["alerts"] == (Standing.FAILED, "alerts_failed")
    with served({"data": {"groups": [{"rules": rules}]}}) as url:
        assert points(chat, "--prometheus", url)["alerts"] == (Standing.PROVEN, "alerts_passed")
    assert points(chat)["alerts"][0] is Standing.PROVEN
    for answer, status in (({"data": 1}, 200), ({}, 500)):
        with served(answer, status) as url:
            found = run("golive", chat, "--prometheus", url)
            assert (found.status, "WIRE071" in found.err) == (5, True)


def test_a_copy_of_the_state_proves_itself_as_long_as_it_is_whole(
    chat: str, tmp_path: Path, run: Callable[..., Any]
) -> None:
    """Databases and recipes, no secrets; a copy that loses a file fails, and by which."""
    (paths.deployment_dir(chat) / "secrets.env").write_text("KEY=v3ry-s3cret\n")
    found = points(chat, "--back-up", str(tmp_path / "copies"))
    assert found["backup"] == (Standing.PROVEN, "backup_passed")
    (copy,) = (tmp_path / "copies").iterdir()
    with open_deployments(copy / "deployments.db") as store:
        assert store.deployment(chat) is not None
    assert not any(
        b"v3ry-s3cret" in each.read_bytes() for each in copy.rglob("*") if each.is_file()
    )
    next(copy.rglob("launch.json")).unlink()
    assert points(chat)["backup"] == (Standing.FAILED, "backup_failed")
    inside = run("golive", chat, "--back-up", str(paths.state_dir() / "x"))
    assert (inside.status, "STA007" in inside.err) == (4, True)


def test_a_licence_with_conditions_is_acknowledged_before_the_first_launch(
    recipe: Path, run: Callable[..., Any]
) -> None:
    """`up` shows each condition with its source, and starts nothing until somebody has read them;
    what was acknowledged is not asked again.
    """
    refused = run("up", str(recipe), "--no-doctor", "--name", "k")
    assert (refused.status, "USE102" in refused.err) == (2, True)
    assert f"heavylift up {recipe} --name k --accept-licence" in refused.err
    for term in Catalog().model("kimi-k3").licence_terms:
        assert term.text.split(",")[0] in refused.err
        assert term.source in refused.err
    assert not paths.deployment_dir("k").exists()
    assert points(str(recipe))["licence"] == (Standing.MISSING, "licence_unread")
    assert points(str(recipe), "--accept-licence")["licence"][0] is Standing.PROVEN
    assert licence_of(Catalog(), "Kimi K3").acknowledged_at is not None


def test_a_person_is_asked_and_may_say_no(recipe: Path) -> None:
    """At a terminal the question is put; no is no, and nothing is started."""
    ours, theirs = pty.openpty()
    words = ("-m", "heavylift", "up", str(recipe), "--no-doctor", "--name", "k")
    os.write(ours, b"n\n")
    try:
        ran = subprocess.run(
            [sys.executable, *words],
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.DEVNULL,
            check=False,
            timeout=120,
        )
        asked = os.read(ours, 65_536).decode()
    finally:
        os.close(theirs)
        os.close(ours)
    assert ran.returncode == 130
    assert "Kimi K3 License" in asked
    assert licence_of(Catalog(), "kimi-k3").acknowledged_at is None
    assert not paths.deployment_dir("k").exists()


def test_a_report_that_cannot_be_kept_is_a_remark(tmp_path: Path, run: Callable[..., Any]) -> None:
    """What it reports stands: the status is that of the files."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a.txt").write_text("a")
    paths.state_dir().mkdir(parents=True)
    reports.folder_of(None).write_text("a file in its place")
    found = run("checksum", str(tmp_path / "weights"))
    assert found.status == 0
    assert text("golive.not_kept", reason="").strip() in found.err


def test_one_acknowledgement_serves_fetch_and_up() -> None:
    """What `fetch` kept of the repository counts here; what is kept here counts for `fetch`, where
    the hub states no other words.
    """
    with DigestStore() as store:
        store.accept("moonshotai/Kimi-K3", "as the hub words it")
    assert licence_of(Catalog(), "kimi-k3").acknowledged_at is not None
    acknowledge(Catalog(), "smollm2-135m-instruct")
    with DigestStore() as store:
        assert store.accepted("HuggingFaceTB/SmolLM2-135M-Instruct", "Apache-2.0")


def test_a_deployment_that_does_not_serve_is_not_asked(chat: str, run: Callable[..., Any]) -> None:
    """By its name: the error says how to start it. A name that is none stays no address."""
    for words in (("verify", chat), ("bench", chat), ("quality", chat, chat)):
        found = run(*words)
        assert (found.status, "OPS009" in found.err) == (3, True)
        assert "heavylift restart chat" in found.err
    assert "USE021" in run("verify", "nobody").err
    assert "USE069" in run("quality", "nobody", "nobody").err


def test_a_licence_that_nobody_stated_stays_unknown(recipe: Path, run: Callable[..., Any]) -> None:
    """It cannot be acknowledged, only waived."""
    launch = recipe / recipes.LAUNCH
    spec = msgspec.json.decode(launch.read_bytes(), type=LaunchSpec)
    launch.write_bytes(msgspec.json.encode(replace(spec, model="own", served_name="own")))
    (recipe / recipes.PLAN).unlink()
    assert points(str(recipe))["licence"] == (Standing.MISSING, "licence_unknown")
    found = run("golive", str(recipe), "--accept-licence")
    assert (found.status, "OPS011" in found.err) == (3, True)


# --- how it looks --------------------------------------------------------------------------------


@pytest.fixture
def record(chat: str) -> GoLive:
    """A report with something of everything."""
    found = subject.find(chat)
    book = Catalog().golive()
    return report(
        found,
        gather.gather(found, Catalog()),
        book,
        waivers=(),
        required=("bench", "quality"),
        now=subject.now_utc(),
    )


@pytest.mark.parametrize("language", catalogue.LANGUAGES)
def test_the_screen_is_80_cells_wide(record: GoLive, language: str) -> None:
    """In every language; a command is a line of its own, and whole."""
    with catalogue.spoken(language):
        lines = list(screen.lines(record))
    commands = {each.command for each in record.points if each.command}
    for line in lines:
        if line.strip() in commands:
            commands.discard(line.strip())
        else:
            assert cell_len(line) <= WIDTH, line
    assert not commands


@pytest.mark.parametrize("language", catalogue.LANGUAGES)
def test_the_page_fetches_nothing_and_holds_every_point(record: GoLive, language: str) -> None:
    """One file, no script, no address but those in its words."""
    with catalogue.spoken(language):
        found = page.html(record)
        titles = [screen.title(each) for each in record.points]
    assert not re.search(r"<script|<link|<img|@import|url\(|\bsrc=|\bhref=\"(?!file:///)", found)
    assert "color-scheme: light dark" in found
    assert all(each in found for each in titles)


@pytest.mark.parametrize(
    ("plan", "load", "cards", "begins"),
    [
        ("plan_fits", Standing.PROVEN, 8, "It was loaded by 8 cards: "),
        ("plan_fits", Standing.MISSING, 8, "By the plan it fits 8 cards: "),
        ("plan_tight", Standing.FAILED, 1, "By the plan it fits 1 card: "),
        ("plan_does_not_fit", Standing.MISSING, 8, "By the plan it does not fit 8 cards: "),
        ("plan_unknown", Standing.MISSING, 0, "Whether it fits this machine is not known: "),
    ],
)
def test_what_the_cards_hold_is_said_as_it_is_known(
    record: GoLive, plan: str, load: Standing, cards: int, begins: str
) -> None:
    """Loaded, planned to fit, planned not to, undecided: each with the bytes, none of them more
    than that.
    """
    positive = plan in ("plan_fits", "plan_tight")
    changed: dict[str, dict[str, Any]] = {
        "plan": {"reason": plan, "standing": Standing.PROVEN if positive else Standing.FAILED},
        "load": {"standing": load},
    }
    points = tuple(replace(each, **changed.get(each.id, {})) for each in record.points)
    line = screen.load_line(replace(record, gpus=cards, points=points))
    assert line.startswith(begins)
    assert line.count(" GiB") == (3 if plan == "plan_does_not_fit" else 2)
    assert ("That is not production." in line) is (load is Standing.PROVEN)


def test_words_of_strangers_are_escaped(record: GoLive) -> None:
    """A waiver's reason is no HTML and no Markdown, and steers no terminal."""
    evil = Waiver(point="bench", who="<b>x</b>|", why="\x1b[2J`a`", until="2099-01-01", at=MEASURED)
    first = replace(record.points[0], waiver=evil)
    spoilt = replace(record, points=(first, *record.points[1:]), name="<i>")
    assert "<b>" not in page.html(spoilt)
    assert "<b>" not in page.markdown(spoilt)
    assert "\x1b" not in "".join(screen.lines(spoilt))


def test_the_files_are_written_beside_the_screen(chat: str, tmp_path: Path) -> None:
    """Each as asked for; the screen ends with the next command."""
    paths_given = (tmp_path / "r.html", tmp_path / "r.md")
    words = ("golive", chat, "--html", str(paths_given[0]), "--markdown", str(paths_given[1]))
    result = CliRunner().invoke(cli, words, standalone_mode=False)
    assert result.exception is None
    assert all(each.read_text().strip() for each in paths_given)
    assert "heavylift doctor --for" in result.stdout.splitlines()[-1]


def test_click_knows_the_group() -> None:
    """The command stands among the others."""
    assert "golive" in cli.list_commands(click.Context(cli))
