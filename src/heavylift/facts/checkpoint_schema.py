"""Facts about checkpoints of any model: the hubs they lie on, and how their tensors are named."""

from __future__ import annotations

from dataclasses import dataclass

from heavylift.facts.schema import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class HubFacts(Rule):
    """A hub of models and what it is asked.

    `endpoint` is its address, `endpoint_variables` name another one (a mirror; a bare host counts
    as https). `listing` and `file` are the paths of the list of files and of one file, with {id},
    {revision} and {path}; `info` is that of the description, empty when there is none.
    `token_files` may begin with a variable ($HF_HOME) or ~. `chosen_by` are variables that make
    this hub the one that is asked, `offline_variables` those that forbid to ask. `transfer`: the
    library that `fetch` moves whole files with; empty = plain HTTP.
    """

    id: str
    title: str
    endpoint: str
    endpoint_variables: tuple[str, ...]
    token_variables: tuple[str, ...]
    token_files: tuple[str, ...]
    listing: str
    file: str
    revision: str
    info: str = ""
    transfer: str = ""
    chosen_by: tuple[str, ...] = ()
    offline_variables: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class HubBook:
    """All hubs. The first is the one that is asked when nobody says another."""

    hubs: tuple[HubFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleNames(Rule):
    """A part of a model and how its tensors' names look: regular expressions, searched in the name
    with `{l}` and `{e}` for the numbers. The first role with one that is found counts.
    """

    role: str
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorWords(Rule):
    """Ends of names that belong together, and the config fields that count parts of a model.

    `side_tensors` end the names of scales, zero points and the like: stored bytes that are no
    parameters. `unread_weights` end the names of packed weights whose packing nobody described: how
    many there are is not known. `four_bit_states` are those side tensors that say that a byte packs
    two weights. `experts_per_token`, `experts`, `layers`, `bits` and `group_size` are names of
    config fields; `nests` are tables of a config in which they may stand, `quantisation` those that
    describe the packing.
    """

    side_tensors: tuple[str, ...]
    unread_weights: tuple[str, ...]
    four_bit_states: tuple[str, ...]
    nests: tuple[str, ...]
    quantisation: tuple[str, ...]
    experts_per_token: tuple[str, ...]
    experts: tuple[str, ...]
    layers: tuple[str, ...]
    bits: tuple[str, ...]
    group_size: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CutNames(Rule):
    """How engines that split tensors over ranks cut a tensor of such a name: regular expressions as
    of `RoleNames`. `shard` and `axis` as of a family's tensors. It holds where a family is
    described and lists no tensors; of the cuts the first with a name that is found counts.
    """

    shard: str
    names: tuple[str, ...]
    axis: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorBook:
    """How tensors of any model are named."""

    words: TensorWords
    roles: tuple[RoleNames, ...]
    cuts: tuple[CutNames, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufFields(Rule):
    """What the keys of a GGUF header, without the architecture in front, state in the words of a
    config.json: `fields` are the fields of each key, `differences` a field as one key less another.
    """

    fields: dict[str, tuple[str, ...]]
    differences: dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class FormFacts(Rule):
    """A form of weights that names of copies speak of, as it is usually stored.

    `words` are looked for in a name; `scheme` and `group` as of `QuantisedFacts`, for the linear
    layers in `tensors` (with `tables` also the tables of tokens), on `engines`. Of models with
    experts only those in `tensors_beside_experts`, where it is not empty.

    A quantiser's `mix` of that id is taken where the family's list is one for mixes; elsewhere
    `scheme` is the least that the mix stores a matrix in, and `most_scheme` the most.
    """

    id: str
    title: str
    words: tuple[str, ...]
    scheme: str
    tensors: tuple[str, ...]
    engines: tuple[str, ...]
    tensors_beside_experts: tuple[str, ...] = ()
    group: int = 1
    tables: bool = False
    mix: str | None = None
    most_scheme: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FormBook:
    """All forms, in the order they are looked for, and words of names that say nothing."""

    plain_words: tuple[str, ...]
    forms: tuple[FormFacts, ...]
