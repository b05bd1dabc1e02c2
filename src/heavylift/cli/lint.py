"""`heavylift lint`: what is wrong with a command found elsewhere, and the mended command."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from heavylift.cli.output import json_option, sink, wording
from heavylift.cli.text import keys, of_facts, text
from heavylift.errors import Exit, HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.lint.check import Report
from heavylift.lint.finding import LintFinding
from heavylift.linting import Linting
from heavylift.records.finding import Severity

STDIN: Final = "-"
MOST_BYTES: Final = 1 << 18
_NOTHING_READ: Final = "no_command"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownFinding:
    """A finding with its words. `source` is the title of what it rests on, `url` where it is."""

    code: str
    rule: str
    severity: Severity
    subject: str
    message: str
    fix: str
    source: str | None
    source_id: str | None
    url: str | None
    as_of: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownReport:
    """What the linter found, with its words; `mended` is the command to run instead."""

    form: str
    engines: tuple[str, ...]
    models: tuple[str, ...]
    findings: tuple[ShownFinding, ...]
    counts: dict[str, int]
    mended: str
    schema: int


@click.command(help=text("help.lint"))
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default=STDIN
)
@click.option("--on", "rack", metavar="RACK", help=text("lint.option.on"))
@click.option("--model", help=text("lint.option.model"))
@click.option("--engine-version", "version", help=text("lint.option.engine_version"))
@json_option
def command(
    file: str, rack: str | None, model: str | None, version: str | None, as_json: bool
) -> int:
    """Read, judge, show; 1 when anything is above a remark, 3 when there was no command."""
    catalog = Catalog()
    linting, out = Linting(catalog), sink(as_json)
    report = linting.lint(read_pasted(file), rack=rack, model=model, version=version)
    if rack is not None and not linting.knows_rack(rack):
        out.note("lint.rack_unknown", rack=repr(rack))
    with wording(as_json):
        shown = show(report, catalog)
    out.record("lint", shown)
    if not report.engines and not report.findings:
        return Exit.INPUT
    return Exit.OK if report.is_clean else Exit.NEGATIVE


def show(report: Report, catalog: Catalog) -> ShownReport:
    """A report with its words."""
    findings = report.findings
    if not report.engines and not findings:
        nothing = LintFinding(
            rule=_NOTHING_READ, severity=Severity.UNKNOWN, subject="", text=_NOTHING_READ
        )
        findings = (nothing,)
    return ShownReport(
        form=report.form,
        engines=report.engines,
        models=report.models,
        findings=tuple(_shown(finding, catalog) for finding in findings),
        counts={
            severity.value: sum(finding.severity is severity for finding in findings)
            for severity in (Severity.FAIL, Severity.WARN, Severity.INFO, Severity.UNKNOWN)
        },
        mended=report.mended,
        schema=report.schema,
    )


def _shown(finding: LintFinding, catalog: Catalog) -> ShownFinding:
    source = catalog.source_or_none(finding.source) if finding.source is not None else None
    return ShownFinding(
        code=finding.code,
        rule=finding.rule,
        severity=finding.severity,
        subject=finding.subject,
        message=_words(finding, ""),
        fix=_words(finding, ".fix"),
        source=of_facts(source.title) if source is not None else finding.source,
        source_id=finding.source,
        url=source.url if source is not None else None,
        as_of=finding.as_of,
    )


def _words(finding: LintFinding, suffix: str) -> str:
    """The text of the finding itself or, where it has none of its own, that of its rule."""
    own = f"lint.{finding.text}{suffix}"
    key = own if own in keys() else f"lint.{finding.rule}{suffix}"
    missing = "?"
    params = {
        name: missing if value is None else value
        for name, value in {"other": None, **finding.params}.items()
    }
    return text(key, **params)


def read_pasted(file: str) -> str:
    """The text of a file or of standard input. Raises LINT001 and LINT002."""
    try:
        raw = sys.stdin.buffer.read(MOST_BYTES + 1) if file == STDIN else _bytes(Path(file))
    except OSError as error:
        raise HeavyliftError("LINT001", {"path": file, "reason": error.strerror}) from error
    if len(raw) > MOST_BYTES:
        raise HeavyliftError("LINT002", {"path": file, "most": MOST_BYTES})
    return raw.decode("utf-8", "replace")


def _bytes(path: Path) -> bytes:
    with path.open("rb") as handle:
        return handle.read(MOST_BYTES + 1)
