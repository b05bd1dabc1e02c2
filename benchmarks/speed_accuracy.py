"""How near the forecasts of speed come to published measurements, by class.

    python benchmarks/speed_accuracy.py                    the table, on benchmarks/speed/rows.csv
    python benchmarks/speed_accuracy.py --rows FILE.jsonl  the same on other rows, facts as shipped
    python benchmarks/speed_accuracy.py --splits 20        fit on a random half, judge on the other
    python benchmarks/speed_accuracy.py --write-facts      fit the classes anew from the rows

Four settings. *Class known*: the fixed cost and spread of the class are fitted without the sweep
that the row belongs to. *Few or differing rows*: the same where that does not make a class known.
*Class unseen*: without any row of the class. *One anchor*: the fixed cost
comes from the least busy row of the same sweep, which is not counted.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
import re
import sys
import tomllib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from typing import Any, Final

from heavylift.facts.catalog import DATA, Catalog
from heavylift.facts.speed_schema import SpeedClassBook, SpeedClassFacts, SpeedSpreadFacts
from heavylift.plan.calibration import (
    KNOWN_ROWS,
    KNOWN_WIDTH,
    Observation,
    calibrate,
    fit_fixed,
    shrunk,
    spread,
    spread_of,
)
from heavylift.plan.service import Service
from heavylift.plan.speed import forecaster
from heavylift.plan.step_time import Attention, Constants, Hardware, Load, StageLoad, StepTime
from heavylift.planning import Planning
from heavylift.records.plan import Layout, PlanRequest
from heavylift.records.speed import Evidence, Speculation, SpeedWorkload

HERE: Final = Path(__file__).parent / "speed"
BYTES: Final = {"mxfp4": 0.53125, "nvfp4": 0.5625, "int4": 0.5625, "fp8": 1.0, "bf16": 2.0}
# One NVLink domain holds several machines of these.
RACK_SCALE: Final = frozenset({"GB200", "GB300"})
# Pools so many that prompts take nothing of a run in which only decoding was timed.
NO_PREFILL: Final = 10**9
DECODE_ONLY: Final = ("decode throughput by llm_decode_bench", "single-stream decode", "at batch 1")

Key = tuple[str, str, bool]


# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One published measurement in our own form. None = the source does not say.

    `tpot_ms` is milliseconds per output token and sequence, `output_tokens_per_s` the whole
    service's; `kv_pool_tokens` and `max_num_seqs` are of the run. `prefill_pools` > 0: prefill ran
    on cards of its own. `decode_only`: no prefill while it was measured.
    """

    id: str
    model: str
    precision: str
    kv_dtype: str
    gpu: str
    gpus: int
    nodes: int
    engine: str
    engine_version: str
    tp: int
    pp: int
    dp: int
    ep: int
    dcp: int
    prefill_pools: int
    decode_only: bool
    input_tokens: int | None
    output_tokens: int | None
    concurrency: int
    concurrency_seen: float | None
    speculation: str
    draft_tokens: int | None
    accepted_tokens: float | None
    tpot_ms: float
    ttft_ms: float | None
    output_tokens_per_s: float | None
    kv_pool_tokens: int | None
    max_num_seqs: int | None
    date: str
    source: str

    @property
    def crosses_nodes(self) -> bool:
        """True when tensor parallelism goes over the network."""
        per_node = max(1, self.gpus // max(1, self.nodes))
        return self.gpu not in RACK_SCALE and self.tp > per_node

    @property
    def key(self) -> Key:
        """The class, with the card under its id in the catalogue."""
        return (self.gpu.lower().replace(" ", "-"), self.engine, self.crosses_nodes)

    @property
    def sweep(self) -> tuple[object, ...]:
        """What stays the same while only the concurrency changes."""
        file = self.source.split("#")[0].rsplit("/conc-", 1)[0]
        same = (self.model, self.precision, self.gpu, self.engine, self.engine_version, self.gpus)
        layout = (self.tp, self.pp, self.dp, self.ep, self.dcp, self.prefill_pools)
        return (*same, *layout, self.speculation, self.input_tokens, self.output_tokens, file)

    @property
    def publisher(self) -> str:
        """The source id of who published the row: owner and repository, or the site."""
        path = self.source.removeprefix("https://").removeprefix("github.com/").split(" ")[0]
        parts = path.split("/")
        name = parts[0] if "." in parts[0] else f"{parts[0]}-{parts[1]}"
        return re.sub(r"[^a-z0-9.-]", "-", name.lower())


_CASTS: Final[Mapping[str, Callable[[str], Any]]] = {
    "str": str,
    "int": int,
    "bool": lambda text: text == "1",
    "float": float,
    "int | None": lambda text: int(text) if text else None,
    "float | None": lambda text: float(text) if text else None,
}


def read_rows(path: Path) -> list[Row]:
    """Rows from our CSV, or from a JSONL file of the reference form."""
    if path.suffix == ".jsonl":
        lines = (json.loads(line) for line in path.read_text("utf-8").splitlines() if line)
        return [row for line in lines if (row := from_reference(line)) is not None]
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Row(**{f.name: _CASTS[str(f.type)](line[f.name]) for f in fields(Row)})
            for line in csv.DictReader(file)
        ]


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Rows as CSV: empty = not stated."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f.name for f in fields(Row)])
        for row in rows:
            values = [getattr(row, f.name) for f in fields(Row)]
            writer.writerow(
                ["" if v is None else int(v) if v is True or v is False else v for v in values]
            )


def from_reference(raw: Mapping[str, Any]) -> Row | None:
    """A row of the reference form; None when it says nothing of decoding speed or hardware."""
    note = raw["note"] or ""
    decode_only = any(words in note for words in DECODE_ONLY)
    tpot = raw["tpot_ms_median"] or raw["tpot_ms_mean"]
    clients = raw["concurrency"]
    if tpot is None and decode_only and raw["out_tok_s"] and clients:
        tpot = 1000 * clients / raw["out_tok_s"]
    tensor = raw["tp"] or raw["gpu_count"]
    if not (tpot and clients and raw["gpu"] and raw["engine"] and tensor):
        return None
    tensor, data = int(tensor), int(raw["dp"] or 1)
    pools = re.match(r"(\d+)P", str(raw["pd"] or ""))
    context = re.search(r"dcp(\d+)", str(raw["layout"] or "").lower())
    return Row(
        id=raw["id"],
        model=raw["model"],
        precision=(raw["precision"] or "").lower(),
        kv_dtype=raw["kv_dtype"] or "",
        gpu=raw["gpu"],
        gpus=int(raw["gpu_count"] or tensor * data),
        nodes=int(raw["nodes"] or 1),
        engine=raw["engine"],
        engine_version=raw["engine_version"] or "",
        tp=tensor,
        pp=int(raw["pp"] or 1),
        dp=data,
        ep=tensor * data if raw["ep"] else 1,
        dcp=int(context[1]) if context else 1,
        prefill_pools=int(pools[1]) if pools else 0,
        decode_only=decode_only,
        input_tokens=raw["isl"],
        output_tokens=raw["osl"],
        concurrency=int(clients),
        concurrency_seen=raw["concurrency_seen"],
        speculation=raw["spec"] or "",
        draft_tokens=raw["spec_tokens"],
        accepted_tokens=raw["accept_len"],
        tpot_ms=float(tpot),
        ttft_ms=raw["ttft_ms_median"] or raw["ttft_ms_mean"],
        output_tokens_per_s=raw["out_tok_s"],
        kv_pool_tokens=_noted(r"KV pool ([\d,]+) tokens", note),
        max_num_seqs=_noted(r"max_num_seqs (\d+)", note),
        date=raw["date"] or "",
        source=raw["source"],
    )


def _noted(pattern: str, note: str) -> int | None:
    found = re.search(pattern, note)
    return int(found[1].replace(",", "")) if found else None


# --- the model of a row --------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """The facts a row's model is built from."""

    catalog: Catalog
    shapes: Mapping[str, Mapping[str, Any]]
    cards: Mapping[str, Mapping[str, Any]]

    @classmethod
    def load(cls) -> Bench:
        """The catalogue, and the shapes and cards of the benchmark."""
        return cls(
            catalog=Catalog(),
            shapes=tomllib.loads((HERE / "shapes.toml").read_text("utf-8")),
            cards=tomllib.loads((HERE / "cards.toml").read_text("utf-8")),
        )

    @property
    def constants(self) -> Constants:
        """The model's constants, as shipped."""
        return Constants.of(self.catalog.speed().model)

    def shape(self, row: Row) -> Mapping[str, Any] | None:
        """The shape of the row's model, by the longest name that it contains."""
        model = row.model.lower()
        named = [(n, s) for s in self.shapes.values() for n in s["names"] if n in model]
        return max(named, key=lambda pair: len(pair[0]))[1] if named else None

    def card(self, row: Row) -> tuple[Hardware, float] | None:
        """The rates of the row's card and its memory in bytes; None for an unknown card."""
        network = self.catalog.speed().model.network_bandwidth.value
        if row.gpu in self.cards:
            card = self.cards[row.gpu]
            link, bandwidth = card["link_gb_per_s"], card["memory_tb_per_s"]
            flops, memory = card["bf16_tflops"], card["memory_gib"] * 2**30
        elif row.gpu.lower() in self.catalog.ids("gpus"):
            facts = self.catalog.gpu(row.gpu)
            if facts.memory_bandwidth is None:
                return None
            link = facts.link_bandwidth.value if facts.link_bandwidth else network
            bandwidth, memory = facts.memory_bandwidth.value, facts.memory_visible.value
            flops = facts.dense_bf16.value if facts.dense_bf16 else None
        else:
            return None
        link = min(link, network) if row.crosses_nodes else link
        rates = Hardware(
            memory_bytes_per_s=bandwidth * 1e12,
            link_bytes_per_s=link * 1e9,
            flops_per_s=None if flops is None else flops * 1e12,
        )
        return rates, memory


def load_of(row: Row, shape: Mapping[str, Any]) -> Load:
    """The load of a shape in the row's layout, all ranks alike."""
    precision = (
        next((p for p in BYTES if p in row.precision), shape["fallback_precision"])
        if ("fallback_precision" in shape)
        else "mxfp4"
    )
    hidden, layers, moe = shape["hidden"], shape["layers"], shape.get("moe_layers", 0)
    inner, latent = shape.get("expert_inner", 0), shape.get("expert_hidden", hidden)
    expert = 3 * latent * inner * BYTES[precision]
    replicated = 0.0
    if "dense_gb" in shape:
        dense, replicated = shape["dense_gb"] * 1e9, shape["replicated_gb"] * 1e9
        active = shape["active_params"]
    else:
        shared = shape.get("shared_experts", 0) * moe * 3 * hidden * inner
        plain = (layers - moe) * 3 * hidden * shape.get("dense_inner", 0)
        router = moe * hidden * shape.get("experts", 0)
        params = layers * _attention(shape) + shared + plain + router + hidden * shape["vocab"]
        each = shape.get("dense_bytes", BYTES[precision])
        dense, active = (
            params * each,
            params + moe * shape.get("experts_per_token", 0) * (3 * latent * inner),
        )
        if "mla" in shape:
            q_lora, kv_lora, rope, *_ = shape["mla"]
            replicated = layers * hidden * (q_lora + kv_lora + rope) * each
    experts_here = shape.get("experts", 0) * moe * expert
    ranks = row.ep if row.ep > 1 else row.tp
    stage = StageLoad(
        layers=layers,
        dense_bytes=replicated + (dense - replicated) / row.tp,
        expert_bytes=experts_here / ranks,
        kv_bytes_per_token=_cache(row, shape),
        state_bytes_per_sequence=4 * shape.get("state_values", 0) / row.tp,
    )
    return Load(
        layout=Layout(
            tensor_parallel_size=row.tp,
            pipeline_parallel_size=row.pp,
            data_parallel_size=row.dp,
            expert_parallel_size=row.ep,
            decode_context_parallel_size=row.dcp,
        ),
        stages=(stage,),
        hidden_size=hidden,
        active_params=active,
        experts=shape.get("experts"),
        experts_per_token=shape.get("experts_per_token", 0),
        microbatches=row.pp,
        attention=_attending(shape),
    )


def _attending(shape: Mapping[str, Any]) -> tuple[Attention, ...]:
    """What grows with the square of a prompt; nothing where a shape does not say its heads."""
    layers = shape.get("cache_layers", shape["layers"])
    if "heads" not in shape or shape.get("sparse"):
        return ()
    if "mla" in shape:
        _, _, rope, nope, value = shape["mla"]
        width = rope + nope + value
    elif "gqa" in shape:
        width = 2 * shape["gqa"][1]
    else:
        return ()
    return (Attention(channels=layers * shape["heads"] * width),)


def _attention(shape: Mapping[str, Any]) -> float:
    """Parameters of one layer's attention."""
    hidden = shape["hidden"]
    if "attention_params" in shape:
        return float(shape["attention_params"])
    heads = shape["heads"]
    if "mla" in shape:
        q_lora, kv_lora, rope, nope, value = shape["mla"]
        down = hidden * (q_lora + kv_lora + rope)
        return float(
            down + heads * (q_lora * (nope + rope) + kv_lora * (nope + value) + value * hidden)
        )
    kv_heads, size = shape["gqa"]
    return float(hidden * size * (2 * heads + 2 * kv_heads))


def _cache(row: Row, shape: Mapping[str, Any]) -> float:
    """Bytes of KV of one token on one rank."""
    each = 1 if row.kv_dtype == "fp8" else 2
    layers = shape.get("cache_layers", shape["layers"])
    if "mla" in shape:
        _, kv_lora, rope, *_ = shape["mla"]
        values = kv_lora + rope
    elif "gqa" in shape:
        kv_heads, size = shape["gqa"]
        values = 2 * size * math.ceil(kv_heads / row.tp)
    else:
        values = shape["cache_values"]
    return float(each * layers * values / row.dcp)


def service_of(row: Row, bench: Bench) -> Callable[[float], Service] | str:
    """The service of a row as a function of the fixed cost; or why there is none."""
    shape, card = bench.shape(row), bench.card(row)
    if shape is None or card is None:
        return "no shape" if shape is None else "no card"
    hardware, memory = card
    load = load_of(row, shape)
    stage = load.stages[0]
    # Lengths that a source does not give: those of a short chat. They matter little to decoding.
    work = SpeedWorkload(
        concurrency=row.concurrency,
        input_tokens=1024 if row.input_tokens is None else row.input_tokens,
        output_tokens=row.output_tokens or 1024,
        speculation=speculation_of(row, bench),
    )
    if row.speculation and work.speculation is None:
        return "acceptance unknown"
    split = row.prefill_pools > 0
    # Sequences are at all lengths between prompt and end. Where the cache's type is not stated, the
    # narrow one: a batch that ran must not be called impossible.
    narrow = 1 if row.kv_dtype else 2
    held = stage.kv_bytes_per_token / narrow * (work.input_tokens + work.output_tokens / 2)
    room = 0.9 * memory * row.pp - stage.dense_bytes - stage.expert_bytes
    seats = int(room / (held + stage.state_bytes_per_sequence))
    if row.decode_only and seats < row.concurrency:
        return "the cards do not hold that batch"
    if row.kv_pool_tokens is not None:
        seats = row.kv_pool_tokens // work.context_tokens
    # Of a split service's two limits it is not said whose the source prints.
    if row.max_num_seqs is not None and not split:
        seats = min(seats, row.max_num_seqs)

    def at(fixed_us: float) -> Service:
        times = StepTime(load, hardware, bench.constants, fixed_us * 1e-6)
        return Service(
            decode=times,
            workload=work,
            seats=max(1, seats),
            prefill=times if split or row.decode_only else None,
            prefill_replicas=NO_PREFILL if row.decode_only else max(1, row.prefill_pools),
        )

    return at


def speculation_of(row: Row, bench: Bench) -> Speculation | None:
    """What a step of the row yields: as its source says, else the acceptance of the facts."""
    if not row.speculation:
        return None
    drafted, accepted = row.draft_tokens, row.accepted_tokens
    if accepted is None and drafted is not None:
        for facts in bench.catalog.speed().acceptances:
            fits = facts.model in row.model.lower() and facts.method == row.speculation
            if fits and drafted <= len(facts.accepted_tokens):
                accepted = facts.accepted_tokens[drafted - 1] or None
    if accepted is None:
        return None
    return Speculation(
        method=row.speculation,
        draft_tokens=drafted or math.ceil(accepted),
        accepted_tokens=accepted,
        source=row.source,
    )


FIXED_US: Final[tuple[float, ...]] = (0.0, *(5000.0 ** (step / 47) for step in range(48)))
"""Fixed costs at which a row's model is worked out; between them it is as good as a line."""


@dataclass(frozen=True)
class Case:
    """A row with its model."""

    row: Row
    at: Callable[[float], Service]

    @cached_property
    def _curve(self) -> tuple[float, ...]:
        """The model's seconds per token at each of `FIXED_US`."""
        return tuple(self.at(fixed).settled_tpot_s for fixed in FIXED_US)

    def model_s(self, fixed_us: float) -> float:
        """The model's seconds per token: fits ask for it thousands of times."""
        after = min(max(1, bisect_right(FIXED_US, fixed_us)), len(FIXED_US) - 1)
        low, high = FIXED_US[after - 1], FIXED_US[after]
        below, above = self._curve[after - 1], self._curve[after]
        return below + (above - below) * (fixed_us - low) / (high - low)

    @property
    def observation(self) -> Observation:
        """Measured and modelled time per token."""
        return Observation(measured_s=self.row.tpot_ms / 1000, model_s=self.model_s)


def cases_of(rows: Iterable[Row], bench: Bench) -> tuple[list[Case], dict[str, int]]:
    """Rows that can be modelled, and how many cannot, by reason."""
    cases, left_out = [], defaultdict[str, int](int)
    for row in rows:
        service = service_of(row, bench)
        if isinstance(service, str):
            left_out[service] += 1
        else:
            # Fits that leave out one sweep each ask for nearly the same costs again and again.
            cases.append(Case(row, cache(service)))
    return cases, dict(left_out)


# --- fits ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassFit:
    """A class as fitted. `residuals` leave out the sweep of each row where there are others."""

    fixed_us: float
    residuals: tuple[float, ...]


def by_class(cases: Iterable[Case]) -> dict[Key, list[Case]]:
    """Cases without speculation by class."""
    grouped = defaultdict[Key, list[Case]](list)
    for case in cases:
        if not case.row.speculation:
            grouped[case.row.key].append(case)
    return dict(grouped)


def sweeps_of(cases: Iterable[Case]) -> int:
    """How many sweeps the rows are of."""
    return len({case.row.sweep for case in cases})


def fit_class(cases: Sequence[Case]) -> ClassFit:
    """Fixed cost of a class, and honest residuals."""
    sweeps = dict.fromkeys(case.row.sweep for case in cases)
    fixed = fit_fixed([case.observation for case in cases])
    residuals = []
    for sweep in sweeps:
        inside = [case for case in cases if case.row.sweep == sweep]
        others = [case.observation for case in cases if case.row.sweep != sweep]
        without = fit_fixed(others) if others else fixed
        residuals += [case.observation.log_ratio(without) for case in inside]
    return ClassFit(fixed_us=fixed, residuals=tuple(residuals))


def fit_all(cases: Sequence[Case]) -> dict[Key, ClassFit]:
    """All classes."""
    return {key: fit_class(group) for key, group in by_class(cases).items()}


# --- facts ---------------------------------------------------------------------------------------


def weighted_spread(groups: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Low and high that leave out a tenth on either side, every group weighing the same."""
    groups = [group for group in groups if group]
    weighed = sorted((value, 1 / len(group)) for group in groups for value in group)
    ends = []
    for part in (0.1, 0.9):
        passed = 0.0
        for value, weight in weighed:
            passed += weight
            if passed >= part * len(groups):
                ends.append(math.exp(value))
                break
    return ends[0], ends[1]


def without(fits: Mapping[Key, ClassFit], key: Key | None) -> float:
    """The fixed cost that stands for a class when its own rows are not looked at."""
    return median(fit.fixed_us for other, fit in fits.items() if other != key)


def unseen_residuals(cases: Sequence[Case], fits: Mapping[Key, ClassFit]) -> dict[Key, list[float]]:
    """log(measured / model) of every class with the fixed cost of the others."""
    return {
        key: [case.observation.log_ratio(without(fits, key)) for case in group]
        for key, group in by_class(cases).items()
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinFit:
    """A class of few or differing rows: fixed cost, and the band about it."""

    fixed_us: float
    ends: tuple[float, float]


def beside_fixed(observations: Sequence[Observation], fixed_us: float) -> float:
    """What the rows lie at beside a fixed cost of their own: 0, or less where even none is slow."""
    return median(each.log_ratio(fixed_us) for each in observations)


def thin_residuals(cases: Sequence[Case]) -> dict[Key, list[float]]:
    """log(measured / model) of rows whose class is fitted on one other sweep alone, by class.

    So much does one sweep of a class say of another.
    """
    found = {}
    for key, group in by_class(cases).items():
        sweeps = defaultdict[tuple[object, ...], list[Observation]](list)
        for case in group:
            sweeps[case.row.sweep].append(case.observation)
        residuals = []
        for seen, rows in sweeps.items():
            fixed = fit_fixed(rows)
            middle = beside_fixed(rows, fixed)
            residuals += [
                each.log_ratio(fixed) - middle
                for other, others in sweeps.items()
                if other != seen
                for each in others
            ]
        if residuals:
            found[key] = residuals
    return found


def thin_fit(cases: Sequence[Case], thin: tuple[float, float]) -> ThinFit:
    """The band of a class that is not known: about its own rows, as wide as sweeps lie apart.

    With several sweeps its own spread counts, drawn towards that of all; with one only theirs.
    """
    fit = fit_class(cases)
    middle = beside_fixed([case.observation for case in cases], fit.fixed_us)
    ends = thin
    if len({case.row.sweep for case in cases}) > 1:
        about = [residual - middle for residual in fit.residuals]
        ends = shrunk(spread(about), len(about), thin)
    return ThinFit(
        fixed_us=fit.fixed_us, ends=(ends[0] * math.exp(middle), ends[1] * math.exp(middle))
    )


def widened(own: tuple[float, float], careful: tuple[float, float]) -> tuple[float, float]:
    """The band of a known class: the careful one, as far as what is called known may be wide.

    `careful` leaves out less, because few sweeps say little of the next one (split conformal).
    """
    low, high = min(own[0], careful[0]), max(own[1], careful[1])
    more = math.log(high / low) - math.log(own[1] / own[0])
    room = math.log(0.999 * KNOWN_WIDTH) - math.log(own[1] / own[0])
    part = 1.0 if more <= room else max(0.0, room / more)
    return own[0] * (low / own[0]) ** part, own[1] * (high / own[1]) ** part


def known_ends(
    residuals: Sequence[float], sweeps: int, others: tuple[float, float]
) -> tuple[float, float]:
    """The band of a class from its residuals; wider than `KNOWN_WIDTH` when it is not known."""
    rows = len(residuals)
    own = shrunk(spread(residuals), rows, others)
    if not is_known(own, rows):
        return own
    return widened(own, shrunk(spread(residuals, sweeps), rows, others))


def is_known(ends: tuple[float, float], rows: int) -> bool:
    """True when so many rows with such a band make a class known."""
    return rows >= KNOWN_ROWS and ends[1] <= KNOWN_WIDTH * ends[0]


def anchor_residuals(cases: Sequence[Case]) -> list[tuple[Case, float]]:
    """Rows beside the least busy one of their sweep, with log(measured / anchored model)."""
    sweeps = defaultdict[tuple[object, ...], list[Case]](list)
    for case in cases:
        sweeps[case.row.sweep].append(case)
    found = []
    for sweep in sweeps.values():
        first, *others = sorted(sweep, key=lambda case: case.row.concurrency)
        busier = [case for case in others if case.row.concurrency > first.row.concurrency]
        if not busier:
            continue
        fixed = fit_fixed([first.observation])
        rest = first.observation.log_ratio(fixed)
        found += [(case, case.observation.log_ratio(fixed) - rest) for case in busier]
    return found


def anchored_spread(anchored: Sequence[tuple[Case, float]]) -> tuple[float, float]:
    """The spread about anchored models: rows of one sweep stand and fall together."""
    sweeps = len({case.row.sweep for case, _ in anchored})
    return spread([residual for _, residual in anchored], sweeps)


def first_token_residuals(
    cases: Sequence[Case], fits: Mapping[Key, ClassFit]
) -> tuple[list[float], list[float]]:
    """log(measured time to first token / settled), and the same over that of a burst."""
    settled, burst = [], []
    for case in cases:
        row = case.row
        if row.ttft_ms is None or not row.input_tokens or row.key not in fits:
            continue
        service = case.at(fits[row.key].fixed_us)
        settled.append(math.log(row.ttft_ms / 1000 / service.ttft_s))
        burst.append(math.log(row.ttft_ms / 1000 / service.burst_ttft_s))
    return settled, burst


HEADER: Final = """\
# Written by `python benchmarks/speed_accuracy.py --write-facts` from benchmarks/speed/rows.csv; not
# by hand. Fixed cost: where half of a class's rows are faster than the model and half slower.
# Spreads leave out a tenth of the rows on either side; a class's own is drawn towards that of all,
# or where its rows are few or far apart towards how far one sweep of a class lies from another.
provenance = { kind = "derived", source = "speed-rows", as_of = 2026-11-30 }
"""


def facts_text(cases: Sequence[Case]) -> str:
    """The classes file."""
    classes, spreads = fitted(cases)
    blocks = [_block("classes", values) for values in classes]
    return "\n".join([HEADER, *blocks, *(_block("spreads", values) for values in spreads)])


def book_of(cases: Sequence[Case]) -> SpeedClassBook:
    """What would be shipped had there been no other rows."""
    said: dict[str, Any] = {"kind": "derived", "source": "speed-rows", "as_of": date.min}
    classes, spreads = fitted(cases)
    return SpeedClassBook(
        classes=tuple(
            SpeedClassFacts(
                **said,
                **{k: v for k, v in values.items() if k not in ("versions", "drawn_from")},
                versions=tuple(values["versions"]),
                drawn_from=tuple(values["drawn_from"]),
            )
            for values in classes
        ),
        spreads=tuple(SpeedSpreadFacts(**said, **values) for values in spreads),
    )


def fitted(cases: Sequence[Case]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The classes and the spreads, in the fields of the file."""
    fits = fit_all(cases)
    everyone = weighted_spread(
        fit.residuals for fit in fits.values() if len(fit.residuals) >= KNOWN_ROWS
    )
    thin = weighted_spread(thin_residuals(cases).values())
    classes = []
    for key, group in sorted(by_class(cases).items()):
        fit = fits[key]
        low, high = known_ends(fit.residuals, sweeps_of(group), everyone)
        if not is_known((low, high), len(group)):
            low, high = thin_fit(group, thin).ends
        rows = [case.row for case in group]
        days = [row.date for row in rows if row.date]
        values: dict[str, Any] = {
            "gpu": key[0],
            "engine": key[1],
            "crosses_nodes": key[2],
            "fixed_us_per_layer": round(fit.fixed_us, 1),
            "low_ratio": round(low, 3),
            "high_ratio": round(high, 3),
            "rows": len(rows),
            "sweeps": sweeps_of(group),
            **(
                {"first": date.fromisoformat(min(days)), "last": date.fromisoformat(max(days))}
                if days
                else {}
            ),
            "versions": sorted({row.engine_version for row in rows if row.engine_version}),
            "drawn_from": sorted({row.publisher for row in rows}),
        }
        classes.append(values)
    return classes, list(_spreads(cases, fits))


def _spreads(cases: Sequence[Case], fits: Mapping[Key, ClassFit]) -> Iterable[dict[str, Any]]:
    unseen = unseen_residuals(cases, fits)
    yield {
        **_spread(
            "unseen", weighted_spread(unseen.values()), sum(map(len, unseen.values())), len(unseen)
        ),
        "fixed_us_per_layer": round(without(fits, None), 1),
    }
    thin = thin_residuals(cases)
    yield _spread("thin", weighted_spread(thin.values()), sum(map(len, thin.values())), len(thin))
    anchored = anchor_residuals(cases)
    yield _spread(
        "anchored",
        anchored_spread(anchored),
        len(anchored),
        len({case.row.key for case, _ in anchored}),
    )
    settled, burst = first_token_residuals(cases, fits)
    yield _spread(
        "ttft",
        (spread(settled)[0], spread(burst)[1]),
        len(settled),
        len({case.row.key for case in cases if case.row.ttft_ms}),
    )
    drafted = [
        (case, case.observation.log_ratio(fits[case.row.key].fixed_us))
        for case in cases
        if case.row.speculation and case.row.key in fits
    ]
    yield _spread(
        "speculation",
        spread([residual for _, residual in drafted]),
        len(drafted),
        len({case.row.key for case, _ in drafted}),
    )


def _spread(setting: str, ends: tuple[float, float], rows: int, classes: int) -> dict[str, Any]:
    return {
        "setting": setting,
        "low_ratio": round(ends[0], 3),
        "high_ratio": round(ends[1], 3),
        "rows": rows,
        "classes": classes,
    }


def _block(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"[[{name}]]"]
    for key, value in values.items():
        # A day is written without quotes.
        day = isinstance(value, date)
        shown = value.isoformat() if day else json.dumps(value, ensure_ascii=False)
        lines.append(f"{key} = {shown}")
    return "\n".join(lines) + "\n"


# --- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Rows of a setting: how many, the part inside their band, the middle and the widest band."""

    setting: str
    rows: int
    inside: float
    typical: float
    width: float


def _score(setting: str, hits: Sequence[tuple[bool, float]]) -> Score:
    if not hits:
        return Score(setting=setting, rows=0, inside=math.nan, typical=math.nan, width=math.nan)
    return Score(
        setting=setting,
        rows=len(hits),
        inside=sum(hit for hit, _ in hits) / len(hits),
        typical=median(width for _, width in hits),
        width=max(width for _, width in hits),
    )


def _in(residual: float, ends: tuple[float, float]) -> tuple[bool, float]:
    return ends[0] <= math.exp(residual) <= ends[1], ends[1] / ends[0]


def cross_validated(cases: Sequence[Case]) -> list[Score]:
    """The settings, each row judged by what the others say."""
    fits = fit_all(cases)
    steady = {k: f for k, f in fits.items() if len(f.residuals) >= KNOWN_ROWS}
    known, seen_as_unseen = [], []
    for key, fit in steady.items():
        others = weighted_spread(f.residuals for k, f in steady.items() if k != key)
        group = by_class(cases)[key]
        ends = known_ends(fit.residuals, sweeps_of(group), others)
        if not is_known(ends, len(fit.residuals)):
            continue
        # Residuals stand in the order of sweeps, and within one in that of rows.
        order = list(dict.fromkeys(case.row.sweep for case in group))
        of = sorted((case.row.sweep for case in group), key=order.index)
        for sweep in order:
            left = [r for r, its in zip(fit.residuals, of, strict=True) if its != sweep]
            judged = known_ends(left, len(order) - 1, others) if left else others
            if is_known(judged, KNOWN_ROWS):
                inside = [r for r, its in zip(fit.residuals, of, strict=True) if its == sweep]
                known += [_in(residual, judged) for residual in inside]
    between = thin_residuals(cases)
    thin = [
        hit
        for key, group in by_class(cases).items()
        if not _counts_as_known(key, fits)
        for hit in _thin_hits(key, group, between)
    ]
    unseen = unseen_residuals(cases, fits)
    for key, residuals in unseen.items():
        ends = weighted_spread(r for k, r in unseen.items() if k != key)
        seen_as_unseen += [_in(residual, ends) for residual in residuals]
    anchored = anchor_residuals(cases)
    one = []
    for case, residual in anchored:
        ends = anchored_spread([(c, r) for c, r in anchored if c.row.sweep != case.row.sweep])
        one.append(_in(residual, ends))
    return [
        _score("class known", known),
        _score("few or differing rows", thin),
        _score("class unseen", seen_as_unseen),
        _score("one anchor", one),
    ]


def _counts_as_known(key: Key, fits: Mapping[Key, ClassFit]) -> bool:
    """As `facts_text` judges, by what all other classes say."""
    own = fits[key].residuals
    others = weighted_spread(
        f.residuals for k, f in fits.items() if k != key and len(f.residuals) >= KNOWN_ROWS
    )
    return is_known(shrunk(spread(own), len(own), others), len(own))


def _thin_hits(
    key: Key, group: Sequence[Case], residuals: Mapping[Key, Sequence[float]]
) -> Iterable[tuple[bool, float]]:
    """Rows of a class judged by its other sweeps, and by how sweeps of other classes lie apart."""
    thin = weighted_spread(values for other, values in residuals.items() if other != key)
    for sweep in {case.row.sweep for case in group}:
        rest = [case for case in group if case.row.sweep != sweep]
        if not rest:
            continue
        fit = thin_fit(rest, thin)
        for case in group:
            if case.row.sweep == sweep:
                yield _in(case.observation.log_ratio(fit.fixed_us), fit.ends)


SETTINGS: Final = ("class known", "class left out", "one anchor")
"""The settings that promise something: 75 % in 2.5, 70 % in 7, and 2.0."""


def by_halves(cases: Sequence[Case], times: int) -> dict[str, list[Score]]:
    """The scores of one half of the rows by what the other half would have shipped, `times` times
    with another half each.

    Half of the rows say less than all do: what is shipped should do no worse than these.
    """
    found = defaultdict[str, list[Score]](list)
    for seed in range(times):
        drawn = random.Random(seed).sample(range(len(cases)), len(cases) // 2)  # noqa: S311
        fitting = set(drawn)
        book = book_of([case for place, case in enumerate(cases) if place in fitting])
        judging = [case for place, case in enumerate(cases) if place not in fitting]
        for score in as_shipped(judging, book):
            if score.rows:
                found[score.setting].append(score)
    return dict(found)


def as_shipped(cases: Sequence[Case], book: SpeedClassBook) -> list[Score]:
    """The settings with the facts as they are shipped, on rows that they may not come from."""
    hits = defaultdict[str, list[tuple[bool, float]]](list)
    pool = spread_of(book, "unseen")
    for case in cases:
        row = case.row
        if row.speculation:
            continue
        gpu, engine, crosses = row.key
        found = calibrate(book, gpu, engine, crosses_nodes=crosses)
        residual = case.observation.log_ratio(found.fixed_s_per_layer * 1e6)
        ends = (found.basis.low_ratio, found.basis.high_ratio)
        hits[found.basis.evidence].append(_in(residual, ends))
        left = replace(
            book,
            classes=tuple(c for c in book.classes if (c.gpu, c.engine, c.crosses_nodes) != row.key),
        )
        fixed = median(c.fixed_us_per_layer for c in left.classes)
        hits["left out"].append(
            _in(case.observation.log_ratio(fixed), (pool.low_ratio, pool.high_ratio))
        )
    facts = spread_of(book, "anchored")
    anchored = [
        _in(residual, (facts.low_ratio, facts.high_ratio))
        for _, residual in anchor_residuals(cases)
    ]
    return [
        _score("class known", hits[Evidence.KNOWN]),
        _score("few or differing rows", hits[Evidence.THIN]),
        _score("class without rows", hits[Evidence.UNSEEN]),
        _score("class left out", hits["left out"]),
        _score("one anchor", anchored),
    ]


def rival_lines() -> Iterable[str]:
    """Recorded answers of other forecasters, what was measured, and our band for the point."""
    planning = Planning()
    for answer in tomllib.loads((HERE / "rivals.toml").read_text("utf-8"))["answers"]:
        work = SpeedWorkload(
            concurrency=answer["clients"],
            input_tokens=answer["input_tokens"],
            output_tokens=answer["output_tokens"],
        )
        knowledge = planning.knowledge(answer["model"])
        _, rack = planning.rack(answer["rack"])
        if rack is None:
            raise TypeError(answer["rack"])
        request = PlanRequest(
            model=answer["model"],
            variant=answer["variant"],
            rack=rack,
            engine=answer["engine"],
            context_tokens=work.context_tokens,
        )
        plan = planning.plan(request, knowledge, with_fixes=False)
        speed = forecaster(plan, knowledge, planning.catalog.speed()).speed(work)
        ours = speed.output_tokens_per_s_per_gpu
        refused = "" if speed.refusal is None else f", {answer['clients']} at once refused"
        yield answer["point"]
        yield f"  measured {answer['measured']:g} {answer['unit']} ({answer['source']})"
        yield f"  {answer['rival']} said {answer['said']:g}"
        outside = "" if answer["measured"] in ours else "; the measured lies outside"
        yield f"  heavylift {ours.low:.0f} to {ours.high:.0f}{refused}{outside}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or write the facts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, default=HERE / "rows.csv")
    parser.add_argument("--splits", type=int, metavar="N", help="judge N random halves by the rest")
    parser.add_argument("--write-facts", action="store_true")
    parser.add_argument("--write-rows", type=Path, help="write the rows read as CSV and stop")
    given = parser.parse_args(arguments)
    rows = read_rows(given.rows)
    if given.write_rows:
        write_rows(rows, given.write_rows)
        return 0
    bench = Bench.load()
    cases, left_out = cases_of(rows, bench)
    if given.write_facts:
        (DATA / "speed" / "classes.toml").write_text(facts_text(cases), "utf-8")
        return 0
    print(f"{len(rows)} rows, {len(cases)} modelled; left out: {left_out}")
    if given.splits:
        _print_halves(by_halves(cases, given.splits))
        return 0
    book = bench.catalog.speed().book
    print("\nfacts as shipped          rows  inside  typical  widest")
    for score in as_shipped(cases, book):
        _print(score)
    print("\ncross-validated           rows  inside  typical  widest")
    for score in cross_validated(cases):
        _print(score)
    print("\nclass                                       us/layer  rows  low   high")
    for entry in book.classes:
        name = f"{entry.gpu} {entry.engine}{' over nodes' if entry.crosses_nodes else ''}"
        print(
            f"{name:<44}{entry.fixed_us_per_layer:>7.0f}{entry.rows:>6}"
            f"{entry.low_ratio:>7.2f}{entry.high_ratio:>6.2f}"
        )
    print("\nrecorded answers of others")
    for line in rival_lines():
        print(line)
    return 0


def _print_halves(found: Mapping[str, Sequence[Score]]) -> None:
    print(f"\n{'fitted on half, judged on half':<34}least  tenth  middle  most  widest")
    for setting, scores in found.items():
        inside = sorted(score.inside for score in scores)
        shares = (inside[0], inside[len(inside) // 10], median(inside), inside[-1])
        widest = max(score.width for score in scores)
        print(f"{setting:<32}" + "".join(f"{part:>7.0%}" for part in shares) + f"{widest:>7.2f}x")


def _print(score: Score) -> None:
    print(
        f"{score.setting:<24}{score.rows:>6}{score.inside:>8.0%}{score.typical:>8.2f}x{score.width:>7.2f}x"
    )


if __name__ == "__main__":
    sys.exit(main())
