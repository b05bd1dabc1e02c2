"""Shapes of the facts files, as frozen records.

Every number carries its provenance. A single value is a `Fact`. A rule (a table of fields that only
make sense together) is a `Rule` subclass: the provenance belongs to the whole rule and the units
are in the field names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T", int, float, str, bool, tuple[int, ...])


class FactKind(StrEnum):
    """What a fact rests on: a maker's statement, a measurement, a report by others, a derivation
    from other facts, or an assumption that says so.
    """

    SPEC = "spec"
    MEASURED = "measured"
    REPORTED = "reported"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact(Generic[T]):
    """One value with its unit and provenance: what it rests on, the source id (a key of
    `sources.toml`) and the day it held.
    """

    value: T
    unit: str
    kind: FactKind
    source: str
    as_of: date
    note: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A place facts come from. `retrieved` is the day it was read."""

    id: str
    title: str
    retrieved: date
    url: str | None = None
    licence: str | None = None


# --- rules ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A statement of several fields that hold together, within a scope.

    Empty `versions` bounds and tuples mean "any". `since` is included, `until` is excluded.
    """

    kind: FactKind
    source: str
    as_of: date
    note: str | None = None
    since: str | None = None
    until: str | None = None
    vendors: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    families: tuple[str, ...] = ()


# --- models --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorPattern:
    """A group of tensors that differ only in layer and expert number.

    `name` holds `{l}` for the layer and `{e}` for the expert. `layers` names a layer set of the
    model; None = the tensor exists once. `shape` entries are expressions over the dimensions.
    `shard` says how tensor parallelism meets it: `tensor` (split on `axis`), `kv_heads` (split as
    far as there are `heads`), `replicated`, `expert` (a routed expert), `vision` (one whole copy
    per rank, only when vision is loaded). `params_per_element` is 2 where a byte packs two 4-bit
    weights and 0 for scales. `unless` names a dimension that, when above 0, means there is none;
    `when` one that, when 0, means so. `linear` = a matrix of a linear layer, which a quantisation
    of the whole model takes. `draft` = part of a prediction head that is loaded only to speculate.
    """

    name: str
    dtype: str
    shape: tuple[str | int, ...]
    role: str
    shard: str
    axis: int = 0
    layers: str | None = None
    experts: str | None = None
    params_per_element: int = 1
    unless: str | None = None
    when: str | None = None
    heads: str | int = "kv_heads"
    linear: bool = False
    draft: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CachePattern:
    """What grows with tokens: `elements` per token and layer of `layers`.

    `split`: `heads` (over tensor parallelism, as far as there are `heads`), or `replicated` (a
    latent that every tensor rank holds whole). Decode context parallelism splits the tokens of
    either. `window` tokens at most are kept (0 = all); `tokens_per_entry` tokens share one entry.
    `draft_layers` names the prediction layers that keep one too, when they are loaded. `attends` is
    how many channels of a query meet each kept entry, scores and values together, over all heads; 0
    = as many entries whatever the length (a fixed choice of them), or not known.
    """

    id: str
    layers: str
    elements: str | int
    split: str
    heads: str | int = 1
    window: str | int = 0
    tokens_per_entry: str | int = 1
    attends: str | int = 0
    draft_layers: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StatePattern:
    """What grows with sequences: `elements` per sequence and layer, over all heads.

    `dtype_class` (`recurrent`, `conv`, `compressor`) is given a dtype by the engine.
    """

    id: str
    layers: str
    elements: str | int
    heads: str | int
    dtype_class: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointFormat:
    """The tensors of one file format of a family. `base` names a family whose tensors of the same
    format come first.
    """

    id: str
    tensors: tuple[TensorPattern, ...]
    base: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigLayers:
    """How a config.json states a layer set: the numbers listed in `field` (counting from
    `counts_from`), or all from `start` up to `stop`. Each names a field, dotted from the root; no
    `start` = from the first, no `stop` = to the last layer.

    With `equals`, `field` has an entry (or a letter) for every layer, and those that are one of
    the words belong; `others` are the words it may have besides, where it may not have any: a
    network with a layer of another kind is not the one described. `every` names a field with a
    number n: every n-th layer. `beyond` names a field with a count of layers that follow the
    last. `other_than` = all layers but those of the sets named. `absent` says what the set is
    where the fields are not there: `all` or `none`; or `or_else` says how else it is stated then.
    `at` names the place of the layer among each n, counted from 0; without it, it is the last.
    `without_last` names a field with how many of the last layers do not belong, whatever the list
    says. Fields may be alternatives, `a|b`: the first that is there counts.
    """

    field: str | None = None
    counts_from: int = 0
    start: str | None = None
    stop: str | None = None
    equals: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    every: str | None = None
    beyond: str | None = None
    other_than: tuple[str, ...] = ()
    absent: str | None = None
    at: str | None = None
    without_last: str | None = None
    or_else: ConfigLayers | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyFacts:
    """An architecture: which dimensions a model of it must state, and what follows from them.

    `config_dims` names the field of a config.json that states each dimension (and `max_context`),
    dotted from the root, or several (`a|b`: the first that is there); `config_layers` how it
    states each layer set. `dim_defaults` are expressions over the other dimensions, for those a
    config may leave out: `head_dim = "hidden_size/heads"`; a default of 0 allows a stated 0.
    `described` is False where nothing but the tensors is known: what grows is then unknown.
    `schemes` names the family's own spelling of a quantisation scheme. `config_only` holds fields
    of a config that must have one of these values where they are stated: what says otherwise is a
    network that this description does not cover; `instead_of` names a family whose types this one
    shares, and describes what that one does not cover. `gguf_architectures` are what GGUF headers
    call the family. A family without any list of tensors knows what a text needs, not how ranks cut
    the weights.
    """

    id: str
    title: str
    dims: tuple[str, ...]
    layer_sets: tuple[str, ...]
    hf_model_types: tuple[str, ...]
    caches: tuple[CachePattern, ...]
    states: tuple[StatePattern, ...]
    formats: tuple[CheckpointFormat, ...]
    config_dims: dict[str, str] = field(default_factory=dict)
    config_layers: dict[str, ConfigLayers] = field(default_factory=dict)
    dim_defaults: dict[str, str] = field(default_factory=dict)
    described: bool = True
    schemes: dict[str, str] = field(default_factory=dict)
    config_only: dict[str, tuple[str | int | bool, ...]] = field(default_factory=dict)
    instead_of: str | None = None
    gguf_architectures: tuple[str, ...] = ()

    @property
    def flags(self) -> frozenset[str]:
        """Dimensions that are a yes or no: with a yes, some tensor does not exist."""
        patterns = (pattern for entry in self.formats for pattern in entry.tensors)
        stated = {pattern.unless for pattern in patterns if pattern.unless is not None}
        return frozenset(stated - self.counts)

    @property
    def counts(self) -> frozenset[str]:
        """Dimensions that may be 0, or a no: then some tensor does not exist."""
        patterns = (pattern for entry in self.formats for pattern in entry.tensors)
        return frozenset(pattern.when for pattern in patterns if pattern.when is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantisedFacts:
    """Linear layers of a variant that are stored in a quantised form.

    `scheme` is one of `checkpoint.quantisation`, `group` its weights per scale where the scheme
    leaves that open. `tensors` are names of the family's list, with `*` for any part; `layers`
    the only ones, empty = all. `tables`: the tables of tokens are stored so too.
    """

    scheme: str
    tensors: tuple[str, ...]
    group: int = 1
    layers: tuple[int, ...] = ()
    tables: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TypedFacts:
    """Tensors of a variant (`*` = any part of a name) that have a type of their own; `layers` the
    only ones, empty = all.
    """

    type: str
    tensors: tuple[str, ...]
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantFacts(Rule):
    """A published form of a model.

    `format` is a format id of the family. `tensor_types` gives GGUF types by role (`*` = the
    rest), `typed` those of some layers alone; the first that takes a tensor counts. `quantised`:
    which linear layers are not as the family's list says; the first entry that takes a tensor
    counts. `kv_cache_dtype`: what the checkpoint brings scales for, which engines take unless told
    otherwise. `bytes_total` is the published size of all files, where the tensor list is not known.
    `bytes_more` is how much more the files may hold: what a form known by its name alone may have
    left as it was. `method` is what a checkpoint calls its form where nobody described it: its
    files say the bytes, engines' lists whether they read it. `dims` are dimensions in which the
    form's tensors differ from the model's own; a published recipe that names no form says nothing
    of it.
    """

    id: str
    title: str
    format: str
    engines: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()
    tensor_types: dict[str, str] = field(default_factory=dict)
    typed: tuple[TypedFacts, ...] = ()
    quantised: tuple[QuantisedFacts, ...] = ()
    dims: dict[str, int] = field(default_factory=dict)
    kv_cache_dtype: str | None = None
    bytes_total: int | None = None
    bytes_more: int | None = None
    method: str | None = None
    repo: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TotalsFacts(Rule):
    """What the published checkpoint adds up to; the rebuilt inventory must match it."""

    tensors: int
    bytes: int
    parameters: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LicenceTermFacts(Rule):
    """A condition of a model's licence, in words of ours."""

    id: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """One model: names, family, dimensions, layer sets and published variants.

    `hf_architecture` is the class that its config.json names first, by which engines look it up.
    `recurrent_state_dtype` is what its config.json asks for states to be kept in.
    `licence_terms` are the conditions of its licence that somebody quoted: none known is not none.
    """

    id: str
    title: str
    family: str
    names: tuple[str, ...]
    dims: dict[str, Fact[int]]
    layers: dict[str, Fact[tuple[int, ...]]]
    variants: tuple[VariantFacts, ...]
    totals: TotalsFacts | None
    max_context: Fact[int]
    hf_architecture: Fact[str] | None = None
    licence: Fact[str] | None = None
    licence_terms: tuple[LicenceTermFacts, ...] = ()
    published_total_gb: Fact[float] | None = None
    recurrent_state_dtype: Fact[str] | None = None

    @property
    def is_recalled(self) -> bool:
        """True when nobody saw a source of its dimensions."""
        return any(fact.kind is FactKind.ASSUMED for fact in self.dims.values())

    def dim(self, name: str) -> int:
        """The value of a dimension. Raises KeyError when the model does not state it."""
        return self.dims[name].value

    @property
    def dim_values(self) -> dict[str, int]:
        """All dimensions as plain numbers, for expressions."""
        return {name: fact.value for name, fact in self.dims.items()}

    def layer_set(self, name: str) -> tuple[int, ...]:
        """Layer numbers (from 0) of a set. Raises KeyError for an unknown one."""
        return self.layers[name].value


# --- hardware ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuFacts:
    """One card, as the driver shows it. `memory_nameplate` is what is sold, `memory_visible` what
    the driver offers.

    `devices_per_card`: a card that the driver shows as several devices; all facts are of one
    device, and racks count devices. `memory_share` names the rule of a machine whose memory is
    shared by processor and GPU: the nameplate is then the machine's, and visible what the driver
    gives unasked. No `memory_bandwidth` = nobody said. `pci_ids` are `vendor:device`, by spaces.
    """

    id: str
    title: str
    vendor: str
    architecture: str
    aliases: tuple[str, ...]
    memory_nameplate: Fact[float]
    memory_visible: Fact[int]
    memory_bandwidth: Fact[float] | None = None
    link_bandwidth: Fact[float] | None = None
    native_formats: Fact[str]
    node: str
    devices_per_card: int = 1
    memory_share: str | None = None
    pci_ids: Fact[str] | None = None
    dense_bf16: Fact[float] | None = None
    dense_fp8: Fact[float] | None = None
    dense_fp4: Fact[float] | None = None
    power: Fact[float] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """How a card is built into machines: GPUs per node, and per fast-link domain.

    `most_nodes`: so many of the machines are joined at most; None = as many as are wanted.
    """

    id: str
    title: str
    gpu: str
    gpus_per_node: Fact[int]
    gpus_per_link_domain: Fact[int]
    most_nodes: Fact[int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryShareRule(Rule):
    """How much of a machine's memory its driver gives to the GPU.

    Of `memory` bytes the driver gives `default_ratio` unasked. With `setting` (a command with
    `{mib}` or `{gb}` to fill in; None = there is nothing to set) it gives all but `kept_bytes`,
    which the system needs. `hosts` are words by which people name such machines.
    """

    id: str
    title: str
    default_ratio: float
    kept_bytes: int
    setting: str | None = None
    hosts: tuple[str, ...] = ()

    def unasked_bytes(self, memory: int) -> int:
        """What the driver gives of `memory` bytes as it is delivered."""
        return int(memory * self.default_ratio)

    def most_bytes(self, memory: int) -> int:
        """What it can be made to give, at least what it gives unasked."""
        unasked = self.unasked_bytes(memory)
        return unasked if self.setting is None else max(unasked, memory - self.kept_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryShareBook:
    """All rules of shared memory."""

    shares: tuple[MemoryShareRule, ...]


# --- engines -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineVersion(Rule):
    """A release, in the order of release. `read`: its source was read and its rules are below;
    an unread one has no known rules.
    """

    id: str
    read: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetRule(Rule):
    """How the engine limits itself.

    `base`: `total`, `free_before_load`, `free_after_load`, `none`. `inside` names the segments that
    count against the fraction; all others must fit beside it in what the driver shows. Where the
    engine computes its default, `default_reserved` is what it leaves free (bytes, an expression),
    on cards over `floor_over_gib` at least the floor; the fraction is rounded to three digits and
    multiplied by `default_vision_factor` when a vision tower is loaded. `default_with_vision` is
    the default of an engine that states another one for then. The expression counts a chunk of
    prefill as at least `least_chunk_tokens`; `prefill_captures` are the sizes of which a graph is
    captured, up to the chunk. Under data parallel attention batches are wide where more than
    `wide_batches_over` are captured.
    """

    fraction_flag: str
    base: str
    inside: tuple[str, ...]
    default: float | None = None
    default_reserved: str | None = None
    default_reserved_floor_bytes: int = 0
    floor_over_gib: int = 0
    least_chunk_tokens: int = 0
    prefill_captures: tuple[int, ...] = ()
    wide_batches_over: int = 0
    default_vision_factor: float = 1.0
    default_with_vision: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultRule(Rule):
    """The engine's default of one setting, for cards of at least `min_memory_gib` and that many
    ranks.

    The first rule in scope is taken. No `value` = taken from the model.
    """

    name: str
    value: int | str | None = None
    min_memory_gib: int = 0
    min_ranks: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertPaddingRule(Rule):
    """A model class that pads the experts' inner dimension before it is split.

    When inner // tensor_parallel < `floor`, inner becomes `floor` × tensor_parallel. `under_ep` =
    also when experts are spread whole.
    """

    floor: int
    under_ep: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class MoeBackendRule(Rule):
    """A kernel family for the experts: each rank's part of the inner dimension is rounded up to
    `intermediate_multiple`, and the dimension that experts read and write to `hidden_multiple`.
    `default` = taken when nobody names one, in this scope. `spreads_only` = takes whole experts, so
    needs expert parallelism.
    """

    name: str
    intermediate_multiple: int
    hidden_multiple: int = 1
    default: bool = False
    spreads_only: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardOverrideRule(Rule):
    """A role the engine treats otherwise than the family says.

    `when`: `always`; `data_parallel`: more than one data parallel rank; `no_data_parallel`: a
    single one; or `sequence_parallel`: one pipeline stage, experts spread over more than one tensor
    rank, and data parallelism or one of `backends`. `shard` may also be `all_ranks`: split over
    tensor times data parallel ranks. `tensors` are the only ones of the role (`*` = any part of a
    name; empty = all); `divides` names a dimension that the tensor size must divide.
    """

    role: str
    shard: str
    when: str
    backends: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    divides: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedCache:
    """A cache of `layers` in a pool of packed groups: the `bytes` of one block of `block_tokens`
    tokens of one layer, before they are rounded up to `alignment_bytes`. Those of a `bucket` are
    given out together. `window` tokens at most are kept (0 = all); `dtype` is the KV dtype it is
    for (None = every one).
    """

    bucket: str
    layers: str
    bytes: str | int
    block_tokens: int
    alignment_bytes: int
    window: str | int = 0
    dtype: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheRule(Rule):
    """How KV and state are stored.

    `layout`: `unified_pages` (one page size for all layers: the attention block is raised until its
    page holds a state), `packed_groups` (blocks that hold a page of every layer of a group, those
    of `packed`), `blocks_and_slots` (KV in blocks, state in slots per sequence) or `contiguous` (KV
    cells per slot, state per slot). `block_tokens` is the block the KV is rounded to;
    `page_alignment_tokens` what a unified page is rounded to. A sequence holds at least
    `state_units_low` states per layer (slots, or pages of a group) and is admitted only with
    `state_units_high` free; `reserved_pages` and
    `reserved_states` are never given out. `state_to_kv_ratio`: the pool is divided by this ratio
    before anything runs. `states_for_max_num_seqs`: states of all allowed sequences are set aside
    at the start. `context_shared`: the engine's context setting is one pot for all sequences.
    `window_shared`: the windows of all sequences lie in one cache, with room for one batch.
    `blocks_for_max_num_seqs`: a start is refused that has fewer blocks than sequences it may admit,
    where states lie in blocks. `strategies` are the engine's ways to keep states, by name: the
    states each sets aside for a sequence, in place of `state_units_high`.
    """

    layout: str
    block_tokens: int
    page_alignment_tokens: int = 1
    state_units_low: int = 1
    state_units_high: int = 1
    reserved_pages: int = 0
    reserved_states: int = 0
    state_to_kv_ratio: float | None = None
    states_for_max_num_seqs: bool = False
    blocks_for_max_num_seqs: bool = False
    context_shared: bool = False
    window_shared: bool = False
    window_to_full_ratio: float | None = None
    batches_in_flight: int = 1
    states_per_draft_token: int = 0
    strategies: dict[str, int] = field(default_factory=dict)
    packed: tuple[PackedCache, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheBytesRule(Rule):
    """A cache the engine stores otherwise than element by element in the KV dtype.

    `cache` is a cache id of a family, `dtype` a KV dtype's name (None = every one), `bytes` those
    of one entry of one layer over all heads, with its scales.
    """

    cache: str
    bytes: str | int
    dtype: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StateDtypeRule(Rule):
    """The dtype in which an engine keeps a class of state (`recurrent`, `conv`, `compressor`);
    `by_model`: unless the config.json of the model asks for another.
    """

    dtype_class: str
    dtype: str
    by_model: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class KvDtypeRule(Rule):
    """A KV dtype the engine offers: its name, bytes per element, and names it also answers to.

    `scale_bytes_per_vector`: of the scale kept with each key and each value of a head.
    """

    name: str
    bytes_per_element: float
    scale_bytes_per_vector: float = 0.0
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineRule(Rule):
    """How layers are dealt to pipeline stages.

    `remainder`: who takes the layers that do not divide: `before_last` (stages from the last but
    one backwards), `last`, or `proportional` (layer i of n goes where i/(n+1) of the GPUs have been
    passed). `everywhere` lists roles that every stage holds, `on_host` those kept in host memory;
    the others that have no layer sit on the first stage (embed) or the last. `seen_everywhere` are
    roles that the sources place once and logs (`seen_source`) show on every stage: they are
    counted, as a term of their own.
    """

    remainder: str
    everywhere: tuple[str, ...] = ()
    on_host: tuple[str, ...] = ()
    seen_everywhere: tuple[str, ...] = ()
    seen_source: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRule(Rule):
    """Which layouts the engine allows.

    `expert_parallel`: `none`, `tensor_times_data` (all or nothing over those ranks) or `free`.
    `splits`: `ranks` (tensor parallel processes) or `layers` (llama.cpp: whole layers per GPU).
    """

    expert_parallel: str
    data_parallel: bool
    pipeline_parallel: bool
    decode_context_parallel: bool
    multi_node: bool
    splits: str
    allowed_tensor_parallel: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRule(Rule):
    """Memory of one rank beside the checkpoint's tensors, KV and state.

    `segment`: `workspace`, `outside_pool`, or `weights` for what the engine makes of those tensors
    and keeps beside them. `low` and `high` are bytes, as expressions over the
    model's dimensions and the workload (`tensor_parallel_size`, `max_num_batched_tokens`,
    `max_num_seqs`, `ranks`, …). No `high` = no upper bound is known. `backends`: only with one of
    these MoE backends.
    """

    id: str
    segment: str
    low: str | int
    high: str | int | None = None
    backends: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSupportRule(Rule):
    """What the engine's own release says of a family on a card, short of a published recipe."""

    status: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFacts:
    """One engine: versions, and rules scoped by version, vendor, architecture and family.

    `registry` names the registry with what it lists as runnable, where one was read.
    """

    id: str
    title: str
    names: tuple[str, ...]
    default_version: str
    versions: tuple[EngineVersion, ...]
    budgets: tuple[BudgetRule, ...]
    registry: str | None = None
    defaults: tuple[DefaultRule, ...] = ()
    expert_padding: tuple[ExpertPaddingRule, ...] = ()
    moe_backends: tuple[MoeBackendRule, ...] = ()
    shard_overrides: tuple[ShardOverrideRule, ...] = ()
    caches: tuple[CacheRule, ...] = ()
    cache_bytes: tuple[CacheBytesRule, ...] = ()
    state_dtypes: tuple[StateDtypeRule, ...] = ()
    kv_dtypes: tuple[KvDtypeRule, ...] = ()
    pipelines: tuple[PipelineRule, ...] = ()
    layouts: tuple[LayoutRule, ...] = ()
    memory: tuple[MemoryRule, ...] = ()
    support: tuple[EngineSupportRule, ...] = ()


# --- published recipes ---------------------------------------------------------------------------


class RecipeStatus(StrEnum):
    """What a recipe's source says of it: it ran or was signed off, somebody ran it, it was only
    written down, it is refused, or it is known to fail.
    """

    VERIFIED = "verified"
    REPORTED = "reported"
    UNVERIFIED = "unverified"
    UNSUPPORTED = "unsupported"
    BROKEN = "broken"


class ServicePhase(StrEnum):
    """One half of a service that is split into prefill and decode."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeFacts(Rule):
    """A recipe somebody published, with what its source says of it.

    `gpu_ids` are the cards of the catalogue it is for, `other_hardware` the ones outside it; both
    empty = any card (`for_any_gpu`). `variant` None = whatever variant the engine is given. `phase`
    None = the whole service; half of a split one says nothing of a whole one. No
    `tensor_parallel_size` = no layout is stated.

    `settings` are the values a plan takes (gpu_memory_utilization, max_num_seqs, …), each under
    the name the engine's flag stands for; `arguments` (one flag with its value each), `keys` (of
    its file of settings, by path) and `environment` are the engine's own words. A key's value may
    be `{max_num_seqs}`: that of the launch. `reported_kv_tokens`: what the run's log or guide
    printed.
    """

    id: str
    engine: str
    status: RecipeStatus
    gpu_ids: tuple[str, ...] = ()
    other_hardware: tuple[str, ...] = ()
    gpus: int | None = None
    nodes: int | None = None
    variant: str | None = None
    phase: ServicePhase | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    engine_version: str | None = None
    image: str | None = None
    settings: dict[str, int | float | str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    keys: dict[str, str | int | float | bool] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    reported_kv_tokens: int | None = None
    reason: str = ""

    @property
    def for_any_gpu(self) -> bool:
        """True when the recipe names no hardware at all."""
        return not self.gpu_ids and not self.other_hardware


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeBook:
    """All published recipes of one model."""

    model: str
    recipes: tuple[RecipeFacts, ...]


# --- served models -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricNames(Rule):
    """What engines call one figure in their metrics; the first name that is there counts."""

    field: str
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricBook:
    """All figures that engines' metrics are read for."""

    metrics: tuple[MetricNames, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyFormat(Rule):
    """A model format: `markers` are its own strings that belong in no answer, `features` what a
    model of its families is known to do (`tools`, `reasoning`, `images`).
    """

    format: str
    markers: tuple[str, ...]
    features: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyBook:
    """All known formats."""

    formats: tuple[ReplyFormat, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Golden(Rule):
    """A request to models of `families` whose prompt is known to have so many tokens: the user's
    `content`, and what joins the body (JSON).
    """

    name: str
    content: str
    body: str
    prompt_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldenBook:
    """All known counts."""

    goldens: tuple[Golden, ...]


# --- what is shown first --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Showcase:
    """A model id and a rack as typed."""

    model: str
    rack: str


# --- checks of a host ----------------------------------------------------------------------------


class CheckSeverity(StrEnum):
    """How bad it is when a check does not pass, in the words of findings."""

    FAIL = "fail"
    WARN = "warn"
    INFO = "info"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckFacts(Rule):
    """A check of the doctor: what it is about, how bad a failure is, what it rests on.

    `scope` names what must be there for the check to apply: `native` (not WSL), `wsl`, `container`,
    `gpu` (any card), `several_gpus`, `several_nodes`, `rdma`. `case_fixes` are the cases of a
    failure with a remedy of their own. `values` are its limits and tables, `references` the public
    threads where the failure was seen.
    """

    id: str
    group: str
    severity: CheckSeverity
    scope: tuple[str, ...] = ()
    case_fixes: tuple[str, ...] = ()
    values: dict[str, int | float | str] = field(default_factory=dict)
    references: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckList:
    """The checks of one file, in the order in which they are shown."""

    checks: tuple[CheckFacts, ...]
