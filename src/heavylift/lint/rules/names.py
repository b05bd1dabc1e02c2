"""Flags, values and variables that the engine's version does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from heavylift.facts.command_schema import FlagFacts, NameChangeFacts
from heavylift.lint.case import Case
from heavylift.lint.command import FALSE, Option
from heavylift.lint.finding import LintFinding
from heavylift.recipe.flags import FlagTable, Found, Presence
from heavylift.records.finding import Severity

_NEAR_CHOICE: Final = 0.8
_SHOWN_CHOICES: Final = 8
_OPEN_SETTINGS: Final = {
    "quantization": "quantization_only_in_fork",
    "attention_backend": "backend_only_in_fork",
    "moe_backend": "backend_only_in_fork",
    "load_format": "backend_only_in_fork",
    "tool_parser": "parser_only_in_plugin",
    "reasoning_parser": "parser_only_in_plugin",
}
"""Settings whose values plug-ins and forks add to: a strange one need not be wrong."""


@dataclass(frozen=True, slots=True)
class _Names:
    """A case with the flag table of its engine and what is certain about its version."""

    case: Case
    table: FlagTable

    @property
    def version(self) -> str | None:
        """The version to look names up in; None (the newest) where the stated one was not read."""
        return self.case.read_version

    @property
    def certainty(self) -> Severity:
        """How sure an absent name is.

        Sure when the stated version was read; likely when none is stated, or one after those read;
        a remark when it is a build without a number, a wrapped engine, or one that was not read and
        is older than the newest that was.
        """
        case, number = self.case, self.case.version.number
        if case.version.is_unnumbered or case.command.launcher is not None:
            return Severity.INFO
        if number is None:
            return Severity.WARN
        if self.version is not None:
            return Severity.FAIL
        return Severity.INFO if case.version.precedes(self.table.newest) else Severity.WARN

    @property
    def likelihood(self) -> Severity:
        """As `certainty`, one step lower: values and variables come and go faster than flags."""
        return Severity.WARN if self.certainty is Severity.FAIL else Severity.INFO

    def change(self, written: str) -> NameChangeFacts | None:
        """What is known of a name that the read versions do not have."""
        engine = self.case.engine
        dashed = "--" + written[2:].replace("_", "-") if written.startswith("--") else written
        return next(
            (
                each
                for each in self.case.library.changes
                if engine is not None
                and each.engine == engine.id
                and each.name in (written, dashed)
            ),
            None,
        )

    def finding(
        self,
        rule: str,
        severity: Severity,
        subject: str,
        *,
        text: str | None = None,
        detail: str | None = None,
        change: NameChangeFacts | None = None,
        mend: tuple[str, ...] = (),
        **params: str | None,
    ) -> LintFinding:
        """A finding that rests on the table or, where it is told apart, on a known change."""
        engine, facts = self.case.engine, change or self.table.facts
        return LintFinding(
            rule=rule,
            severity=severity,
            subject=subject,
            text=text or rule,
            detail=detail,
            params={
                "engine": engine.title if engine is not None else "",
                "newest": self.table.newest,
                **params,
            },
            mend=mend,
            source=facts.source,
            as_of=facts.as_of.isoformat(),
        )


def names(case: Case) -> Iterator[LintFinding]:
    """Every finding on a name: flags of the engine and of its container, values, variables."""
    yield from _container_flags(case)
    if case.table is None:
        return
    known = _Names(case, case.table)
    for option in case.command.options:
        if option.slip in (None, "one_element"):
            yield from _flag(option, known)
    for name in case.command.env:
        yield from _variable(name, known)
    yield from _given_twice(known)


# --- flags ---------------------------------------------------------------------------------------


def _container_flags(case: Case) -> Iterator[LintFinding]:
    """A finding for each flag of `docker run` that is nearly one; others may be of podman."""
    box, table = case.command.container, case.library.tables["docker"]
    for option in box.options if box is not None else ():
        near = table.near_flag(option.written) if option.found is None else None
        if near is not None and option.slip is None:
            yield LintFinding(
                rule="unknown_flag",
                severity=Severity.WARN,
                subject=option.written,
                text="unknown_flag_near",
                params={"engine": table.facts.engine, "newest": table.newest, "other": near},
                mend=(f"container rename {option.written} {near}",),
                source=table.facts.source,
            )


def _flag(option: Option, known: _Names) -> Iterator[LintFinding]:
    """Whether the version has the flag, how it is spelt, and its value."""
    change = known.change(option.written)
    if change is not None and change.rule is not None:
        yield _changed_flag(option, change, change.rule, known)
    elif option.found is None:
        yield from _unknown_flag(option, known)
    else:
        yield from _known_flag(option, option.found, known)


def _changed_flag(option: Option, change: NameChangeFacts, rule: str, known: _Names) -> LintFinding:
    other, written = change.replaced_by, option.written
    renamed = rule == "renamed_flag" and other is not None and _takes(known, other, option.value)
    facts = option.found.facts if option.found is not None else None
    # Without a version stated it may be for one of the read ones that have it.
    unstated = known.case.version.number is None and facts is not None and facts.until is not None
    return known.finding(
        rule,
        Severity.INFO if unstated else known.certainty,
        written,
        text="removed_flag_to" if other is not None and not renamed else rule,
        change=change,
        other=other,
        mend=(f"rename {written} {other}" if renamed else f"drop {written}",),
    )


def _takes(known: _Names, name: str, value: str | None) -> bool:
    """Whether the flag that took a name over also takes what was written for the old one."""
    found = known.table.flag(name)
    if found is None or value is None or "$" in value:
        return found is None or (value is None) != found.facts.takes_value
    if "." in name.lstrip("-"):
        return True
    if found.facts.type == "json":
        return value.startswith("{")
    return not found.facts.choices or value in found.facts.choices


def _unknown_flag(option: Option, known: _Names) -> Iterator[LintFinding]:
    if known.table.facts.partial:
        return
    near = known.table.near_flag(option.written)
    severity = known.certainty
    if near is None and severity is Severity.WARN:
        # Like no flag at all, and no version stated: more likely a fork's than a slip.
        severity = Severity.INFO
    yield known.finding(
        "unknown_flag",
        severity,
        option.written,
        text=_unknown_text(near, known),
        other=near,
        version=known.case.version.number,
        mend=(f"rename {option.written} {near}",) if near else (),
    )


def _unknown_text(near: str | None, known: _Names) -> str | None:
    """What is said of a flag that no table has: of a version nobody read, that nothing is known."""
    if near is not None:
        return "unknown_flag_near"
    unread = known.case.version.number is not None and known.version is None
    return "unknown_flag_unread" if unread else None


def _known_flag(option: Option, found: Found, known: _Names) -> Iterator[LintFinding]:
    written, facts = option.written, found.facts
    if found.underscores:
        other = option.name if option.member is None else f"{option.name}.{option.member}"
        yield known.finding(
            "underscore_flag",
            Severity.INFO,
            written,
            other=other,
            mend=(f"rename {written} {other}",),
        )
    presence = known.table.presence(found, known.version)
    if presence is Presence.GONE:
        # Without a version stated it may be for one of those that have it.
        stated = known.case.version.number is not None
        yield known.finding(
            "removed_flag",
            known.certainty if stated else Severity.INFO,
            written,
            mend=(f"drop {written}",),
        )
    elif presence is Presence.NOT_YET:
        yield known.finding(
            "engine_version_floor",
            known.certainty,
            written,
            text="flag_not_yet",
            detail=option.name,
            since=found.alias_since or facts.since,
        )
    elif facts.replaced_by is not None:
        yield known.finding(
            "renamed_flag",
            Severity.INFO,
            written,
            text="deprecated_flag",
            other=facts.replaced_by,
        )
    if option.value is not None:
        yield from _value(option, option.value, facts, known)
    elif presence is Presence.PRESENT and _lacks_value(option, facts):
        yield known.finding(
            "malformed_flag", Severity.FAIL, written, text="value_missing", detail=written
        )


def _lacks_value(option: Option, facts: FlagFacts) -> bool:
    return facts.type in ("int", "float", "str", "json") and option.text != FALSE


def _value(option: Option, value: str, facts: FlagFacts, known: _Names) -> Iterator[LintFinding]:
    """A value that is none of the flag's choices."""
    if "$" in value or option.member is not None:
        return
    taken = known.table.choices(facts, known.version)
    choices = [choice.lower() for choice in taken]
    if not choices:
        yield from _members(option, known)
        return
    given = value.split() if facts.type == "list" else [value]
    if all(each.lower() in choices for each in given):
        return
    near = difflib.get_close_matches(value, taken, n=1, cutoff=_NEAR_CHOICE)
    rule = next(
        (
            rule
            for setting, rule in _OPEN_SETTINGS.items()
            if known.case.flag_of(setting) == option.name
        ),
        None,
    )
    if near:
        unnumbered = known.case.version.is_unnumbered
        yield known.finding(
            "unknown_value",
            Severity.INFO if unnumbered else Severity.WARN,
            option.written,
            text="unknown_value_near",
            value=value,
            other=near[0],
            mend=(f"set {option.written} {near[0]}",),
        )
    elif rule is not None:
        yield known.finding(
            rule,
            Severity.INFO,
            option.written,
            text="value_only_in_fork",
            detail=value,
            value=value,
        )
    else:
        yield known.finding(
            "unknown_value",
            known.likelihood,
            option.written,
            value=value,
            other=", ".join(taken[:_SHOWN_CHOICES]),
        )


def _members(option: Option, known: _Names) -> Iterator[LintFinding]:
    """Members of a JSON value that say what a flag of its own also says: held to its choices."""
    engine = known.case.engine
    for setting, rule in _OPEN_SETTINGS.items() if engine is not None else ():
        spelt = engine.settings.get(setting, ()) if engine is not None else ()
        plain = next((known.table.flag(each) for each in spelt if ":" not in each), None)
        for each in spelt:
            flag, _, member = each.partition(":")
            value = option.likely_members.get(member) if flag == option.name and member else None
            if plain is None or not plain.facts.choices or not isinstance(value, str):
                continue
            if value.lower() not in {choice.lower() for choice in plain.facts.choices}:
                yield known.finding(
                    rule,
                    Severity.INFO,
                    option.written,
                    text="value_only_in_fork",
                    detail=value,
                    value=value,
                )


def _given_twice(known: _Names) -> Iterator[LintFinding]:
    """A flag given twice with different values: the last one wins, silently."""
    seen: dict[str, Option] = {}
    secret = known.case.flag_of("api_key")
    for option in known.case.command.options:
        facts = option.found.facts if option.found is not None else None
        if facts is None or option.member is not None or facts.type in ("list", "json"):
            continue
        if option.name == secret:
            continue
        before = seen.get(option.name)
        if before is not None and before.text != option.text:
            yield known.finding(
                "conflict",
                Severity.INFO,
                option.written,
                text="given_twice",
                detail="given_twice",
                value=before.text,
                other=option.text,
            )
        seen[option.name] = option


# --- variables -----------------------------------------------------------------------------------


def _variable(name: str, known: _Names) -> Iterator[LintFinding]:
    """Whether the version reads a variable that is the engine's own, or was."""
    change = known.change(name)
    if change is not None and change.elsewhere is not None:
        return
    engine = known.case.engine
    prefixes = engine.env_prefixes if engine is not None else ()
    if change is None and not name.startswith(prefixes):
        return
    presence = known.table.env_presence(name, known.version)
    facts = known.table.facts.env.get(name)
    other = change.replaced_by if change is not None else facts.replaced_by if facts else None
    if change is not None or presence is Presence.GONE:
        if presence is not Presence.PRESENT:
            yield _gone_variable(name, other, change, known)
    elif presence is Presence.NOT_YET:
        yield known.finding(
            "engine_version_floor",
            known.likelihood,
            name,
            text="env_not_yet",
            detail=name,
            since=facts.since if facts else None,
        )
    elif other is not None:
        yield known.finding(
            "env_renamed", Severity.INFO, name, other=other, mend=(f"rename {name} {other}",)
        )
    elif presence is Presence.ABSENT:
        yield _unknown_variable(name, known)


def _gone_variable(
    name: str, other: str | None, change: NameChangeFacts | None, known: _Names
) -> LintFinding:
    facts = known.table.facts.env.get(name)
    until = facts.until if facts else None
    return known.finding(
        "env_renamed",
        Severity.WARN if known.case.version.number is not None else Severity.INFO,
        name,
        text="env_renamed" if other else "env_removed" if until else "env_gone",
        change=change,
        other=other,
        until=until,
        mend=_successor(name, other, change, known.case),
    )


def _successor(
    name: str, other: str | None, change: NameChangeFacts | None, case: Case
) -> tuple[str, ...]:
    """The edits that leave a variable behind; none where what it said cannot be said anew."""
    if other is None:
        return (f"unset {name}",)
    value = change.values.get(case.command.env.get(name, "")) if change is not None else None
    return (f"unset {name}", f"env {other}={value}") if value is not None else ()


def _unknown_variable(name: str, known: _Names) -> LintFinding:
    near = known.table.near_env(name)
    # A name with its end cut off is wrong for every build; one that is only like it may not be.
    cut_off = near is not None and near.startswith(f"{name}_")
    sure = cut_off or (near is not None and known.case.version.number is not None)
    return known.finding(
        "unknown_env",
        Severity.WARN if sure else Severity.INFO,
        name,
        text="unknown_env_near" if near else None,
        detail=f"{name}->{near}" if near else name,
        other=near,
        mend=(f"rename {name} {near}",) if near else (),
    )
