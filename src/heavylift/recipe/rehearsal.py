"""A launch as it is rehearsed: the same command with invented weights, and perhaps fewer layers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from heavylift.errors import HeavyliftError
from heavylift.facts.serving_schema import RehearsalFacts
from heavylift.records.launch import LaunchSpec, RankSpec

_ENGINES: Final = frozenset({"serve", "prefill", "decode"})


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerField:
    """Where a config states its layers (`text_config.num_hidden_layers`).

    `lists` are the fields beside it that hold an entry per layer, with what is left of each.
    """

    field: str
    lists: Mapping[str, tuple[Any, ...]]


def layer_field(
    described: str, config: Mapping[str, Any] | None, *, has_vision: bool, layers: int
) -> LayerField:
    """The field of the layers among those a family's facts name (`a|b`).

    With the config at hand the first that it holds. Without one the innermost for a model that
    takes pictures, whose text part is nested, else the outermost. Raises REC053 for a config that
    holds none of them.
    """
    fields = described.split("|")
    if config is None:
        fields.sort(key=lambda each: each.count("."), reverse=has_vision)
        return LayerField(field=fields[0], lists={})
    for each in fields:
        *outer, last = each.split(".")
        part: Any = config
        for name in outer:
            part = part.get(name) if isinstance(part, Mapping) else None
        if isinstance(part, Mapping) and isinstance(part.get(last), int):
            return LayerField(field=each, lists=_per_layer(part, part[last], layers))
    raise HeavyliftError("REC053", {"field": described})


def _per_layer(part: Mapping[str, Any], count: int, layers: int) -> dict[str, tuple[Any, ...]]:
    """Lists with an entry per layer; engines that check their length refuse the whole ones."""
    return {
        name: tuple(value[:layers])
        for name, value in part.items()
        if isinstance(value, list) and len(value) == count > layers
    }


def rehearsed(
    spec: LaunchSpec, facts: RehearsalFacts, *, layers: int | None, where: LayerField | None
) -> LaunchSpec:
    """The launch with invented weights. `layers` None = all of them; `where` is then not read.

    Everything else of it is the same: image, layout, variables, ports. A pipeline keeps a layer
    for each of its stages.
    """
    flags = dict(facts.flags)
    over: dict[str, Any] = {}
    if layers is not None and where is not None:
        *outer, last = where.field.split(".")
        over = {last: layers, **{name: list(value) for name, value in where.lists.items()}}
        for name in reversed(outer):
            over = {name: over}

    def rank(each: RankSpec) -> RankSpec:
        if each.role not in _ENGINES:
            return each
        argv = each.argv
        for flag, value in flags.items():
            argv = with_flag(argv, flag, value)
        if over:
            stated = _merged(_json(value_of(argv, facts.overrides)), over)
            argv = with_flag(argv, facts.overrides, json.dumps(stated, sort_keys=True))
        return replace(each, argv=argv)

    return replace(spec, ranks=tuple(map(rank, spec.ranks)))


def value_of(argv: tuple[str, ...], flag: str) -> str | None:
    """The value of a flag, written as one word or two; None when it is not there."""
    for place, word in enumerate(argv):
        if word == flag and place + 1 < len(argv):
            return argv[place + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def with_flag(argv: tuple[str, ...], flag: str, value: str) -> tuple[str, ...]:
    """The words with a flag at that value, in place of what it had."""
    words: list[str] = []
    skip = False
    for place, word in enumerate(argv):
        if skip:
            skip = False
            continue
        if word == flag:
            skip = place + 1 < len(argv) and not argv[place + 1].startswith("-")
            continue
        if not word.startswith(f"{flag}="):
            words.append(word)
    return (*words, flag, value)


def _json(text: str | None) -> dict[str, Any]:
    """What a launch overrides already. Raises REC054 when that is no JSON object."""
    if text is None:
        return {}
    try:
        stated = json.loads(text)
    except ValueError as error:
        raise HeavyliftError("REC054", {"value": text}) from error
    if not isinstance(stated, dict):
        raise HeavyliftError("REC054", {"value": text})
    return stated


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(one)
    for name, value in other.items():
        inner = merged.get(name)
        merged[name] = (
            _merged(inner, value)
            if isinstance(inner, Mapping) and isinstance(value, Mapping)
            else value
        )
    return merged
