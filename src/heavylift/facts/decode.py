"""From a TOML table to a facts record, noting every defect with its path instead of stopping.

One decoder serves all record types: it walks the type hints of `schema`. A table may state its
provenance once (`provenance = {kind=…, source=…, as_of=…}`) for everything beneath it; a value or a
rule may state its own.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar

from heavylift.errors import Scalar
from heavylift.facts.schema import Fact, FactKind, Provenance, Rule

R = TypeVar("R")

_PROVENANCE: Final = ("kind", "source", "as_of")
_DROP: Final = object()


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing wrong in a facts file: where (`gpus/mi355x.toml: memory_visible.unit`), what."""

    path: str
    problem: str
    detail: str = ""


class Decoder:
    """Decodes tables of one file and collects defects."""

    def __init__(self, file: str, sources: frozenset[str] | None) -> None:
        """`sources` None = source ids are not checked (the sources file itself)."""
        self.file = file
        self.sources = sources
        self.defects: list[Defect] = []

    def defect(self, path: str, problem: str, detail: Scalar = "") -> None:
        """Note a defect at `path` inside this file."""
        self.defects.append(Defect(f"{self.file}: {path}", problem, str(detail)))

    def record(
        self,
        cls: type[R],
        table: Mapping[str, Any],
        path: str = "",
        inherited: Mapping[str, Any] | None = None,
        *,
        given: Mapping[str, Any] | None = None,
    ) -> R | None:
        """A `cls` from `table`; None when a required part is missing or wrong.

        `given` supplies fields that come from elsewhere than the table. Unknown keys are defects:
        a misspelt key must not pass for an absent one.
        """
        inherited = {**(inherited or {}), **table.get("provenance", {})}
        values: dict[str, Any] = dict(given or {})
        hints = _hints(cls)
        known = set(hints) | {"provenance"}
        for key in table:
            if key not in known:
                self.defect(_join(path, key), "unknown_key")
        broken = False
        for name, hint in hints.items():
            if name in values:
                continue
            where = _join(path, name)
            if name in table:
                value = self._value(hint, table[name], where, inherited)
            elif issubclass(cls, Rule) and name in (*_PROVENANCE,) and name in inherited:
                value = self._value(hint, inherited[name], where, inherited)
            elif name in _optional_fields(cls):
                continue
            else:
                self.defect(where, "missing")
                value = _DROP
            if value is _DROP:
                broken = True
            else:
                values[name] = value
        if issubclass(cls, Rule) and "source" in values:
            self._check_source(values["source"], _join(path, "source"))
        return None if broken else cls(**values)

    def _check_source(self, source: str, path: str) -> None:
        if self.sources is not None and source not in self.sources:
            self.defect(path, "unknown_source", source)

    def _value(self, hint: Any, value: Any, path: str, inherited: Mapping[str, Any]) -> Any:
        origin = typing.get_origin(hint)
        if origin in (typing.Union, types.UnionType):
            return self._union(hint, value, path, inherited)
        if origin is Fact:
            return self._fact(typing.get_args(hint)[0], value, path, inherited)
        if origin is tuple:
            return self._list(typing.get_args(hint)[0], value, path, inherited)
        if origin is dict:
            return self._dict(typing.get_args(hint)[1], value, path, inherited)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            if not isinstance(value, dict):
                return self._wrong(path, "table", value)
            record = self.record(hint, value, path, inherited)
            return _DROP if record is None else record
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            if value in [member.value for member in hint]:
                return hint(value)
            self.defect(path, "not_one_of", ", ".join(hint))
            return _DROP
        return self._scalar(hint, value, path)

    def _scalar(self, hint: Any, value: Any, path: str) -> Any:
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        # bool is an int to isinstance, but "true layers" is a mistake.
        if isinstance(value, bool) is (hint is bool) and isinstance(value, hint):
            return value
        return self._wrong(path, hint.__name__, value)

    def _wrong(self, path: str, wanted: str, value: Any) -> Any:
        self.defect(path, "wrong_type", f"{wanted}: {value!r:.60}")
        return _DROP

    def _union(self, hint: Any, value: Any, path: str, inherited: Mapping[str, Any]) -> Any:
        options = [option for option in typing.get_args(hint) if option is not types.NoneType]
        if len(options) == 1:
            return self._value(options[0], value, path, inherited)
        for option in options:
            if isinstance(option, type) and isinstance(value, option):
                if isinstance(value, bool) and option is not bool:
                    continue
                return value
        return self._wrong(path, " or ".join(option.__name__ for option in options), value)

    def _list(self, item: Any, value: Any, path: str, inherited: Mapping[str, Any]) -> Any:
        if not isinstance(value, list):
            return self._wrong(path, "list", value)
        decoded = [
            self._value(item, entry, f"{path}[{index}]", inherited)
            for index, entry in enumerate(value)
        ]
        return _DROP if any(entry is _DROP for entry in decoded) else tuple(decoded)

    def _dict(self, item: Any, value: Any, path: str, inherited: Mapping[str, Any]) -> Any:
        if not isinstance(value, dict):
            return self._wrong(path, "table", value)
        inherited = {**inherited, **value.get("provenance", {})}
        decoded = {
            key: self._value(item, entry, _join(path, key), inherited)
            for key, entry in value.items()
            if key != "provenance"
        }
        return _DROP if any(entry is _DROP for entry in decoded.values()) else decoded

    def _fact(self, inner: Any, value: Any, path: str, inherited: Mapping[str, Any]) -> Any:
        if not isinstance(value, dict):
            return self._wrong(path, "fact table {value, unit, …}", value)
        merged = {**inherited, **value}
        missing = [key for key in ("value", "unit", *_PROVENANCE) if key not in merged]
        for key in missing:
            self.defect(_join(path, key), "missing")
        for key in value:
            if key not in ("value", "unit", "note", *_PROVENANCE):
                self.defect(_join(path, key), "unknown_key")
        if missing:
            return _DROP
        number = self._value(inner, merged["value"], _join(path, "value"), inherited)
        kind = self._value(FactKind, merged["kind"], _join(path, "kind"), inherited)
        as_of = self._scalar(date, merged["as_of"], _join(path, "as_of"))
        self._check_source(merged["source"], _join(path, "source"))
        if _DROP in (kind, as_of) or number is _DROP:
            return _DROP
        return Fact(
            value=number,
            unit=merged["unit"],
            kind=kind,
            source=merged["source"],
            as_of=as_of,
            # A note belongs to its own value; a section's note says nothing of each line in it.
            note=value.get("note"),
        )


def provenance(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The provenance a table hands down, for records decoded piece by piece."""
    inherited: Mapping[str, Any] = table.get("provenance", {})
    return inherited


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@cache
def _optional_fields(cls: type) -> frozenset[str]:
    return frozenset(
        entry.name
        for entry in dataclasses.fields(cls)
        if entry.default is not dataclasses.MISSING
        or entry.default_factory is not dataclasses.MISSING
    ) | frozenset(
        name for name, hint in _hints(cls).items() if types.NoneType in typing.get_args(hint)
    )


__all__ = ["Decoder", "Defect", "Provenance", "provenance"]
