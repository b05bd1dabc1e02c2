"""Causes with their lines, what followed from them, what the planner says."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from heavylift.cli.cells import wrap
from heavylift.cli.output import glyphs
from heavylift.cli.text import labelled, of_facts, printable, text
from heavylift.records.diagnosis import Cause, Diagnosis, Evidence, PlanAnswer
from heavylift.units import GIB

_SURE_FROM = 0.85


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """The screen, line by line."""
    yield text(
        "diagnose.read",
        files=_counted("log", len(diagnosis.files)),
        lines=_counted("line", diagnosis.lines),
        engine=" ".join(
            part
            for part in (diagnosis.context.engine, diagnosis.context.engine_version)
            if part is not None
        )
        or text("diagnose.engine_unknown"),
    )
    yield ""
    if not diagnosis.recognised:
        yield from _unrecognised(diagnosis)
    for number, cause in enumerate(diagnosis.causes, 1):
        yield from _cause(number, cause, several=len(diagnosis.files) > 1)
    if diagnosis.plan is not None:
        yield from _plan(diagnosis.plan)
    if diagnosis.consequences:
        yield text("diagnose.consequences")
        for each in diagnosis.consequences:
            yield from _wrapped(
                f"{of_facts(each.title)} ({_place(each.evidence, several=True)})", "  · "
            )
        yield ""


def _unrecognised(diagnosis: Diagnosis) -> Iterator[str]:
    # What a file that is no text holds is no line of trouble.
    errors = [each for each in diagnosis.errors if "\0" not in each.line]
    why = "unrecognised" if errors else "no_trouble" if diagnosis.lines else "nothing"
    for name in diagnosis.not_text:
        yield from _wrapped(text("diagnose.not_text", path=name), f"{glyphs()['unknown']} ")
    yield from _wrapped(text(f"diagnose.{why}"), f"{glyphs()['unknown']} ")
    for error in errors:
        yield from _quoted(error, several=len(diagnosis.files) > 1)
    yield ""
    if diagnosis.causes:
        yield text("diagnose.weak")


def _counted(what: str, count: int) -> str:
    return text(f"diagnose.{what}_count.{'one' if count == 1 else 'many'}", count=count)


def _cause(number: int, cause: Cause, *, several: bool) -> Iterator[str]:
    sure = "sure" if cause.confidence >= _SURE_FROM else "likely"
    word = text(f"diagnose.{sure}" if cause.confidence >= 1 / 2 else "diagnose.possible")
    yield f"{number}. {cause.cause_class}  {cause.confidence:.2f} {word}  ({cause.area})"
    yield from _wrapped(of_facts(cause.title), "   ")
    yield from _quoted(cause.evidence, several=several)
    if cause.numbers:
        numbers = ", ".join(f"{name} {value:,g}" for name, value in cause.numbers.items())
        yield from _wrapped(labelled("diagnose.numbers", numbers), "   ")
    yield from _wrapped(labelled("diagnose.fix", of_facts(cause.fix)), "   ")
    yield f"   {labelled('diagnose.source', cause.source)}"
    if cause.next_command is not None:
        yield f"   {labelled('diagnose.command', cause.next_command)}"
    yield ""


def _plan(plan: PlanAnswer) -> Iterator[str]:
    yield text(
        "diagnose.plan",
        rack=plan.rack,
        layout=plan.layout,
        verdict=text(f"verdict.{plan.verdict}"),
        headroom=f"{plan.headroom_bytes / GIB:.2f}",
    )
    if plan.fixes:
        yield text("diagnose.plan_fixes")
    for fix in plan.fixes:
        yield f"  {fix.command}"
    yield ""


def _quoted(evidence: Evidence, *, several: bool) -> Iterator[str]:
    yield from _wrapped(evidence.line, f"   {_place(evidence, several=several)} | ")


def _place(evidence: Evidence, *, several: bool) -> str:
    rank = f" {text('diagnose.rank')} {evidence.rank}" if evidence.rank is not None else ""
    if several:
        return f"{evidence.file}:{evidence.number}{rank}"
    return f"{text('diagnose.line')} {evidence.number}{rank}"


def _wrapped(shown: str, indent: str) -> Iterator[str]:
    more = " " * min(cell_len(indent), 20)
    return wrap(printable(" ".join(shown.split())), indent, more)
