"""The command line: statuses, streams, the JSON contract, and what a wrong word gets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from heavylift.cli.main import COMMANDS, main
from heavylift.errors import Exit
from heavylift.state.paths import state_dir

Run = Callable[..., Any]
K3 = ("plan", "kimi-k3", "--on")


@pytest.mark.parametrize(
    ("args", "status"),
    [
        ((*K3, "8xB300"), 0),
        ((*K3, "8xH200"), 1),
        ((*K3, "8xMI325X"), 1),
        ((*K3, "8xM1355X"), 3),
        (("plan", "kimi-4", "--on", "8xB300"), 3),
        ((*K3, "8xB300", "--engine", "vlm"), 3),
        ((*K3, "8xB300", "--tp", "3"), 3),
        ((*K3, "8xB300", "--tp", "2", "--pp", "2", "--dp", "1"), 3),
        ((*K3, "8xB300", "--tp", "0"), 2),
        ((*K3, "8xB300", "--ep", "some"), 2),
        ((*K3, "8xB300", "--context", "lots"), 2),
        ((*K3, "8xB300", "--context", "2M"), 3),
        ((*K3, "8xB300", "--gpu-memory-utilization", "1.5"), 2),
        ((*K3, "8xB300", "--receipt", "/nowhere"), 2),
        (("plan", "kimi-k3"), 2),
        (("plann", "kimi-k3"), 2),
        (("xyzzy",), 2),
        (("compare", "kimi-k3"), 2),
        (("compare", "kimi-k3", "--on", "8xH200"), 1),
        (("compare", "kimi-k3", "--on", "8xH200", "--on", "8xB300"), 0),
        (("compare", "kimi-k3", "--search", "--engine", "vllm"), 0),
        (("fit",), 2),
        (("fit", "--on", "1xRTX4090"), 0),
        (("variants", "kimi-k3", "--have", "B200"), 3),
        (("fit", "--on", "8xRTX9000"), 3),
        (("variants", "kimi-k3"), 0),
        (("variants", "kimi-k3", "--have", "512GB-mac"), 0),
        (("variants", "kimi-k3", "--have", "48GB"), 1),
        (("variants", "kimi-k3", "--have", "512GB-amiga"), 3),
        (("variants", "kimi-4"), 3),
        (("explain", "weights", "kimi-k3"), 2),
        (("facts",), 0),
        (("--version",), 0),
        (("--help",), 0),
        ((), 2),
    ],
)
def test_a_command_ends_with_the_status_of_its_outcome(
    run: Run, args: tuple[str, ...], status: int
) -> None:
    """0 positive, 1 negative, 2 usage, 3 input; a failure is a sentence, never a traceback."""
    ran = run(*args)
    assert ran.status == status
    assert "Traceback" not in ran.err + ran.out
    if status in (2, 3):
        assert ran.err.strip() or ran.out.strip()


def test_plan_json_keeps_the_contract(run: Run) -> None:
    """Every field of the contract is there, with its shape."""
    plan = json.loads(run(*K3, "8xB300", "--json").out)
    assert plan["verdict"] == "fits"
    assert plan["support"]["status"] == "verified"
    for name in ("tensor", "pipeline", "data", "expert", "decode_context"):
        assert isinstance(plan["layout"][f"{name}_parallel_size"], int)
    for name in ("weights", "kv_cache", "recurrent_state", "workspace", "outside_pool"):
        assert set(plan["per_gpu"][f"{name}_bytes"]) == {"low", "high"}
    for name in ("known_total", "budget", "headroom"):
        assert isinstance(plan["per_gpu"][f"{name}_bytes"], int)
    for name in ("max_context_tokens", "max_sequences", "kv_tokens"):
        assert set(plan["capacity"][name]) == {"low", "high"}
    for name in ("limits", "fixes", "defaults", "terms"):
        assert isinstance(plan[name], list)
    assert all(term["kind"] and term["source"] for term in plan["terms"])


def test_json_is_all_that_is_on_standard_output(run: Run) -> None:
    """With --json there is one document and nothing else."""
    assert json.loads(run(*K3, "8xH200", "--json").out)["verdict"] == "does_not_fit"


@pytest.mark.parametrize(
    "args",
    [
        (*K3, "8xB300"),
        (*K3, "8xH200"),
        (*K3, "2x8xH200", "--engine", "vllm", "--tp", "16", "--ep", "1"),
        (*K3, "2x8xH200", "--tp", "8", "--dp", "2", "--context", "32k", "--concurrency", "5"),
        (*K3, "8xB300", "--engine-version", "9.9", "--engine", "vllm"),
        (*K3, "8xMI355X", "--engine", "llamacpp", "--concurrency", "4"),
        ("plan", "smollm2", "--on", "this-machine"),
        ("compare", "kimi-k3", "--on", "16xB200", "--on", "8xMI300X", "--on", "8xMI325X"),
        ("compare", "kimi-k3", "--all"),
        ("compare", "kimi-k3", "--search"),
        (*K3, "B200", "--rules"),
        (*K3, "2x4xGB300", "--engine", "trtllm", "--context", "1M"),
        ("fit", "--on", "8xH100"),
        ("fit", "--on", "M3 Ultra 512GB"),
        ("fit", "--on", "1xMI210", "--context", "32k"),
        ("variants", "kimi-k3"),
        ("variants", "kimi-k3", "--have", "512GB-mac"),
        ("variants", "kimi-k3", "--have", "48GB"),
        ("facts",),
    ],
)
def test_screens_keep_to_eighty_columns_and_plain_text(run: Run, args: tuple[str, ...]) -> None:
    """No line is wider than 80 cells, and nothing escapes to a terminal that is none."""
    ran = run(*args)
    assert "\x1b" not in ran.out
    wide = [line for line in ran.out.splitlines() if cell_len(line) > 80]
    if args[0] == "facts":
        wide = []  # lists of ids have no end; they are one line per kind
    assert [line for line in wide if not line.startswith("next:")] == []


def test_the_last_line_says_what_to_type_next(run: Run) -> None:
    """After a fit: the derivation; after a miss: the first change that would hold."""
    assert run(*K3, "8xB300").out.splitlines()[-1] == "next: heavylift explain weights"
    assert run(*K3, "8xH200").out.splitlines()[-1].startswith("next: heavylift plan kimi-k3 --on")
    assert (
        "--all" in run(*K3, "8xMI325X").out.splitlines()[-1] or "next:" in run(*K3, "8xMI325X").out
    )


def test_a_padded_layout_says_so_in_words(run: Run) -> None:
    """TP16 without EP: the screen names the columns before and after."""
    out = " ".join(run(*K3, "16xH200", "--engine", "vllm", "--tp", "16", "--ep", "1").out.split())
    assert "3,072 columns become 4,096 over 16 ranks" in out


def test_the_articles_headline_is_answered_in_words(run: Run) -> None:
    """Which card and which bytes decide, not which vendor."""
    ran = run("compare", "kimi-k3", "--on", "16xB200", "--on", "8xMI300X", "--on", "8xMI355X")
    words = " ".join(ran.out.split())
    assert "8xMI300X misses by" in words
    assert "8xMI355X holds it" in words
    assert "not the vendor" in words


TOPICS = (
    "weights",
    "kv_cache",
    "recurrent_state",
    "workspace",
    "outside_pool",
    "budget",
    "defaults",
    "layouts",
)


@pytest.mark.parametrize("topic", TOPICS)
def test_explain_answers_for_the_last_plan(run: Run, topic: str) -> None:
    """After a plan each of its topics is explained, with sources spelt out."""
    run(*K3, "2x8xH200", "--engine", "vllm")
    ran = run("explain", topic)
    assert ran.status == 0
    assert len(ran.out.splitlines()) > 2
    if topic != "layouts":
        assert "Sources" in ran.out


def test_explain_weights_goes_down_to_the_tensors(run: Run) -> None:
    """Each tensor group is a line with its bytes and its rule, and they add up."""
    run(*K3, "8xMI355X", "--engine", "atom", "--text-only")
    out = run("explain", "weights").out
    assert "experts.{e}.w1.weight_packed" in out
    assert "replicated" in out
    assert "190.9739  total, 497,052 tensors" in out


def test_explain_without_a_plan_says_what_to_do(run: Run) -> None:
    """Nothing was planned yet: the error has a command to type."""
    ran = run("explain", "weights")
    assert ran.status == 3
    assert "heavylift plan" in ran.err


def test_explain_can_make_its_own_plan(run: Run) -> None:
    """With a model and a rack the plan is made on the spot; JSON has the term."""
    ran = run("explain", "kv_cache", "kimi-k3", "--on", "8xB300", "--json")
    assert json.loads(ran.out)["terms"][0]["segment"] == "kv_cache"


def test_a_plan_of_another_version_is_refused(run: Run, tmp_path: Path) -> None:
    """A kept plan that is not of this schema is named, not misread."""
    run(*K3, "8xB300")
    (state_dir() / "last-plan.json").write_text('{"schema": 99}')
    ran = run("explain", "weights")
    assert (ran.status, "PLAN041" in ran.err) == (3, True)
    broken = tmp_path / "receipt.json"
    broken.write_text("{}")
    ran = run(*K3, "8xB300", "--receipt", str(broken))
    assert (ran.status, "PLAN042" in ran.err) == (3, True)


def test_defective_facts_are_listed_with_their_paths(run: Run, tmp_path: Path) -> None:
    """`facts --from` names every defect of a folder and ends with 3."""
    (tmp_path / "sources.toml").write_text("")
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "x.toml").write_text('title = "X"\nvendro = "nvidia"\n')
    ran = run("facts", "--from", str(tmp_path))
    assert ran.status == 3
    assert "gpus/x.toml: vendro" in ran.out
    assert "gpus/x.toml: memory_visible" in ran.out


@pytest.mark.parametrize(
    "content", [b"a = \xff", b"a = " + b"[" * 5000, b"a = " + b"9" * 5000, b'"\\u001b[2J" = 1']
)
def test_files_that_are_no_facts_are_listed_too(run: Run, tmp_path: Path, content: bytes) -> None:
    """Bytes, depths and keys of all kinds end in a line, never in a traceback or a moved cursor."""
    (tmp_path / "sources.toml").write_text("")
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "x.toml").write_bytes(content)
    ran = run("facts", "--from", str(tmp_path))
    assert ran.status == 3
    assert "nodes/x.toml: " in ran.out
    assert "\x1b" not in ran.out
    assert "INT001" not in ran.err


def test_help_lists_the_commands_in_the_order_of_the_story(run: Run) -> None:
    """Plan comes first, tools for development last."""
    out = run("--help").out
    places = [out.index(f"  {name} ") for name in COMMANDS]
    assert places == sorted(places)


def test_a_nearly_right_command_gets_a_suggestion(run: Run) -> None:
    """`plann` is answered with `plan`."""
    assert "did you mean 'plan'" in run("plann").err


def test_a_rack_that_cannot_be_planned_spoils_no_comparison(run: Run) -> None:
    """llama.cpp refuses two machines; the other rack keeps its row."""
    ran = run("compare", "kimi-k3", "--engine", "llamacpp", "--on", "8xB300", "--on", "2x8xB300")
    assert ran.status == 0
    assert "8xB300 holds it" in ran.out
    assert "2x8xB300: llama.cpp can run" in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--gpu-memory-utilization", "nan"),
        ("--engine-version", ""),
        ("--engine", " "),
        ("--variant", ""),
    ],
)
def test_values_that_are_nothing_are_usage_errors(run: Run, option: str, value: str) -> None:
    """Not-a-number and empty names are refused before anything is planned."""
    assert run(*K3, "8xB300", option, value).status == 2


def test_a_mistake_of_ours_is_no_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unforeseen failure is a sentence and a status of its own; --debug shows the traceback."""

    def broken(*_args: object, **_given: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("heavylift.cli.plan.make", broken)
    ran = run(*K3, "8xB300")
    assert ran.status == 70
    assert "INT001" in ran.err
    with pytest.raises(ZeroDivisionError):
        main(["--debug", *K3, "8xB300"])


def test_a_store_that_cannot_be_read_takes_no_plan_away(run: Run) -> None:
    """A damaged receipt store is remarked on, and the plan is made without it."""
    path = state_dir() / "deployments.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not a database" * 100)
    ran = run(*K3, "8xB300")
    assert ran.status == 0
    assert "cannot be read" in ran.err


@pytest.mark.parametrize(
    ("shell", "status", "seen"),
    [
        ("{} >/dev/full", 4, "No space left"),
        ("{} >&-", 0, ""),
        ("{} | head -1", 0, "FITS"),
        ("PYTHONIOENCODING=ascii {}", 0, "FITS"),
        ("HOME=/nowhere HEAVYLIFT_HOME= {}", 0, "FITS"),
    ],
)
def test_odd_streams_and_homes_do_not_change_the_verdict(
    shell: str, status: int, seen: str
) -> None:
    """A full disk is said; a closed pipe, a closed stream, another encoding are no failure."""
    command = f"{sys.executable} -m heavylift plan kimi-k3 --on 8xB300"
    script = f"set -o pipefail; {shell.format(command)}"
    ran = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == status, ran.stderr
    assert seen in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_comparison_of_unknown_racks_is_bad_input(run: Callable[..., Any]) -> None:
    """As a plan on one is."""
    assert run("compare", "kimi-k3", "--on", "foo").status == Exit.INPUT


def test_a_rack_is_compared_once(run: Callable[..., Any]) -> None:
    """However often and in whatever words it was named."""
    ran = run("compare", "kimi-k3", "--on", "8xB300", "--on", "b300:8", "--on", "8xB300", "--json")
    assert len(json.loads(ran.out)["rows"]) == 1


def test_options_without_a_model_explain_nothing(run: Callable[..., Any]) -> None:
    """They are refused, not passed over."""
    ran = run("explain", "weights", "--context", "5")
    assert ran.status == Exit.USAGE
    assert "options need a model" in ran.err


def test_a_path_that_is_no_folder_is_said(run: Callable[..., Any], tmp_path: Path) -> None:
    """A file, and nothing at all."""
    file = tmp_path / "file"
    file.touch()
    for path, code in ((file, "PLAN058"), (tmp_path / "none", "PLAN059")):
        ran = run("plan", str(path), "--on", "8xB300")
        assert ran.status == Exit.INPUT
        assert code in ran.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((*K3, "B200"), ("Fewer do not do: 8xB200", "Engines asked:", "runs on AMD cards only")),
        ((*K3, "H100"), ("2x8xH100 and below",)),
        ((*K3, "8xB300", "--rules"), ("Rules of thumb", "room for", "do not divide evenly")),
        ((*K3, "8xGB300", "--engine", "trtllm"), ("of 0.25 of what is free after load",)),
        ((*K3, "1xM3 Ultra 512GB"), ("has no platform for this card",)),
        (
            ("plan", "llama-3.1-8b", "--on", "B300", "--tp", "4", "--engine", "vllm"),
            ("1xB300 can run it in no layout.",),
        ),
        (("plan", "kimi-k3", "--on", "8xMI250X"), ("2 devices per card",)),
        (("plan", "llama-3.1-8b", "--on", "1xStrix Halo"), ("120.0 with amd-ttm --set 120",)),
        (("plan", "llama-3.1-8b", "--on", "1xDGX Spark"), ("the system lives in them too",)),
        (("fit", "--on", "8xH100"), ("Kimi-K3 ud-tq1-0", "misses by")),
        (("fit", "--on", "M3 Ultra 512GB"), ("tight*", "iogpu.wired_limit_mb=516096")),
        (("variants", "kimi-k3", "--have", "48GB"), ("No: no published form",)),
        (("variants", "kimi-k3", "--have", "64GB+nvme"), ("Take WARP", "s per token on M5 Pro")),
        (("variants", "kimi-k3", "--have", "512GB-mac"), ("Take GGUF REAP576", "Does not hold:")),
        (("variants", "kimi-k3"), ("dominated by native", "Smallest rack of the catalogue")),
        (("compare", "kimi-k3", "--search"), ("ways on", "8xMI355X")),
    ],
)
def test_a_screen_says_what_was_asked(
    run: Run, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """The answer is in the words, not only in the record."""
    shown = " ".join(run(*args).out.split())
    for each in words:
        assert each in shown


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        (("fit", "--on", "1xL40S"), {"rack", "rows", "misses", "visible_bytes", "schema"}),
        (("variants", "kimi-k3"), {"model", "rows", "choices", "have", "schema"}),
        (("compare", "kimi-k3", "--search"), {"candidates", "refused", "too_small", "best"}),
    ],
)
def test_json_of_the_lists_has_the_records_fields(
    run: Run, args: tuple[str, ...], fields: set[str]
) -> None:
    """The same record as on the screen."""
    assert fields <= set(json.loads(run(*args, "--json").out))


# --- a command for a plan ------------------------------------------------------------------------

SERVE = (
    "docker run --gpus all vllm/vllm-openai:v0.32.0 --model openai/gpt-oss-120b"
    " --tensor-parallel-size 8 --max-model-len 65536 --max-num-seqs 64"
    " --gpu-memory-utilization 0.9 --host 0.0.0.0"
)


def pasted(folder: Path, words: str) -> str:
    """A file with a command."""
    path = folder / "command.sh"
    path.write_text(f"{words}\n")
    return str(path)


def test_a_pasted_command_is_planned_as_the_same_options_are(run: Run, tmp_path: Path) -> None:
    """Model, engine, version, layout and limits are the command's own; what is typed beside it goes
    before it; what was taken is said.
    """
    words = ("--on", "8xH200", "--json")
    asked = run("plan", "--command", pasted(tmp_path, SERVE), "--concurrency", "4", *words)
    assert asked.status == 0
    assert "context 65536" in asked.err
    options = ("--engine", "vllm", "--engine-version", "0.32.0", "--tp", "8", "--context", "65536")
    limits = ("--max-num-seqs", "64", "--gpu-memory-utilization", "0.9", "--concurrency", "4")
    typed = run("plan", "openai/gpt-oss-120b", *options, *limits, *words)
    theirs, ours = json.loads(asked.out), json.loads(typed.out)
    for name in ("engine", "engine_version", "layout", "terms", "budgets", "verdict", "variant"):
        assert theirs[name] == ours[name]
    other = run("plan", "--command", pasted(tmp_path, SERVE), "--context", "8192", *words)
    assert json.loads(other.out)["context_tokens"] == 8192


@pytest.mark.parametrize(
    ("speculation", "verdict", "drafted"),
    [
        ('{"method":"eagle3","model":"some/drafter","num_speculative_tokens":4}', "unknown", 0),
        ('{"method":"ngram","num_speculative_tokens":4}', "fits", 0),
        ('{"method":"mtp","num_speculative_tokens":3}', "fits", 3),
    ],
)
def test_what_drafts_in_a_pasted_command_is_planned(
    run: Run, tmp_path: Path, speculation: str, verdict: str, drafted: int
) -> None:
    """A model of its own leaves the plan open, a table of words takes nothing, own heads count."""
    words = "vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --max-model-len 16384"
    file = pasted(tmp_path, f"{words} --speculative-config '{speculation}'")
    plan = json.loads(run("plan", "--on", "8xB300", "--command", file, "--json").out)
    assert plan["verdict"] == verdict
    assert plan["request"]["draft_tokens"] == drafted
    if verdict == "unknown":
        assert "drafter some/drafter" in run("plan", "--on", "8xB300", "--command", file).err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("no command at all", "PLAN064"),
        ("ollama run qwen3", "PLAN064"),
        ("vllm serve openai/gpt-oss-120b -tp 8 --cpu-offload-gb 20", "PLAN066"),
        ("vllm serve openai/gpt-oss-120b -tp 8 --kv-cache-memory-bytes 1G", "PLAN066"),
        ("vllm serve openai/gpt-oss-120b -tp 8\nvllm serve openai/gpt-oss-20b", "PLAN065"),
        ("vllm serve /models/nobody-knows -tp 8", "PLAN059"),
    ],
)
def test_a_command_that_cannot_be_taken_over_is_refused(
    run: Run, tmp_path: Path, words: str, code: str
) -> None:
    """Nothing of it that changes the memory is left out in silence."""
    ran = run("plan", "--on", "8xH200", "--command", pasted(tmp_path, words))
    assert ran.status == 3
    assert f"error[{code}]" in ran.err
