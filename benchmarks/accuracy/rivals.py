"""Other planners' recorded answers beside ours. Nothing of theirs is run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from heavylift.planning import Planning
from heavylift.records.plan import Plan, PlanRequest
from heavylift.units import GIB

HERE: Final = Path(__file__).parent
K3_ANSWERS: Final = HERE.parent / "rivals_plan.toml"


def rival_lines(planning: Planning) -> Iterator[str]:
    """Two tables in Markdown: Kimi K3 by each tool, and figures that users reported as wrong."""
    yield "## Other planners on Kimi K3 (recorded), tensor parallelism 8"
    yield ""
    yield "| tool | weights, GiB a GPU | KV of 1M tokens, GiB | racks |"
    yield "|---|---|---|---|"
    book = tomllib.loads(K3_ANSWERS.read_text())
    truth = book["truth"]
    known = (str(truth["weights_gib"]), str(truth["kv_gib"]), _racks(truth["racks"]))
    yield f"| measured or exact | {' | '.join(known)} |"
    yield f"| ours | {' | '.join(_ours_on_k3(planning, truth['racks']))} |"
    for each in book["rivals"]:
        cells = (
            f"{each['name']} {each.get('version', '')}",
            str(each.get("weights_gib", "–")),
            str(each.get("kv_gib", "–")),
            _racks(each.get("racks", {})) or "–",
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "## Answers that users reported as wrong, and ours"
    yield ""
    yield "| tool | model | figure | its answer | measured or counted | ours |"
    yield "|---|---|---|---|---|---|"
    for entry in tomllib.loads((HERE / "rivals.toml").read_text())["answers"]:
        low, high = entry["measured"]
        said = f"{low:,}" if low == high else f"{low:,} – {high:,}"
        row = (entry["tool"], entry["model"], entry["figure"], _said(entry["answer"]), said)
        yield f"| {' | '.join(row)} | {ours(entry, planning)} |"


def _said(answer: float | str) -> str:
    return answer if isinstance(answer, str) else f"{answer:,}"


def _racks(racks: Mapping[str, str]) -> str:
    return ", ".join(f"{rack} {verdict}" for rack, verdict in racks.items())


def _ours_on_k3(planning: Planning, racks: Mapping[str, str]) -> tuple[str, str, str]:
    knowledge = planning.knowledge("kimi-k3")
    plans = {}
    for text in racks:
        _, rack = planning.rack(text)
        if rack is None:
            raise TypeError(text)
        request = PlanRequest(
            model="kimi-k3", rack=rack, context_tokens=1_048_576, concurrency=1, vision=False
        )
        plans[text] = planning.plan(request, knowledge, with_fixes=False)
    first = next(iter(plans.values()))
    verdicts = {
        text: "no" if plan.capacity_verdict == "does_not_fit" else "fits"
        for text, plan in plans.items()
    }
    kv = first.kv_bytes_per_token * 1_048_576 / GIB
    return (
        f"{first.per_gpu.weights_bytes.low / GIB:.3f}",
        f"{kv:.1f} {first.kv_cache_dtype}",
        _racks(verdicts),
    )


def ours(entry: Mapping[str, Any], planning: Planning) -> str:
    """Our figure for a recorded answer."""
    plan = _plan(entry, planning)
    match entry["figure"]:
        case "weights_gib":
            return f"{plan.checkpoint_bytes / GIB:.1f}"
        case "kv_gib":
            return f"{plan.per_gpu.kv_cache_bytes.low / GIB:.2f}"
        case "kv_tokens":
            return f"at most {plan.capacity.kv_tokens.high or 0:,}"
    raise ValueError(entry["figure"])


def _plan(entry: Mapping[str, Any], planning: Planning) -> Plan:
    knowledge = planning.knowledge(entry["model"])
    _, rack = planning.rack(entry.get("on", "8xH200" if "deepseek" in entry["model"] else "1xH200"))
    if rack is None:
        raise TypeError(entry)
    request = PlanRequest(
        model=entry["model"],
        rack=rack,
        engine=entry.get("engine"),
        context_tokens=entry.get("context"),
        concurrency=1,
        kv_cache_dtype=entry.get("kv_dtype"),
        layout_constraints={"tensor": rack.gpu_count},
    )
    return planning.plan(request, knowledge, with_fixes=False)
