"""`heavylift bench`, `verify`, `quality` and `dev bad-server`: statuses, JSON contracts, files."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from heavylift.cli.main import cli
from heavylift.cli.text import keys, text
from heavylift.devserver.bad import BAD_SERVERS
from heavylift.errors import Exit, HeavyliftError, Scalar
from heavylift.records.plan import Plan

PYTHON = [sys.executable, "-m", "heavylift"]


@contextmanager
def playing(*command: str) -> Iterator[str]:
    """The address of a scripted engine in a process of its own."""
    with subprocess.Popen([*PYTHON, "dev", *command], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield server.stderr.readline().split()[-1]
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def healthy() -> Iterator[str]:
    """A healthy engine."""
    with playing("engine", "obliging") as url:
        yield url


def heavylift(*arguments: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def documented(result: Result) -> dict[str, Any]:
    """The JSON on standard output."""
    document: dict[str, Any] = json.loads(result.stdout)
    return document


# --- bench ---------------------------------------------------------------------------------------


def test_bench_keeps_its_json_contract(healthy: str) -> None:
    """Names and nesting that programs rely on."""
    report = documented(
        heavylift(
            "bench",
            healthy,
            *("--concurrency", "2", "--requests", "4", "--output-tokens", "8", "--json"),
        )
    )
    for metric in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        assert {"p50", "p90", "p99"} <= set(report[metric])
    assert report["output_tokens_per_s"] > 0
    assert report["requests"] == {"ok": 4, "failed": 0, "failures": {}}
    assert isinstance(report["valid"], bool)
    assert isinstance(report["invalid_reasons"], list)


def test_an_invalid_benchmark_ends_with_status_1_and_says_why() -> None:
    """Half of the requests fail."""
    with playing("engine", "flaky") as url:
        result = heavylift("bench", url, "--requests", "6", "--warm-up", "2")
    assert result.return_value == 1
    assert "INVALID" in result.stdout
    assert "too many requests failed" in result.stdout


def test_bench_screens_fit_and_define_their_terms(healthy: str) -> None:
    """Eighty columns; every metric explained below."""
    result = heavylift("bench", healthy, "--requests", "4")
    lines = result.stdout.splitlines()
    own = [line for line in lines if healthy not in line]
    assert max(map(len, own)) <= 80, max(own, key=len)
    for term in ("TTFT:", "TTFA:", "TPOT:", "ITL:", "E2E:", "Goodput:", "Window:"):
        assert any(term in line for line in lines), term


def test_two_benchmarks_are_compared(healthy: str, tmp_path: Path) -> None:
    """From the samples of each, paired; the report is one page without anything fetched."""
    for name in ("a", "b"):
        heavylift(
            "bench", healthy, "--requests", "8", "--output-tokens", "8",
            "--samples", str(tmp_path / f"{name}.jsonl"), "--html", str(tmp_path / "page.html"),
        )  # fmt: skip
    result = heavylift(
        "bench", "compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), "--json"
    )
    comparison = documented(result)
    assert comparison["pairs"] == 8
    assert {"metric", "difference", "low", "high"} <= set(comparison["changes"][0])
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<svg") >= 3
    assert "<script" not in page
    assert "src=" not in page
    assert "href=" not in page
    for svg in page.split("<svg")[1:]:
        ET.fromstring(f"<svg{svg.partition('</svg>')[0]}</svg>")  # noqa: S314 - our own text


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--slo", "fast"), "USE060"),
        (("--find", "max-concurrency"), "USE064"),
        (("--extra", "[1]"), "USE065"),
    ],
)
def test_a_mistaken_option_of_bench_is_an_error(arguments: tuple[str, ...], code: str) -> None:
    """Before anything is sent."""
    result = heavylift("bench", "http://127.0.0.1:9", *arguments)
    assert code in str(result.exception)


def test_a_benchmark_of_a_planned_rack_is_placed_and_kept(
    tmp_path: Path, make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share of the memory's bound, a place in the forecast, an anchor that speed reads."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path / "home"))
    # A busy host makes a measurement invalid, rightly; that is not what is asked here.
    monkeypatch.setattr("heavylift.bench.validity.reasons", lambda *_args, **_given: ())
    plan = tmp_path / "plan.json"
    plan.write_bytes(msgspec.json.encode(make_plan("kimi-k3", "8xMI355X", engine="atom")))
    html = tmp_path / "page.html"
    arguments = ("-c", "2", "-n", "8", "--output-tokens", "16", "--plan", str(plan))
    with playing("engine", "paced") as url:
        result = heavylift("bench", url, *arguments, "--html", str(html))
    assert "of the memory's bound" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines() if url not in line) <= 80
    assert "the forecast of" in result.stdout
    assert "Against what the rack could do" in html.read_text("utf-8")
    (kept,) = (tmp_path / "home/state/anchors").iterdir()
    assert f"--anchor {kept}" in result.stderr
    speed = ("speed", "kimi-k3", "--on", "8xMI355X", "--engine", "atom", "--anchor", str(kept))
    assert documented(heavylift(*speed, "--json"))["basis"]["evidence"] == "anchored"


# --- verify --------------------------------------------------------------------------------------


def test_verify_keeps_its_json_contract_and_passes_a_healthy_engine(healthy: str) -> None:
    """Verdict, and per check id, status, rate, interval, evidence."""
    result = heavylift("verify", healthy, "--json")
    assert result.return_value == 0
    document = documented(result)
    assert document["verdict"] == "pass"
    for check in document["checks"]:
        assert {"id", "status", "rate", "interval", "evidence"} <= set(check)
    chat = next(check for check in document["checks"] if check["id"] == "basics.chat")
    assert chat["interval"]["low"] < chat["rate"] == 1


def test_verify_refuses_a_context_that_is_no_token_count(healthy: str) -> None:
    """A usage error that says how to write one, not a failure of ours."""
    with pytest.raises(click.UsageError, match="is no token count"):
        CliRunner().invoke(
            cli,
            ["verify", healthy, "--context", "much"],
            standalone_mode=False,
            catch_exceptions=False,
        )


def test_verify_writes_junit_and_html_and_ends_with_status_1_on_failure(tmp_path: Path) -> None:
    """The failed check is a failed case with what was seen; both files can be parsed."""
    junit, html = tmp_path / "verify.xml", tmp_path / "verify.html"
    with playing("bad-server", "json-ignored") as url:
        result = heavylift(
            "verify", url, "--only", "structured", "--only", "context",
            "--junit", str(junit), "--html", str(html),
        )  # fmt: skip
    assert result.return_value == 1
    suite = ET.fromstring(junit.read_text("utf-8"))  # noqa: S314 - our own file
    failed = [
        case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None
    ]
    assert failed == ["structured.object", "structured.schema"]
    assert suite.get("failures") == "2"
    named = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert (named["model"], named["variant"]) == ("scripted", "unknown")
    page = html.read_text("utf-8")
    assert "not_json" in page
    assert "<script" not in page
    assert "<svg" in page


def test_a_quantised_copy_is_named_in_the_report(healthy: str) -> None:
    """So that nobody takes its answers for the model's."""
    result = heavylift("verify", healthy, "--only", "basics.models", "--variant", "int4",
                       "--quantised")  # fmt: skip
    assert "quantised copy" in result.stdout
    assert "variant int4" in result.stdout


def test_memory_alone_with_a_plan_and_nothing_to_see_is_unknown_not_passed_over(
    healthy: str, tmp_path: Path, make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No log, no tool on this machine: the plan was read, and nothing could be held against it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = tmp_path / "plan.json"
    plan.write_bytes(msgspec.json.encode(make_plan("kimi-k3", "8xMI355X", engine="atom")))
    result = heavylift("verify", healthy, "--only", "memory", "--plan", str(plan), "--json")
    assert result.return_value == 1
    (check,) = documented(result)["checks"]
    assert (check["id"], check["status"]) == ("memory.gpu_planned", "unknown")
    assert check["reasons"] == {"gpus_not_seen": 1}


def test_the_gpus_are_read_through_a_tool_and_held_against_the_plan(
    healthy: str, tmp_path: Path, make_plan: Callable[..., Plan]
) -> None:
    """Eight cards that hold what was planned, as the vendor's tool prints them."""
    made = make_plan("kimi-k3", "8xMI355X", engine="atom")
    held_mib = (made.per_gpu.certain_total_bytes + made.per_gpu.budget_bytes) // 2**21
    rows = "\n".join(f"{gpu}, {held_mib} MiB, 294912 MiB" for gpu in range(8))
    tool = tmp_path / "tool"
    tool.write_text(
        "#!/bin/sh\ncat <<END\nindex, memory.used [MiB], memory.total [MiB]\n" + rows + "\nEND\n"
    )
    tool.chmod(0o755)
    plan = tmp_path / "plan.json"
    plan.write_bytes(msgspec.json.encode(made))
    arguments = ("--only", "memory", "--only", "basics.stream", "--gpu-tool", str(tool))
    result = heavylift("verify", healthy, *arguments, "--plan", str(plan), "--json")
    checks = {check["id"]: check["status"] for check in documented(result)["checks"]}
    assert checks == {
        "basics.stream": "pass", "memory.gpu_use": "pass", "memory.gpu_balance": "pass",
        "memory.gpu_planned": "pass",
    }  # fmt: skip


def test_a_soak_goes_on_for_the_time_asked(healthy: str) -> None:
    """Rounds are told; a time for another profile is a mistake."""
    arguments = ("--only", "basics.chat", "--hours", "0.0003")
    result = heavylift("verify", healthy, "--profile", "soak", *arguments, "--json")
    found = {check["id"] for check in documented(result)["checks"]}
    of_the_run = {"soak.errors", "soak.first_token", "soak.pace", "soak.host_memory"}
    assert {"basics.chat", *of_the_run} == found
    assert "USE078" in str(heavylift("verify", healthy, "--hours", "1").exception)


def test_a_release_is_held_against_the_one_before_it(healthy: str, tmp_path: Path) -> None:
    """Word for word; a server that answers otherwise warns; another file is a mistake."""
    report = tmp_path / "before.json"
    only = ("--only", "basics.same_text")
    first = heavylift("verify", healthy, *only, "--json")
    assert [check["status"] for check in documented(first)["checks"]] == ["skipped"]
    report.write_text(first.stdout)
    again = heavylift("verify", healthy, *only, "--same-as", str(report), "--json")
    assert [check["status"] for check in documented(again)["checks"]] == ["pass"]
    with playing("bad-server", "exclamations") as url:
        other = heavylift("verify", url, *only, "--same-as", str(report), "--json")
    (check,) = documented(other)["checks"]
    assert (check["status"], check["reasons"]) == ("warn", {"text_differs": 4})
    report.write_text("{}")
    assert "USE081" in str(heavylift("verify", healthy, "--same-as", str(report)).exception)


def test_a_log_without_its_plan_is_a_mistake(healthy: str, tmp_path: Path) -> None:
    """There is nothing to hold it against."""
    log = tmp_path / "engine.log"
    log.write_text("hello")
    assert "USE079" in str(heavylift("verify", healthy, "--log", str(log)).exception)


def test_two_endpoints_are_held_against_each_other(healthy: str) -> None:
    """A front that leaves out the thinking is caught beside the engine it stands for."""
    with playing("bad-server", "front-without-thinking") as front:
        result = heavylift("verify", front, "--against", healthy, "--only", "against", "--json")
    assert result.return_value == 1
    failed = {c["id"]: c["reasons"] for c in documented(result)["checks"] if c["status"] == "fail"}
    assert failed == {"against.thinking": {"reasoning_differs": 2}}


@pytest.mark.parametrize(
    ("variant", "is_copy"),
    [("ud-iq1-s", True), ("ud-q8-k-xl", False), ("native", None), ("mine", None), (None, None)],
)
def test_a_published_variant_of_fewer_bytes_is_known_to_be_a_copy(
    variant: str | None, is_copy: bool | None
) -> None:
    """By the facts; what was stated outranks them."""
    from heavylift.cli.served import Served  # noqa: PLC0415 - only here

    def served(quantised: bool | None) -> Served:
        return Served(
            model="moonshotai/Kimi-K3", key_env="K", variant=variant, release=None,
            quantised=quantised,
        )  # fmt: skip

    assert served(None).is_copy() is is_copy
    assert served(True).is_copy() is True


def test_a_comparison_of_reports_names_what_was_measured(healthy: str, tmp_path: Path) -> None:
    """Model, variant, engine, version, release of both; a copy is called one."""
    for name, variant in (("a", "native"), ("b", "int4")):
        result = heavylift(
            "bench", healthy, "-n", "4", "--samples", str(tmp_path / f"{name}.jsonl"), "--json",
            "--variant", variant, *(["--quantised"] if name == "b" else []),
        )  # fmt: skip
        (tmp_path / f"{name}.json").write_text(result.stdout)
    shown = heavylift("bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")).stdout
    assert "A: scripted · variant native" in shown
    assert "B: scripted · variant int4" in shown
    assert shown.count("quantised copy") == 1


def test_a_known_model_must_have_its_features() -> None:
    """A server that calls itself the model and refuses its tools fails instead of being skipped."""
    from heavylift.cli.verify import _known_features  # noqa: PLC0415 - only here
    from heavylift.facts.catalog import Catalog  # noqa: PLC0415 - only here

    assert {"tools", "reasoning"} <= _known_features(Catalog(), "moonshotai/Kimi-K3")
    assert _known_features(Catalog(), "nobody/knows") == frozenset()


# --- quality -------------------------------------------------------------------------------------


def test_quality_keeps_its_json_contract(tmp_path: Path) -> None:
    """From two files of graded answers; worse ends with status 1."""
    paths = [tmp_path / "ref.jsonl", tmp_path / "cand.jsonl"]
    for path, lost in zip(paths, (0, 30), strict=True):
        rows = [{"id": n, "right": n >= lost, "group": "facts"} for n in range(100)]
        path.write_text("\n".join(map(json.dumps, rows)))
    result = heavylift("quality", *map(str, paths), "--json")
    assert result.return_value == 1
    document = documented(result)
    assert document["verdict"] == "worse"
    assert document["difference"] == pytest.approx(-0.3)
    assert document["interval"]["low"] < -0.3 < document["interval"]["high"]
    assert 0 < document["minimum_detectable_effect"] < 0.3
    shown = heavylift("quality", *map(str, paths)).stdout
    assert "Worse in" in shown
    own = [line for line in shown.splitlines() if str(tmp_path) not in line]
    assert max(map(len, own)) <= 80, max(own, key=len)


def test_quality_says_what_it_can_see_before_it_asks(healthy: str) -> None:
    """Eighty questions of one group: 9.9 points, of a margin of five; nothing of it in the JSON."""
    options = ("--group", "facts", "--no-divergence", "--json")
    result = heavylift("quality", healthy, healthy, *options)
    first = result.stderr.splitlines()[0]
    assert "Margin 5.0%" in first
    assert "9.9%" in first
    assert documented(result)["settings"]["questions"] == 80


def test_the_page_of_a_comparison_says_what_the_screen_says(tmp_path: Path) -> None:
    """Failures apart by kind and side, the verdict in words, nothing fetched."""
    paths = [tmp_path / "ref.jsonl", tmp_path / "cand.jsonl"]
    for path, lost in zip(paths, (0, 30), strict=True):
        rows = [
            {"id": n, "right": n >= lost, "group": "facts"} | ({} if n >= lost else CUT)
            for n in range(100)
        ]
        path.write_text("\n".join(map(json.dumps, rows)))
    page = tmp_path / "page.html"
    heavylift("quality", *map(str, paths), "--candidate-variant", "int4", "--quantised",
              "--html", str(page))  # fmt: skip
    content = page.read_text("utf-8")
    for words in ("Worse in", "truncated", "variant int4", "quantised copy", "More needed"):
        assert words in content
    assert "<script" not in content
    assert "src=" not in content


CUT = {"failure": "truncated"}


def test_questions_for_programs_need_leave_to_run_them(tmp_path: Path) -> None:
    """Nothing a model wrote is run unless it is said."""
    questions = tmp_path / "mine.jsonl"
    row = {"id": "a", "group": "code", "language": "en", "text": "double", "function": "double"}
    questions.write_text(json.dumps(row))
    url = "http://127.0.0.1:9"
    result = heavylift("quality", url, url, "--questions", str(questions))
    assert "USE095" in str(result.exception)


def test_too_little_data_says_how_much_more_is_needed(tmp_path: Path) -> None:
    """Status 8: still pending."""
    path = tmp_path / "same.jsonl"
    path.write_text("\n".join(json.dumps({"id": n, "right": n % 2 == 0}) for n in range(10)))
    result = heavylift("quality", str(path), str(path))
    assert result.return_value == 8
    assert "more questions" in result.stdout


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "params", "status"),
    [
        ("USE060", {"part": "p", "metrics": "m", "statistics": "s"}, Exit.USAGE),
        ("USE061", {"path": "p", "line": 1, "detail": "d"}, Exit.USAGE),
        ("USE062", {"path": "p", "detail": "d"}, Exit.USAGE),
        ("USE063", {"path": "p"}, Exit.USAGE),
        ("USE064", {}, Exit.USAGE),
        ("USE065", {"detail": "d"}, Exit.USAGE),
        ("USE066", {"path": "p", "detail": "d"}, Exit.USAGE),
        ("USE067", {"path": "p"}, Exit.USAGE),
        ("USE068", {"path": "p", "check": "c", "probe": "x"}, Exit.USAGE),
        ("USE078", {"profile": "smoke"}, Exit.USAGE),
        ("USE079", {}, Exit.USAGE),
        ("USE095", {}, Exit.USAGE),
        ("USE081", {"path": "p", "detail": "d"}, Exit.USAGE),
        ("ENV060", {}, Exit.ENVIRONMENT),
        ("ENV061", {"reasons": "r"}, Exit.ENVIRONMENT),
        ("ENV063", {"path": "p", "package": "x"}, Exit.ENVIRONMENT),
        ("WIRE060", {"url": "u", "failure": "f", "status": 1, "message": "m"}, Exit.ENGINE),
        ("WIRE061", {"url": "u"}, Exit.ENGINE),
        ("VER020", {}, Exit.NEGATIVE),
        ("DEV005", {"name": "n"}, Exit.INPUT),
    ],
)
def test_an_error_has_a_sentence_and_an_exit_status(
    code: str, params: dict[str, Scalar], status: Exit
) -> None:
    """The parameters that are raised fill the sentence; the stage gives the status."""
    sentence = text(f"error.{code}", **params)
    assert sentence
    assert "{" not in sentence
    assert HeavyliftError(code, params).exit_status is status


# --- bad servers ---------------------------------------------------------------------------------


def test_bad_servers_are_listed_with_the_check_that_must_catch_each() -> None:
    """One line each, within eighty columns."""
    result = heavylift("dev", "bad-server", "--list")
    *lines, last = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [server.name for server in BAD_SERVERS]
    assert max(map(len, lines)) <= 80
    assert last.startswith("next: heavylift dev bad-server")


def test_every_reason_of_an_invalid_benchmark_has_a_sentence() -> None:
    """Read from the gate itself."""
    from heavylift.bench import validity  # noqa: PLC0415 - only here

    documented_reasons = validity.reasons.__doc__ or ""
    named = {key.removeprefix("bench.reason.") for key in keys() if key.startswith("bench.reason.")}
    assert named
    assert all(f"`{name}`" in documented_reasons for name in named)
