"""Shapes of the facts on serving: how an engine is started, beyond what a plan computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from heavylift.facts.schema import Fact, Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingImage(Rule):
    """A container image. `reference` may hold `{version}`; `digest` is its `sha256:` where known.

    The first in scope is taken.
    """

    reference: str
    digest: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingRule(Rule):
    """Flags and variables that go together where every word of `when` holds.

    Words are features of the launch (`text_only`, `multi_node`, `dcp`, `expert`, `pipeline`,
    `prefill`, `decode`, `draft:NAME`, `gpu:ID`); `!word` = it does not hold. A flag with an empty
    value takes none. `keys` are those of the engine's file of settings, by path. `forbids` maps a
    setting to a pattern of values that this scope refuses. `remark` is what must be read before a
    start, by its key. `why` is the key of its text.
    """

    id: str
    why: str
    when: tuple[str, ...] = ()
    flags: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str | int | float | bool] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    remark: str | None = None
    forbids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftFacts(Rule):
    """A draft model for speculative decoding: its repository and the bytes of its weights, which
    every GPU of a tensor group may hold whole.
    """

    id: str
    method: str
    repo: str
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalFacts(Rule):
    """How an engine is started without reading weights: `flags` that make it invent them.

    `overrides` is the flag that takes JSON over the model's config: how layers are left out.
    """

    flags: dict[str, str]
    overrides: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingEngine:
    """How an engine is started.

    `command` is its entry among the engines as commands look, `table` its flag table, `plans_as`
    the engine whose memory rules it shares (None = its own). `table_versions` maps a version as
    plans name it to the one its flags were read from; `kv_dtype_words` a plan's word to the
    engine's. `deadline_flags` and
    `deadline_variables` carry the time a start may take, in seconds. `other_build`: the table
    was read from another build than the versions that it stands for. `rehearsal` None = no way is
    known to start it without weights. `prepares_late`: what is done before serving needs its
    server. `placement_path`: where it tells which part of a loaded model is on cards. `splits`: one
    server can prefill and another decode.
    """

    title: str
    names: tuple[str, ...]
    command: str
    port: int
    health_path: str
    table: str
    plans_as: str | None = None
    key_variable: str | None = None
    router: str | None = None
    table_versions: dict[str, str] = field(default_factory=dict)
    kv_dtype_words: dict[str, str] = field(default_factory=dict)
    other_build: bool = False
    deadline_flags: tuple[str, ...] = ()
    deadline_variables: tuple[str, ...] = ()
    cache_folders: tuple[str, ...] = ()
    images: tuple[ServingImage, ...] = ()
    rules: tuple[ServingRule, ...] = ()
    rehearsal: RehearsalFacts | None = None
    prepares_late: bool = False
    placement_path: str | None = None
    splits: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingCommon:
    """What holds for every engine: times, sizes, draft models.

    `read_bandwidth` in GB/s is what weights are assumed to be read with where nobody measured it;
    `start_allowance` what a start takes beside reading.
    """

    read_bandwidth: Fact[float]
    start_allowance: Fact[int]
    stop_grace: Fact[int]
    shared_memory: Fact[int]
    drafts: tuple[DraftFacts, ...] = ()
