"""`heavylift diagnose`: the first cause in the logs of a failed run, not the last error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from heavylift.cli.errors import sentence
from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError
from heavylift.plan.planner import Knowledge
from heavylift.planning import Planning
from heavylift.records.diagnosis import Diagnosis, PlanAnswer, Walk, WalkedStep
from heavylift.records.sink import Sink

SYMPTOMS: Final = ("slow", "stuck", "garbled", "unreachable", "oom", "not-on-gpu")

_LANGUAGE: Final = "en"


@click.command(help=text("help.diagnose"))
@click.argument("logs", nargs=-1, metavar="LOG…")
@click.option("--last", "use_last", is_flag=True, help=text("option.diagnose.last"))
@click.option("--symptom", type=click.Choice(SYMPTOMS), help=text("option.diagnose.symptom"))
@click.option("--live", metavar="NAME", help=text("option.diagnose.live"))
@click.option("--model", help=text("option.diagnose.model"))
@click.option("--on", "rack", metavar="RACK", help=text("option.diagnose.on"))
@json_option
def command(
    *,
    logs: tuple[str, ...],
    use_last: bool,
    symptom: str | None,
    live: str | None,
    model: str | None,
    rack: str | None,
    as_json: bool,
) -> int:
    """Read logs and answer; with a symptom and no log, say what to look at."""
    if bool(logs) + use_last + (live is not None and symptom is None) > 1:
        raise click.UsageError(text("usage.diagnose_logs"))
    out = sink(as_json)
    if live is not None and symptom is None:
        logs = _logs_of(live)
    if symptom is not None and not logs and not use_last:
        if live is not None:
            _note_live(out, live)
        out.record("walk", walk(symptom))
        out.next_command("heavylift diagnose LOG")
        return Exit.OK
    if not logs and not use_last:
        raise click.UsageError(text("usage.diagnose_what"))
    diagnosis = diagnose_logs(logs, use_last=use_last)
    try:
        diagnosis = with_plan(diagnosis, model, rack)
    except HeavyliftError as error:
        # What the logs say does not depend on a plan.
        out.note("diagnose.not_planned", reason=sentence(error))
    out.record("diagnosis", diagnosis)
    if symptom is not None:
        out.note("diagnose.walk_too", symptom=symptom)
    out.next_command(_next(diagnosis))
    return Exit.OK if diagnosis.recognised else Exit.NEGATIVE


def _logs_of(name: str) -> tuple[str, ...]:
    """The logs of a deployment's newest attempt. Raises OPS001 for a name that is none, OPS005 when
    nothing of it was started yet.
    """
    from heavylift.cli.deployments import status

    found = tuple(each.log for each in status(name).processes if Path(each.log).is_file())
    if not found:
        raise HeavyliftError("OPS005", {"name": name})
    return found


def _note_live(out: Sink, name: str) -> None:
    """How a deployment stands, in one line; that nothing is known of it is no reason to stop."""
    from heavylift.cli.deployments import status
    from heavylift.cli.screens.status import headline

    try:
        out.note("diagnose.live", line=headline(status(name)))
    except HeavyliftError:
        out.note("diagnose.live_missing", name=name)


def diagnose_logs(logs: tuple[str, ...], *, use_last: bool) -> Diagnosis:
    """The diagnosis of logs as named on the command line."""
    from heavylift.diagnose import evidence
    from heavylift.diagnose.match import diagnose
    from heavylift.diagnose.symptoms import CompiledSymptoms
    from heavylift.facts.catalog import Catalog
    from heavylift.state.paths import state_dir

    names = (evidence.latest(state_dir()),) if use_last else logs
    symptoms = CompiledSymptoms(Catalog().symptoms())
    return diagnose(evidence.read(names, symptoms), _LANGUAGE)


def with_plan(diagnosis: Diagnosis, model: str | None, rack: str | None) -> Diagnosis:
    """The diagnosis, and for a memory failure what the planner says, where model and rack are
    known. Raises what the planner raises for a model or rack that was given.
    """
    from heavylift.diagnose.replan import question

    planning = Planning()
    if model is not None:
        _knowledge(planning, model)
    if rack is not None:
        planning.rack(rack)
    gpus = map(planning.catalog.gpu, planning.catalog.ids("gpus"))
    asked = question(diagnosis, gpus, model=model, rack=rack)
    if asked is None:
        return diagnosis
    try:
        answer = _plan(planning, asked.model, asked.rack, asked.options)
    except HeavyliftError:
        if model is not None or rack is not None:
            raise
        # The log names a model or layout that is not planned for: the diagnosis stands without.
        return diagnosis
    causes = (replace(diagnosis.causes[0], next_command=answer.command), *diagnosis.causes[1:])
    return replace(diagnosis, causes=causes, plan=answer)


def _plan(
    planning: Planning, model: str, rack_text: str, options: dict[str, int | str]
) -> PlanAnswer:
    from heavylift.cli.request import Wish
    from heavylift.plan.command import plan_command

    knowledge = _knowledge(planning, model)
    given = dict.fromkeys(_PLAN_OPTIONS) | {"text_only": False} | options
    wish = Wish.of(knowledge.model.model.id, given)
    gpu, rack = planning.rack(rack_text)
    plan = planning.plan(
        (lambda each: wish.request(planning, each))
        if rack is None
        else wish.request(planning, rack),
        knowledge,
        gpu=gpu,
    )
    return PlanAnswer(
        command=plan_command(plan.request),
        verdict=plan.verdict,
        rack=plan.rack.label,
        layout=plan.layout.label,
        headroom_bytes=plan.per_gpu.headroom_bytes,
        fixes=plan.fixes,
    )


def _knowledge(planning: Planning, model: str) -> Knowledge:
    try:
        return planning.knowledge(model)
    except HeavyliftError:
        # A path or a hub id of the log: its last part may be a known name.
        return planning.knowledge(model.rstrip("/").rpartition("/")[2])


_PLAN_OPTIONS: Final = (
    "engine",
    "engine_version",
    "variant",
    "context",
    "output_tokens",
    "concurrency",
    "kv_dtype",
    "tp",
    "pp",
    "dp",
    "ep",
    "dcp",
    "gpu_memory_utilization",
    "max_batched_tokens",
    "max_num_seqs",
    "moe_backend",
)


def walk(symptom: str) -> Walk:
    """What to look at for a symptom."""
    from heavylift.facts.catalog import Catalog

    found = next(
        entry for book in Catalog().symptoms() for entry in book.walks if entry.id == symptom
    )
    return Walk(
        symptom=symptom,
        title=found.title[_LANGUAGE],
        steps=tuple(
            WalkedStep(text=step.text[_LANGUAGE], command=step.command, causes=step.causes)
            for step in found.steps
        ),
    )


def _next(diagnosis: Diagnosis) -> str:
    if not diagnosis.lines:
        return "heavylift diagnose LOG"
    if not diagnosis.recognised:
        return "heavylift bundle " + " ".join(diagnosis.files)
    if diagnosis.plan is not None and diagnosis.plan.fixes:
        return diagnosis.plan.fixes[0].command
    return diagnosis.causes[0].next_command or "heavylift doctor"
