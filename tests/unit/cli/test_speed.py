"""`heavylift speed`, `pd` and `decide` as a person and a program see them."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace

import msgspec
import pytest
from rich.cells import cell_len

from heavylift.cli.main import main
from heavylift.facts.catalog import Catalog
from heavylift.records.plan import Plan
from heavylift.records.speed import AnchorPoint
from heavylift.state.kept_anchors import keep
from heavylift.telemetry.start_log import read_start, receipt_of


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


H200 = ("kimi-k3", "--on", "2x8xH200", "--engine", "vllm", "--isl", "1000", "--osl", "1000")
B300 = ("kimi-k3", "--on", "8xB300", "--engine", "sglang")
SCREENS = [
    pytest.param(("speed", *H200, "--tp", "8", "--pp", "2", "--concurrency", "64"), id="known"),
    pytest.param(("speed", "kimi-k3", "--on", "8xMI355X"), id="unseen"),
    pytest.param(("speed", *H200, "--tp", "16", "--anchor", "25.2ms"), id="anchored"),
    pytest.param(("speed", *B300, "--speculation", "dspark:7"), id="drafted"),
    pytest.param(("speed", "kimi-k2.5", "--on", "8xB200", "--concurrency", "384"), id="refused"),
    pytest.param(("speed", "llama-3.1-8b", "--on", "1xH100"), id="dense"),
    pytest.param(("pd", *B300, "--kv-dtype", "fp8", "--tpot", "20ms"), id="pd"),
    pytest.param(("pd", *B300, "--concurrency", "200", "--cached-share", "50%"), id="pd-clients"),
    pytest.param(("pd", *B300, "--tpot", "1ms"), id="pd-impossible"),
    pytest.param(("decide", *B300, "--tokens-per-day", "20M"), id="decide"),
    pytest.param(("decide", *B300), id="decide-no-volume"),
    pytest.param(("decide", *B300, "--tokens-per-day", "1M", "--in-house"), id="decide-in-house"),
    pytest.param(
        ("decide", "kimi-k3", "--on", "8xMI355X", "--rent", "3", "--speculation", "x:2:1.5"),
        id="decide-stated-rent",
    ),
]


@pytest.mark.parametrize("command", SCREENS)
def test_screens_keep_to_80_columns_and_end_with_the_next_command(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """Counted in cells; the last line may be a longer command to copy."""
    _, out, err = run(capsys, *command)
    assert err == ""
    *lines, last = out.splitlines()
    assert [line for line in lines if cell_len(line) > 80] == []
    assert last.startswith("next: heavylift ")
    assert "\x1b" not in out


@pytest.mark.parametrize("command", SCREENS)
def test_json_has_the_fields_of_the_record_and_a_schema_number(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """One document on standard output, with what it rests on."""
    _, out, _ = run(capsys, *command, "--json")
    document = json.loads(out)
    assert document["schema"] == 1
    assert document["basis"]["evidence"] in ("known", "thin", "unseen", "anchored")
    assert document["basis"]["low_ratio"] < document["basis"]["high_ratio"]


def test_a_known_class_says_its_rows_versions_and_what_binds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Class, sample size, sources and days, and the term that binds."""
    status, out, _ = run(
        capsys, "speed", *H200, "--tp", "8", "--pp", "2", "--ep", "1", "--concurrency", "64"
    )
    assert status == 0
    assert out.startswith("CLASS KNOWN")
    assert "Rests on 14 rows in 4 sweeps of h200 with vllm" in out
    assert "what binds is the expert weights" in out
    assert "391 of 896 experts" in out
    assert "0.32.0 is not among the measured versions" in out


def test_a_refused_batch_exits_with_1_and_names_a_layout_that_holds_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """384 of Kimi K2.5 on 8 B200: room for fewer in the usual layout."""
    status, out, _ = run(capsys, "speed", "kimi-k2.5", "--on", "8xB200", "--concurrency", "384")
    assert status == 1
    assert "384 sequences at once are refused: kv_cache has room for" in out
    assert "--tp 1 --dp 8" in out.splitlines()[-1]


def test_a_refused_batch_of_a_stated_layout_leads_back_to_its_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing else was allowed, so the plan is where to look."""
    status, out, _ = run(
        capsys, "speed", "kimi-k2.5", "--on", "8xB200", "--concurrency", "384", "--tp", "8"
    )
    assert status == 1
    assert out.splitlines()[-1] == "next: heavylift plan kimi-k2.5 --on 8xB200 --context 9216"


@pytest.mark.parametrize("command", ["speed", "pd", "decide"])
def test_a_model_that_does_not_fit_shows_its_plan(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """No speed without room; the plan says what is short."""
    status, out, _ = run(capsys, command, "kimi-k3", "--on", "8xH100", "--engine", "vllm")
    assert status == 1
    assert out.startswith("DOES NOT FIT")


def test_a_card_alone_is_taken_in_the_smallest_count_that_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As `plan` does."""
    _, out, _ = run(capsys, "speed", "kimi-k3", "--on", "B300", "--json")
    assert json.loads(out)["rack"]["reading"] == "smallest_count"


def test_an_anchor_file_holds_measured_points(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two points of the user's service."""
    path = tmp_path / "anchor.json"
    points = [
        {"concurrency": c, "input_tokens": 1000, "output_tokens": 1000, "tpot_s": t}
        for c, t in ((1, 0.0252), (4, 0.0269))
    ]
    path.write_text(json.dumps({"points": points}))
    _, out, _ = run(capsys, "speed", *H200, "--tp", "16", "--anchor", str(path), "--json")
    basis = json.loads(out)["basis"]
    assert (basis["evidence"], basis["rows"]) == ("anchored", 2)


LOG = """\
INFO 07-31 10:00:00 [core.py:93] Initializing a V1 LLM engine (v0.11.0) with config: ...
INFO 07-31 10:00:01 [gpu_model_runner.py:2653] Model loading took 128.9 GiB and 300.0 seconds
INFO 07-31 10:00:02 [kv_cache_utils.py:1091] GPU KV cache size: 55,377 tokens
INFO 07-31 10:00:02 [utils.py:1095] Maximum concurrency for 2,000 tokens per request: 27.00x
"""
SPEED_LINE = (
    "INFO 07-31 10:01:00 [loggers.py:127] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
    "Avg generation throughput: 40.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 2.7%, Prefix cache hit rate: 0.0%\n"
)
TP16 = (*H200, "--tp", "16")


def test_an_engines_log_is_an_anchor_where_it_tells_of_decoding(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One sequence at 40 tokens/s: 25 ms. A log that ends with the start tells of no speed."""
    path = tmp_path / "serve.log"
    path.write_text(LOG + 3 * SPEED_LINE)
    _, out, _ = run(capsys, "speed", *TP16, "--anchor", str(path), "--json")
    found = json.loads(out)
    assert found["basis"]["evidence"] == "anchored"
    assert found["tpot_s"]["low"] < 0.025 < found["tpot_s"]["high"]
    path.write_text(LOG)
    status, _, err = run(capsys, "speed", *TP16, "--anchor", str(path))
    assert (status, "PLAN076" in err) == (3, True)


def test_a_receipt_is_an_anchor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As `--anchor`, and as the plan's `--receipt` where it is of this very plan."""
    log, path = tmp_path / "serve.log", tmp_path / "receipt.json"
    log.write_text(LOG + 3 * SPEED_LINE)
    _, out, _ = run(capsys, "plan", "kimi-k3", *H200[1:5], "--tp", "16", "--json")
    plan = msgspec.json.decode(out, type=Plan)
    receipt = receipt_of(read_start(log.read_text().splitlines(), Catalog().engine_logs()), plan)
    assert receipt.speeds[0].tpot_s == 0.025
    path.write_bytes(msgspec.json.encode(receipt))
    _, out, _ = run(capsys, "speed", *TP16, "--anchor", str(path), "--json")
    assert json.loads(out)["basis"]["evidence"] == "anchored"
    _, out, _ = run(capsys, "speed", *TP16, "--receipt", str(path), "--json")
    found = json.loads(out)
    assert found["basis"]["evidence"] == "anchored"
    assert [note["code"] for note in found["notes"]] == ["anchor_receipt"]


def test_what_was_measured_here_is_an_anchor_of_the_same_service_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`bench` keeps its points; a forecast of another layout does not take them."""
    _, out, _ = run(capsys, "plan", "kimi-k3", *H200[1:5], "--tp", "16", "--json")
    plan = msgspec.json.decode(out, type=Plan)
    keep(plan, (AnchorPoint(concurrency=1, input_tokens=9, output_tokens=9, tpot_s=0.025),))
    _, out, _ = run(capsys, "speed", *TP16)
    assert "bench measured here" in out
    _, out, _ = run(capsys, "speed", *H200, "--tp", "8", "--pp", "2", "--json")
    assert json.loads(out)["basis"]["evidence"] == "known"


def test_a_benchmarks_report_is_an_anchor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its valid stages with a fixed number of clients count; open loops and invalid ones do not."""
    path = tmp_path / "report.json"

    def stage(kind: str, *, valid: bool) -> dict[str, object]:
        return {
            "load": {"kind": kind, "requests": 5, "concurrency": 1 if kind == "closed" else None},
            "tpot_s": {"count": 5, "p50": 0.0252, "p99": 0.03},
            "prompt_tokens_mean": 1000.0,
            "output_tokens_mean": 1000.0,
            "cached_share": None,
            "valid": valid,
        }

    stages = [
        stage("closed", valid=True),
        stage("poisson", valid=True),
        stage("closed", valid=False),
    ]
    path.write_text(json.dumps({"schema": 1, "stages": stages}))
    _, out, _ = run(capsys, "speed", *H200, "--tp", "16", "--anchor", str(path), "--json")
    document = json.loads(out)
    assert (document["basis"]["evidence"], document["basis"]["rows"]) == ("anchored", 1)
    assert document["tpot_s"]["low"] < 0.0252 < document["tpot_s"]["high"]


def test_a_receipt_sets_the_room(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Measured memory outside the pool leaves fewer seats than none assumed."""
    _, out, _ = run(capsys, "plan", "kimi-k2.5", "--on", "8xB200", "--context", "9216", "--json")
    plan = json.loads(out)
    path = tmp_path / "receipt.json"
    unknown = next(term for term in plan["terms"] if term["kind"] == "unknown")
    term = {
        "term": unknown["id"],
        "device": "0",
        "bytes": 40 * 2**30,
        "resolution_bytes": 1,
        "line": "measured",
    }
    receipt = {
        "model": "kimi-k2.5",
        "variant": plan["variant"],
        "engine": plan["engine"],
        "engine_version": plan["engine_version"],
        "backend": "cuda",
        "layout": plan["layout"],
        "rack": "8xB200",
        "terms": [term],
    }
    path.write_text(json.dumps(receipt))
    ask = ("speed", "kimi-k2.5", "--on", "8xB200", "--json")
    _, free, _ = run(capsys, *ask)
    _, tied, _ = run(capsys, *ask, "--receipt", str(path))
    most = [json.loads(each)["room_sequences"]["high"] for each in (free, tied)]
    assert 0 < most[1] < most[0]


@pytest.mark.parametrize(
    "content",
    [
        '{"points": []}',
        '{"stages": []}',
        "no json",
        '{"points": [{"concurrency": 1}]}',
        '{"points": [{"concurrency": 1, "input_tokens": 1, "output_tokens": 1, "tpot_s": 0}]}',
    ],
)
def test_a_file_without_points_is_bad_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    """PLAN076, status 3; PLAN043 for what is not JSON and no log either."""
    path = tmp_path / "anchor.json"
    path.write_text(content)
    status, _, err = run(capsys, "speed", *H200, "--anchor", str(path))
    assert status == 3
    assert ("PLAN043" if content == "no json" else "PLAN076") in err


@pytest.mark.parametrize(
    "wrong",
    [
        ("--cached-share", "120%"),
        ("--cached-share", "half"),
        ("--speculation", "dspark"),
        ("--speculation", "dspark:0"),
        ("--speculation", "dspark:4:many"),
        ("--speculation", "dspark:4:9"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], wrong: tuple[str, str]
) -> None:
    """Status 2 and the forms that can be."""
    status, _, err = run(capsys, "speed", *H200, *wrong)
    assert status == 2
    assert wrong[1] in err


def test_an_acceptance_nobody_measured_lists_those_that_were(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """PLAN075."""
    status, _, err = run(capsys, "speed", *B300, "--speculation", "eagle9:3")
    assert status == 3
    assert "dspark:7" in err


def test_two_kinds_of_units_are_sized_together(capsys: pytest.CaptureFixture[str]) -> None:
    """Prefill on H200, decode on B300: each pool keeps its rack."""
    _, out, _ = run(capsys, "pd", *B300, "--prefill-on", "2x8xB300", "--json")
    document = json.loads(out)
    assert document["prefill"]["rack"]["nodes"] == 2
    assert document["decode"]["rack"]["nodes"] == 1


def test_a_split_that_cannot_be_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """One millisecond per token is out of reach."""
    status, out, _ = run(capsys, "pd", *B300, "--tpot", "1ms")
    assert status == 1
    assert out.startswith("NOT POSSIBLE")


def test_the_decision_asks_the_question_and_shows_where_prices_are_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kind, source and day beside every price; assumptions to see and to change."""
    status, out, _ = run(capsys, "decide", *B300, "--tokens-per-day", "20M", "--date", "2026-11-30")
    assert status == 0
    assert "Do you need to own 1.56 TB of weights (Kimi-K3), or a replaceable API?" in out
    assert "(reported, genai-prices-0.2.3, 2026-11-30)" in " ".join(out.split())
    assert "pue 1.3 (1.15 – 1.6, assumed)" in " ".join(out.split())
    assert "The input that turns it first" in out


def test_an_unknown_rent_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """MI355X: no public rent, none invented."""
    status, _, err = run(capsys, "decide", "kimi-k3", "--on", "8xMI355X", "--tpot", "200ms")
    assert status == 3
    assert "--rent" in err


def test_prices_come_from_the_users_file_and_options_win(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """[api], [rent], [buy] and [assumptions]."""
    path = tmp_path / "prices.toml"
    path.write_text(
        "[api]\ninput_usd = 1.0\noutput_usd = 4.0\n[rent]\nusd_per_gpu_hour = 9.0\n"
        "[buy]\nusd_per_machine = 400000\nkw_per_machine = 12\n[assumptions]\npue = 1.1\n"
    )
    _, out, _ = run(
        capsys,
        "decide",
        *B300,
        "--prices",
        str(path),
        "--rent",
        "2",
        "--set",
        "staff_fte=0",
        "--json",
    )
    document = json.loads(out)
    assert document["price"]["provider"] == "stated"
    rented, bought = document["options"]
    assert rented["usd_per_hour"] == {"low": 16.0, "high": 16.0}
    assert rented["staff_usd_per_hour"] == 0
    assert bought["parts"][1]["formula"].startswith("12 kW × 0.75 × PUE 1.1")


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (("--set", "peu=1"), 3, "PLAN082"),
        (("--set", "pue=much"), 2, "NAME=VALUE"),
        (("--tokens-per-day", "many"), 2, "20M"),
        (("--tpot", "fast"), 2, "25ms"),
        (("--tpot", "1ms"), 3, "PLAN084"),
        (("--api", "nobody"), 3, "PLAN081"),
        (("--rent", "nan"), 2, "--rent"),
        (("--rent", "inf"), 2, "--rent"),
        (("--buy", "-1"), 2, "x>0"),
        (("--set", "pue=nan"), 3, "from 1.15 to 1.6"),
        (("--set", "pue=-5"), 3, "PLAN088"),
        (("--set", "usd_per_kwh=inf"), 3, "from 0.06 to 0.2"),
        (("--set", "peak_factor=0"), 3, "PLAN088"),
    ],
)
def test_wrong_input_to_a_decision_is_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], status: int, word: str
) -> None:
    """Usage with status 2, bad input with status 3."""
    found, _, err = run(capsys, "decide", *B300, *arguments)
    assert found == status
    assert word in err


def test_a_file_that_is_no_file_of_prices_is_bad_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A misspelt table is not passed over."""
    path = tmp_path / "prices.toml"
    path.write_text("[apy]\ninput_usd = 1.0\n")
    status, _, err = run(capsys, "decide", *B300, "--prices", str(path))
    assert status == 3
    assert "PLAN085" in err


def test_without_the_package_fresh_prices_say_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENV071, status 4, and the command that installs the extra."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    status, _, err = run(capsys, "decide", *B300, "--fresh-prices")
    assert status == 4
    assert 'pip install "heavylift[prices]"' in err


class PricesPackage(ModuleType):
    """The part of the genai-prices interface that is used, with one offer in it."""

    Usage = SimpleNamespace

    def calc_price(self, _usage: object, **asked: object) -> SimpleNamespace:
        """The price of the one offer; LookupError for any other, as the package has it."""
        if (asked["provider_id"], asked["model_ref"]) != ("moonshotai", "kimi-k3"):
            raise LookupError(asked["model_ref"])
        tiered = SimpleNamespace(base=Decimal("2.5"), tiers=[])
        return SimpleNamespace(
            model_price=SimpleNamespace(
                input_mtok=tiered, cache_read_mtok=None, output_mtok=Decimal(12)
            )
        )


@pytest.fixture
def prices_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as if installed."""
    monkeypatch.setitem(sys.modules, "genai_prices", PricesPackage("genai_prices"))
    monkeypatch.setattr("heavylift.cli.fresh_prices.metadata.version", lambda _name: "9.9")


@pytest.mark.usefixtures("prices_package")
def test_fresh_prices_replace_the_facts(capsys: pytest.CaptureFixture[str]) -> None:
    """The package's price, its version as the source; a tiered one by its first tier."""
    _, out, _ = run(capsys, "decide", *B300, "--fresh-prices", "--json")
    price = json.loads(out)["price"]
    assert (price["input_usd"], price["cached_input_usd"], price["output_usd"]) == (2.5, 2.5, 12)
    assert price["source"] == "genai-prices 9.9"


@pytest.mark.usefixtures("prices_package")
def test_an_offer_the_package_lacks_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """PLAN086, and no fall back to an older price."""
    status, _, err = run(capsys, "decide", *B300, "--fresh-prices", "--api", "nebius")
    assert status == 3
    assert "nebius" in err


def test_a_stated_price_file_may_set_only_some_prices(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A file with assumptions alone leaves public prices as they are."""
    path = tmp_path / "prices.toml"
    path.write_text("[assumptions]\nstaff_fte = 0\n")
    _, out, _ = run(capsys, "decide", *B300, "--prices", str(path), "--buy", "500000", "--json")
    document = json.loads(out)
    assert document["price"]["provider"] == "moonshotai"
    bought = next(option for option in document["options"] if option["tenure"] == "bought")
    assert bought["parts"][0]["source"] == "stated"


def test_no_layout_is_named_when_none_holds_the_batch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A hundred thousand clients: the plan is where to look."""
    ask = ("speed", "kimi-k2.5", "--on", "8xB200", "--concurrency", "100000")
    status, out, _ = run(capsys, *ask)
    assert status == 1
    assert out.splitlines()[-1].startswith("next: heavylift plan kimi-k2.5 --on 8xB200")


@pytest.mark.parametrize("anchor", ["-5ms", "nanms", "nowhere.json"])
def test_an_anchor_that_is_no_time_and_no_file_is_refused(
    capsys: pytest.CaptureFixture[str], anchor: str
) -> None:
    """Both forms are shown."""
    status, _, err = run(capsys, "speed", *H200, f"--anchor={anchor}")
    assert status == 2
    assert "neither a time nor a file" in " ".join(err.split())


@pytest.mark.parametrize("amount", ["nan", "inf", "-1.0"])
def test_a_file_of_prices_holds_amounts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, amount: str
) -> None:
    """What is no amount on the command line is none in a file."""
    path = tmp_path / "prices.toml"
    path.write_text(f"[rent]\nusd_per_gpu_hour = {amount}\n")
    status, _, err = run(capsys, "decide", *B300, "--prices", str(path))
    assert status == 3
    assert "PLAN085" in err


def test_a_price_dated_later_than_the_day_asked_for_is_no_price_of_that_day(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The one known is shown with a remark; a price that had begun needs none."""
    _, _, err = run(capsys, "decide", *B300, "--date", "1990-01-01")
    assert "later than 1990-01-01: what it was then is not known" in err
    assert run(capsys, "decide", *B300, "--date", "2026-11-30")[2] == ""
