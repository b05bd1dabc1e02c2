"""`heavylift batch`: the contract as a person and a script meet it."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import click
import pytest
from click.testing import CliRunner, Result
from tests.servers import on_a_thread, playing

from heavylift.cli.batch import command
from heavylift.cli.text import keys
from heavylift.devserver.library import load
from heavylift.devserver.server import ScriptedServer
from heavylift.errors import HeavyliftError

SOURCES = Path(__file__).parents[3] / "src" / "heavylift" / "batch"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A healthy scripted engine on a thread of its own."""
    with on_a_thread(playing(load("healthy"))) as scripted:
        yield scripted


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Ten rows of columns."""
    path = tmp_path / "fruit.jsonl"
    path.write_text("".join(json.dumps({"fruit": f"fig {n}"}) + "\n" for n in range(10)))
    return path


def invoke(*arguments: Any) -> Result:
    """The command's result, with its status as `return_value`; our errors are in `exception`."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(command, words, standalone_mode=False)


def test_run_resume_audit(server: ScriptedServer, source: Path, tmp_path: Path) -> None:
    """The contract: the files, the same command again, the audit's fields and status."""
    out = tmp_path / "out"
    run = ["run", source, "--endpoint", server.url, "--model", "scripted", "--out", out]
    prompt = ["--prompt", "Name {{ fruit }}."]
    first = invoke(*run, *prompt)
    assert first.return_value == 0
    assert {"output.jsonl", "errors.jsonl", "requests.jsonl", "journal.db"} <= {
        path.name for path in out.iterdir()
    }
    assert first.stdout.splitlines()[-1] == f"next: heavylift batch export {out} answers.csv"
    assert invoke(*run, *prompt).return_value == 0
    assert invoke("resume", out, "--quiet").return_value == 0
    assert len(server.records) == 10
    audit = invoke("audit", out, "--json")
    assert audit.return_value == 0
    told = json.loads(audit.stdout)
    expected = {"input": 10, "ok": 10, "failed": 0, "skipped": 0, "missing": 0, "duplicates": 0}
    assert told | expected == told
    (out / "output.jsonl").write_text("")
    broken = invoke("audit", out, "--json")
    assert broken.return_value == 1
    assert json.loads(broken.stdout)["missing"] == 10


def test_status_of_a_batch_with_work_left(source: Path, tmp_path: Path) -> None:
    """8 while rows are left, 0 after cancel has skipped them; the run itself ends with 5."""
    out = tmp_path / "out"
    run = ["run", source, "--endpoint", "http://127.0.0.1:9", "--model", "m", "--out", out]
    assert invoke(*run, "--prompt", "x", "--wait", "0.2", "--quiet").return_value == 5
    status = invoke("status", out, "--json")
    assert (status.return_value, json.loads(status.stdout)["counts"]["pending"]) == (8, 10)
    assert invoke("cancel", out).exit_code == 0
    assert invoke("status", out).return_value == 0
    assert invoke("audit", out).return_value == 0


def test_a_dry_run_sends_nothing_and_leaves_nothing(
    server: ScriptedServer, source: Path, tmp_path: Path
) -> None:
    """Tokens by the server's count over a sample; answers and hours only with --sample."""
    out = tmp_path / "out"
    run = ["run", source, "--endpoint", server.url, "--model", "scripted", "--out", out, "--json"]
    asked = [*run, "--prompt", "Name {{ fruit }}.", "--dry-run", "--param", "max_tokens=20"]
    plain = json.loads(invoke(*asked).stdout)
    assert (plain["rows"], plain["counted"], plain["completion_tokens_max"]) == (10, True, 200)
    assert plain["prompt_tokens"] == pytest.approx(30, abs=3)
    assert plain["completion_tokens"] is None
    assert server.records == []
    prices = ["--price-in", "1", "--price-out", "2"]
    sampled = json.loads(invoke(*asked, "--sample", "4", *prices).stdout)
    assert len(server.records) == 4
    assert (sampled["sampled"], sampled["completion_tokens"]) == (4, 90)
    assert sampled["cost_usd"] == pytest.approx((30 + 2 * 90) / 1e6)
    assert not out.exists()


def test_defects_are_all_listed_and_nothing_is_sent(server: ScriptedServer, tmp_path: Path) -> None:
    """Lines on standard error, status 3, no folder; with --skip-invalid they are counted."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    bad = [{"fruit": "fig", "id": "a"}, {"fruit": "pear", "id": "a"}, {"id": "c"}]
    source.write_text("".join(json.dumps(row) + "\n" for row in [*bad, *[{"id": ""}] * 30]))
    run = ["run", source, "--endpoint", server.url, "--model", "scripted", "--out", out]
    asked = [*run, "--prompt", "{{ fruit }}", "--id-column", "id", "--quiet"]
    refused = invoke(*asked)
    assert isinstance(refused.exception, HeavyliftError)
    assert refused.exception.exit_status == 3
    assert "line 2: custom_id was used before: a (1)" in refused.stderr
    assert "line 3: the template cannot be filled in: 'fruit' is undefined" in refused.stderr
    assert refused.stderr.count("so the row has no name") == 30
    assert not out.exists()
    assert server.records == []
    assert invoke(*asked, "--skip-invalid").return_value == 0
    told = json.loads(invoke("audit", out, "--json").stdout)
    assert (told["input"], told["ok"], told["skipped"]) == (33, 1, 32)


def test_rows_longer_than_the_context_are_told_before_sending(
    server: ScriptedServer, tmp_path: Path
) -> None:
    """By the server's own count; the scripted engine has room for 8,192 words."""
    source, out = tmp_path / "in.csv", tmp_path / "out"
    source.write_text("text\nshort\n" + "long " * 9000 + "\n")
    run = ["run", source, "--endpoint", server.url, "--model", "scripted", "--out", out]
    asked = [*run, "--prompt", "{{ text }}", "--quiet"]
    refused = invoke(*asked)
    assert isinstance(refused.exception, HeavyliftError)
    assert "line 3: longer than the model's context: row-2: 9000 > 8192" in refused.stderr
    assert server.records == []
    assert invoke(*asked, "--skip-invalid").return_value == 0
    assert json.loads(invoke("audit", out, "--json").stdout)["skipped"] == 1


def test_answers_are_exported_apart_from_reasoning(
    server: ScriptedServer, source: Path, tmp_path: Path
) -> None:
    """CSV and JSON lines, a row per row of the input."""
    out = tmp_path / "out"
    run = ["run", source, "--endpoint", server.url, "--model", "scripted", "--out", out]
    invoke(*run, "--prompt", "{{ fruit }}", "--quiet")
    table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    assert invoke("export", out, table).exit_code == 0
    assert invoke("export", out, lines).exit_code == 0
    first = json.loads(lines.read_text().splitlines()[0])
    assert (first["custom_id"], first["answer"]) == ("row-1", "The answer is 4.")
    assert first["reasoning"] == "Two and two make four."
    assert table.read_text().splitlines()[1].startswith("row-1,ok,The answer is 4.,Two and two")
    parquet = invoke("export", out, tmp_path / "a.parquet")
    if importlib.util.find_spec("pyarrow") is None:
        assert isinstance(parquet.exception, HeavyliftError)
        assert parquet.exception.code == "BAT002"
    else:
        assert parquet.exit_code == 0
        assert (tmp_path / "a.parquet").read_bytes().startswith(b"PAR1")
    wrong = invoke("export", out, tmp_path / "a.xlsx")
    assert isinstance(wrong.exception, HeavyliftError)
    assert wrong.exception.code == "USE031"


def test_the_routes_are_served_until_sigterm(tmp_path: Path) -> None:
    """The address is told on standard error; SIGTERM ends it in good order."""
    arguments = ["serve", str(tmp_path / "home"), "--endpoint", "http://127.0.0.1:9", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "heavylift", "batch", *arguments], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        assert told.startswith("listening on http://127.0.0.1:")
        with urlopen(f"{told.split()[-1]}/v1/batches") as reply:  # noqa: S310 - our own address
            assert json.loads(reply.read())["data"] == []
        process.terminate()
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["--column", "name"],
        ["--param", "temperature=warm"],
        ["--max-cost", "3"],
        ["--concurrency", "0"],
    ],
)
def test_usage_errors_are_told(source: Path, wrong: list[str]) -> None:
    """Before anything is read or sent."""
    result = invoke("run", source, "--endpoint", "http://127.0.0.1:9", *wrong)
    assert isinstance(result.exception, click.UsageError)


def test_screens_fit_the_terminal(server: ScriptedServer, source: Path, tmp_path: Path) -> None:
    """80 columns, a word beside every glyph."""
    out = tmp_path / "o"
    run = ["run", source, "--endpoint", server.url, "--model", "scripted", "--out", out]
    shown = invoke(*run, "--prompt", "{{ fruit }}", "--quiet").stdout.splitlines()
    assert "✓ everything is accounted for" in shown
    for line in (*shown[1:-1], *invoke("audit", out).stdout.splitlines()):
        assert len(line) <= 80


def test_every_defect_and_error_has_a_text() -> None:
    """What the package can raise or list is in the catalogue."""
    sources = "".join(path.read_text() for path in SOURCES.glob("*.py"))
    problems = set(re.findall(r'problem="(\w+)"', sources))
    codes = set(re.findall(r'"((?:BAT|USE)\d{3})"', sources))
    assert problems >= {"not_json", "duplicate", "too_long"}
    assert codes >= {"BAT001", "BAT006"}
    wanted = {f"batch.defect.{problem}" for problem in problems}
    assert wanted | {f"error.{code}" for code in codes} <= keys()
