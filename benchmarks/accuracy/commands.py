"""A measured start of a public collection as a command line, field by field and without a case of
its own: what somebody types who has the record before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_SIZES: Final = (("tp", "--tp"), ("pp", "--pp"), ("dp", "--dp"), ("ep", "--ep"))
_TEXT_ONLY: Final = "--language-model-only"
ANY_CARD: Final = "H200"


def argv_of(record: Mapping[str, Any]) -> list[str]:
    """The arguments of `heavylift` for a record. A card that is not stated is any: what a rank
    holds does not depend on it.
    """
    extra = record.get("extra") or {}
    return [
        "plan",
        str(record["model"] or record.get("model_hint") or "?"),
        "--on",
        f"{record.get('gpu_count') or record.get('tp') or 1}x{record.get('gpu') or ANY_CARD}",
        *_engine(record),
        *_settings(record, extra),
        "--json",
    ]


def _engine(record: Mapping[str, Any]) -> Iterator[str]:
    yield from ("--engine", re.split(r"\+", str(record["engine"]))[0])
    if record.get("engine_version"):
        yield from ("--engine-version", str(record["engine_version"]))


def _settings(record: Mapping[str, Any], extra: Mapping[str, Any]) -> Iterator[str]:
    for name, flag in _SIZES:
        # An expert size of one spreads nothing.
        if record.get(name) and (name, record[name]) != ("ep", 1):
            yield from (flag, str(record[name]))
    for value, flag in (
        (record.get("max_model_len"), "--context"),
        (record.get("kv_dtype"), "--kv-dtype"),
        (record.get("gpu_memory_utilization"), "--gpu-memory-utilization"),
        (extra.get("dcp"), "--dcp"),
        (_whole(extra.get("max_num_batched_tokens")), "--max-batched-tokens"),
        (_whole(extra.get("max_num_seqs")), "--max-num-seqs"),
        (_drafted(str(extra.get("spec") or "")), "--mtp"),
        (_drafter(str(extra.get("spec") or "")), "--drafter"),
    ):
        if value:
            yield from (flag, str(value))
    if _TEXT_ONLY in str(extra.get("flags") or ""):
        yield "--text-only"


def _whole(value: Any) -> int | None:
    """A count, also one that a source writes as a bound (`>64000`)."""
    found = re.search(r"[0-9]+", str(value))
    return None if found is None else int(found[0])


def _drafter(spec: str) -> str | None:
    """Another model that drafts, as a source calls it. Which one EAGLE is, is not said by its name:
    a model's own heads are loaded as that too.
    """
    return spec.split(maxsplit=1)[0] if spec and not re.search("MTP|EAGLE", spec) else None


def _drafted(spec: str) -> int:
    """Tokens that the model's own heads draft."""
    found = re.search(r"MTP\s*([0-9]*)", spec)
    return 0 if found is None else int(found[1] or 1)
