"""Which of an engine's rules hold: by version, vendor, architecture and family."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from heavylift.facts.schema import EngineFacts, EngineVersion, Rule

R = TypeVar("R", bound=Rule)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """Where a rule is looked for. `version` is one the engine's facts list."""

    engine: EngineFacts
    version: EngineVersion
    vendor: str
    architecture: str
    family: str

    def holds(self, rule: Rule) -> bool:
        """True when the rule's bounds include this scope."""
        order = [version.id for version in self.engine.versions]
        here = order.index(self.version.id)
        return (
            (rule.since is None or order.index(rule.since) <= here)
            and (rule.until is None or here < order.index(rule.until))
            and _meets(rule.vendors, self.vendor)
            and _meets(rule.architectures, self.architecture)
            and _meets(rule.families, self.family)
        )

    def first(self, rules: Iterable[R]) -> R | None:
        """The first rule that holds: files list the special before the general."""
        return next((rule for rule in rules if self.holds(rule)), None)

    def all(self, rules: Iterable[R]) -> tuple[R, ...]:
        """All rules that hold, in their order."""
        return tuple(rule for rule in rules if self.holds(rule))


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
