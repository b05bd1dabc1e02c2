"""A Grafana dashboard over what the exporter offers. Pure: words are made by the caller.

Ordered as the board of vLLM is (latency, throughput, scheduler, time to first token, cache,
lengths), then what that lacks: planned against observed per GPU, preemptions, findings, the host.
Source: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from heavylift.observe.alerts import Say

_SCHEMA: Final = 39
"""Grafana 10 and later read it."""
_WIDTH: Final = 12
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """A panel: catalogue key, unit as Grafana names it, queries with their legends."""

    key: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    most: float | None = None


def _q(name: str, more: str = "") -> str:
    return f'heavylift_{name}{{deployment=~"$deployment"{more}}}'


_QUANTILES: Final = "p{{quantile}} {{deployment}}"
_GPU: Final = "{{host}} gpu {{gpu}}"

PANELS: Final[tuple[Panel, ...]] = (
    Panel(key="e2e", unit="s", queries=((_q("engine_e2e_seconds"), _QUANTILES),)),
    Panel(
        key="throughput",
        unit="short",
        queries=(
            (
                f"rate({_q('engine_prompt_tokens_total')}[$__rate_interval])",
                "prompt {{deployment}}",
            ),
            (
                f"rate({_q('engine_generation_tokens_total')}[$__rate_interval])",
                "output {{deployment}}",
            ),
        ),
    ),
    Panel(key="tpot", unit="s", queries=((_q("engine_tpot_seconds"), _QUANTILES),)),
    Panel(
        key="scheduler",
        unit="short",
        queries=(
            (_q("engine_requests_running"), "running {{deployment}}"),
            (_q("engine_requests_waiting"), "waiting {{deployment}}"),
        ),
    ),
    Panel(key="ttft", unit="s", queries=((_q("engine_ttft_seconds"), _QUANTILES),)),
    Panel(
        key="cache",
        unit="percentunit",
        queries=(
            (_q("engine_kv_use_ratio"), "KV {{deployment}}"),
            (_q("engine_prefix_hit_ratio"), "prefix hits {{deployment}}"),
        ),
        most=1.0,
    ),
    Panel(
        key="prompt_length",
        unit="short",
        queries=((f"sum by (tokens) ({_q('engine_prompt_length_requests')})", "{{tokens}}"),),
        kind="heatmap",
    ),
    Panel(
        key="output_length",
        unit="short",
        queries=((f"sum by (tokens) ({_q('engine_output_length_requests')})", "{{tokens}}"),),
        kind="heatmap",
    ),
    Panel(
        key="preemptions",
        unit="short",
        queries=((f"increase({_q('engine_preemptions_total')}[5m])", "{{deployment}}"),),
    ),
    Panel(
        key="memory",
        unit="bytes",
        queries=(
            (_q("gpu_memory_used_bytes"), _GPU),
            (f"max({_q('gpu_memory_planned_low_bytes')})", "planned, at least"),
            (f"max({_q('gpu_memory_planned_high_bytes')})", "planned, at most"),
            (f"max({_q('gpu_memory_total_bytes')})", "total"),
        ),
    ),
    Panel(key="drift", unit="bytes", queries=((_q("gpu_memory_drift_bytes"), _GPU),)),
    Panel(
        key="terms",
        unit="bytes",
        queries=(
            (_q("memory_term_observed_bytes"), "{{term}} observed"),
            (_q("memory_term_planned_bytes", ', bound="low"'), "{{term}} planned, at least"),
            (_q("memory_term_planned_bytes", ', bound="high"'), "{{term}} planned, at most"),
        ),
        kind="bargauge",
    ),
    Panel(
        key="use",
        unit="percentunit",
        queries=((_q("gpu_use_ratio"), _GPU),),
        most=1.0,
    ),
    Panel(key="power", unit="watt", queries=((_q("gpu_power_watts"), _GPU),)),
    Panel(key="temperature", unit="celsius", queries=((_q("gpu_temperature_celsius"), _GPU),)),
    Panel(
        key="findings",
        unit="short",
        queries=((_q("finding"), "{{code}} {{subject}}"),),
        kind="table",
    ),
    Panel(
        key="deployments",
        unit="short",
        queries=(
            (_q("deployment_ready"), "ready {{deployment}}"),
            (_q("deployment_alive"), "alive {{deployment}}"),
            (_q("deployment_restarts"), "restarts {{deployment}}"),
        ),
        kind="stat",
    ),
    Panel(
        key="host",
        unit="bytes",
        queries=(
            ("heavylift_host_memory_available_bytes", "available {{host}}"),
            ("heavylift_host_swap_used_bytes", "swap {{host}}"),
            ("heavylift_host_gtt_used_bytes", "GTT {{host}}"),
        ),
    ),
    Panel(
        key="disk",
        unit="bytes",
        queries=(("heavylift_host_disk_free_bytes", "{{host}} {{path}}"),),
    ),
)


def document(say: Say) -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "title": say("board.title"),
        "uid": "heavylift",
        "tags": ["heavylift"],
        "editable": True,
        "schemaVersion": _SCHEMA,
        "version": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables(say))},
        "annotations": {"list": []},
        "panels": [_panel(number, panel, say) for number, panel in enumerate(PANELS)],
    }


def _variables(say: Say) -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": say("board.datasource"),
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    query = "label_values(heavylift_gpus_seen, deployment)"
    yield {
        "name": "deployment",
        "label": say("board.deployment"),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "deployments"},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel, say: Say) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": None if panel.key == "drift" else 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    is_table = panel.kind == "table"
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": say(f"board.{panel.key}.title"),
        "description": say(f"board.{panel.key}.description"),
        "datasource": _SOURCE,
        "gridPos": {
            "h": _HEIGHT,
            "w": _WIDTH,
            "x": number % 2 * _WIDTH,
            "y": number // 2 * _HEIGHT,
        },
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"calculate": False} if panel.kind == "heatmap" else {},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
                **({"format": "table", "instant": True} if is_table else {}),
            }
            for place, (expression, legend) in enumerate(panel.queries)
        ],
    }
