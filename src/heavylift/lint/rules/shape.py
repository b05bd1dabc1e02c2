"""How the command is written: quotes, spaces, placeholders, entry points."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from heavylift.lint.case import Case
from heavylift.lint.command import Document, Option
from heavylift.lint.finding import LintFinding
from heavylift.records.finding import Severity

_PLACEHOLDER = re.compile(
    r"<[^>]+>|/path/to|path[-_]to[-_]|your[-_ ]|\byour\b|xxx+|\{\{|changeme|/some/|模型路径|你的",
    re.IGNORECASE,
)
_SECRET = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|API_?KEY|ACCESS_KEY)(?:$|_)", re.IGNORECASE)
_JSON_LIKE = re.compile(r"^\{.*[:}]", re.DOTALL)


_SLIPS = {
    "no_space": "malformed_flag",
    "parted": "dashes_apart",
    "one_element": "two_in_one",
}


def shape(case: Case) -> Iterator[LintFinding]:
    """Every finding on how the words are written."""
    container = case.command.container
    boxed = container.options if container is not None else ()
    outer = case.library.tables["docker"].facts.source
    inner = case.table.facts.source if case.table is not None else None
    for options, source in ((boxed, outer), (case.command.options, inner)):
        for option in options:
            for finding in (*_malformed(option), *_json(option)):
                yield replace(finding, source=source)
    yield from _placeholder(case)
    yield from _secrets(case)
    yield from _repeated(case)
    if case.command.legacy and case.serves and case.engine is not None:
        yield LintFinding(
            rule="legacy_entrypoint",
            severity=Severity.INFO,
            subject=case.command.entry,
            text="legacy_entrypoint",
            params={"other": case.engine.entries[0]},
            mend=("entry",) if _may_start_anew(case) else (),
            source=case.table.facts.source if case.table else None,
        )


def _malformed(option: Option) -> Iterator[LintFinding]:
    if option.slip is not None:
        yield LintFinding(
            rule="malformed_flag",
            severity=Severity.FAIL,
            subject=f"{option.written}{option.value or ''}",
            text=_SLIPS[option.slip],
            detail=f"{option.written}{option.value or ''}",
            params={"flag": option.written, "value": option.value},
            mend=("respell",),
        )


def _repeated(case: Case) -> Iterator[LintFinding]:
    """The program's name after an image that starts it already: it is read as an argument."""
    again, box = case.command.repeated, case.command.container
    if again is not None and box is not None and case.engine is not None:
        yield LintFinding(
            rule="malformed_flag",
            severity=Severity.FAIL,
            subject=again,
            text="entry_repeated",
            detail="entry_repeated",
            params={"image": box.image, "entry": case.engine.entries[0]},
            source=case.library.tables["docker"].facts.source,
        )


def _may_start_anew(case: Case) -> bool:
    """Whether the newest words may stand there: not behind an entry point of one's own or a program
    that takes a module, nor on a release before those that were read.
    """
    box, table = case.command.container, case.table
    if case.command.takes_module:
        return False
    if box is not None and box.entry_replaced and box.form == "docker":
        return False
    return table is None or not case.version.precedes(table.facts.read[0])


def _json(option: Option) -> Iterator[LintFinding]:
    """JSON that the shell would take apart, or that is not JSON at all."""
    value = option.value or ""
    wants_json = option.found is not None and option.found.facts.type == "json"
    if option.loose_json:
        yield LintFinding(
            rule="unquoted_json",
            severity=Severity.FAIL,
            subject=option.written,
            text="unquoted_json",
            params={"value": value},
            mend=("quote",),
        )
    elif (wants_json or _JSON_LIKE.match(value)) and value.startswith("{") and not option.members:
        if "$" in value or value.replace(" ", "") == "{}":
            return
        yield LintFinding(
            rule="unquoted_json",
            severity=Severity.FAIL,
            subject=option.written,
            detail="not_json",
            text="not_json",
            params={"value": value},
        )


def _secrets(case: Case) -> Iterator[LintFinding]:
    """Keys and tokens written out: everybody on the machine can read them, and every copy has them.

    The mended text names a variable in their place, so that the secret is not copied once more.
    """
    flags = case.engine.settings.get("api_key", ()) if case.engine is not None else ()
    written = [
        (option.written, f"set {option.written} $API_KEY", option.value)
        for option in case.command.options
        if option.name in flags and not option.name.endswith("-file")
    ]
    written += [
        (name, f"env {name}=${name}", value)
        for name, value in case.command.env.items()
        if _SECRET.search(name)
    ]
    for subject, mend, value in written:
        if value and not value.startswith(("$", "/", "<")):
            yield LintFinding(
                rule="secret_in_command",
                severity=Severity.INFO,
                subject=subject,
                text="secret_in_command",
                mend=(mend,),
            )


def _placeholder(case: Case) -> Iterator[LintFinding]:
    name = case.model_name
    if name is not None and _PLACEHOLDER.search(name):
        yield LintFinding(
            rule="placeholder_model_path",
            severity=Severity.WARN,
            subject=name,
            text="placeholder_model_path",
        )


# What a shell would choke on, apart from what only the copy lost and the mended text has again.
_REPAIR_SEVERITY = {
    "quotes": Severity.WARN,
    "dashes": Severity.WARN,
    "wide": Severity.WARN,
    "invisible": Severity.WARN,
    "space_after_backslash": Severity.WARN,
    "open_quote": Severity.WARN,
    "lost_line_breaks": Severity.INFO,
    "lost_continuations": Severity.INFO,
}


def copying(document: Document) -> Iterator[LintFinding]:
    """What copying broke, once per text."""
    for repair in dict.fromkeys(document.repairs):
        yield LintFinding(
            rule="broken_by_copying",
            severity=_REPAIR_SEVERITY[repair],
            subject=repair,
            detail=repair,
            text=f"copying_{repair}",
        )
