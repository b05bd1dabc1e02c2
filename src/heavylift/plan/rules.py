"""Which of an engine's rules hold: by version, vendor, architecture and family."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Final, TypeVar, cast

from heavylift.facts.schema import EngineFacts, EngineVersion, Rule

R = TypeVar("R", bound=Rule)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where a rule is looked for. `version` is one the engine's facts list."""

    engine: EngineFacts
    version: EngineVersion
    vendor: str
    architecture: str
    family: str
    _held: dict[int, tuple[object, tuple[Rule, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def holds(self, rule: Rule) -> bool:
        """True when the rule's bounds include this scope."""
        order = self._order
        here = order[self.version.id]
        return (
            (rule.since is None or order[rule.since] <= here)
            and (rule.until is None or here < order[rule.until])
            and _meets(rule.vendors, self.vendor)
            and _meets(rule.architectures, self.architecture)
            and _meets(rule.families, self.family)
        )

    @cached_property
    def _order(self) -> Mapping[str, int]:
        return {version.id: at for at, version in enumerate(self.engine.versions)}

    @cached_property
    def signature(self) -> Hashable:
        """Which rules of the engine hold. Scopes of one signature are the same to every rule,
        however their cards are called.
        """
        tables = (getattr(self.engine, table.name) for table in fields(self.engine))
        return tuple(
            tuple(self.holds(rule) for rule in table)
            for table in tables
            if isinstance(table, tuple) and all(isinstance(rule, Rule) for rule in table)
        )

    def first(self, rules: Iterable[R]) -> R | None:
        """The first rule that holds: files list the special before the general."""
        held = self.all(rules)
        return held[0] if held else None

    def all(self, rules: Iterable[R]) -> tuple[R, ...]:
        """All rules that hold, in their order. A table of the facts is looked through once."""
        kept = self._held.get(id(rules))
        if kept is None or kept[0] is not rules:
            held = tuple(rule for rule in rules if self.holds(rule))
            if not isinstance(rules, tuple):
                return held
            # The table is kept beside the answer, so that no other can take its place.
            kept = self._held[id(rules)] = (rules, held)
        return cast("tuple[R, ...]", kept[1])


def _meets(allowed: tuple[str, ...], value: str) -> bool:
    return not allowed or value in allowed


def find_version(engine: EngineFacts, text: str) -> EngineVersion | None:
    """The listed version of that name or, for a shorter one (`0.29`), its latest; else None."""
    wanted = text.removeprefix("v")
    exact = [version for version in engine.versions if version.id == wanted]
    if exact:
        return exact[0]
    # A major number alone names no release line of engines that are all at 0.
    longer = [v for v in engine.versions if "." in wanted and v.id.startswith(f"{wanted}.")]
    return longer[-1] if longer else None


def nearest_version(engine: EngineFacts, text: str) -> EngineVersion | None:
    """The last listed version that is not newer than the numbers in a text (`0.30.1rc1.dev7`,
    `0.27.1+ (recipe)`), or the first where all are; None for a text without such numbers and for a
    build of a checkout without tags (`0.1.dev19262+gb6bbf29dd`).
    """
    wanted = _release(text)
    listed = [(release, v) for v in engine.versions if (release := _release(v.id)) is not None]
    if wanted is None or not listed:
        return None
    older = [version for release, version in listed if release <= wanted]
    return older[-1] if older else listed[0][1]


# Two or three numbers with dots. A date with dashes is none; of `2026.10.11549` all three count.
_RELEASE: Final = re.compile(r"(?<![\w.])v?([0-9]{1,4})\.([0-9]{1,5})(?:\.([0-9]{1,6}))?(?![0-9])")

# What setuptools-scm calls a checkout that has no tags, at whatever commit.
_UNTAGGED: Final = re.compile(r"(?<![\w.])0\.1\.dev[0-9]")


def _release(text: str) -> tuple[int, ...] | None:
    found = None if _UNTAGGED.search(text) else _RELEASE.search(text)
    return None if found is None else tuple(int(number or 0) for number in found.groups())
