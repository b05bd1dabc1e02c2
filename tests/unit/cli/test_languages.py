"""Screens in every language: 80 cells, columns that line up, the language's own words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click import formatting
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli import english

from heavylift.batch.records import Audit, Counts, Ended, Status
from heavylift.bench.records import (
    ClientHealth,
    Comparison,
    Distribution,
    Found,
    Load,
    LoadKind,
    MetricChange,
    Report,
    RequestCounts,
    ServerPoint,
    Stage,
)
from heavylift.cli import click_words
from heavylift.cli.cells import WIDTH, cell_len, clipped, fold, left, right, tail, wrap
from heavylift.cli.main import cli
from heavylift.cli.output import TextSink, tell
from heavylift.cli.text import text
from heavylift.locale import catalogue
from heavylift.records.deployment import Alive, DeploymentStatus, Failure, Phase, Progress
from heavylift.records.finding import Finding, Severity
from heavylift.records.served_model import ServedModel
from heavylift.records.watch import (
    CurvePoint,
    Disk,
    EngineNow,
    GpuNow,
    HostNow,
    Quantiles,
    Sight,
    TermNow,
    WatchReport,
)
from heavylift.stats import Interval
from heavylift.verify.records import CheckResult, Profile, Verification
from heavylift.verify.records import Status as CheckStatus

Run = Callable[..., Any]
ROOT = Path(__file__).parents[3]
README_PLAN = (
    *("plan", "kimi-k3", "--on", "8xMI355X", "--engine", "atom"),
    *("--context", "1M", "--text-only"),
)
CHINESE = re.compile(r"[\u4e00-\u9fff]")

# --- records -------------------------------------------------------------------------------------

SERVED = ServedModel(url="http://127.0.0.1:8000", model="kimi-k3", engine="vllm", is_quantised=True)
TIMES = Distribution(count=9, mean=0.2, p50=0.1, p90=0.3, p95=0.4, p99=0.5, min=0.1, max=12.0)
FIGURES: dict[str, Any] = {
    "ttft_s": TIMES,
    "ttfa_s": TIMES,
    "tpot_s": TIMES,
    "itl_s": TIMES,
    "e2e_s": TIMES,
    "output_tokens_per_s": 1234.5,
    "goodput_per_s": 3.25,
    "requests": RequestCounts(ok=9, failed=1, failures={"timeout_first_byte": 1}),
    "valid": False,
    "invalid_reasons": ("client_timeouts", "in_flight_limit", "schedule_delay"),
}
STAGE = Stage(
    load=Load(kind=LoadKind.CLOSED, requests=10, concurrency=64),
    offered_per_s=None,
    client=ClientHealth(
        loop_lag_p50_s=0.001,
        loop_lag_p99_s=0.002,
        cpu_ratio=0.4,
        schedule_delay_p99_s=0.003,
        connect_p99_s=0.1,
        reached_in_flight_limit=True,
    ),
    server=(ServerPoint(at_s=1.0, running=60.0, waiting=4.0, kv_use_ratio=0.5),),
    window_s=10.0,
    stamp_error_s=None,
    itl_is_chunk_gap=True,
    counted_by_server=False,
    chunks_per_token=0.5,
    total_tokens_per_s=None,
    achieved_per_s=0.9,
    error_rate=0.1,
    slo_met=False,
    prompt_tokens_mean=1000.0,
    output_tokens_mean=200.0,
    reasoning_share=0.5,
    cached_share=0.1,
    output_length_deviation=0.05,
    **FIGURES,
)
AUDIT = Audit(
    input=100_000,
    ok=0,
    failed=99_990,
    skipped=10,
    missing=0,
    duplicates=0,
    resent=3,
    unrecorded_bytes=12,
    shards_left=2,
)
RECORDS: dict[str, tuple[str, Any]] = {
    "bench": (
        "bench",
        Report(
            target=SERVED,
            started_at="2026-11-30T10:00:00+00:00",
            heavylift_version="0",
            seed=1,
            settings={},
            stages=(STAGE,),
            found=Found(concurrency=64, slo="ttft_p99=2s", ended_by="invalid"),
            **FIGURES,
        ),
    ),
    "bench_compare": (
        "bench_compare",
        Comparison(
            a="a.jsonl",
            b="b.jsonl",
            pairs=0,
            target_a=SERVED,
            requests_a=RequestCounts(ok=8, failed=0),
            requests_b=RequestCounts(ok=4, failed=4, failures={"drop": 4}),
            errors=MetricChange(
                metric="error_rate", a=0, b=0.5, difference=0.5, low=0.1, high=0.8, is_worse=True
            ),
            changes=tuple(
                MetricChange(
                    metric=metric, a=0.1, b=0.2, difference=0.1, low=0.05, high=0.15, is_worse=worse
                )
                for metric, worse in (("ttft", True), ("tpot", False), ("e2e", None))
            ),
        ),
    ),
    "verify": (
        "verify",
        Verification(
            subject=SERVED,
            profile=Profile.SMOKE,
            started_at="2026-11-30T10:00:00+00:00",
            heavylift_version="0",
            seconds=31.0,
            verdict=CheckStatus.FAIL,
            checks=tuple(
                CheckResult(
                    id="basics.chat",
                    status=status,
                    rate=0.75,
                    interval=Interval(low=0.3, high=0.95),
                    trials=4,
                    required_rate=1.0,
                    reasons={"wrong_answer": 1},
                    evidence=("一二三四五六七八九十" * 30,),
                )
                for status in CheckStatus
            ),
        ),
    ),
    "batch-ended": (
        "batch",
        Ended(
            folder="batches/2026-11-30",
            endpoints=("http://127.0.0.1:8000", "http://127.0.0.1:8001"),
            audit=AUDIT,
            reasons={"rate_limited": 99_990, "input": 10},
            stopped="connect",
            elapsed_s=12.5,
            prompt_tokens=1_000,
            completion_tokens=0,
            cost_usd=1.5,
        ),
    ),
    "batch-status": (
        "batch",
        Status(
            folder="batches/2026-11-30",
            counts=Counts(input=10, pending=3, ok=5, failed=2),
            reasons={"server_error": 2},
            running=4711,
            cost_usd=None,
            cancelled=False,
        ),
    ),
    "status-starting": (
        "status",
        DeploymentStatus(
            name="kimi-k3",
            phase=Phase.WEIGHTS,
            pid=17,
            url="http://127.0.0.1:8000",
            ready=False,
            alive=Alive.UNKNOWN,
            release=3,
            wanted="running",
            model="kimi-k3",
            engine="vllm",
            progress=Progress(done=3, total=96, unit="shards", read_bytes=10**11, eta_s=300.0),
            stalled_s=120.0,
            is_late=True,
            restarts=2,
            leftovers=(18, 19),
        ),
    ),
    "status-failed": (
        "status",
        DeploymentStatus(
            name="kimi-k3",
            phase=Phase.FAILED,
            pid=None,
            url=None,
            ready=False,
            alive=Alive.DEAD,
            release=3,
            wanted="running",
            model="kimi-k3",
            engine="vllm",
            failure=Failure(
                code="RUN032",
                params={"reason": "no_steps_no_answer", "still_s": 90, "log": "/var/log/k3.log"},
                cause_class="weights_do_not_fit",
                title="Out of memory.",
                fix="Plan it: the terms per GPU say which one is too large and what would fit.",
                line="torch.OutOfMemoryError: CUDA out of memory.",
                restart_reason="unexplained_again",
            ),
            findings=(
                Finding(
                    id="memory",
                    code="run.memory.kv_tokens",
                    severity=Severity.WARN,
                    subject="kv_cache",
                    params={"term": "kv_cache", "observed": 1000, "expected": "2,000"},
                ),
            ),
            log="/var/log/k3.log",
        ),
    ),
}

GIB = 2**30
RECORDS["top"] = (
    "top",
    WatchReport(
        at="2026-11-30T13:00:00+00:00",
        at_s=1_796_043_600.0,
        name="k3",
        url="http://127.0.0.1:8000",
        title="Kimi-K3 · ATOM",
        sight=Sight.SEEN,
        sources=("amd-smi",),
        gpus=tuple(
            GpuNow(
                gpu=gpu,
                host="rack-7",
                name="MI355X",
                source="amd-smi",
                memory_used_bytes=210 * GIB,
                memory_total_bytes=288 * GIB,
                planned_low_bytes=206 * GIB,
                planned_high_bytes=220 * GIB,
                use_ratio=1.0,
                temperature_c=81.0,
                power_w=1_350.0,
            )
            for gpu in range(2)
        ),
        engine=EngineNow(
            sight=Sight.SEEN,
            running=64.0,
            waiting=12.0,
            preemptions=3.0,
            ttft=Quantiles(p50_s=0.4, p99_s=1.9, basis="window", count=7),
            tpot=Quantiles(p50_s=0.02, p99_s=0.04, basis="since_start", count=7),
        ),
        host=HostNow(name="rack-7", disks=(Disk(path="/", total_bytes=10**12, free_bytes=10**11),)),
        phase="ready",
        reserves=True,
        terms=(
            TermNow(
                term="weights",
                planned_low_bytes=190 * GIB,
                planned_high_bytes=191 * GIB,
                observed_bytes=190 * GIB,
                basis="log",
                is_inside=True,
            ),
        ),
        curve=(CurvePoint(max_model_len=1_048_576, need_bytes=206 * GIB, held_bytes=210 * GIB),),
    ),
)

COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("plan", "kimi-k3", "--on", "8xMI355X", "--engine", "atom", "--context", "1M"),
    "plan-refused": ("plan", "kimi-k3", "--on", "8xH200", "--rules"),
    "compare": ("compare", "kimi-k3", "--on", "8xH200", "--on", "8xMI355X"),
    "explain": ("explain", "workspace", "kimi-k3", "--on", "8xMI355X"),
    "fit": ("fit", "--on", "8xH100"),
    "variants": ("variants", "kimi-k3", "--have", "512GB-mac"),
    "speed": ("speed", "kimi-k3", "--on", "8xMI355X"),
    "pd": ("pd", "kimi-k3", "--on", "8xB300", "--tpot", "50ms"),
    "decide": ("decide", "kimi-k3", "--on", "8xB300", "--rent", "3"),
    "recipe": ("recipe", "kimi-k3", "--on", "8xMI355X"),
    "recipe-refused": ("recipe", "kimi-k3", "--on", "8xH200"),
    "walk": ("diagnose", "--symptom", "slow"),
    "inspect": ("inspect", "kimi-k3"),
    "facts": ("facts",),
    "simulate": (
        *("simulate", "kimi-k3", "--on", "8xMI355X", "--no-search"),
        *("--requests", "50", "--processes", "1"),
    ),
}
# What is there to be copied is not folded: commands, and addresses.
COPIED = re.compile(r"heavylift |^\s+--|https?://|^vllm |^\s*\$ ")


@pytest.fixture(params=["en", "zh_Hans", "zh_Hant"])
def language(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each language that is there, spoken for the length of a test."""
    spoken: str = request.param
    if spoken != catalogue.ENGLISH and not catalogue.folder(spoken).joinpath("core.po").is_file():
        pytest.skip(f"no {spoken} yet")
    catalogue.use(spoken)
    yield spoken
    catalogue.use(catalogue.ENGLISH)


def _is_80_wide(shown: str, language: str) -> None:
    lines = shown.splitlines()
    assert lines
    assert [line for line in lines if cell_len(line) > WIDTH and not COPIED.search(line)] == []
    assert bool(CHINESE.search(shown)) is (language != catalogue.ENGLISH)
    if language != catalogue.ENGLISH:
        assert [*english.prose(shown), *english.ours(shown, language)] == []


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_screen_is_80_cells_wide(command: tuple[str, ...], language: str, run: Run) -> None:
    """What a command prints, in every language."""
    _is_80_wide(run(*command).out, language)


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_is_80_cells_wide(
    record: tuple[str, Any], language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is shown of records that a command cannot come by here."""
    TextSink().record(*record)
    shown = capsys.readouterr().out
    if record[0] == "verify":
        shown = shown.replace("一二三四五六七八九十", "")
        assert all(cell_len(line) <= WIDTH for line in shown.splitlines())
        return
    _is_80_wide(shown, language)


def test_lint_and_diagnose_are_80_cells_wide(language: str, run: Run, tmp_path: Path) -> None:
    """Findings about a command, and causes in a log."""
    command = tmp_path / "serve.sh"
    command.write_text("vllm serve moonshotai/Kimi-K3 —tensor-parallel-size 8 --host 0.0.0.0\n")
    _is_80_wide(run("lint", str(command), "--on", "8xH200").out, language)
    log = tmp_path / "engine.log"
    log.write_text(
        "INFO Initializing a V1 LLM engine (v0.29.0) with config: model='/models/Kimi-K3'\n"
        "(Worker_TP3 pid=7) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        "1.31 GiB. GPU 3 has a total capacity of 139.81 GiB of which 1.02 GiB is free.\n"
    )
    _is_80_wide(run("diagnose", str(log)).out, language)


def test_doctor_is_80_cells_wide(language: str, run: Run, tmp_path: Path) -> None:
    """Findings about a host, at length."""
    snapshot = tmp_path / "snapshot.json"
    observed = {"read:/proc/sys/kernel/osrelease": {"state": "ok", "text": "6.8.0"}}
    snapshot.write_text(
        json.dumps(
            {
                "host": "rack-1",
                "taken_at": "2026-03-02T10:00:00+00:00",
                "heavylift_version": "0",
                "observations": observed,
            }
        )
    )
    _is_80_wide(run("doctor", "--from", str(snapshot), "-v").out, language)


@pytest.mark.parametrize(
    ("file", "spoken"), [("README.md", "en"), ("README.zh-Hans.md", "zh_Hans")]
)
def test_the_plan_of_a_readme_is_what_the_command_prints(file: str, spoken: str, run: Run) -> None:
    """A screen in a README is shown as it is today."""
    catalogue.use(spoken)
    try:
        printed = run(*README_PLAN).out
    finally:
        catalogue.use(catalogue.ENGLISH)
    assert printed in (ROOT / file).read_text("utf-8")


def test_json_is_the_same_in_every_language(language: str, run: Run, tmp_path: Path) -> None:
    """Programs read it: neither a record nor an error is translated."""
    command = tmp_path / "serve.sh"
    command.write_text("vllm serve moonshotai/Kimi-K3\n")
    shown = (
        run("lint", str(command), "--json").out
        + run("plan", "no-such", "--on", "8xB300", "--json").out
    )
    assert not CHINESE.search(shown)
    assert catalogue.current() == language


# --- columns -------------------------------------------------------------------------------------


def _ends(line: str, pattern: str) -> list[int]:
    return [cell_len(line[: found.end()]) for found in re.finditer(pattern, line)]


def test_numbers_of_a_plan_end_in_one_column(language: str, run: Run) -> None:  # noqa: ARG001
    """The column of GiB, whatever the words beside it are."""
    lines = run("plan", "kimi-k3", "--on", "8xMI355X", "--engine", "atom").out.splitlines()
    head = next(at for at, line in enumerate(lines) if " GiB " in line)
    column = cell_len(lines[head].split("GiB")[0]) + len("GiB")
    rows = [line for line in lines[head + 1 : head + 6] if "?" not in line]
    assert len(rows) > 2
    for row in rows:
        assert column in _ends(row, r"\d\.\d\d(?=\s|$)"), row


def test_columns_of_a_comparison_line_up(language: str, run: Run) -> None:  # noqa: ARG001
    """A table's headers begin where their columns do."""
    lines = run("compare", "kimi-k3", "--on", "8xH200", "--on", "8xMI355X").out.splitlines()
    verdict, layout = text("compare.headers").split("|")[1], text("compare.headers").split("|")[3]
    head, first, second = lines[1:4]
    for header, values in ((verdict, ("does_not_fit", "fits")), (layout, ("tp8", "tp8"))):
        at = cell_len(head[: head.index(header)])
        for row, value in zip((first, second), values, strict=True):
            word = text(f"verdict.{value}").lower() if header == verdict else value
            assert cell_len(row[: row.index(f" {word}") + 1]) == at, row


def test_columns_of_a_watch_line_up(
    language: str,  # noqa: ARG001
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Used memory, power, and the terms end where their headers do."""
    TextSink().record(*RECORDS["top"])
    lines = capsys.readouterr().out.splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("GPU"))
    used = lines[head].index(text("top.used")) + len(text("top.used"))
    assert cell_len(lines[head][:used]) in _ends(lines[head + 1], r"210\.0")
    assert cell_len(lines[head].rstrip()) in _ends(lines[head + 1], "1,350 W")
    terms = next(at for at, line in enumerate(lines) if line == text("top.terms"))
    assert cell_len(lines[terms]) in _ends(lines[terms + 1], r"191\.00")


def test_headers_of_a_benchmark_end_where_numbers_end(
    language: str,  # noqa: ARG001
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The line of a stage under its headers."""
    TextSink().record(*RECORDS["bench"])
    lines = capsys.readouterr().out.splitlines()
    last = text("bench.stage_headers").split("|")[-1]
    at = next(number for number, line in enumerate(lines) if line.rstrip().endswith(last))
    assert cell_len(lines[at].rstrip()) == cell_len(lines[at + 1].rstrip())


# --- cells ---------------------------------------------------------------------------------------

WORDS = st.text(alphabet=st.sampled_from("ab字，（）。 -"), max_size=120)


@given(WORDS, st.integers(2, 40))
def test_cut_and_padded_words_have_the_cells_they_were_given(words: str, cells: int) -> None:
    """Never wider; padded to the cell where there was room."""
    assert cell_len(clipped(words, cells)) <= cells
    assert cell_len(tail(words, cells)) <= cells
    for padded in (left(words, cells), right(words, cells)):
        assert cell_len(padded) == max(cells, cell_len(words))


@given(WORDS, st.integers(12, 40))
def test_wrapped_words_lose_nothing_but_spaces(words: str, width: int) -> None:
    """Every character comes back in order, on lines that are not too wide."""
    lines = list(wrap(words, "- ", "  ", width=width))
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(line[2:] for line in lines).replace(" ", "") == words.replace(" ", "")


def test_chinese_punctuation_stays_with_its_words() -> None:
    """No line begins with a comma or ends with an opening bracket."""
    words = "权重放不下，换更小的变体（或加卡）。" * 8
    for width in range(20, 40):
        for line in wrap(words, width=width):
            assert line[0] not in "，。）"
            assert line[-1] != "（"


def test_wrapping_stops_after_as_many_lines_as_were_asked_for() -> None:
    """The last line says that there was more."""
    assert list(wrap("one two three four", width=8, most=2))[-1].endswith("…")
    assert len(list(wrap("x" * 100, width=8, most=3))) == 3


def test_a_word_that_must_not_be_cut_runs_over() -> None:
    """A path can still be copied."""
    assert list(wrap("see /a/very/long/path", width=8, cuts=False)) == ["see", "/a/very/long/path"]


# --- click ---------------------------------------------------------------------------------------


@pytest.fixture
def installed() -> Iterator[None]:
    """Click with its words replaced, and given back."""
    modules = [getattr(click, name) for name in ("core", "decorators", "exceptions", "types")]
    modules += [formatting, click.parser]
    before = [(module, dict(vars(module))) for module in modules]
    click_words.install()
    yield
    for module, names in before:
        vars(module).update(names)


@pytest.mark.usefixtures("installed")
def test_click_speaks_the_language(language: str) -> None:
    """Usage, an unknown option, a missing argument, a value out of range."""
    said = CliRunner().invoke(cli, ["plan", "--nothing"]).output
    said += CliRunner().invoke(cli, ["plan"]).output
    said += CliRunner().invoke(cli, ["plan", "kimi-k3", "--tp", "0"]).output
    assert ("Usage:" in said) is (language == catalogue.ENGLISH)
    assert ("No such option" in said) is (language == catalogue.ENGLISH)
    assert ("Missing" in said) is (language == catalogue.ENGLISH)
    assert ("is not in the range" in said) is (language == catalogue.ENGLISH)
    assert "--nothing" in said


@pytest.mark.usefixtures("installed")
def test_help_in_chinese_is_80_cells_wide(language: str) -> None:
    """Options in one column, their words in another, wrapped by cells."""
    words = text("help.heavylift") * 3

    @click.command(help=words)
    @click.option("--first", help=words)
    def command() -> None:
        """Nothing to do."""

    shown = CliRunner().invoke(command, ["--help"], terminal_width=WIDTH).output
    assert all(cell_len(line) <= WIDTH for line in shown.splitlines())
    assert ("Options" in shown) is (language == catalogue.ENGLISH)


def test_words_of_click_are_those_click_says() -> None:
    """A text of the catalogue that click no longer says would never be shown."""
    package = Path(click.__file__).parent
    source = "".join(path.read_text("utf-8") for path in package.glob("*.py"))
    known = {"click.no_such_option_before", "click.required"}
    for key, words in catalogue.entries(click_words.AREA).items():
        assert key in known or words in source, key


# What is written the same in every language: names, units, and what is typed as it stands.
KEPT_VALUES = frozenset(
    [
        "A",
        "ALL",
        "B",
        "DD",
        "DECODE",
        "HUB",
        "ID",
        "JSON",
        "MM",
        "N",
        "PREFILL",
        "RANGE",
        "URL",
        "USD",
        "Y",
        "YYYY",
    ]
)


def test_every_word_that_stands_for_a_value_has_its_words() -> None:
    """In the usage and the options of each command: translated, or kept on purpose."""

    def values(command: click.Command) -> Iterator[str]:
        context = click.Context(command)
        for each in command.get_params(context):
            if not (isinstance(each, click.Option) and (each.is_flag or each.count)):
                yield from re.findall(r"\b[A-Z][A-Z_]*\b", each.make_metavar(context))
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from values(inner)

    known = {key.removeprefix("metavar.") for key in catalogue.entries("metavars")}
    assert set(values(cli)) - known - KEPT_VALUES == set()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("RACK", "机组"),
        ("INTEGER RANGE", "整数"),
        ("[ROLE=]IMAGE", "[角色=]镜像"),
        ("SIZE|ALL", "大小|ALL"),
        ("{bash|zsh}", "{bash|zsh}"),
        ("URL|NAME", "URL|名称"),
    ],
)
def test_what_stands_for_a_value_is_a_word(written: str, said: str) -> None:
    """Its punctuation, and what is typed as it stands, stay."""
    assert click_words.metavar(written) == written
    with catalogue.spoken("zh_Hans"):
        assert click_words.metavar(written) == said


def test_a_message_of_click_has_the_punctuation_of_the_language() -> None:
    """Full stops of full width, and no space after them."""
    said = "缺少选项 '--on'. 没有选项 '--x'。 是不是 '--y'？"
    assert click_words.tidied(said) == said
    with catalogue.spoken("zh_Hans"):
        assert click_words.tidied(said) == "缺少选项 '--on'。没有选项 '--x'。是不是 '--y'？"


# --- folding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied",
    [
        "heavylift keys create NAME --tokens-per-day 2000000",
        "pip install 'heavylift[postgres]'",
        "docker run --rm -it --device /dev/kfd IMAGE",
        "`vllm serve moonshotai/Kimi-K3 --port 8000`",
    ],
)
@given(before=st.integers(0, 100))
def test_a_command_in_a_line_is_not_parted(copied: str, before: int) -> None:
    """Wherever the line ends: it can be copied."""
    lines = list(fold(f"{'x ' * before}{copied} y"))
    assert any(copied in line for line in lines)
    assert all(cell_len(line) <= WIDTH for line in lines)


def test_a_line_is_folded_for_a_person_and_whole_for_a_program(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a terminal at 80 cells; in a file an error is one line that can be searched."""
    whole = run("plan", "kimi-k3", "--on", "8xFOO").err
    assert max(map(cell_len, whole.splitlines())) > WIDTH
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    tell(whole.splitlines()[0])
    folded = capsys.readouterr().err
    assert max(map(cell_len, folded.splitlines())) <= WIDTH
    assert " ".join(folded.split()) == " ".join(whole.splitlines()[0].split())
