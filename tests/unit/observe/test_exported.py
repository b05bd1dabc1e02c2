"""The exporter's figures, and the dashboard and alerts over them."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import jsonschema
import pytest
import yaml

from heavylift.cli.text import text
from heavylift.errors import HeavyliftError
from heavylift.observe import alerts, dashboard, exported
from heavylift.observe.exporter import Exporter
from heavylift.records.finding import Finding, Severity
from heavylift.records.watch import (
    Disk,
    EngineNow,
    GpuNow,
    HostNow,
    Quantiles,
    Sight,
    TermNow,
    WatchReport,
)

REPORT = WatchReport(
    at="2026-11-30T13:00:00+00:00",
    at_s=1_796_043_600.0,
    name="k3",
    url="http://127.0.0.1:8000",
    title="Kimi-K3 · ATOM",
    sight=Sight.SEEN,
    gpus=(
        GpuNow(
            gpu=0,
            host="rack-7",
            name='a "card"',
            source="amd-smi",
            memory_used_bytes=2 * 2**30,
            memory_total_bytes=4 * 2**30,
            drift_bytes=0,
        ),
    ),
    engine=EngineNow(
        sight=Sight.SEEN,
        running=2.0,
        waiting=0.0,
        preemptions=3.0,
        generation_tokens=640.0,
        ttft=Quantiles(p50_s=0.4, p99_s=1.9, basis="window", count=7),
        tpot=Quantiles(p50_s=0.02, p99_s=0.04, basis="since_start", count=7),
    ),
    host=HostNow(name="rack-7", disks=(Disk(path="/", total_bytes=10, free_bytes=5),)),
    phase="ready",
    alive="suspect",
    restarts=1,
    findings=(Finding(id="x", code="observe.swap", severity=Severity.WARN, subject="rack-7"),),
    terms=(TermNow(term="pool", planned_low_bytes=1, observed_bytes=2),),
)

# What Prometheus takes as a rule file. Source: its documentation, "Defining alerting rules".
RULE_FILE = {
    "type": "object",
    "required": ["groups"],
    "additionalProperties": False,
    "properties": {
        "groups": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "rules"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string"},
                    "rules": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["alert", "expr"],
                            "additionalProperties": False,
                            "properties": {
                                "alert": {"type": "string", "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"},
                                "expr": {"type": "string", "minLength": 1},
                                "for": {"type": "string", "pattern": "^[0-9]+(ms|[smhdwy])$"},
                                "labels": {"additionalProperties": {"type": "string"}},
                                "annotations": {"additionalProperties": {"type": "string"}},
                            },
                        },
                    },
                },
            },
        }
    },
}

NAME = re.compile(r"heavylift_[a-z0-9_]+")


def test_what_is_not_known_is_not_exported() -> None:
    """No zero in its place; quantiles since the start are no figure of now."""
    values = {(name, labels): value for name, labels, value in exported.values([REPORT])}
    gpu = ("k3", "rack-7", "0", 'a "card"')
    assert values["gpu_memory_used_bytes", gpu] == 2 * 2**30
    assert ("gpu_power_watts", gpu) not in values
    assert values["engine_ttft_seconds", ("k3", "0.99")] == 1.9
    assert ("engine_tpot_seconds", ("k3", "0.99")) not in values
    assert values["deployment_alive", ("k3",)] == 1.0
    assert values["memory_term_observed_bytes", ("k3", "pool")] == 2
    assert ("memory_term_planned_bytes", ("k3", "pool", "high")) not in values
    assert values["finding", ("k3", "observe.swap", "rack-7")] == 1.0
    assert exported.values([]) == ()


def test_every_value_has_its_family_and_its_labels() -> None:
    """As many labels as the family names; every family has words."""
    families = {family.name: family for family in exported.FAMILIES}
    for name, labels, _ in exported.values([REPORT]):
        assert len(labels) == len(families[name].labels)
    for name in families:
        assert text(f"metric.{name}")


def test_dashboard_and_alerts_ask_only_for_what_is_exported() -> None:
    """A query for a name nobody offers would draw nothing, and never fire."""
    queries = [query for panel in dashboard.PANELS for query, _ in panel.queries]
    queries += [rule.expression for rule in alerts.RULES]
    asked = {name for query in queries for name in NAME.findall(query)}
    assert asked
    assert asked <= exported.names()


def test_alerts_ask_for_findings_that_there_are() -> None:
    """By codes that have words."""
    for rule in alerts.RULES:
        for code in re.findall(r'code="([^"]+)"', rule.expression):
            assert text(code, **dict.fromkeys(_fields(code), "x"))


def _fields(key: str) -> set[str]:
    from heavylift.locale.catalogue import template  # noqa: PLC0415 - one use

    return set(re.findall(r"\{(\w+)", template(key)))


def test_the_rule_file_is_one(tmp_path: Path) -> None:
    """By the documented form, and by Prometheus's own tool where that is installed."""
    document = alerts.document(text)
    jsonschema.validate(document, RULE_FILE)
    path = tmp_path / "alerts.yml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    promtool = shutil.which("promtool")
    if promtool is not None:
        subprocess.run([promtool, "check", "rules", str(path)], check=True, capture_output=True)
    names = [rule["alert"] for rule in document["groups"][0]["rules"]]
    assert len(names) == len(set(names))


def test_the_dashboard_is_ordered_as_the_boards_people_know() -> None:
    """Panels do not overlap; what vLLM's board lacks comes after what it has."""
    document = dashboard.document(text)
    order = [panel.key for panel in dashboard.PANELS]
    assert order[:6] == ["e2e", "throughput", "tpot", "scheduler", "ttft", "cache"]
    assert order[6:8] == ["prompt_length", "output_length"]
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in document["panels"]]
    assert len(places) == len(set(places))
    assert len({each["id"] for each in document["panels"]}) == len(places)
    for panel in document["panels"]:
        assert panel["title"] != panel["description"] != ""
        assert all(target["expr"] for target in panel["targets"])
    names = {each["name"] for each in document["templating"]["list"]}
    assert names == {"datasource", "deployment"}


def test_a_scrape_shows_the_last_look() -> None:
    """In the text format, on the loopback; counters end in `_total`."""
    looks = []

    def look() -> list[WatchReport]:
        looks.append(REPORT)
        return [REPORT]

    with Exporter(look, port=0, say=text, period_s=60) as exporter:
        page = ""

        def scrape(_reports: object) -> None:
            nonlocal page
            with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics") as reply:
                page = reply.read().decode()
            exporter.stop()

        exporter.run(scrape)
    assert len(looks) == 1
    assert 'heavylift_engine_generation_tokens_total{deployment="k3"} 640.0' in page
    assert "# HELP heavylift_gpu_use_ratio" not in page
    assert 'model="a \\"card\\""' in page
    assert "# TYPE heavylift_gpu_memory_used_bytes gauge" in page


def test_a_taken_port_is_an_error_of_this_machine() -> None:
    """With its number."""
    with (
        Exporter(list, port=0, say=text, period_s=1) as exporter,
        pytest.raises(HeavyliftError, match="ENV062"),
        Exporter(list, port=exporter.port, say=text, period_s=1),
    ):
        pass


STALLED = "HeavyliftEngineStalled"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus's tool is not here")
@pytest.mark.parametrize(
    ("series", "fires"),
    [
        # Work queued, nothing moves.
        ({"engine_requests_running": "2+0x30", "engine_generation_tokens_total": "7+0x30"}, True),
        # A long prompt is read: the cache fills, no token comes.
        (
            {
                "engine_requests_running": "1+0x30",
                "engine_generation_tokens_total": "7+0x30",
                "engine_kv_use_ratio": "0+0.01x30",
            },
            False,
        ),
        # Tokens are counted at the end of a request only; steps are not.
        (
            {
                "engine_requests_running": "1+0x30",
                "engine_generation_tokens_total": "7+0x30",
                "engine_steps_total": "0+50x30",
            },
            False,
        ),
        # An engine that counts nothing is not judged, nor one without work.
        ({"engine_requests_running": "1+0x30"}, False),
        ({"engine_requests_running": "0+0x30", "engine_generation_tokens_total": "7+0x30"}, False),
    ],
)
def test_a_stalled_engine_is_one_whose_figures_stand_still(
    tmp_path: Path, series: dict[str, str], fires: bool
) -> None:
    """Played to Prometheus's own evaluation, a value a minute."""
    rules = tmp_path / "alerts.yml"
    rules.write_text(yaml.safe_dump(alerts.document(text), sort_keys=False))
    inputs = {"engine_requests_waiting": "0+0x30", "gpus_seen": "8+0x30"} | series
    rule = next(
        each for each in alerts.document(text)["groups"][0]["rules"] if each["alert"] == STALLED
    )
    alert = {
        "exp_labels": {"deployment": "k3", **rule["labels"]},
        "exp_annotations": rule["annotations"],
    }
    test = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": f'heavylift_{name}{{deployment="k3"}}', "values": values}
                    for name, values in inputs.items()
                ],
                "alert_rule_test": [
                    {
                        "eval_time": "20m",
                        "alertname": STALLED,
                        "exp_alerts": [alert] if fires else [],
                    }
                ],
            }
        ],
    }
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump(test, sort_keys=False))
    ran = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
