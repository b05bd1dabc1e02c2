"""From a TOML table to a facts record, noting every defect with its path instead of stopping.

One decoder serves all record types: it walks the type hints of `schema`. A table may state its
provenance once (`provenance = {kind=…, source=…, as_of=…}`) for everything beneath it; a value or a
rule may state its own.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from heavylift.facts.defects import Defect
from heavylift.facts.limits import value_defects
from heavylift.facts.schema import Fact, FactKind, Rule

R = TypeVar("R")

Inherited: TypeAlias = Mapping[str, Any]
"""The provenance that the tables around a value hand down to it."""

_Reader: TypeAlias = "Callable[[Decoder, tuple[Any, ...], Any, str, Inherited], Any]"

_PROVENANCE: Final = ("kind", "source", "as_of")
_FACT_PARTS: Final[Mapping[str, Any]] = {
    "unit": str,
    "kind": FactKind,
    "source": str,
    "as_of": date,
    "note": str,
}
"""What every fact has beside its value. `note` is optional and never inherited: a section's note
says nothing of each line in it."""

_RANGE: Final = re.compile(
    r"(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5})(?:/(?P<step>[1-9][0-9]{0,4}))?)?"
)

_DROP: Final = object()
"""Stands for a value that was defective: the record that needs it is not made."""


class Decoder:
    """Decodes tables of one file and collects defects."""

    def __init__(self, file: str, sources: frozenset[str] | None) -> None:
        """`sources` None = source ids are not checked (the sources file itself)."""
        self.file = file
        self.sources = sources
        self.defects: list[Defect] = []

    def defect(self, path: str, problem: str, detail: str = "") -> None:
        """Note a defect at `path` inside this file."""
        self.defects.append(Defect(f"{self.file}: {path}", problem, detail))

    def record(
        self,
        cls: type[R],
        table: Mapping[str, Any],
        path: str = "",
        inherited: Inherited | None = None,
        *,
        given: Mapping[str, Any] | None = None,
    ) -> R | None:
        """A `cls` from `table`; None when a required part is missing or wrong.

        `given` supplies fields that come from elsewhere than the table. Unknown keys are defects:
        a misspelt key must not pass for an absent one. A value out of its limits is one too, though
        the record is made.
        """
        inherited = self._handed_down(table, path, inherited or {})
        plain: type = cls  # mypy does not take `type[R]` for hashable
        fields = _fields(plain)
        for key in table:
            known = key in fields or key == "provenance"
            if not known or key in (given or {}):
                self.defect(_join(path, key), "unknown_key")
        # A rule is one statement: where it says nothing, the provenance around it is its own.
        stated = {**inherited, **table} if issubclass(cls, Rule) else table
        values: dict[str, Any] = dict(given or {})
        for name, (hint, fallback) in fields.items():
            if name in values:
                continue
            if name in stated:
                values[name] = self._value(hint, stated[name], _join(path, name), inherited)
            elif fallback is _DROP:
                self.defect(_join(path, name), "missing")
                values[name] = _DROP
            else:
                values[name] = fallback()
        if any(value is _DROP for value in values.values()):
            return None
        if issubclass(cls, Rule):
            self._check_source(values["source"], _join(path, "source"))
        record = cls(**values)
        for found in value_defects(record, path):
            self.defect(found.path, found.problem, found.detail)
        return record

    def _handed_down(self, table: Mapping[str, Any], path: str, inherited: Inherited) -> Inherited:
        """What `table` hands down: its own `provenance` over the one around it."""
        if "provenance" not in table:
            return inherited
        own = table["provenance"]
        where = _join(path, "provenance")
        if not isinstance(own, dict):
            self._wrong(where, "table", own)
            return inherited
        for key in own:
            if key not in _PROVENANCE:
                self.defect(_join(where, key), "unknown_key")
        return {**inherited, **{key: own[key] for key in _PROVENANCE if key in own}}

    def _check_source(self, source: str, path: str) -> None:
        if self.sources is not None and source not in self.sources:
            self.defect(path, "unknown_source", source)

    def _value(self, hint: Any, value: Any, path: str, inherited: Inherited) -> Any:
        read = self._GENERIC.get(typing.get_origin(hint))
        if read is not None:
            return read(self, typing.get_args(hint), value, path, inherited)
        if dataclasses.is_dataclass(hint):
            return self._nested(hint, value, path, inherited)
        if issubclass(hint, StrEnum):
            return self._choice(hint, value, path)
        return self._scalar(hint, value, path)

    def _wrong(self, path: str, wanted: str, value: Any) -> Any:
        self.defect(path, "wrong_type", f"{wanted}: {value!r:.60}")
        return _DROP

    # --- one reader per shape of type hint -------------------------------------------------------

    def _scalar(self, cls: type, value: Any, path: str) -> Any:
        # Exact types: `true` is an int to isinstance, but "true layers" is a mistake.
        if type(value) is cls:
            return value
        if cls is float and type(value) is int:
            return float(value)
        return self._wrong(path, cls.__name__, value)

    def _choice(self, cls: type[StrEnum], value: Any, path: str) -> Any:
        if value in [member.value for member in cls]:
            return cls(value)
        self.defect(path, "not_one_of", ", ".join(cls))
        return _DROP

    def _nested(self, cls: Any, value: Any, path: str, inherited: Inherited) -> Any:
        if not isinstance(value, dict):
            return self._wrong(path, "table", value)
        record = self.record(cls, value, path, inherited)
        return _DROP if record is None else record

    def _union(self, hints: tuple[Any, ...], value: Any, path: str, inherited: Inherited) -> Any:
        options = [hint for hint in hints if hint is not type(None)]
        if len(options) == 1:
            return self._value(options[0], value, path, inherited)
        if type(value) in options:
            return value
        return self._wrong(path, " or ".join(option.__name__ for option in options), value)

    def _list(self, hints: tuple[Any, ...], value: Any, path: str, inherited: Inherited) -> Any:
        if hints[0] is int and isinstance(value, str):
            value = _ranges(value)
        if not isinstance(value, list):
            return self._wrong(path, "list", value)
        decoded = [
            self._value(hints[0], entry, f"{path}[{index}]", inherited)
            for index, entry in enumerate(value)
        ]
        return _DROP if any(entry is _DROP for entry in decoded) else tuple(decoded)

    def _dict(self, hints: tuple[Any, ...], value: Any, path: str, inherited: Inherited) -> Any:
        if not isinstance(value, dict):
            return self._wrong(path, "table", value)
        inherited = self._handed_down(value, path, inherited)
        decoded = {
            key: self._value(hints[1], entry, _join(path, key), inherited)
            for key, entry in value.items()
            if key != "provenance"
        }
        return _DROP if any(entry is _DROP for entry in decoded.values()) else decoded

    def _fact(self, hints: tuple[Any, ...], value: Any, path: str, inherited: Inherited) -> Any:
        if not isinstance(value, dict):
            return self._wrong(path, "fact table {value, unit, …}", value)
        merged = {**inherited, **value}
        hint_by_part = {"value": hints[0], **_FACT_PARTS}
        for key in value:
            if key not in hint_by_part:
                self.defect(_join(path, key), "unknown_key")
        parts: dict[str, Any] = {}
        for key, hint in hint_by_part.items():
            if key in merged:
                parts[key] = self._value(hint, merged[key], _join(path, key), inherited)
            elif key != "note":
                self.defect(_join(path, key), "missing")
                parts[key] = _DROP
        if any(part is _DROP for part in parts.values()):
            return _DROP
        self._check_source(parts["source"], _join(path, "source"))
        return Fact(**parts)

    _GENERIC: ClassVar[Mapping[Any, _Reader]] = {
        typing.Union: _union,
        types.UnionType: _union,
        tuple: _list,
        dict: _dict,
        Fact: _fact,
    }
    """Readers of parameterised types, by their origin; each is given the parameters."""


def _ranges(text: str) -> list[int] | str:
    """Whole numbers written as ranges, `0-2, 5` or `3-59/4` (every fourth); the text itself where
    it is none, for the reader to refuse.
    """
    found: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _RANGE.fullmatch(part)
        if match is None:
            return text
        first, last = int(match["first"]), int(match["last"] or match["first"])
        found += range(first, last + 1, int(match["step"] or 1))
    return found


@cache
def _fields(cls: type) -> dict[str, tuple[Any, Any]]:
    """Name to type hint and maker of the value of an absent field; `_DROP` = it must be there."""
    hints = typing.get_type_hints(cls)
    return {
        entry.name: (hints[entry.name], _fallback(entry, hints[entry.name]))
        for entry in dataclasses.fields(cls)
    }


def _fallback(entry: dataclasses.Field[Any], hint: Any) -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory
    if entry.default is not dataclasses.MISSING:
        return lambda: entry.default
    if types.NoneType in typing.get_args(hint):
        return lambda: None
    return _DROP


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
