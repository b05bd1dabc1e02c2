"""What engines and libraries themselves list as runnable, release by release."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from heavylift.facts.schema import FactKind, Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedNames:
    """Names that some release lists. `since` is the first version read that has one, where an older
    one was read and had not; `until` the first without it. `capability` is the least compute
    capability (90 = 9.0) a name needs; `vendors` the names that are all a vendor's cards may use.
    """

    names: tuple[str, ...]
    since: dict[str, str] = field(default_factory=dict)
    until: dict[str, str] = field(default_factory=dict)
    capability: dict[str, int] = field(default_factory=dict)
    vendors: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryFacts:
    """The lists of an engine over the versions in `read`, oldest first.

    `architectures` are classes as a config.json names them, or the engine's own names of them, in
    which case `known_as` gives those by class. `fallback`: the registry of a library whose classes
    the engine may run where it has none of its own. `partial`: what documentation names, not the
    engine's own table, so that a name that is not there is not refused.
    """

    engine: str
    read: tuple[str, ...]
    kind: FactKind
    source: str
    as_of: date
    architectures: ListedNames
    quantisations: ListedNames | None = None
    known_as: dict[str, str] = field(default_factory=dict)
    fallback: str | None = None
    partial: bool = False

    def lists(self, table: ListedNames, name: str, version: str) -> bool:
        """True when a version that was read lists a name."""
        if name not in table.names:
            return False
        here = self.read.index(version)
        since, until = table.since.get(name), table.until.get(name)
        return (since is None or self.read.index(since) <= here) and (
            until is None or here < self.read.index(until)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodRule(Rule):
    """What checkpoints that store weights in `scheme` call their quantisation: an engine reads them
    when it knows one of `methods`.
    """

    scheme: str
    methods: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodBook:
    """All schemes whose methods are known."""

    schemes: tuple[MethodRule, ...]
