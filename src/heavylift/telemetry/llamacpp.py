"""llama.cpp's log: what its memory lines say, as measured terms of a receipt.

llama.cpp goes through its set-up twice: a fit pass that allocates nothing, then the real one. Both
print the same lines, so what counts is the last pass; `parse_fit` is for a log that holds the fit
pass only. Sizes are printed in MiB with two decimals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.records.plan import Layout, Plan
from heavylift.records.receipt import MeasuredTerm, Receipt
from heavylift.units import MIB

HOST: Final = "host"

_MIB: Final = r"\s*([0-9]+\.[0-9]+) MiB"
# A pass begins where the tensors are placed.
_FIRST_LINE: Final = "load_tensors: loading model tensors"
_CONTEXT_START: Final = "constructing llama_context"
_BUFFER: Final = re.compile(rf"(\S+) +(model|KV|RS|compute|output) buffer size ={_MIB}")
_SETTING: Final = re.compile(
    r"llama_context: (n_seq_max|n_ctx|n_ctx_seq|n_batch|n_ubatch) += +([0-9]+)"
)
_KV: Final = re.compile(
    rf"llama_kv_cache: size ={_MIB} \( *([0-9]+) cells, +([0-9]+) layers, .*"
    rf"K \((\w+)\):{_MIB}, V \((\w+)\):{_MIB}"
)
# Sequences and the streams that hold them: each stream has all the cells.
_SEQUENCES: Final = re.compile(r"layers, +([0-9]+)/([0-9]+) seqs\)")
_RECURRENT: Final = re.compile(
    rf"llama_memory_recurrent: size ={_MIB} \( *([0-9]+) cells, .*"
    rf"R \((\w+)\):{_MIB}, S \((\w+)\):{_MIB}"
)
_PROJECTED: Final = re.compile(r"projected to use ([0-9]+) MiB of (\w+) memory")
_TABLE_ROW: Final = re.compile(
    r"\|   - (\S+) .*\| +(?:[0-9]+ = [0-9]+ \+ \()?([0-9]+) += +([0-9]+) \+ +([0-9]+) \+ +([0-9]+)"
)

_TERM_OF_BUFFER: Final = {
    "model": "weights",
    "KV": "kv_cache",
    "compute": "workspace.compute_buffer",
    "output": "workspace.output_buffer",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Printed:
    """A size as printed: `bytes` is the nearest whole number, `line` the whole log line."""

    bytes: int
    resolution_bytes: int
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KvCache:
    """The attention cache: all layers and slots. `cells` is tokens per slot."""

    size: Printed
    k: Printed
    v: Printed
    k_dtype: str
    v_dtype: str
    cells: int
    layers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentState:
    """State of recurrent layers: R holds the convolutions' inputs, S the matrices.

    `cells` is the number of sequences it is made for.
    """

    size: Printed
    r: Printed
    s: Printed
    r_dtype: str
    s_dtype: str
    cells: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LlamaMemory:
    """What one pass printed. `buffers` maps (buffer, device) to its lines, summed.

    Devices are those of the GPU runtime (`CUDA0`) or `host`. A setting is None where a log told
    the memory and not the settings, and the memory does not tell it either.
    """

    buffers: Mapping[tuple[str, str], Printed]
    kv: KvCache | None
    recurrent: RecurrentState | None
    slots: int | None
    context_tokens: int | None
    slot_tokens: int | None
    batch_tokens: int | None
    ubatch_tokens: int | None

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices named, in order of appearance."""
        return tuple(dict.fromkeys(device for _, device in self.buffers))


@dataclass(frozen=True, kw_only=True, slots=True)
class FitProjection:
    """llama.cpp's own forecast for a model it has not loaded.

    `model_mib` sums the weights of its table, which is in whole MiB.
    """

    memory: LlamaMemory
    model_mib: int
    context_mib: int
    compute_mib: int


def parse(lines: Iterable[str]) -> LlamaMemory:
    """The memory of the last pass in a log.

    Raises RUN020 naming the first kind of line that is missing, when the log holds no whole pass;
    memory without a line of settings will do.
    """
    return _memory(_last_pass(lines))


def parse_fit(lines: Iterable[str]) -> FitProjection:
    """The forecast in the log of a fit pass. Raises RUN020 when it has none."""
    kept = list(lines)
    rows = [match for line in kept if (match := _TABLE_ROW.search(line))]
    if not rows:
        raise HeavyliftError("RUN020", {"what": "memory breakdown"})
    return FitProjection(
        memory=_memory(_last_pass(kept)),
        model_mib=sum(int(row[3]) for row in rows),
        context_mib=sum(int(row[4]) for row in rows),
        compute_mib=sum(int(row[5]) for row in rows),
    )


def measured_terms(memory: LlamaMemory) -> tuple[MeasuredTerm, ...]:
    """A measured term for each buffer and device, and for each kind of recurrent state."""
    terms = [
        _term(_TERM_OF_BUFFER[buffer], device, printed)
        for (buffer, device), printed in memory.buffers.items()
        if buffer in _TERM_OF_BUFFER
    ]
    if memory.recurrent is not None:
        # The two kinds are printed for all devices together.
        device = "+".join(device for buffer, device in memory.buffers if buffer == "RS")
        terms.append(_term("recurrent_state.kda_recurrent", device, memory.recurrent.s))
        terms.append(_term("recurrent_state.kda_conv", device, memory.recurrent.r))
    return tuple(terms)


def receipt(
    memory: LlamaMemory,
    *,
    model: str,
    variant: str,
    engine: str,
    engine_version: str,
    rack: str,
    taken_at: str,
) -> Receipt:
    """The receipt of one start. `taken_at` is an ISO 8601 time; `rack` as typed.

    Its `context_tokens` are those of all slots together, which is llama.cpp's setting of that name.
    """
    gpus = [device for device in memory.devices if device != HOST]
    backend = gpus[0].rstrip("0123456789").lower() if gpus else "cpu"
    told = {
        "context_tokens": memory.context_tokens,
        "max_num_seqs": memory.slots,
        "max_num_batched_tokens": memory.ubatch_tokens,
    }
    workload: dict[str, int | str] = {
        name: value for name, value in told.items() if value is not None
    }
    if memory.kv is not None:
        workload["kv_cache_dtype"] = memory.kv.k_dtype
    return Receipt(
        model=model,
        variant=variant,
        engine=engine,
        engine_version=engine_version,
        backend=backend,
        layout=Layout(pipeline_parallel_size=max(1, len(gpus))),
        rack=rack,
        terms=measured_terms(memory),
        workload=workload,
        taken_at=taken_at,
    )


def receipt_for(plan: Plan, lines: Iterable[str], *, taken_at: str = "") -> Receipt:
    """The receipt of a start of `plan`, from its log. Raises RUN020 as `parse` does."""
    return receipt(
        parse(lines),
        model=plan.model,
        variant=plan.variant,
        engine=plan.engine,
        engine_version=plan.engine_version,
        rack=plan.rack.label,
        taken_at=taken_at,
    )


# --- one pass ------------------------------------------------------------------------------------


def _last_pass(lines: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        if _FIRST_LINE in line:
            kept = []
        kept.append(line.rstrip("\n"))
    return kept


def _memory(lines: list[str]) -> LlamaMemory:
    settings: dict[str, int] = {}
    buffers: dict[tuple[str, str], Printed] = {}
    kv = recurrent = None
    by_cache: dict[str, int] = {}
    for line in lines:
        if _CONTEXT_START in line:
            # A context made again (a graph that did not fit) replaces what the first one printed.
            buffers = {key: value for key, value in buffers.items() if key[0] == "model"}
            kv = recurrent = None
            by_cache = {}
        elif match := _BUFFER.search(line):
            _add(buffers, (match[2], _device(match[1])), _printed(match[3], line))
        elif match := _SETTING.search(line):
            settings[match[1]] = int(match[2])
        elif match := _KV.search(line):
            kv = _kv_cache(match, line)
            by_cache = max(by_cache, _settings(kv, line), key=lambda each: each.get("n_ctx", 0))
        elif match := _RECURRENT.search(line):
            recurrent = _recurrent_state(match, line)
    _require(settings, buffers, kv, recurrent)
    told = settings or by_cache
    return LlamaMemory(
        buffers=buffers,
        kv=kv,
        recurrent=recurrent,
        slots=told.get("n_seq_max"),
        context_tokens=told.get("n_ctx"),
        slot_tokens=told.get("n_ctx_seq"),
        batch_tokens=told.get("n_batch"),
        ubatch_tokens=told.get("n_ubatch"),
    )


def _require(
    settings: Mapping[str, int],
    buffers: Mapping[tuple[str, str], Printed],
    kv: KvCache | None,
    recurrent: RecurrentState | None,
) -> None:
    seen = {buffer for buffer, _ in buffers} | set(settings)
    # What is pasted from a log is often its memory alone. One that goes on to the settings is a
    # whole log, and is whole.
    wanted = ["model", "compute"]
    if settings:
        wanted += ["n_seq_max", "n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "output"]
    missing = [what for what in wanted if what not in seen]
    if kv is None and recurrent is None:
        missing.append("KV")
    if missing:
        raise HeavyliftError("RUN020", {"what": missing[0]})


def _settings(kv: KvCache, line: str) -> dict[str, int]:
    """Slots and tokens as the line of a cache tells them; of windowed caches the widest does."""
    match = _SEQUENCES.search(line)
    if match is None:
        return {}
    slots, streams = int(match[1]), int(match[2])
    return {"n_seq_max": slots, "n_ctx": kv.cells * streams, "n_ctx_seq": kv.cells}


def _kv_cache(match: re.Match[str], line: str) -> KvCache:
    return KvCache(
        size=_printed(match[1], line),
        cells=int(match[2]),
        layers=int(match[3]),
        k_dtype=match[4],
        k=_printed(match[5], line),
        v_dtype=match[6],
        v=_printed(match[7], line),
    )


def _recurrent_state(match: re.Match[str], line: str) -> RecurrentState:
    return RecurrentState(
        size=_printed(match[1], line),
        cells=int(match[2]),
        r_dtype=match[3],
        r=_printed(match[4], line),
        s_dtype=match[5],
        s=_printed(match[6], line),
    )


def _device(buffer: str) -> str:
    """The device of a buffer type: `CUDA0` and `CUDA0_Split` are on the card, `CPU_Mapped`,
    `CPU_REPACK` and the pinned `CUDA_Host` in host memory.
    """
    if buffer.startswith("CPU") or buffer.endswith("_Host"):
        return HOST
    return buffer.split("_", maxsplit=1)[0]


def _printed(text: str, line: str) -> Printed:
    step = Decimal(1).scaleb(-len(text.partition(".")[2]))
    return Printed(
        bytes=round(Decimal(text) * MIB), resolution_bytes=round(step * MIB), line=line.strip()
    )


def _add(buffers: dict[tuple[str, str], Printed], key: tuple[str, str], printed: Printed) -> None:
    before = buffers.get(key)
    if before is not None:
        printed = Printed(
            bytes=before.bytes + printed.bytes,
            resolution_bytes=before.resolution_bytes + printed.resolution_bytes,
            line=f"{before.line}\n{printed.line}",
        )
    buffers[key] = printed


def _term(term: str, device: str, printed: Printed) -> MeasuredTerm:
    return MeasuredTerm(
        term=term,
        device=device,
        bytes=printed.bytes,
        resolution_bytes=printed.resolution_bytes,
        line=printed.line,
    )
