"""Flags and environment variables by engine version: what may be emitted, and what a found name is.

A table holds the versions that were read. About a version that was not read nothing is known: the
answer is `UNKNOWN`, never a guess.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

from heavylift.facts.command_schema import FlagFacts, FlagTableFacts

_NEAR: Final = 0.84
"""How like two names must be to suggest one for the other."""


class Presence(StrEnum):
    """Whether a version has a name: it does; not yet; no longer; never in a read version; or the
    version, or the whole of the engine's names, was not read.
    """

    PRESENT = "present"
    NOT_YET = "not_yet"
    GONE = "gone"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A written flag, looked up: its main name, its facts, and how it was spelt.

    `alias_since`: the first read version with this very spelling, where it is not the name's own.
    """

    name: str
    facts: FlagFacts
    alias_since: str | None = None
    negated: bool = False
    underscores: bool = False
    abbreviated: bool = False


class FlagTable:
    """Look-ups in the table of one engine."""

    def __init__(
        self, facts: FlagTableFacts, *, abbreviates: bool = False, exact: bool = False
    ) -> None:
        """`abbreviates`: the engine's parser takes unambiguous beginnings of flags; `exact`: it
        tells dashes from underscores.
        """
        self.facts = facts
        self.abbreviates = abbreviates
        self.exact = exact

    @property
    def newest(self) -> str:
        """The newest version read."""
        return self.facts.read[-1]

    @property
    def read_whole(self) -> tuple[str, ...]:
        """The versions whose file of settings was read too, where the engine takes one."""
        file = self.facts.file
        return tuple(each for each in self.facts.read if file is None or each in file.read)

    def is_read(self, version: str) -> bool:
        """True when that version was read."""
        return version in self.facts.read

    def flag(self, written: str) -> Found | None:
        """The flag of that spelling: an alias, `--no-…`, underscores for dashes, `--x.member`, or
        an unambiguous beginning. None when no read version has it.
        """
        exact = self._spelling(written)
        if exact is not None or self.exact:
            return exact
        stem = written.split(".", 1)[0]
        dashed = "--" + stem[2:].replace("_", "-") if stem.startswith("--") else stem
        found = self._spelling(dashed) or self._spelling(stem)
        if found is None and stem != written:
            found = self._spelling(written.replace("_", "-"))
        if found is None:
            return self._beginning(dashed)
        return Found(
            name=found.name,
            facts=found.facts,
            negated=found.negated,
            underscores="_" in stem and "_" not in found.name,
        )

    def flag_presence(self, name: str, version: str | None) -> Presence:
        """Whether a version (None = the newest read) has the flag of that main name."""
        return self._presence(self.facts.flags, name, version, self.facts.partial)

    def presence(self, found: Found, version: str | None) -> Presence:
        """Whether a version (None = the newest read) has the flag as it was spelt."""
        if version is not None and not self.is_read(version):
            return Presence.UNKNOWN
        facts = found.facts
        if found.alias_since is not None:
            facts = replace(facts, since=found.alias_since)
        return _within(facts, self.facts.read, version or self.newest)

    def env_presence(self, name: str, version: str | None) -> Presence:
        """Whether a version (None = the newest read) reads the variable."""
        partial = self.facts.partial or self.facts.env_partial
        return self._presence(self.facts.env, name, version, partial)

    def key_presence(self, path: str, version: str) -> Presence:
        """Whether the file of settings of a version has a key; unknown where none was read, and
        within a key whose own were not.
        """
        file = self.facts.file
        if file is None or version not in file.read:
            return Presence.UNKNOWN
        if path not in file.keys:
            outer = path.rpartition(".")[0]
            known = not outer or any(each.startswith(f"{outer}.") for each in file.keys)
            return Presence.ABSENT if known else Presence.UNKNOWN
        return _within(file.keys[path], file.read, version)

    def choices(self, facts: FlagFacts, version: str | None) -> tuple[str, ...]:
        """The values that a version (None or one not read = the newest read) takes."""
        order = self.facts.read
        here = order.index(version if version is not None and self.is_read(version) else order[-1])
        return tuple(
            choice
            for choice in facts.choices
            if order.index(facts.choice_since.get(choice, order[0])) <= here
            and (choice not in facts.choice_until or here < order.index(facts.choice_until[choice]))
        )

    def near_flag(self, written: str) -> str | None:
        """A flag that may have been meant."""
        stem = written.lstrip("-")
        if f"-{stem}" in self._names:
            # `--tp` for `-tp`: the short name with one dash too many.
            return self._names[f"-{stem}"]
        dashed = "--" + stem.replace("_", "-").lower()
        found = difflib.get_close_matches(dashed, self._names, n=1, cutoff=_NEAR)
        return found[0] if found else None

    def near_env(self, written: str) -> str | None:
        """A variable that may have been meant: the newest read version has it."""
        known = [
            name for name in self.facts.env if self.env_presence(name, None) is Presence.PRESENT
        ]
        longer = [name for name in known if name.startswith(f"{written}_")]
        if len(longer) == 1:
            return longer[0]
        found = difflib.get_close_matches(written, known, n=1, cutoff=_NEAR)
        return found[0] if found else None

    # --- inside ----------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> dict[str, str]:
        """Every spelling, with the main name it stands for."""
        names = {name: name for name in self.facts.flags}
        for name, facts in self.facts.flags.items():
            for alias in facts.aliases:
                names.setdefault(alias, name)
        return names

    @cached_property
    def _negations(self) -> dict[str, str]:
        negations = {}
        for name, facts in self.facts.flags.items():
            if facts.negatable:
                negations[f"--no-{name.removeprefix('--')}"] = name
                for alias in facts.aliases:
                    if alias.startswith("-no"):
                        negations[alias] = name
        return negations

    def _spelling(self, written: str) -> Found | None:
        if written in self._negations:
            name = self._negations[written]
            return Found(name=name, facts=self.facts.flags[name], negated=True)
        if written in self._names:
            name = self._names[written]
            facts = self.facts.flags[name]
            return Found(name=name, facts=facts, alias_since=facts.alias_since.get(written))
        return None

    def _beginning(self, dashed: str) -> Found | None:
        if not self.abbreviates or not dashed.startswith("--") or len(dashed) < len("--xx"):
            return None
        longer = {self._names[name] for name in self._names if name.startswith(dashed)}
        if len(longer) != 1:
            return None
        name = longer.pop()
        return Found(name=name, facts=self.facts.flags[name], abbreviated=True)

    def _presence(
        self, names: Mapping[str, FlagFacts], name: str, version: str | None, partial: bool
    ) -> Presence:
        if version is not None and not self.is_read(version):
            return Presence.UNKNOWN
        if name not in names:
            return Presence.UNKNOWN if partial else Presence.ABSENT
        return _within(names[name], self.facts.read, version or self.newest)


def _within(facts: FlagFacts, order: Sequence[str], version: str) -> Presence:
    """Where a version that was read lies against the bounds of a name."""
    here = order.index(version)
    if facts.since is not None and here < order.index(facts.since):
        return Presence.NOT_YET
    if facts.until is not None and here >= order.index(facts.until):
        return Presence.GONE
    return Presence.PRESENT
