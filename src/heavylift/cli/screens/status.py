"""One deployment, in full."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from heavylift.cli.cells import left, wrap
from heavylift.cli.output import glyphs
from heavylift.cli.text import keys, of_facts, printable, text
from heavylift.records.deployment import Alive, DeploymentStatus, Failure, Phase
from heavylift.records.finding import Finding
from heavylift.units import GIB

_SHORT_S = 60


def lines(status: DeploymentStatus) -> Iterator[str]:
    """The screen, line by line."""
    yield headline(status)
    yield text(
        "status.what",
        model=status.model,
        engine=status.engine,
        release=status.release,
        verdict=text(f"status.verdict.{status.verdict}"),
    )
    if status.url is not None:
        yield text("status.url", url=status.url)
    if status.url is not None and status.secrets_file is not None:
        yield text("status.key", path=status.secrets_file)
    if status.pid is not None:
        yield text("status.pid", pid=status.pid, supervisor=status.supervisor_pid or "-")
    yield from _course(status)
    for reason in status.verdict_reasons:
        yield from wrapped(reason, f"{glyphs()['fail']} ")
    for finding in status.findings:
        yield from finding_lines(finding)
    if status.failure is not None and status.phase is not Phase.READY:
        yield from failure_lines(status.failure)
    if status.leftovers:
        pids = ", ".join(map(str, status.leftovers))
        yield from wrapped(text("status.leftovers", pids=pids), f"{glyphs()['warn']} ")
    if status.log is not None:
        yield text("status.log", path=status.log)


def headline(status: DeploymentStatus) -> str:
    """Glyph, word, name and phase: one line."""
    glyph, word = _state(status)
    phase = text(f"phase.{status.phase}")
    return f"{glyphs()[glyph]} {left(text(f'status.{word}'), 9)} {printable(status.name)}  {phase}"


def _state(status: DeploymentStatus) -> tuple[str, str]:
    if status.ready and status.alive is Alive.ALIVE:
        return ("ok", "serves") if status.verdict != "fail" else ("fail", "doubtful")
    if status.ready and status.alive is Alive.SUSPECT:
        return "warn", "suspect"
    if status.phase is Phase.STOPPED:
        return "info", "stopped"
    if status.phase.is_over:
        return "fail", "failed"
    if status.phase is Phase.BACKOFF:
        return "warn", "waits"
    return "unknown", "starts"


def _course(status: DeploymentStatus) -> Iterator[str]:
    progress = status.progress
    is_starting = not status.phase.is_over and status.phase is not Phase.READY
    if is_starting and progress.done is not None and progress.total:
        line = text(f"up.unit.{progress.unit}", done=progress.done, total=progress.total)
        if progress.eta_s is not None:
            line += text("status.eta", seconds=f"{progress.eta_s:,.0f}")
        yield line
    if is_starting and progress.read_bytes:
        yield text("status.read", gib=f"{progress.read_bytes / GIB:,.2f}")
    if is_starting and status.stalled_s is not None:
        seconds = f"{status.stalled_s:,.0f}"
        yield f"{glyphs()['warn']} {text('status.stalled', seconds=seconds)}"
    if is_starting and status.is_late:
        yield f"{glyphs()['warn']} {text('up.late')}"
    if status.phase is Phase.READY and status.ready_s is not None:
        yield text("status.ready_after", seconds=f"{status.ready_s:,.1f}")
    if status.alive is Alive.SUSPECT:
        yield f"{glyphs()['warn']} {text(f'alive.{status.alive_reason}')}"
    if status.restarts:
        yield text("status.restarts", count=status.restarts)
    if status.phase is Phase.BACKOFF:
        yield text("status.restart_at", at=status.restart_at)


def finding_lines(finding: Finding) -> Iterator[str]:
    """A finding with its glyph, bytes as GiB."""
    glyph = glyphs()[finding.severity]
    params = {key: _gib(key, value) for key, value in finding.params.items()}
    yield from wrapped(text(finding.code, **params), f"{glyph} ")


def _gib(key: str, value: object) -> object:
    """Bytes as they are read; an open end of an interval is a question mark."""
    if not key.endswith("_bytes"):
        return value
    return f"{value / GIB:,.2f} GiB" if isinstance(value, int) else "?"


def failure_lines(failure: Failure) -> Iterator[str]:
    """Why something ended: what, the cause, its line, the fix."""
    params = {key: value for key, value in failure.params.items() if key != "was_killed"}
    sentence = text(f"error.{failure.code}", **_readable(params))
    for number, line in enumerate(sentence.splitlines()):
        yield from wrapped(line, f"{glyphs()['fail']} " if number == 0 else "    ")
    if failure.title is not None:
        yield from wrapped(text("status.cause", cause=failure.cause_class), "  ")
        yield from wrapped(of_facts(failure.title), "  ")
    if failure.line is not None:
        yield from wrapped(failure.line, "  | ")
    if failure.fix is not None:
        yield from wrapped(text("status.fix", fix=of_facts(failure.fix)), "  ")
    if failure.restart_reason:
        yield from wrapped(text(f"restart.{failure.restart_reason}"), "  ")


def _readable(params: dict[str, str | int | float | bool | None]) -> dict[str, object]:
    if params.get("reason") is None or f"alive.{params['reason']}" not in _reasons():
        return dict(params)
    return {**params, "reason": text(f"alive.{params['reason']}")}


def _reasons() -> frozenset[str]:
    return frozenset(key for key in keys() if key.startswith("alive."))


def wrapped(shown: str, indent: str) -> Iterator[str]:
    """Words as lines of the screen, the first with `indent`, the others set in as far."""
    return wrap(printable(" ".join(shown.split())), indent, " " * cell_len(indent))
