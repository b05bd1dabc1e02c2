"""`heavylift diagnose` and `heavylift bundle` as a person and a program see them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from heavylift.cli.diagnose import SYMPTOMS
from heavylift.cli.main import cli, main
from heavylift.errors import Exit, HeavyliftError

FAILING = """\
INFO Initializing a V1 LLM engine (v0.29.0) with config: model='/models/Kimi-K3', \
tensor_parallel_size=8
(Worker_TP3 pid=7) ERROR   File "x.py", line 3, in load_model
(Worker_TP3 pid=7) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB. \
GPU 3 has a total capacity of 139.81 GiB of which 1.02 GiB is free.
RuntimeError: Engine core initialization failed. See root cause above.
"""


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    """A log of a start that ran out of memory."""
    path = tmp_path / "engine.log"
    path.write_text(FAILING, "utf-8")
    return path


def _run(*args: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, args, input=stdin)


def test_causes_come_with_line_fix_source_and_plan(failing: Path) -> None:
    """The contract of `--json`: ranked causes, evidence with its number, fix, source; the plan."""
    result = _run("diagnose", str(failing), "--json")
    answer = json.loads(result.stdout)
    (cause, *_) = answer["causes"]
    assert answer["recognised"] is True
    assert cause["cause_class"] == "weights_do_not_fit"
    assert 0.5 <= cause["confidence"] <= 1
    assert cause["evidence"]["number"] == 3
    assert cause["evidence"]["rank"] == "3"
    assert cause["fix"]
    assert cause["source"]
    assert answer["plan"]["rack"] == "8xH200"
    assert answer["plan"]["verdict"] == "does_not_fit"
    assert result.exit_code == Exit.OK


def test_the_screen_ends_with_what_to_type(failing: Path) -> None:
    """Within 80 columns but for commands; a plan that holds is the next command."""
    lines = _run("diagnose", str(failing)).stdout.splitlines()
    assert lines[2].startswith("1. weights_do_not_fit  0.90 sure")
    assert all(len(line) <= 80 for line in lines if "heavylift " not in line)
    assert lines[-1].startswith("next: heavylift plan kimi-k3 --on")


def test_logs_come_from_folders_archives_and_standard_input(tmp_path: Path) -> None:
    """A folder is the logs in it; compressed ones are read; a dash is standard input."""
    folder = tmp_path / "ranks"
    folder.mkdir()
    (folder / "rank-0.log").write_text("RuntimeError: Engine core initialization failed.\n")
    (folder / "rank-1.log.gz").write_bytes(gzip.compress(FAILING.encode()))
    answer = json.loads(_run("diagnose", str(folder), "--json").stdout)
    assert answer["causes"][0]["evidence"]["file"].endswith("rank-1.log.gz")
    piped = json.loads(_run("diagnose", "-", "--json", stdin=FAILING).stdout)
    assert piped["causes"][0]["evidence"]["file"] == "-"


def test_what_is_not_recognised_is_said(tmp_path: Path) -> None:
    """Exit status 1, the first lines of trouble, and a bundle as the next command."""
    path = tmp_path / "odd.log"
    path.write_text("all is well\nERROR the frobnicator wobbles\n", "utf-8")
    assert cli.main(["diagnose", str(path)], standalone_mode=False) == Exit.NEGATIVE
    result = _run("diagnose", str(path))
    assert "not recognised" in result.stdout
    assert "the frobnicator wobbles" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("next: heavylift bundle")


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_a_symptom_without_a_log_is_walked(symptom: str) -> None:
    """Each symptom has several steps in words, within 80 columns but for commands."""
    answer = json.loads(_run("diagnose", "--symptom", symptom, "--json").stdout)
    assert answer["symptom"] == symptom
    assert len(answer["steps"]) >= 5
    for line in _run("diagnose", "--symptom", symptom).stdout.splitlines():
        assert len(line) <= 80 or line.lstrip().startswith("$")


def test_a_deployment_that_is_not_there_is_named() -> None:
    """`--live` says what is missing and walks on."""
    result = _run("diagnose", "--symptom", "stuck", "--live", "nobody")
    assert "nobody" in result.stderr
    assert result.exit_code == Exit.OK


def test_the_last_log_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--last` takes the newest log of the state folder; without one that is said."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path))
    result = _run("diagnose", "--last")
    assert isinstance(result.exception, HeavyliftError)
    assert result.exception.code == "DIA003"
    log = tmp_path / "state" / "logs" / "a.log"
    log.parent.mkdir(parents=True)
    log.write_text(FAILING, "utf-8")
    assert _run("diagnose", "--last").exit_code == Exit.OK


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--live", "x", "LOG"),
        ("--last", "LOG"),
        ("--symptom", "sad"),
    ],
)
def test_contradictions_are_usage_errors(args: tuple[str, ...]) -> None:
    """No log and no symptom, both a log and the last, an unknown symptom."""
    assert _run("diagnose", *args).exit_code == Exit.USAGE


@pytest.mark.parametrize(("name", "code"), [("missing.log", "DIA001"), ("empty", "DIA002")])
def test_logs_that_are_not_there_are_named(name: str, code: str, tmp_path: Path) -> None:
    """A missing file and a folder without logs are told apart."""
    (tmp_path / "empty").mkdir()
    result = _run("diagnose", str(tmp_path / name))
    assert isinstance(result.exception, HeavyliftError)
    assert result.exception.code == code


def test_a_missing_log_is_an_error_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence names the log and why; the status is that of bad input."""
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", "nowhere.log"])
    assert ended.value.code == Exit.INPUT
    assert capsys.readouterr().err.startswith("error[DIA001]: the log nowhere.log cannot be read")


def test_a_broken_archive_is_said(tmp_path: Path) -> None:
    """A file that is no gzip cannot be read, and that is the answer."""
    path = tmp_path / "a.log.gz"
    path.write_bytes(b"no gzip")
    result = _run("diagnose", str(path))
    assert isinstance(result.exception, HeavyliftError)
    assert result.exception.code == "DIA001"


def test_a_bundle_holds_no_secret(failing: Path, tmp_path: Path) -> None:
    """Logs, diagnosis and manifest in one archive; the token is in none of them."""
    secret = "hf_" + "abcdefghij" * 3
    with failing.open("a", encoding="utf-8") as log:
        log.write(f"OSError: HF_TOKEN={secret} /home/alice/x: No space left on device\n")
    target = tmp_path / "bundle.tar.gz"
    result = _run("bundle", str(failing), "--to", str(target), "--json")
    assert result.exit_code == Exit.OK
    manifest = json.loads(result.stdout)
    contents = {}
    with tarfile.open(target) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            assert stream is not None
            contents[member.name] = stream.read()
    assert list(contents) == ["logs/00-engine.log", "diagnosis.json", "manifest.json"]
    assert not any(secret.encode() in data or b"alice" in data for data in contents.values())
    assert b"No space left on device" in contents["logs/00-engine.log"]
    for file in manifest["files"]:
        data = contents[file["name"]]
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
    assert json.loads(contents["diagnosis.json"])["causes"]
    assert json.loads(contents["manifest.json"]) == manifest | {"path": "bundle.tar.gz"}
    assert set(manifest["files"][0]["redacted"]) == {"secret", "home"}
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_bundle_is_not_written_over(failing: Path, tmp_path: Path) -> None:
    """An existing file is kept and named."""
    target = tmp_path / "bundle.tar.gz"
    target.write_bytes(b"mine")
    result = _run("bundle", str(failing), "--to", str(target))
    assert isinstance(result.exception, HeavyliftError)
    assert result.exception.code == "DIA006"
    assert target.read_bytes() == b"mine"


def test_a_bundle_of_standard_input_is_refused() -> None:
    """It would have to be read twice."""
    assert _run("bundle", "-").exit_code == Exit.USAGE


def test_the_middle_of_a_long_log_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a log beyond the limit, start and end are kept, and the manifest says how much is not."""
    monkeypatch.setattr("heavylift.diagnose.bundle._KEPT_BYTES", 1 << 16)
    path = tmp_path / "long.log"
    path.write_text("first line\n" + ("all is well; " * 80 + "\n") * 5_000 + "last line\n", "utf-8")
    target = tmp_path / "bundle.tar.gz"
    manifest = json.loads(_run("bundle", str(path), "--to", str(target), "--json").stdout)
    assert manifest["files"][0]["left_out_bytes"] > 1 << 20
    with tarfile.open(target) as archive:
        stream = archive.extractfile("logs/00-long.log")
        assert stream is not None
        text = io.TextIOWrapper(stream, "utf-8").read()
    assert text.startswith("first line")
    assert text.endswith("last line\n")
    assert "bytes left out" in text


def test_a_symptom_with_a_log_is_both(failing: Path) -> None:
    """The log is read, and the walk is named beside it."""
    result = _run("diagnose", str(failing), "--symptom", "oom")
    assert "weights_do_not_fit" in result.stdout
    assert "--symptom oom" in result.stderr


def test_a_model_that_is_not_planned_for_costs_the_plan_only(tmp_path: Path) -> None:
    """An unknown model in the log leaves the diagnosis; one of the caller's is named as well."""
    path = tmp_path / "engine.log"
    path.write_text(FAILING.replace("Kimi-K3", "some-model"), "utf-8")
    assert json.loads(_run("diagnose", str(path), "--json").stdout)["plan"] is None
    asked = _run("diagnose", str(path), "--model", "nothing", "--on", "8xH200")
    assert "'nothing'" in asked.stderr
    assert asked.exit_code == 0
    known = _run("diagnose", str(path), "--model", "kimi-k3", "--on", "H200", "--json")
    assert json.loads(known.stdout)["plan"]["verdict"] != "does_not_fit"


def test_weak_hints_are_called_so(tmp_path: Path) -> None:
    """A line that only hints is shown as possible, below the words that nothing was recognised."""
    path = tmp_path / "hint.log"
    path.write_text("ERROR Segmentation fault (core dumped)\n", "utf-8")
    screen = _run("diagnose", str(path)).stdout
    assert "not recognised" in screen
    assert "possible" in screen


STEERING = ("\x1b]0;title\x07", "\x1b[31m", "\x1b[2J", "\u202e", "\u2066", "\x9b31m")


@pytest.mark.parametrize("steering", STEERING)
def test_what_steers_a_terminal_is_shown_as_an_escape(steering: str, tmp_path: Path) -> None:
    """Of lines nobody knows and of those that name a cause."""
    log = tmp_path / "e.log"
    for words in ("strange error", "torch.OutOfMemoryError: CUDA out of memory."):
        log.write_text(f"{words} {steering} behind\n", "utf-8")
        shown = _run("diagnose", str(log)).output
        assert words in shown
        assert all(line.isprintable() for line in shown.splitlines())


def test_a_log_without_trouble_is_told_from_an_empty_one_and_from_no_log(tmp_path: Path) -> None:
    """No heading stands over nothing, and one is not many."""
    log = tmp_path / "e.log"
    for content, words in (
        (b"", "not one line"),
        (b"all is well\n", "none speaks of trouble"),
        (bytes(5000) + b"\nerror" + bytes(99), "is not text"),
    ):
        log.write_bytes(content)
        result = _run("diagnose", str(log))
        assert words in " ".join(result.stdout.split())
        assert "first lines of trouble" not in result.stdout
    assert "1 log, 2 lines," in result.stdout


@pytest.mark.parametrize(
    ("option", "name"), [(("--on", "foo"), "'foo'"), (("--model", "nope"), "'nope'")]
)
def test_a_rack_or_model_nobody_knows_is_named_beside_the_diagnosis(
    option: tuple[str, str], name: str, tmp_path: Path
) -> None:
    """What the logs say does not depend on a plan."""
    log = tmp_path / "e.log"
    log.write_text("strange error\n", "utf-8")
    result = _run("diagnose", str(log), *option)
    assert "strange error" in result.stdout
    assert name in result.stderr


def test_reasons_hold_no_numbers_of_the_system(failing: Path, tmp_path: Path) -> None:
    """A bundle is not written over another, nor where there is no folder."""
    there = tmp_path / "there.tar.gz"
    there.touch()
    for target, code in ((there, "DIA006"), (tmp_path / "none" / "b.tar.gz", "DIA005")):
        error = _run("bundle", str(failing), "--to", str(target)).exception
        assert isinstance(error, HeavyliftError)
        assert error.code == code
        assert "Errno" not in str(error)
