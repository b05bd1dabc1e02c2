"""JSON schemas for tools and structured answers: each known trouble, then made ones. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from heavylift.stats import Chance

_DEEPEST: Final = 2
_ROUNDS: Final = 2
"""Times that each of the known ones is asked for, streamed and whole, before others are made."""
_NAMES: Final = ("amount", "größe", "owner", "名前", "tag_list", "Zeit", "x1")


def object_of(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object with these properties, all of them required, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


def schemas() -> tuple[tuple[str, dict[str, Any]], ...]:
    """Each feature of JSON schema that argument parsers have stumbled over, by name."""
    text, whole = {"type": "string", "maxLength": 40}, {"type": "integer"}
    point = object_of({"x": {"type": "number"}, "y": {"type": "number"}})
    node = object_of(
        {"name": text, "child": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]}}
    )
    return (
        ("string", object_of({"title": text})),
        ("integer", object_of({"count": {"type": "integer", "minimum": 1, "maximum": 9}})),
        ("number", object_of({"ratio": {"type": "number", "minimum": 0.0, "maximum": 1.0}})),
        ("boolean", object_of({"active": {"type": "boolean"}})),
        ("enum", object_of({"colour": {"type": "string", "enum": ["red", "green", "blue"]}})),
        ("const", object_of({"version": {"const": 2}})),
        ("nullable", object_of({"note": {"type": ["null", "string"]}})),
        ("array", object_of({"numbers": {"type": "array", "items": whole, "minItems": 2}})),
        ("nested", object_of({"outer": object_of({"inner": object_of({"value": whole})})})),
        ("objects", object_of({"points": {"type": "array", "items": point, "minItems": 1}})),
        ("ref", object_of({"from": {"$ref": "#/$defs/p"}}, **{"$defs": {"p": point}})),
        ("any_of", object_of({"id": {"anyOf": [whole, {"type": "string", "enum": ["none"]}]}})),
        ("recursive", object_of({"root": node}, **{"$defs": {"leaf": object_of({"name": text})}})),
        ("unicode", object_of({"größe": whole, "名前": text})),
        ("multiple", object_of({"minutes": {"type": "integer", "multipleOf": 5, "minimum": 5}})),
        ("many", object_of({f"field_{number}": whole for number in range(12)})),
    )


def family_member(number: int, chance: Chance) -> tuple[str, dict[str, Any]]:
    """The schema of a trial, with its name: the known ones first, then made ones."""
    known = schemas()
    if number < _ROUNDS * len(known):
        return known[number % len(known)]
    return "made", made(chance)


def made(chance: Chance) -> dict[str, Any]:
    """A schema put together by chance: nested objects, arrays, ranges, enums, anyOf, references."""
    point = object_of({"x": {"type": "number"}, "label": _text(chance, 0)})
    properties = {name: _any(chance, _DEEPEST) for name in _some(chance, _NAMES)}
    properties["at"] = {"$ref": "#/$defs/point"}
    return object_of(properties, **{"$defs": {"point": point}})


def _any(chance: Chance, depth: int) -> dict[str, Any]:
    kinds = _FLAT if depth == 0 else _ALL
    return kinds[_pick(chance, len(kinds))](chance, depth)


def _text(chance: Chance, _: int) -> dict[str, Any]:
    if chance() < 0.5:  # noqa: PLR2004 - a coin
        return {"type": "string", "enum": list(_some(chance, ("red", "grün", "蓝色", "none")))}
    return {"type": "string", "minLength": 1 + _pick(chance, 4), "maxLength": 20}


def _whole(chance: Chance, _: int) -> dict[str, Any]:
    step = 1 + _pick(chance, 7)
    low = _pick(chance, 50)
    return {"type": "integer", "multipleOf": step, "minimum": low, "maximum": low + 9 * step}


def _fraction(chance: Chance, _: int) -> dict[str, Any]:
    low = _pick(chance, 10) / 2 - 2
    return {"type": "number", "minimum": low, "maximum": low + 1.5}


def _yes_or_no(_: Chance, __: int) -> dict[str, Any]:
    return {"type": "boolean"}


def _nullable(chance: Chance, _: int) -> dict[str, Any]:
    return {"anyOf": [_whole(chance, 0), {"type": "null"}]}


def _list(chance: Chance, depth: int) -> dict[str, Any]:
    return {"type": "array", "items": _any(chance, depth - 1), "minItems": 1, "maxItems": 4}


def _inner(chance: Chance, depth: int) -> dict[str, Any]:
    return object_of({name: _any(chance, depth - 1) for name in _some(chance, _NAMES)})


def _either(chance: Chance, depth: int) -> dict[str, Any]:
    return {"anyOf": [_any(chance, depth - 1), _whole(chance, 0)]}


_FLAT: Final[tuple[Callable[[Chance, int], dict[str, Any]], ...]] = (
    _text,
    _whole,
    _fraction,
    _yes_or_no,
    _nullable,
)
_ALL: Final = (*_FLAT, _list, _inner, _either)


def _some(chance: Chance, names: tuple[str, ...]) -> tuple[str, ...]:
    """Some of the names, one at least, in their order."""
    kept = tuple(name for name in names if chance() < 0.5)  # noqa: PLR2004 - a coin
    return kept or names[:1]


def _pick(chance: Chance, count: int) -> int:
    return int(chance() * count)
