"""What the model needs from its command: code, parsers, a name, a layout."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator

from heavylift.facts.command_schema import CommandModelFacts
from heavylift.lint.case import Case, name_key
from heavylift.lint.command import FALSE
from heavylift.lint.finding import LintFinding
from heavylift.recipe.flags import Presence
from heavylift.records.finding import Severity
from heavylift.units import GB

_LOCAL = re.compile(r"[/.~$<]|[a-z]+://|.*\.gguf$", re.IGNORECASE)
_ONE_CARD_BYTES = 288 * GB
_LARGE_BYTES = 400 * GB
_SMALL_CONTEXT = 4096
_WITH_OWNER = 2
"""Parts of a repository name that has an owner: `owner/name`, `hub/owner/name`."""


def model(case: Case) -> Iterator[LintFinding]:
    """Every finding on the model and what is missing for it."""
    if case.engine is None:
        return
    for rule in (_name, _mirror, _size, _floor):
        yield from rule(case)
    if case.serves and not case.is_partial:
        for rule in (_trust, _parsers, _auto_tools, _tensor, _context):
            yield from rule(case)
    elif case.serves:
        yield from _parser_family(case)


def _trust(case: Case) -> Iterator[LintFinding]:
    facts = case.model
    if facts is None or not facts.trust_remote_code or not _knows(case, "trust"):
        return
    if case.setting("trust") in (None, FALSE):
        yield LintFinding(
            rule="no_trust_remote_code",
            severity=Severity.FAIL if _refuses(case, facts) else Severity.INFO,
            subject=case.flag_of("trust"),
            text="no_trust_remote_code",
            params={"model": facts.title},
            mend=(f"add {case.flag_of('trust')}",),
            source=facts.source,
            as_of=facts.as_of.isoformat(),
        )


def _parsers(case: Case) -> Iterator[LintFinding]:
    facts = case.model
    for setting, rule, names in (
        ("tool_parser", "no_tool_parser", facts.tool_parsers if facts else ()),
        ("reasoning_parser", "no_reasoning_parser", facts.reasoning_parsers if facts else ()),
    ):
        if not _knows(case, setting) or case.setting(setting) is not None:
            continue
        if rule == "no_reasoning_parser" and not names:
            continue
        name = _own_parser(case, setting, names)
        if names and name is None:
            # The engine has none of the model's: there is nothing to name.
            continue
        yield LintFinding(
            rule=rule,
            severity=Severity.INFO,
            subject=case.flag_of(setting),
            text=rule,
            params={"model": facts.title if facts else case.model_name, "other": name},
            mend=_parser_mend(case, setting, name),
            source=facts.source if facts else case.table.facts.source if case.table else None,
        )
    yield from _parser_family(case)


def _parser_mend(case: Case, setting: str, name: str | None) -> tuple[str, ...]:
    """The parser and, for tools, the switch without which nothing calls it."""
    if name is None:
        return ()
    switch = setting == "tool_parser" and _knows(case, "auto_tools")
    return (
        f"set {case.flag_of(setting)} {name}",
        *((f"add {case.flag_of('auto_tools')}",) if switch else ()),
    )


def _parser_family(case: Case) -> Iterator[LintFinding]:
    facts = case.model
    if facts is None:
        return
    for setting, names in (
        ("tool_parser", facts.tool_parsers),
        ("reasoning_parser", facts.reasoning_parsers),
    ):
        value = case.setting(setting)
        if value in (None, "auto", *names) or not names or "$" in str(value):
            continue
        other = _own_parser(case, setting, names)
        if other is None and not _has_parser(case, setting, str(value)):
            # Neither this name nor one of the model's is in the engine: whose it is, nobody says.
            continue
        yield LintFinding(
            rule="parser_family_mismatch",
            severity=Severity.WARN,
            subject=case.flag_of(setting),
            detail=f"{value}_for_{facts.id}",
            text="parser_family_mismatch",
            params={"value": value, "model": facts.title, "other": other or ", ".join(names)},
            mend=(f"set {case.flag_of(setting)} {other}",) if other else (),
            source=facts.source,
            as_of=facts.as_of.isoformat(),
        )


def _has_parser(case: Case, setting: str, value: str) -> bool:
    """Whether a read release of the engine has a parser of that name, or the names are unread."""
    found = case.table.flag(case.flag_of(setting)) if case.table is not None else None
    choices = case.table.choices(found.facts, None) if case.table is not None and found else ()
    return not choices or value in choices


def _own_parser(case: Case, setting: str, names: tuple[str, ...]) -> str | None:
    """The first of the model's parsers that this engine has."""
    found = case.table.flag(case.flag_of(setting)) if case.table is not None else None
    if found is None or case.table is None:
        return next(iter(names), None)
    choices = case.table.choices(found.facts, case.read_version)
    later = found.facts.choice_since if case.read_version is None else {}
    return next(
        (
            name
            for name in names
            if (not choices or name in choices)
            and not (name in later and case.version.precedes(later[name]))
        ),
        None,
    )


def _auto_tools(case: Case) -> Iterator[LintFinding]:
    if not _knows(case, "auto_tools"):
        return
    parser = case.setting("tool_parser")
    automatic = case.setting("auto_tools") not in (None, FALSE)
    if parser is not None and not automatic:
        yield LintFinding(
            rule="missing",
            # The server starts and answers; only requests that leave the choice of tools to it are
            # refused.
            severity=Severity.INFO,
            subject=case.flag_of("tool_parser"),
            detail="enable_auto_tool_choice",
            text="auto_tools_missing",
            mend=(f"add {case.flag_of('auto_tools')}",),
            source=case.table.facts.source if case.table else None,
        )
    elif automatic and parser is None:
        names = case.model.tool_parsers if case.model else ()
        name = _own_parser(case, "tool_parser", names)
        yield LintFinding(
            rule="requires",
            severity=Severity.FAIL,
            subject=case.flag_of("auto_tools"),
            detail="tool_call_parser",
            text="tool_parser_missing",
            params={"other": name},
            mend=(f"set {case.flag_of('tool_parser')} {name}",) if name else (),
            source=case.table.facts.source if case.table else None,
        )


def _name(case: Case) -> Iterator[LintFinding]:
    """A name that is neither a repository (owner/name) nor a path."""
    name = case.model_name
    if name is None or case.hints.model == name or not case.serves or case.engine is None:
        return
    if "/" in name or _LOCAL.match(name) or not _knows(case, "trust") or case.model is None:
        return
    yield LintFinding(
        rule="relative_model_name",
        severity=Severity.WARN,
        subject=name,
        text="relative_model_name",
        params={"model": case.model.title},
    )


def _mirror(case: Case) -> Iterator[LintFinding]:
    """A copy of the weights under an owner of whom nothing is known."""
    name, facts = case.model_name, case.model
    if name is None or facts is None or not facts.owners or name.startswith(("/", ".", "~", "$")):
        return
    parts = name.partition(":")[0].split("/")
    if len(parts) < _WITH_OWNER or "<" in name:
        return
    if parts[-2].lower() not in facts.owners:
        yield LintFinding(
            rule="unofficial_mirror",
            severity=Severity.INFO,
            subject=name,
            text="unofficial_mirror",
            params={"model": facts.title},
            source=facts.source,
        )


def _size(case: Case) -> Iterator[LintFinding]:
    """How much a command downloads, where it is one that downloads."""
    size = case.weights_bytes
    if size is None or case.engine is None or size < _LARGE_BYTES:
        return
    fetches = (
        not case.engine.serves
        or case.setting("fetched_model") is not None
        or not case.engine.settings.get("tensor")
    ) and not (case.model_name or "").startswith(("/", "."))
    if fetches and not (case.model_name or "").endswith(".gguf"):
        yield LintFinding(
            rule="download_size",
            severity=Severity.INFO,
            subject=case.model_name or "",
            detail=f"{size / GB:.1f}GB",
            text="download_size",
            params={"size": f"{size / GB:,.1f} GB"},
            source=case.weights_source,
        )


def _floor(case: Case) -> Iterator[LintFinding]:
    """A version before the one that the published recipe of the model asks for."""
    name, engine = name_key(case.model_name or ""), case.engine
    floor = next(
        (
            each
            for each in case.library.models.floors
            if engine is not None
            and each.engine == engine.id
            and any(fnmatch.fnmatchcase(name, pattern) for pattern in each.patterns)
        ),
        None,
    )
    if floor is not None and engine is not None and case.version.precedes(floor.version):
        yield LintFinding(
            rule="engine_version_floor",
            severity=Severity.INFO,
            subject="version",
            detail=floor.version,
            text="recipe_asks_newer",
            params={"engine": engine.title, "model": _title(case), "since": floor.version},
            source=floor.source,
            as_of=floor.as_of.isoformat(),
        )


def _tensor(case: Case) -> Iterator[LintFinding]:
    """One GPU, by default, for a model that none holds."""
    size = case.weights_bytes or (case.model.bytes_total if case.model else None)
    if size is None or not _knows(case, "tensor"):
        return
    if case.layout.world_size > 1 or case.states_layout:
        return
    several = [rack.card.memory_bytes for rack in case.racks if (rack.gpus or 0) > 1]
    if size < (max(several) if several else _ONE_CARD_BYTES):
        return
    gpus = next((rack.per_node for rack in case.racks if rack.per_node), None)
    yield LintFinding(
        rule="tp_missing",
        severity=Severity.FAIL,
        subject=case.flag_of("tensor"),
        text="tp_missing",
        params={"size": f"{size / GB:,.0f} GB", "model": _title(case)},
        mend=(f"set {case.flag_of('tensor')} {gpus}",) if gpus else (),
        source=_source(case),
    )


def _context(case: Case) -> Iterator[LintFinding]:
    """Less context than the model has."""
    context, native = case.number_of("context"), case.context_tokens
    if native is None or context is None or context >= native:
        return
    if context > _SMALL_CONTEXT:
        yield LintFinding(
            rule="context_below_native",
            severity=Severity.INFO,
            subject=case.flag_of("context"),
            detail=str(context),
            text="context_below_native",
            params={"value": f"{context:,}", "other": f"{native:,}"},
            source=_source(case),
        )


def _title(case: Case) -> str:
    known = case.known or case.model
    return known.title if known is not None else case.model_name or ""


def _source(case: Case) -> str | None:
    known = case.known or case.model
    return known.source if known is not None else None


def _refuses(case: Case, facts: CommandModelFacts) -> bool:
    """Whether the engine does not start without being told to trust the model's own code."""
    return case.engine is not None and case.engine.refuses_foreign_code and not facts.trust_optional


def _knows(case: Case, setting: str) -> bool:
    """Whether the engine has a word for a setting, in the version stated: one that was not read has
    none that came with a later one.
    """
    if case.engine is None or not case.engine.settings.get(setting):
        return False
    found = case.table.flag(case.flag_of(setting)) if case.table is not None else None
    if found is None or case.table is None:
        return True
    since = found.facts.since
    if since is not None and case.read_version is None and case.version.precedes(since):
        return False
    return case.table.presence(found, case.read_version) is Presence.PRESENT
