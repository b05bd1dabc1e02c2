"""Plan: what a model needs on a rack, byte by byte, and whether it fits.

All `*_bytes` fields are per GPU (the worst rank) unless suffixed `_total`. Formulas are notation
(`24 layers × 576 B × 1,048,576 tokens`), not prose: what they count are the keys `notation.*` of
the catalogue. Text for people is made from codes and parameters at the edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.errors import Scalar
from heavylift.records.ranges import UNKNOWN, Interval

SCHEMA: Final = 1


class Kind(StrEnum):
    """What a number rests on, best first.

    `exact`: read from the checkpoint or rebuilt from sourced shapes. `spec`: a maker's statement.
    `measured`: seen on this rack (a receipt). `reported`: seen by somebody else. `derived`:
    follows from the others by a stated formula. `assumed`: a choice that closes a gap, with its
    reason. `unknown`: nobody said, and no guess is made.
    """

    EXACT = "exact"
    SPEC = "spec"
    MEASURED = "measured"
    DERIVED = "derived"
    REPORTED = "reported"
    ASSUMED = "assumed"
    UNKNOWN = "unknown"


class Segment(StrEnum):
    """The five parts of the bar, in the order they are drawn."""

    WEIGHTS = "weights"
    KV_CACHE = "kv_cache"
    RECURRENT_STATE = "recurrent_state"
    WORKSPACE = "workspace"
    OUTSIDE_POOL = "outside_pool"


class Capacity(StrEnum):
    """Whether the bytes fit, apart from whether anybody ran it."""

    DOES_NOT_FIT = "does_not_fit"
    TIGHT = "tight"
    FITS = "fits"


class Status(StrEnum):
    """What is known of this model on this engine, card and layout having run, best first."""

    VERIFIED = "verified"
    REPORTED = "reported"
    UNVERIFIED = "unverified"
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"
    BROKEN = "broken"


class PlanVerdict(StrEnum):
    """The first that applies, in this order of worth reversed."""

    FITS = "fits"
    TIGHT = "tight"
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"
    DOES_NOT_FIT = "does_not_fit"

    @property
    def is_positive(self) -> bool:
        """True when a command may exit with 0."""
        return self in (PlanVerdict.FITS, PlanVerdict.TIGHT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How ranks share the model. world = tensor × pipeline × data; expert and DCP ranks are the
    same GPUs seen another way (`expert_parallel_size` 1 = experts are split, not spread).
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel_size: int = 1
    decode_context_parallel_size: int = 1

    @property
    def world_size(self) -> int:
        """GPUs the layout takes."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size

    @property
    def without_stages(self) -> tuple[int, int, int, bool]:
        """Tensor, data and expert sizes, and whether there are pipeline stages: what decides how
        one layer's weights meet the ranks.
        """
        return (
            self.tensor_parallel_size,
            self.data_parallel_size,
            self.expert_parallel_size,
            self.pipeline_parallel_size > 1,
        )

    @property
    def label(self) -> str:
        """Short form for tables: `tp8·pp2`, `tp16·ep16`."""
        parts = [f"tp{self.tensor_parallel_size}"]
        for prefix, size in (
            ("pp", self.pipeline_parallel_size),
            ("dp", self.data_parallel_size),
            ("ep", self.expert_parallel_size),
            ("dcp", self.decode_context_parallel_size),
        ):
            if size > 1:
                parts.append(f"{prefix}{size}")
        return "·".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class RackPart:
    """Cards of one kind in a machine that holds several kinds."""

    gpu: str
    gpu_title: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rack:
    """A rack as understood: `text` as typed, the card, and how the GPUs sit in nodes.

    In one machine of several kinds of card `gpu` is the one with the least memory and `parts` are
    all of them, in the order of their ranks.

    `reading` is a code for how the text was read when that needs saying (`as_trays`: 8xGB300 is
    two trays of four; `smallest_count`: only a card was named).
    """

    text: str
    gpu: str
    gpu_title: str
    nodes: int
    gpus_per_node: int
    reading: str | None = None
    parts: tuple[RackPart, ...] = ()

    @property
    def gpu_count(self) -> int:
        """GPUs in the rack."""
        return self.nodes * self.gpus_per_node

    @property
    def label(self) -> str:
        """Canonical form: `8xMI355X`, `2x8xH200`; a host without cards by its own name."""
        if self.parts:
            return "+".join(f"{part.count}x{part.gpu_title}" for part in self.parts)
        if self.gpu == self.gpu_title:
            return self.gpu
        if self.nodes == 1:
            return f"{self.gpus_per_node}x{self.gpu_title}"
        return f"{self.nodes}x{self.gpus_per_node}x{self.gpu_title}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """What was asked. None means "not said": it is filled in, and the filling is listed.

    `layout` None = search. `vision` False = the vision tower is not loaded. `draft_tokens` above
    0 = the model's own prediction heads are loaded and draft so many tokens at a step. `variant`
    names a published form of the checkpoint (`native`, `ud-q8-k-xl`); `state_strategy` the
    engine's way to keep recurrent states. `drafter` names a model of its own that drafts beside it.
    """

    model: str
    rack: Rack
    engine: str | None = None
    engine_version: str | None = None
    variant: str | None = None
    context_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    kv_cache_dtype: str | None = None
    layout: Layout | None = None
    layout_constraints: dict[str, int] = field(default_factory=dict)
    gpu_memory_utilization: float | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    moe_backend: str | None = None
    vision: bool | None = None
    draft_tokens: int = 0
    state_strategy: str | None = None
    drafter: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedDefault:
    """An input nobody stated, with the value taken and where it is from.

    `origin`: `recipe` (a published one), `engine` (that version's default), `heavylift` (ours).
    """

    name: str
    value: Scalar
    origin: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One line of a term's derivation: a tensor group, a cache, a buffer.

    `rule` is a code for how it meets the ranks (`tensor`, `replicated`, `expert`, …) and `params`
    its numbers. `detail` is further notation: how a page came to its size.
    """

    id: str
    bytes: int
    formula: str
    rule: str = ""
    params: dict[str, int] = field(default_factory=dict)
    detail: str = ""
    tensors: int = 0
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One memory term of one rank: an interval of bytes with its kind, formula and source."""

    id: str
    segment: Segment
    kind: Kind
    bytes: Interval
    formula: str
    source: str
    note: str | None = None
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """A limit on a sum of terms.

    `base`: what the fraction multiplies (`total`, `free_before_load`, `free_after_load`, `none`).
    `inside` lists the segments that count against it. `visible` is the driver's whole figure.
    """

    name: str
    fraction: float | None
    base: str
    bytes: int
    inside: tuple[str, ...]
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """One pipeline stage: all its ranks hold the same. Layers are [first, last], from 0."""

    stage: int
    first_layer: int
    last_layer: int
    weights_bytes: int
    kv_cache_bytes: int
    recurrent_state_bytes: int
    workspace_bytes: Interval = UNKNOWN
    outside_pool_bytes: Interval = UNKNOWN
    """Unknown in plans that were kept before these were recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PerGpu:
    """The worst rank. `known_total_bytes` sums the lows of all terms; `certain_total_bytes` leaves
    out the assumed ones, and alone decides `does_not_fit`. `headroom_bytes` = budget - known.
    """

    weights_bytes: Interval
    kv_cache_bytes: Interval
    recurrent_state_bytes: Interval
    workspace_bytes: Interval
    outside_pool_bytes: Interval
    known_total_bytes: int
    certain_total_bytes: int
    high_total_bytes: int | None
    budget_bytes: int
    visible_bytes: int
    headroom_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanCapacity:
    """The inverse: what the rest of the budget holds. All intervals, whole deployment.

    `max_context_tokens` for the asked number of sequences; `max_sequences` at the asked context;
    `kv_tokens` that the pool holds: high = one endless sequence, low = sequences of the asked
    context, rounded to pages and with their states.
    """

    max_context_tokens: Interval
    max_sequences: Interval
    kv_tokens: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Support:
    """What is known of this combination having run. `conflict` is a second source that differs."""

    status: Status
    source: str
    as_of: str
    recipe: str | None = None
    note: str | None = None
    conflict: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """A limit met or missed, in bytes per GPU. `binds` marks the one that decides."""

    id: str
    need_bytes: int
    have_bytes: int
    short_bytes: int
    binds: bool
    term: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fix:
    """A change that was planned again and its result. `command` is what to type."""

    id: str
    params: dict[str, Scalar]
    verdict: PlanVerdict
    status: Status
    headroom_bytes: int
    command: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """A layout that lost, and why: a refusal code of the engine's rules, or its own verdict."""

    layout: Layout
    code: str
    params: dict[str, Scalar]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineChoice:
    """What one engine makes of the request: its best layout, and what is known of it.

    No layout = its own release says that it does not run here, so none was looked for.
    """

    engine: str
    title: str
    version: str
    layout: Layout | None
    verdict: PlanVerdict
    support: Support
    headroom_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallerRack:
    """A smaller count of the same card that does not hold the model.

    `weights_alone`: it was not searched, because the weights alone are more than the cards show;
    `need_bytes` is then the least weights of one GPU, else what the best layout needs.
    """

    rack: str
    gpus: int
    need_bytes: int
    have_bytes: int
    weights_alone: bool
    code: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A remark on the plan: a code and what its text needs."""

    code: str
    params: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ThumbAnswer:
    """A rule of thumb beside the account. Bytes per GPU.

    `weights_bytes` is the even share of the checkpoint that such rules reckon with, `reserve_bytes`
    what the rule keeps beside it. `holds`: whether it calls the rack enough; None where its low and
    high end differ. `faults` are codes with numbers: where it goes wrong for this plan.
    """

    id: str
    weights_bytes: int
    reserve_bytes: Interval
    holds: bool | None
    faults: tuple[Note, ...]
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HostNeeds:
    """What the host must offer. None = not known. Bytes to load are read once per node or rank
    group, as the engine does.
    """

    disk_bytes: int
    load_bytes_per_node: int | None
    host_ram_bytes: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """Sums over all ranks, replicas included. Bytes."""

    weights_bytes_total: int
    kv_cache_bytes_total: int
    recurrent_state_bytes_total: int


class Agreement(StrEnum):
    """How a measured term stands to the planned one."""

    EQUAL = "equal"
    """A planned number, and the measured one is it, as far as the log prints digits."""
    INSIDE = "inside"
    """A planned interval that holds the measured number."""
    OUTSIDE = "outside"
    """Neither: the plan is wrong, or something was started otherwise than planned."""
    NEW = "new"
    """The plan knew no bound, or no such term; now there is a number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TermComparison:
    """One term, planned and measured, in bytes. `resolution_bytes` is the log's last digit."""

    term: str
    planned: Interval | None
    measured_bytes: int
    resolution_bytes: int
    agreement: Agreement
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The whole answer. `verdict` is the first that applies of does_not_fit, unsupported or
    broken, unknown, tight, fits.

    `engines`: every engine that was asked, where none was named, the taken one among them.
    `smaller`: where only a card was named, the counts below the one taken. `rules_of_thumb`: only
    where they were asked for.
    """

    request: PlanRequest
    model: str
    title: str
    variant: str
    variant_title: str
    engine: str
    engine_title: str
    engine_version: str
    rack: Rack
    layout: Layout
    context_tokens: int
    output_tokens: int
    concurrency: int
    kv_cache_dtype: str
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    moe_backend: str | None
    vision: bool
    verdict: PlanVerdict
    capacity_verdict: Capacity
    support: Support
    per_gpu: PerGpu
    terms: tuple[Term, ...]
    budgets: tuple[Budget, ...]
    stages: tuple[StageMemory, ...]
    worst_stage: int
    capacity: PlanCapacity
    kv_bytes_per_token: int
    state_bytes_per_sequence: int
    page_tokens: int | None
    page_bytes: int | None
    limits: tuple[Limit, ...]
    fixes: tuple[Fix, ...]
    defaults: tuple[ResolvedDefault, ...]
    rejected: tuple[Rejected, ...]
    notes: tuple[Note, ...]
    totals: Totals
    host: HostNeeds
    total_parameters: int
    active_parameters: int | None
    checkpoint_bytes: int
    checkpoint_tensors: int | None
    receipt: str | None = None
    measured: tuple[TermComparison, ...] = ()
    engines: tuple[EngineChoice, ...] = ()
    smaller: tuple[SmallerRack, ...] = ()
    rules_of_thumb: tuple[ThumbAnswer, ...] = ()
    schema: int = SCHEMA
