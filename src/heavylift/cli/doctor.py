"""`heavylift doctor`: whether this machine, or one whose snapshot was brought along, will do."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from heavylift.cli.kept import keep_of_recipe
from heavylift.cli.output import json_option, sink, wording
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError, Scalar
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import CheckFacts
from heavylift.planning import Planning
from heavylift.preflight.checks.runner import DoctorReport, Skipped, judge
from heavylift.preflight.checks.view import Target
from heavylift.preflight.target import no_target, of_file, of_model, of_plan, rack_of
from heavylift.records.finding import Finding, Severity
from heavylift.records.plan import PlanRequest, Rack
from heavylift.records.snapshot import Snapshot, State

_PYTHON_START_S: Final = 60
_LAUNCH: Final = "launch.json"
GROUPS: Final = ("platform", "topology", "host", "network", "software")
"""Groups of checks, in the order of the screen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownFinding:
    """A finding with its texts: what the screen and `--json` show. A check that does not apply to
    a host stands among them for `--json`, as info and with `applies` false.
    """

    id: str
    group: str
    severity: str
    subject: str
    title: str
    message: str
    observed: Scalar
    expected: Scalar
    fix: str | None
    evidence: tuple[str, ...]
    source: str | None
    as_of: str
    references: tuple[str, ...]
    code: str
    params: dict[str, Scalar]
    applies: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownSkip:
    """A check that did not apply, and why."""

    id: str
    subject: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownReport:
    """The doctor's answer. `counts` are the findings that apply, by severity; `failed` decides the
    exit status.
    """

    hosts: tuple[str, ...]
    taken_at: tuple[str, ...]
    target: str | None
    failed: bool
    counts: dict[str, int]
    findings: tuple[ShownFinding, ...]
    not_applicable: tuple[ShownSkip, ...]
    verbose: bool = False


@click.command(help=text("help.doctor"))
@click.option("--for", "target_name", metavar="PLAN|MODEL", help=text("option.doctor.for"))
@click.option(
    "--collect",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=text("option.doctor.collect"),
)
@click.option(
    "--from",
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help=text("option.doctor.from"),
)
@click.option(
    "--engine-python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PATH",
    help=text("option.doctor.engine_python"),
)
@click.option("-v", "--verbose", is_flag=True, help=text("option.doctor.verbose"))
@json_option
def command(  # noqa: PLR0917 - click passes every option by name
    target_name: str | None,
    collect: Path | None,
    files: tuple[Path, ...],
    engine_python: Path | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Observe or read snapshots, judge, show; 4 when a check failed."""
    if collect is not None and files:
        raise click.UsageError(text("usage.doctor.collect_from"))
    if engine_python is not None and files:
        raise click.UsageError(text("usage.doctor.from_python"))
    if engine_python is not None and not _is_python(engine_python):
        raise click.UsageError(text("usage.doctor.no_python", path=str(engine_python)))
    catalog = Catalog()
    # A name nobody knows is found out before a minute of looking.
    weights = _weights(target_name)
    target = _target(target_name, weights, catalog)
    out = sink(as_json)
    if files:
        from heavylift.preflight.snapshot import read_snapshot

        snapshots = [read_snapshot(path) for path in files]
    else:
        from heavylift.preflight.snapshot import Wanted, take_snapshot

        wanted = Wanted(checkpoint=weights, engine_python=engine_python)
        snapshots = [take_snapshot(wanted, on_step=lambda name: out.step(f"doctor.step.{name}"))]
    if collect is not None:
        return _collect(snapshots[0], collect)
    target = _planned(target, snapshots, catalog)
    facts = {group: catalog.checks(group) for group in GROUPS}
    report = judge(snapshots, target, facts, target_name=target_name)
    with wording(as_json):
        shown = replace(show(report, facts), verbose=verbose)
    out.record("doctor", shown)
    if target_name is not None and Path(target_name).name == _LAUNCH:
        keep_of_recipe(out, "doctor", shown, Path(target_name).parent)
    out.next_command(_next(shown, files, catalog))
    return Exit.ENVIRONMENT if report.failed else Exit.OK


def _is_python(program: Path) -> bool:
    """True when the program starts and does what it is told in Python."""
    import subprocess

    said = "heavylift"
    try:
        result = subprocess.run(  # noqa: S603 - the program that was named on the command line
            [program.absolute(), "-I", "-c", f"print({said!r})"],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PYTHON_START_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.stdout.strip() == said.encode()


def _collect(snapshot: Snapshot, path: Path) -> int:
    from heavylift.preflight.snapshot import write_snapshot

    write_snapshot(snapshot, path)
    click.echo(
        text(
            "doctor.collected",
            count=len(snapshot.observations),
            host=snapshot.host,
            path=path,
        ),
        err=True,
    )
    return Exit.OK


def _weights(name: str | None) -> Path | None:
    """The folder or file of weights that was named, or None.

    Raises PRE111 when the disk does not answer: it may be a dead file server.
    """
    from heavylift.preflight.reading import Item, observe
    from heavylift.preflight.snapshot import WEIGHTS

    if name is None or Path(name).suffix == ".json":
        return None
    item = Item(operation="stat", argument=name)
    found = observe([item])[item.key]
    if found.state is State.TIME_LIMIT:
        raise HeavyliftError("PRE111", {"path": name})
    if found.state is not State.OK:
        return None
    is_folder = '"type": "d"' in found.text
    return Path(name) if is_folder or Path(name).suffix in WEIGHTS else None


def _target(name: str | None, weights: Path | None, catalog: Catalog) -> Target:
    if name is None or weights is not None:
        return no_target(catalog)
    path = Path(name)
    if path.suffix == ".json" or path.is_file():
        return of_file(path, catalog)
    return of_model(name, catalog)


def _planned(target: Target, snapshots: list[Snapshot], catalog: Catalog) -> Target:
    """A model without a plan is planned on the cards that the snapshots show, where that can be."""
    if target.plan is not None or target.model is None or target.spec is not None:
        return target
    rack_text = rack_of(snapshots, target)
    if rack_text is None:
        return target
    planning = Planning(catalog)
    model = target.model.id

    def request(rack: Rack) -> PlanRequest:
        return PlanRequest(model=model, rack=rack)

    try:
        _, rack = planning.rack(rack_text)
        if rack is None:
            return target
        plan = planning.plan(request(rack), planning.knowledge(model), with_fixes=False)
    except HeavyliftError:
        # Cards that make no rack of the catalogue: the host is judged by itself.
        return target
    return of_plan(plan, catalog)


def show(report: DoctorReport, facts: dict[str, tuple[CheckFacts, ...]]) -> ShownReport:
    """The report with its texts."""
    by_id = {check.id: check for checks in facts.values() for check in checks}
    findings = tuple(_shown(finding, by_id[finding.id]) for finding in report.findings)
    words = ("ok", "info", "warn", "fail", "unknown")
    return ShownReport(
        hosts=report.hosts,
        taken_at=report.taken_at,
        target=report.target,
        failed=report.failed,
        counts={word: sum(each.severity == word for each in findings) for word in words},
        findings=(*findings, *(_not_applicable(skip, by_id[skip.id]) for skip in report.skipped)),
        not_applicable=tuple(
            ShownSkip(
                id=skip.id,
                subject=skip.subject,
                reason=skip.reason,
                message=text(f"doctor.skip.{skip.reason}"),
            )
            for skip in report.skipped
        ),
    )


def _not_applicable(skip: Skipped, check: CheckFacts) -> ShownFinding:
    code = f"doctor.skip.{skip.reason}"
    return ShownFinding(
        id=skip.id,
        group=check.group,
        severity=str(Severity.INFO),
        subject=skip.subject,
        title=text(f"doctor.check.{skip.id}"),
        message=text(code),
        observed=None,
        expected=None,
        fix=None,
        evidence=(),
        source=check.source,
        as_of=check.as_of.isoformat(),
        references=check.references,
        code=code,
        params={},
        applies=False,
    )


def _shown(finding: Finding, check: CheckFacts) -> ShownFinding:
    return ShownFinding(
        id=finding.id,
        group=check.group,
        severity=str(finding.severity),
        subject=finding.subject,
        title=text(f"doctor.check.{finding.id}"),
        message=text(finding.code, **finding.params),
        observed=finding.observed,
        expected=finding.expected,
        fix=None if finding.fix is None else text(finding.fix, **finding.params),
        evidence=finding.evidence,
        source=finding.source,
        as_of=check.as_of.isoformat(),
        references=check.references,
        code=finding.code,
        params=finding.params,
    )


def _next(report: ShownReport, files: tuple[Path, ...], catalog: Catalog) -> str:
    """The same against a model, with details where something is wrong; after a recipe that nothing
    on this machine stands against, its rehearsal.
    """
    target = report.target or ""
    if Path(target).name == _LAUNCH and not report.failed and not files:
        return shlex.join(["heavylift", "rehearse", str(Path(target).parent)])
    words = ["heavylift", "doctor", "--for", report.target or catalog.showcase().model]
    for path in files:
        words += ["--from", str(path)]
    if report.failed and not report.verbose:
        words.append("-v")
    return shlex.join(words)
