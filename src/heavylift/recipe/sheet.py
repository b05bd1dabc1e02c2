"""The words of a command as they are gathered: each gated by version, each with its reason.

The first to state a flag has it. What a later source says otherwise is noted, never hidden.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from heavylift.errors import HeavyliftError
from heavylift.recipe.flags import Found, Presence
from heavylift.recipe.job import Job
from heavylift.records.launch import Setting
from heavylift.records.plan import Note

COMPUTED: Final = "computed"
PUBLISHED: Final = "published"
DEFAULT: Final = "engine default"
ENGINE_RULE: Final = "engine rule"
USER: Final = "user"
EXPOSURE: Final = "exposure"

SettingValue: TypeAlias = str | int | float | bool
"""A value in a file of settings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Where a value is from: `origin`, the source with its day, and why it is set."""

    origin: str
    source: str
    why: str
    as_of: str | None = None


@dataclass(kw_only=True)
class _Entry:
    written: str
    value: str | None
    reason: Reason


@dataclass
class Sheet:
    """Flags and variables of one pool, in the order in which they were stated."""

    job: Job
    notes: list[Note] = field(default_factory=list)
    _flags: dict[str, _Entry] = field(default_factory=dict)
    _env: dict[str, _Entry] = field(default_factory=dict)
    _keys: dict[str, tuple[SettingValue, Reason]] = field(default_factory=dict)
    _placed: dict[str, tuple[list[str], Reason]] = field(default_factory=dict)

    # --- stating ---------------------------------------------------------------------------------

    def flag(self, written: str, value: str | float | None, reason: Reason) -> None:
        """State a flag that must be emitted.

        Raises REC010 when this version does not have it, REC011 when it does not take the value.
        """
        found = self._require(written)
        text = _shown(value)
        choices = self.job.table.choices(found.facts, self.job.table_version)
        if found.facts.choices and text is not None and text not in choices:
            raise HeavyliftError(
                "REC011",
                {
                    "flag": written,
                    "value": text,
                    "engine": self.job.serving.title,
                    "choices": ", ".join(choices[:12]),
                },
            )
        self._state(found, written, text, reason)

    def offer(self, written: str, value: str | None, reason: Reason) -> None:
        """State a flag that somebody else's recipe has; one this version lacks is noted."""
        found, presence = self._look_up(written)
        if found is None or presence is not Presence.PRESENT:
            other = self._replacement(written)
            taken = other is not None and self._takes(other, value, reason)
            self._note_dropped("dropped_flag", written, presence, reason, other if taken else None)
            return
        self._state(found, written, value, reason)

    def env(self, name: str, value: str, reason: Reason) -> None:
        """State a variable. One that the engine's own names lack in this version is noted."""
        presence = self.job.table.env_presence(name, self.job.table_version)
        own = name.startswith(self.job.command.env_prefixes)
        if own and presence is not Presence.PRESENT:
            replaced = self._replacement(name)
            there = replaced is not None and replaced in self._env
            self._note_dropped(
                "dropped_variable", name, presence, reason, replaced if there else None
            )
            return
        known = self._env.get(name)
        if known is None:
            self._env[name] = _Entry(written=name, value=value, reason=reason)
        elif known.value != value:
            self._note_conflict(name, known, value, reason)

    def key(self, path: str, value: SettingValue, reason: Reason) -> None:
        """State a key of the engine's file of settings that must be there.

        Raises REC010 when this version does not have it, or nobody read whether it has.
        """
        presence = self.job.table.key_presence(path, self.job.table_version)
        if presence is not Presence.PRESENT:
            raise HeavyliftError(
                "REC010",
                {
                    "flag": path,
                    "engine": self.job.serving.title,
                    "version": self.job.table_version,
                    "presence": presence.value,
                },
            )
        self._state_key(path, value, reason)

    def offer_key(self, path: str, value: SettingValue, reason: Reason) -> None:
        """State a key that somebody else's recipe has; one this version lacks is noted."""
        presence = self.job.table.key_presence(path, self.job.table_version)
        if presence is not Presence.PRESENT:
            self._note_dropped("dropped_flag", path, presence, reason, None)
            return
        self._state_key(path, value, reason)

    def placed(self, written: str, value: str | None, reason: Reason) -> tuple[str, ...]:
        """The words of a flag that tells ranks apart. Raises REC010 when the version lacks it."""
        self._require(written)
        values, _ = self._placed.setdefault(written, ([], reason))
        if value is None:
            return (written,)
        if value not in values:
            values.append(value)
        return (written, value)

    def note(self, code: str, **params: str | float | bool | None) -> None:
        """Add a remark, once."""
        note = Note(code=code, params=params)
        if note not in self.notes:
            self.notes.append(note)

    # --- reading ---------------------------------------------------------------------------------

    def has(self, written: str) -> bool:
        """True when the flag was stated."""
        found = self.job.table.flag(written)
        return found is not None and found.name in self._flags

    def offers(self, written: str) -> bool:
        """True when this version has the flag."""
        return self._look_up(written)[1] is Presence.PRESENT

    def words(self) -> tuple[str, ...]:
        """The flags as words of a command."""
        words: list[str] = []
        for entry in self._flags.values():
            words.append(entry.written)
            if entry.value is not None:
                words.append(entry.value)
        return tuple(words)

    def environment(self) -> dict[str, str]:
        """The variables, by name."""
        return {name: entry.value or "" for name, entry in sorted(self._env.items())}

    def settings_file(self) -> dict[str, Any]:
        """The keys of the file of settings, nested as their paths say."""
        tree: dict[str, Any] = {}
        for path, (value, _) in self._keys.items():
            *outer, last = path.split(".")
            here = tree
            for name in outer:
                here = here.setdefault(name, {})
            here[last] = value
        return tree

    def settings(self) -> tuple[Setting, ...]:
        """Every flag, key of the file of settings, and variable with its reason."""
        role = self.job.role
        placed = [
            _Entry(written=name, value=" / ".join(values) or None, reason=reason)
            for name, (values, reason) in self._placed.items()
        ]
        keys = [
            _Entry(written=path, value=canonical_json(value), reason=reason)
            for path, (value, reason) in self._keys.items()
        ]
        variables = [self._env[name] for name in sorted(self._env)]
        return tuple(
            Setting(
                name=entry.written,
                value=entry.value or "",
                origin=entry.reason.origin,
                source=entry.reason.source,
                why=entry.reason.why,
                as_of=entry.reason.as_of,
                role=role,
            )
            for entry in (*self._flags.values(), *placed, *keys, *variables)
        )

    # --- inside ----------------------------------------------------------------------------------

    def _require(self, written: str) -> Found:
        found, presence = self._look_up(written)
        if found is None or presence is not Presence.PRESENT:
            raise HeavyliftError(
                "REC010",
                {
                    "flag": written,
                    "engine": self.job.serving.title,
                    "version": self.job.table_version,
                    "presence": presence.value,
                },
            )
        return found

    def _look_up(self, written: str) -> tuple[Found | None, Presence]:
        table, version = self.job.table, self.job.table_version
        found = table.flag(written)
        if found is None:
            return None, Presence.UNKNOWN if table.facts.partial else Presence.ABSENT
        return found, table.presence(found, version)

    def _has_own_name(self, found: Found) -> bool:
        """True when this version has the flag under its main name, not under an alias alone."""
        table, version = self.job.table, self.job.table_version
        return table.flag_presence(found.name, version) is Presence.PRESENT

    def _takes(self, other: str, value: str | None, reason: Reason) -> bool:
        """State the flag that took another's place; False where it lacks too."""
        found, presence = self._look_up(other)
        if found is None or presence is not Presence.PRESENT:
            return False
        self._state(found, other, value, reason)
        return True

    def _state(self, found: Found, written: str, value: str | None, reason: Reason) -> None:
        if found.facts.type == "json" and value is not None:
            value = _canonical(value)
        known = self._flags.get(found.name)
        spelt = written if found.negated or not self._has_own_name(found) else found.name
        if known is None:
            self._flags[found.name] = _Entry(written=spelt, value=value, reason=reason)
        elif (known.written, _plain(known.value)) != (spelt, _plain(value)):
            self._note_conflict(spelt, known, value, reason)

    def _state_key(self, path: str, value: SettingValue, reason: Reason) -> None:
        known = self._keys.get(path)
        if known is None:
            self._keys[path] = (value, reason)
        elif known[0] != value:
            ours = _Entry(written=path, value=canonical_json(known[0]), reason=known[1])
            self._note_conflict(path, ours, canonical_json(value), reason)

    def _note_conflict(self, name: str, known: _Entry, value: str | None, reason: Reason) -> None:
        self.note(
            "conflict",
            name=known.written,
            ours=known.value if known.value is not None else known.written,
            theirs=value if value is not None else name,
            origin=known.reason.origin,
            source=reason.source,
        )

    def _note_dropped(
        self, code: str, name: str, presence: Presence, reason: Reason, instead: str | None
    ) -> None:
        self.note(
            code,
            name=name,
            presence=presence.value,
            version=self.job.table_version,
            source=reason.source,
            instead=instead,
        )

    def _replacement(self, written: str) -> str | None:
        """The name that took the place of one, by the tables or by what is known of names."""
        facts = self.job.table.facts
        entry = facts.flags.get(written) or facts.env.get(written)
        if entry is not None and entry.replaced_by is not None:
            return entry.replaced_by
        return next(
            (
                change.replaced_by
                for change in self.job.changes
                if change.engine == self.job.command.id and change.name == written
            ),
            None,
        )


def canonical_json(value: object) -> str:
    """A value as JSON without spaces, keys in order: the same words for the same meaning."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _canonical(text: str) -> str:
    try:
        return canonical_json(json.loads(text))
    except ValueError:
        return text


def _shown(value: str | float | None) -> str | None:
    if value is None:
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: str | None) -> str | float | None:
    """A value for comparison: 0.95 is 0.950."""
    try:
        return None if value is None else float(value)
    except ValueError:
        return value
