"""Rules that are facts: pairs of flags, builds and versions, from the rule files."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.facts.command_schema import CommandRuleFacts
from heavylift.lint.case import Case
from heavylift.lint.conditions import parse
from heavylift.lint.finding import LintFinding
from heavylift.records.finding import Severity


def pairs(case: Case) -> Iterator[LintFinding]:
    """A finding for every rule of the files that holds."""
    for rule in case.library.rules:
        severity = _severity(rule, case)
        if severity is None or not _holds(rule, case):
            continue
        yield LintFinding(
            rule=rule.rule,
            detail=rule.detail,
            severity=severity,
            subject=_subject(rule, case),
            text=rule.id,
            params={
                "value": ", ".join(case.values(rule.subject)),
                "model": case.model.title if case.model else case.model_name,
                "engine": case.engine.title if case.engine else None,
                "version": case.version.text,
            },
            mend=rule.mend,
            source=rule.source,
            as_of=rule.as_of.isoformat(),
        )


def _holds(rule: CommandRuleFacts, case: Case) -> bool:
    return all(parse(each).holds(case.values) for each in rule.when) and not any(
        parse(each).holds(case.values) for each in rule.unless
    )


def _severity(rule: CommandRuleFacts, case: Case) -> Severity | None:
    """The severity for this engine and version; None where the rule does not apply."""
    if rule.engines and (case.engine is None or case.engine.id not in rule.engines):
        return None
    bounded = rule.since is not None or rule.until is not None
    version = case.version
    if version.number is not None:
        early = rule.since is not None and version.precedes(rule.since)
        late = rule.until is not None and not version.precedes(rule.until)
        return None if early or late else Severity(rule.severity)
    if not bounded:
        return Severity(rule.severity)
    if rule.unstated == "none":
        return None
    if version.is_unnumbered:
        return Severity.INFO
    return Severity(rule.unstated or rule.severity)


def _subject(rule: CommandRuleFacts, case: Case) -> str:
    """The subject as written: a flag with its value, a variable, an image."""
    name = rule.subject
    if name.startswith("$"):
        return name[1:]
    if name.startswith("-"):
        written = [option.written for option in case.command.options if option.name == name]
        return written[-1] if written else name
    values = case.values(name)
    if values and name in (
        "image",
        "model",
        "card",
        "container_group",
        "container_port",
        "launcher",
    ):
        return ", ".join(values)
    return case.flag_of(name)
