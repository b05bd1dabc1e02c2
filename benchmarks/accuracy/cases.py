"""Measured starts as the benchmark plans them, and how public collections of them are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

_ENGINES: Final = (
    ("sglang", "sglang"),
    ("tensorrt", "tensorrt-llm"),
    ("trt", "tensorrt-llm"),
    ("llama.cpp", "llamacpp"),
    ("ollama", "ollama"),
    ("atom", "atom"),
    ("vllm", "vllm"),
)
_LAYOUT: Final = {"tensor": "tp", "pipeline": "pp", "data": "dp", "expert": "ep"}
GGUF_ENGINES: Final = frozenset({"llamacpp", "ollama"})
# What a source measured, by our name and unit (GiB on one GPU, unless `total`).
_MEASURED: Final = {
    "weights_gib": "weights_gib_per_gpu",
    "kv_gib": "kv_gib_per_gpu",
    "kv_gib_total": "kv_gib_total",
    "kv_tokens": "kv_tokens",
    "sequences": "max_concurrency",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One start that somebody logged, and what it needs to be planned.

    `plan_as` is the name that is planned; `measured` as in `_MEASURED`; `missing` names, by term
    (`weights`, `kv`, `fit`, or `all`), the fact without which it cannot be planned.
    """

    id: str
    model: str
    plan_as: str
    engine: str | None = None
    engine_version: str | None = None
    card: str | None = None
    cards: int | None = None
    layout: Mapping[str, int] = field(default_factory=dict)
    kv_dtype: str | None = None
    context: int | None = None
    fraction: float | None = None
    draft_tokens: int = 0
    drafter: str | None = None
    batched_tokens: int | None = None
    max_num_seqs: int | None = None
    text_only: bool = False
    slots: int = 1
    measured: Mapping[str, float] = field(default_factory=dict)
    outcome: str = "ok"
    evidence: str = "log"
    source: str = ""
    as_of: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    remark: str | None = None

    def lacks(self, term: str) -> str | None:
        """The missing fact for a term, or None."""
        return self.missing.get(term) or self.missing.get("all")


def read_cases(path: Path) -> list[Case]:
    """Cases of a file, in our form or as public collections write them."""
    return [_case(json.loads(line)) for line in path.read_text().splitlines() if line.strip()]


def write_cases(cases: list[Case], path: Path) -> None:
    """Cases in our form, a line each, without what is not stated."""
    lines = [json.dumps(dict(_stated(case)), ensure_ascii=False) for case in cases]
    path.write_text("\n".join(lines) + "\n")


def _stated(case: Case) -> Iterator[tuple[str, Any]]:
    for name, value in asdict(case).items():
        if value not in (None, {}, 0, False, "") and (name, value) != ("slots", 1):
            yield name, value


def _case(record: dict[str, Any]) -> Case:
    return Case(**record) if "plan_as" in record else _public(record)


def _public(record: Mapping[str, Any]) -> Case:
    """A case of a public collection: names, counts and dtypes in the words of its source."""
    name = record["model"] or record.get("model_hint") or "?"
    engine = _engine(record["engine"])
    extra = record.get("extra") or {}
    layout = {ours: record[theirs] for ours, theirs in _LAYOUT.items() if record.get(theirs)}
    if extra.get("dcp"):
        layout["decode_context"] = extra["dcp"]
    if record.get("ep") == 1:
        del layout["expert"]
    said = record["measured"]
    measured = {ours: said[theirs] for ours, theirs in _MEASURED.items() if said.get(theirs)}
    flags = str(extra.get("flags") or "")
    return Case(
        id=record["id"],
        model=name,
        plan_as=_plan_as(name, record.get("quant"), engine),
        engine=engine,
        engine_version=record.get("engine_version"),
        card=record.get("gpu"),
        cards=record.get("gpu_count"),
        layout=layout,
        kv_dtype=_kv_dtype(record.get("kv_dtype")),
        context=record.get("max_model_len"),
        fraction=record.get("gpu_memory_utilization"),
        draft_tokens=_drafted(str(extra.get("spec") or "")),
        drafter=_drafter(str(extra.get("spec") or "")),
        batched_tokens=_whole(extra.get("max_num_batched_tokens")),
        max_num_seqs=_whole(extra.get("max_num_seqs")),
        text_only="--language-model-only" in flags or engine in GGUF_ENGINES,
        measured=measured,
        outcome=record["outcome"],
        evidence=record["evidence"],
        source=record["source"],
        as_of=record.get("date"),
    )


def _plan_as(name: str, quant: str | None, engine: str | None) -> str:
    """The name to plan: with the form where only a column of its own says it."""
    said = (quant or "").lower()
    if engine in GGUF_ENGINES:
        return name
    for word in ("awq", "nvfp4", "autoround", "gptq", "bitsandbytes"):
        if word in said and "native" not in said and not _names_a_form(name):
            return f"{name}-{word}"
    return name


def _names_a_form(name: str) -> bool:
    return re.search(r"awq|fp4|gptq|bnb|int4|autoround|fp8", name.lower()) is not None


def _engine(text: str) -> str | None:
    low = text.lower()
    return next((ours for begin, ours in _ENGINES if low.startswith(begin)), None)


def _kv_dtype(text: str | None) -> str | None:
    if text is None:
        return None
    word = text.split()[0]
    return {"fp16": "bf16", "f16": "f16"}.get(word, word)


def _drafter(spec: str) -> str | None:
    """Another model that drafts, as the source calls it; none for a model's own heads."""
    return spec.split(maxsplit=1)[0] if spec and not _drafted(spec) else None


def _drafted(spec: str) -> int:
    found = re.search(r"MTP\s*(\d*)", spec)
    if found is not None:
        return int(found[1] or 1)
    return 1 if "EAGLE" in spec else 0


def _whole(value: Any) -> int | None:
    """A count, also one that a source writes as a bound (`>64000`)."""
    if isinstance(value, str):
        found = re.search(r"[0-9]+", value)
        return None if found is None else int(found[0])
    return value if isinstance(value, int) else None
