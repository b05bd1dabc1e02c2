"""A model's facts from the config.json beside its weights, by its family's own field names.

No field is guessed: what a config leaves out and the family has no expression for is an error that
names the field. No code of the checkpoint is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from heavylift.errors import HeavyliftError
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
_MOST_LAYERS: Final = 10_000


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
        """The value of a dotted field; a number is a place in a list. None when it is not there."""
        found: Any = self.document
        for name in field.split("."):
            if isinstance(found, Mapping):
                found = found.get(name)
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return found

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
        """A list of whole numbers. Raises as `number`."""
        value = self.find(field)
        if value is None:
            raise HeavyliftError("PLAN052", {"path": self.path, "field": field})
        if not isinstance(value, list) or not all(type(entry) is int for entry in value):
            raise self._cannot_be(field, value)
        return tuple(value)


def model_from_config(
    config: ConfigFile, family: FamilyFacts, *, identifier: str, formats: tuple[str, ...]
) -> ModelFacts:
    """The facts of the model a config describes. `formats` are those of the files beside it.

    Raises PLAN051 for a family whose configs nobody has described, PLAN052 for a field that is
    missing, PLAN053 for one of the wrong kind or size.
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
    if dims["layers"] > _MOST_LAYERS:
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
            value=_layers(config, rule, dims["layers"]),
            unit="layer numbers",
            kind=FactKind.DERIVED,
            source=config.path,
            as_of=config.read_on,
        )
        for name, rule in family.config_layers.items()
    }
    return ModelFacts(
        id=identifier,
        title=identifier,
        family=family.id,
        names=(),
        dims={name: fact(value, "as in the config") for name, value in dims.items()},
        layers=layers,
        variants=tuple(_variant(config, entry) for entry in formats),
        totals=None,
        max_context=fact(config.number(family.config_dims["max_context"]), "tokens"),
    )


def _dims(config: ConfigFile, family: FamilyFacts) -> dict[str, int]:
    found: dict[str, int] = {}
    # A dimension that only says whether a tensor exists is a flag of the config.
    flags = {pattern.unless for entry in family.formats for pattern in entry.tensors}
    for name in family.dims:
        field = family.config_dims[name]
        if config.find(field) is not None or name not in family.dim_defaults:
            found[name] = config.flag(field) if name in flags else config.number(field)
    for name, expression in family.dim_defaults.items():
        if name in found:
            continue
        try:
            found[name] = evaluate(expression, found)
        except (ExpressionError, ZeroDivisionError) as error:
            raise HeavyliftError(
                "PLAN052", {"path": config.path, "field": family.config_dims[name]}
            ) from error
    return found


def _layers(config: ConfigFile, rule: ConfigLayers, count: int) -> tuple[int, ...]:
    if rule.field is not None:
        listed = tuple(number - rule.counts_from for number in config.numbers(rule.field))
        if any(not 0 <= layer < count for layer in listed) or len(set(listed)) < len(listed):
            raise HeavyliftError(
                "PLAN053", {"path": config.path, "field": rule.field, "value": repr(listed)[:40]}
            )
        return tuple(sorted(listed))
    start = 0 if rule.start is None else config.number(rule.start, least=0)
    stop = count if rule.stop is None else config.number(rule.stop, least=0)
    if stop > _MOST_LAYERS:
        raise HeavyliftError(
            "PLAN053", {"path": config.path, "field": str(rule.stop), "value": str(stop)}
        )
    return tuple(range(start, stop))


def _variant(config: ConfigFile, file_format: str) -> VariantFacts:
    return VariantFacts(
        id="native",
        title=file_format,
        format=file_format,
        engines=(),
        kind=FactKind.DERIVED,
        source=config.path,
        as_of=config.read_on,
    )


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
