"""A model's facts from the config.json beside its weights, by its family's own field names.

No field is guessed: what a config leaves out and the family has no expression for is an error that
names the field. No code of the checkpoint is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final

from heavylift.checkpoint.inventory import Inventory
from heavylift.checkpoint.quantisation_config import (
    kv_dtype_by_config,
    method_by_config,
    quantised_by_config,
)
from heavylift.errors import HeavyliftError
from heavylift.facts.consistency import MOST_LAYERS
from heavylift.facts.expressions import ExpressionError, evaluate
from heavylift.facts.schema import (
    ConfigLayers,
    Fact,
    FactKind,
    FamilyFacts,
    ModelFacts,
    VariantFacts,
)

# No model comes near either; a config that says more is damaged or made to exhaust memory.
_LARGEST_DIMENSION: Final = 2**32
_LAYER_NUMBER: Final = re.compile(r"[0-9]{1,6}")
_LONGEST_LIST: Final = 2**16
"""Characters of a text that lists layers."""

_OF_THE_WHOLE: Final = (
    "architectures",
    "quantization_config",
    "compression_config",
    "tie_word_embeddings",
)
"""Fields of a config with towers that say something of the language model in it."""

UNDESCRIBED: Final = "undescribed"
"""The family of a model whose architecture nobody described."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFile:
    """A decoded config.json, where it lies, and the day it was read."""

    path: str
    document: Mapping[str, Any]
    read_on: date

    def model_type(self) -> str:
        """The `model_type`. Raises PLAN057 when there is none."""
        value = self.document.get("model_type")
        if not isinstance(value, str) or not value:
            raise HeavyliftError("PLAN057", {"path": self.path})
        return value

    def find(self, field: str) -> Any:
        """The value of a dotted field; a number is a place in a list, `*` every place of one, and
        `#` in front asks how long a list is. None when it is not there.

        Of several (`a|b`) the first that is there; a whole number among them stands for itself.
        """
        values = (self._find(alternative) for alternative in field.split("|"))
        return next((value for value in values if value is not None), None)

    def _find(self, field: str) -> Any:
        if field.isdecimal():
            return int(field)
        if field.startswith("#"):
            listed = _reached(self.document, field[1:].split("."))
            return len(listed) if isinstance(listed, list | str) and listed else None
        return _reached(self.document, field.split("."))

    def number(self, field: str, *, least: int = 1) -> int:
        """A whole number from `least` up. Raises PLAN052 when missing, PLAN053 for another."""
        value = self.find(field)
        if value is None:
            raise HeavyliftError("PLAN052", {"path": self.path, "field": field})
        if type(value) is not int or not least <= value <= _LARGEST_DIMENSION:
            raise self._cannot_be(field, value)
        return value

    def flag(self, field: str) -> int:
        """A yes or no as 1 or 0. Raises as `number`."""
        value = self.find(field)
        if value is None:
            raise HeavyliftError("PLAN052", {"path": self.path, "field": field})
        if value not in (True, False):
            raise self._cannot_be(field, value)
        return int(value)

    def _cannot_be(self, field: str, value: object) -> HeavyliftError:
        return HeavyliftError(
            "PLAN053", {"path": self.path, "field": field, "value": repr(value)[:40]}
        )

    def numbers(self, field: str) -> tuple[int, ...]:
        """A list of whole numbers, or a text with commas between them. Raises as `number`."""
        value = self.find(field)
        if value is None:
            raise HeavyliftError("PLAN052", {"path": self.path, "field": field})
        if isinstance(value, str) and len(value) <= _LONGEST_LIST:
            parts = [part.strip() for part in value.split(",")]
            value = [int(part) if _LAYER_NUMBER.fullmatch(part) else part for part in parts if part]
        if not isinstance(value, list) or not all(type(entry) is int for entry in value):
            raise self._cannot_be(field, value)
        return tuple(value)


def _reached(found: Any, names: list[str]) -> Any:
    """What a path of names leads to; None where it leads to nothing."""
    for depth, name in enumerate(names):
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, list) and name == "*":
            return [_reached(entry, names[depth + 1 :]) for entry in found[:MOST_LAYERS]]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Uncovered:
    """A field of a config that says its network is not the one its family describes."""

    field: str
    value: str


def uncovered(config: ConfigFile, family: FamilyFacts) -> Uncovered | None:
    """The first field whose value the family's description does not cover; None when it covers
    all. What is not stated, or null, is covered.
    """
    for name, allowed in family.config_only.items():
        value = config.find(name)
        if value is None:
            continue
        # True is 1 to Python and not to a config.
        if not any(type(value) is type(each) and value == each for each in allowed):
            return Uncovered(field=name, value=repr(value)[:40])
    found = (_strange(config, rule) for rule in family.config_layers.values())
    return next(filter(None, found), None)


def _strange(config: ConfigFile, rule: ConfigLayers) -> Uncovered | None:
    """The first word of a list of layers that is none of those a rule knows."""
    entries = None if rule.field is None else config.find(rule.field)
    if entries is None or not rule.others:
        return None if rule.or_else is None else _strange(config, rule.or_else)
    if not isinstance(entries, list | str):
        return None
    known = {*rule.equals, *rule.others}
    strange = next((str(each) for each in entries[:MOST_LAYERS] if str(each) not in known), None)
    if strange is None:
        return None
    return Uncovered(field=str(rule.field), value=repr(strange)[:40])


def text_part(config: ConfigFile, nests: tuple[str, ...]) -> Iterator[ConfigFile]:
    """The configs of language models inside a config: of one with towers around it.

    What speaks of the whole (how it is quantised, whether its tables are tied, its class) is the
    text's as well, where that says nothing of its own.
    """
    for nest in nests:
        inner = config.find(nest)
        if not isinstance(inner, Mapping):
            continue
        around = {name: config.document[name] for name in _OF_THE_WHOLE if name in config.document}
        found = replace(config, document={**around, **inner})
        if isinstance(inner.get("model_type"), str):
            yield found
        if isinstance(inner.get("text_config"), Mapping):
            yield from text_part(found, ("text_config",))


def model_from_config(
    config: ConfigFile,
    family: FamilyFacts,
    *,
    identifier: str,
    formats: tuple[str, ...],
    has_files: bool = False,
) -> ModelFacts:
    """The facts of the model a config describes. `formats` are those of the files beside it.

    `has_files`: the bytes are those of files, and a form of weights that is not known is no error.

    Raises PLAN051 for a family whose configs nobody has described, PLAN052 for a field that is
    missing, PLAN053 for one of the wrong kind or size, PLAN069 for fields that do not go together.
    """
    if not family.config_dims:
        raise HeavyliftError("PLAN051", {"model_type": family.hf_model_types[0]})

    def fact(value: int, unit: str) -> Fact[int]:
        return Fact(
            value=value,
            unit=unit,
            kind=FactKind.DERIVED,
            source=config.path,
            as_of=config.read_on,
        )

    dims = _dims(config, family)
    if dims["layers"] > MOST_LAYERS:
        raise HeavyliftError(
            "PLAN053",
            {
                "path": config.path,
                "field": family.config_dims["layers"],
                "value": str(dims["layers"]),
            },
        )
    layers = {
        name: Fact(
            value=numbers,
            unit="layer numbers",
            kind=FactKind.DERIVED,
            source=config.path,
            as_of=config.read_on,
        )
        for name, numbers in layer_sets(config, family.config_layers, dims["layers"]).items()
    }
    _require_whole(config, family, dims, {name: each.value for name, each in layers.items()})
    return ModelFacts(
        id=identifier,
        title=identifier,
        family=family.id,
        names=(),
        dims={name: fact(value, "as in the config") for name, value in dims.items()},
        layers=layers,
        variants=tuple(
            _variant(config, family, entry, layers, has_files=has_files) for entry in formats
        ),
        totals=None,
        max_context=fact(config.number(family.config_dims["max_context"]), "tokens"),
        hf_architecture=_architecture(config),
    )


def _require_whole(
    config: ConfigFile,
    family: FamilyFacts,
    dims: Mapping[str, int],
    layers: Mapping[str, tuple[int, ...]],
) -> None:
    """What a text needs must come out in whole numbers of the dimensions. Raises PLAN069."""
    known = {**{f"{name}_layers": len(numbers) for name, numbers in layers.items()}, **dims}
    least_one: list[str | int] = []
    whole: list[str | int] = []
    for cache in family.caches:
        if layers.get(cache.layers) or layers.get(cache.draft_layers or ""):
            least_one += (cache.elements, cache.heads, cache.tokens_per_entry)
            whole += (cache.window, cache.attends)
    for state in family.states:
        if layers.get(state.layers):
            least_one += (state.elements, state.heads)
    for expression in (*least_one, *whole):
        try:
            value = evaluate(expression, known)
        except (ExpressionError, ZeroDivisionError) as error:
            raise _not_whole(config, expression) from error
        if value < 0 or (value == 0 and expression in least_one):
            raise _not_whole(config, expression)


def _not_whole(config: ConfigFile, expression: str | int) -> HeavyliftError:
    return HeavyliftError("PLAN069", {"path": config.path, "expression": str(expression)})


def _architecture(config: ConfigFile) -> Fact[str] | None:
    """The class the config names first; None where it names none."""
    stated = config.find("architectures.0")
    if not isinstance(stated, str) or not stated:
        return None
    return Fact(
        value=stated,
        unit="class",
        kind=FactKind.DERIVED,
        source=config.path,
        as_of=config.read_on,
    )


def _dims(config: ConfigFile, family: FamilyFacts) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in family.dims:
        field = family.config_dims.get(name)
        if field is None:  # follows from the others
            continue
        value = config.find(field)
        if value is None and name in family.dim_defaults:
            continue
        # What says whether some tensor exists is a yes or no, or how many of something there are.
        if name in family.flags or (isinstance(value, bool) and name in family.counts):
            found[name] = config.flag(field)
        else:
            zero = name in family.counts or family.dim_defaults.get(name) == "0"
            found[name] = config.number(field, least=0 if zero else 1)
    for name, expression in family.dim_defaults.items():
        if name in found:
            continue
        try:
            found[name] = evaluate(expression, found)
        except (ExpressionError, ZeroDivisionError) as error:
            raise HeavyliftError(
                "PLAN052", {"path": config.path, "field": family.config_dims.get(name, name)}
            ) from error
    return found


def layer_sets(
    config: ConfigFile, rules: Mapping[str, ConfigLayers], count: int
) -> dict[str, tuple[int, ...]]:
    """The layer numbers of every set, as the config states them.

    Raises PLAN052 for a field that is missing, PLAN053 for one that states no layers.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, rule in rules.items():
        others = {layer for other in rule.other_than for layer in found[other]}
        listed = _layers(config, rule, count)
        end = _end(config, rule, count)
        found[name] = tuple(layer for layer in listed if layer not in others and layer < end)
    return found


def _end(config: ConfigFile, rule: ConfigLayers, count: int) -> int:
    """The number that all layers of a set are below."""
    if rule.without_last is None or config.find(rule.without_last) is None:
        return MOST_LAYERS + count
    return count - config.number(rule.without_last, least=0)


def _layers(config: ConfigFile, rule: ConfigLayers, count: int) -> tuple[int, ...]:
    stated = rule.field or rule.every or rule.beyond or rule.start or rule.stop
    value = None if stated is None else config.find(stated)
    if stated is not None and value in (None, []) and rule.or_else is not None:
        # An empty list stands for the usual one in published configs.
        return _layers(config, rule.or_else, count)
    if stated is not None and value is None and rule.absent is not None:
        return tuple(range(count)) if rule.absent == "all" else ()
    if rule.field is not None:
        if rule.equals:
            return _layers_that_are(config, rule.field, rule.equals, count)
        return _layers_listed(config, rule.field, rule.counts_from, count)
    return _layers_counted(config, rule, count)


def _layers_listed(config: ConfigFile, field: str, counts_from: int, count: int) -> tuple[int, ...]:
    """The layers whose numbers a field lists."""
    listed = tuple(number - counts_from for number in config.numbers(field))
    if any(not 0 <= layer < count for layer in listed) or len(set(listed)) < len(listed):
        raise HeavyliftError(
            "PLAN053", {"path": config.path, "field": field, "value": repr(listed)[:40]}
        )
    return tuple(sorted(listed))


def _layers_counted(config: ConfigFile, rule: ConfigLayers, count: int) -> tuple[int, ...]:
    """Every so many of the layers, those beyond the last, or a run of them."""
    if rule.every is not None:
        step = config.number(rule.every)
        first = step - 1 if rule.at is None else config.number(rule.at, least=0)
        return tuple(range(first % step, count, step))
    if rule.beyond is not None:
        more = config.number(rule.beyond, least=0)
        if more > MOST_LAYERS:
            raise HeavyliftError(
                "PLAN053", {"path": config.path, "field": rule.beyond, "value": str(more)}
            )
        return tuple(range(count, count + more))
    start = 0 if rule.start is None else config.number(rule.start, least=0)
    stop = count if rule.stop is None else config.number(rule.stop, least=0)
    if stop > MOST_LAYERS:
        raise HeavyliftError(
            "PLAN053", {"path": config.path, "field": str(rule.stop), "value": str(stop)}
        )
    return tuple(range(start, stop))


def _layers_that_are(
    config: ConfigFile, field: str, words: tuple[str, ...], count: int
) -> tuple[int, ...]:
    """The layers whose entry is one of `words`: in a list, or letter by letter in a text. Entries
    beyond the layers speak of prediction heads.
    """
    entries = config.find(field)
    if entries is None:
        raise HeavyliftError("PLAN052", {"path": config.path, "field": field})
    if not isinstance(entries, list | str) or not count <= len(entries) <= MOST_LAYERS:
        raise HeavyliftError(
            "PLAN053", {"path": config.path, "field": field, "value": repr(entries)[:40]}
        )
    return tuple(layer for layer in range(count) if str(entries[layer]) in words)


def _variant(
    config: ConfigFile,
    family: FamilyFacts,
    file_format: str,
    layers: Mapping[str, Fact[tuple[int, ...]]],
    *,
    has_files: bool,
) -> VariantFacts:
    patterns = [
        pattern for entry in family.formats if entry.id == file_format for pattern in entry.tensors
    ]
    numbers = {name: fact.value for name, fact in layers.items()}
    method = None
    try:
        quantised = quantised_by_config(config.find, config.path, patterns, numbers, family.schemes)
    except HeavyliftError as error:
        if not has_files or error.code != "PLAN060":
            raise
        quantised, method = (), method_by_config(config.find)
    return VariantFacts(
        id="native",
        title=file_format,
        format=file_format,
        engines=(),
        quantised=quantised,
        method=method,
        kv_cache_dtype=kv_dtype_by_config(config.find),
        kind=FactKind.DERIVED,
        source=config.path,
        as_of=config.read_on,
    )


_CONTEXT_FIELDS: Final = (
    "text_config.max_position_embeddings|max_position_embeddings|model_max_length|n_positions"
)


def undescribed(
    config: ConfigFile, inventory: Inventory, *, identifier: str
) -> tuple[ModelFacts, FamilyFacts]:
    """A model of an architecture that no family describes, and a family that says so.

    Its tensors are known, and how many layers they name; what it keeps of a text is not.
    """
    numbers = [layer for group in inventory.groups for layer in group.layers or ()]
    count = min(max(numbers, default=0) + 1, MOST_LAYERS)
    context = config.find(_CONTEXT_FIELDS)
    stated = type(context) is int and 0 < context <= _LARGEST_DIMENSION

    def fact(value: int, unit: str) -> Fact[int]:
        return Fact(
            value=value,
            unit=unit,
            kind=FactKind.DERIVED,
            source=config.path,
            as_of=config.read_on,
        )

    family = FamilyFacts(
        id=UNDESCRIBED,
        title=config.model_type(),
        dims=("layers",),
        layer_sets=(),
        hf_model_types=(config.model_type(),),
        caches=(),
        states=(),
        formats=(),
        described=False,
    )
    model = ModelFacts(
        id=identifier,
        title=identifier,
        family=UNDESCRIBED,
        names=(),
        dims={"layers": fact(count, "layers")},
        layers={},
        variants=(
            VariantFacts(
                id="native",
                title="safetensors",
                format="safetensors",
                kind=FactKind.DERIVED,
                source=config.path,
                as_of=config.read_on,
            ),
        ),
        totals=None,
        max_context=fact(context if stated else _LARGEST_DIMENSION, "tokens"),
        hf_architecture=_architecture(config),
    )
    return model, family


def same_architecture(one: ModelFacts, other: ModelFacts) -> bool:
    """True when two models have the same dimensions and layer sets: the same network, whatever the
    name of its folder.
    """
    return (
        one.family == other.family
        and one.dim_values == other.dim_values
        and {name: fact.value for name, fact in one.layers.items()}
        == {name: fact.value for name, fact in other.layers.items()}
    )
