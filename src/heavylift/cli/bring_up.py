"""`heavylift bring-up`: a recipe is taken into use rung by rung, up to the first that fails."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError

if TYPE_CHECKING:
    from heavylift.records.bring_up import BringUp, Rung

_READABLE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(help=text("help.bring-up"))
@click.argument("source", metavar="RECIPE_DIR|NAME|MODEL")
@click.option("--name", help=text("up.name"))
@click.option("--small", metavar="RECIPE_DIR|MODEL", help=text("bring_up.small"))
@click.option("--contexts", metavar="16K,64K,…", help=text("bring_up.contexts"))
@click.option("--concurrency", "concurrencies", metavar="1,4,…", help=text("bring_up.concurrency"))
@click.option("--rehearse/--no-rehearse", default=True, help=text("bring_up.rehearse"))
@click.option("--doctor/--no-doctor", default=True, help=text("up.doctor"))
@click.option("--despite", multiple=True, metavar="FINDING", help=text("up.despite"))
@click.option("--accept-licence", is_flag=True, help=text("option.accept_licence"))
@click.option("--again", is_flag=True, help=text("bring_up.again"))
@click.option("--secrets", type=_READABLE, metavar="FILE", help=text("up.secrets"))
@click.option("--hosts", metavar="A,B,…", help=text("up.hosts"))
@click.option("--ssh-config", type=_READABLE, metavar="FILE", help=text("up.ssh_config"))
@click.option("--target", type=click.Choice(["processes", "docker"]), help=text("rehearse.target"))
@click.option(
    "--answer-tokens",
    type=click.IntRange(min=8),
    default=512,
    show_default=True,
    help=text("verify.answer_tokens"),
)
@json_option
def command(
    *,
    source: str,
    name: str | None,
    small: str | None,
    contexts: str | None,
    concurrencies: str | None,
    rehearse: bool,
    doctor: bool,
    despite: tuple[str, ...],
    accept_licence: bool,
    again: bool,
    secrets: Path | None,
    hosts: str | None,
    ssh_config: Path | None,
    target: str | None,
    answer_tokens: int,
    as_json: bool,
) -> int:
    """Climb, show; 1 when a rung failed."""
    from heavylift.cli.deployments import teller
    from heavylift.cli.licence import before_launch
    from heavylift.cli.screens.bring_up import rung_line
    from heavylift.cli.up import wanted
    from heavylift.operate import bring_up
    from heavylift.records.bring_up import RungStatus

    out = sink(as_json)
    machines = () if hosts is None else tuple(filter(None, hosts.split(",")))
    ssh = ("ssh",) if ssh_config is None else ("ssh", "-F", str(ssh_config.absolute()))
    is_name = not Path(source).is_dir() and bring_up.kept(source) is not None
    wish = bring_up.BringUpWish(
        source=None if is_name else wanted(source),
        name=source if is_name else name,
        small=None if small is None else wanted(small),
        contexts=_tokens(contexts),
        concurrencies=_counts(concurrencies),
        doctor=doctor,
        despite=despite,
        rehearse=rehearse,
        again=again,
        secrets=secrets,
        hosts=machines,
        ssh=ssh if machines else (),
        target=target,
        answer_tokens=answer_tokens,
    )

    if wish.source is not None:
        typed = shlex.join(["heavylift", "bring-up", source, *(["--name", name] if name else [])])
        before_launch(out, wish.source, accepted=accept_licence, typed=typed)

    def told(rung: Rung) -> None:
        if rung.status is not RungStatus.PENDING:
            out.step("up.line", line=rung_line(rung))

    record = bring_up.bring_up(wish, told, teller(out))
    out.record("bring_up", record)
    out.next_command(_next(record))
    return Exit.OK if record.is_up else Exit.NEGATIVE


def _next(record: BringUp) -> str:
    if record.is_up:
        return f"heavylift golive {record.name}"
    failed = next((each for each in record.rungs if each.id == record.stopped_at), None)
    if failed is not None and failed.failure is not None and failed.failure.next_command:
        return failed.failure.next_command
    if failed is not None and failed.kind == "doctor":
        return f"heavylift doctor --for {shlex.quote(record.recipe + '/launch.json')}"
    return f"heavylift bring-up {record.name}"


def _tokens(text_given: str | None) -> tuple[int, ...] | None:
    from heavylift.cli.verify import tokens

    if text_given is None:
        return None
    return tuple(tokens(each) for each in filter(None, text_given.split(",")))


def _counts(text_given: str | None) -> tuple[int, ...] | None:
    if text_given is None:
        return None
    words = [each.strip() for each in text_given.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        raise HeavyliftError("USE088", {"value": text_given})
    return tuple(map(int, words))
