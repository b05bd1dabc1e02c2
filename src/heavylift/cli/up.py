"""`heavylift up`: a recipe becomes a supervised deployment that has answered and was verified."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError

if TYPE_CHECKING:
    from heavylift.cli.doctor import ShownReport
    from heavylift.operate.recipes import EmbeddedWish
    from heavylift.records.sink import Sink

_READABLE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(help=text("help.up"))
@click.argument("source", metavar="RECIPE_DIR|MODEL")
@click.option("--engine", default="embedded", show_default=True, help=text("up.engine"))
@click.option(
    "--on", "rack", default="this-machine", show_default=True, metavar="RACK", help=text("up.on")
)
@click.option("--model-path", metavar="PATH", help=text("recipe.option.model_path"))
@click.option("--name", help=text("up.name"))
@click.option(
    "--context", metavar="TOKENS", default="4096", show_default=True, help=text("up.context")
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help=text("up.concurrency"),
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help=text("up.port")
)
@click.option("--embeddings", is_flag=True, help=text("up.embeddings"))
@click.option("--accept-licence", is_flag=True, help=text("option.accept_licence"))
@click.option("--doctor/--no-doctor", default=True, show_default=True, help=text("up.doctor"))
@click.option("--despite", multiple=True, metavar="FINDING", help=text("up.despite"))
@click.option("--verify/--no-verify", default=True, show_default=True, help=text("up.verify"))
@click.option("--secrets", type=_READABLE, metavar="FILE", help=text("up.secrets"))
@click.option("--hosts", metavar="A,B,…", help=text("up.hosts"))
@click.option("--ssh-config", type=_READABLE, metavar="FILE", help=text("up.ssh_config"))
@click.option(
    "--target",
    type=click.Choice(["processes", "docker", "slurm", "kubernetes"]),
    help=text("up.target"),
)
@click.option("--url", help=text("up.url"))
@click.option("--replace", is_flag=True, help=text("up.replace"))
@click.option("--detach", is_flag=True, help=text("up.detach"))
@json_option
def command(
    *,
    source: str,
    engine: str,
    rack: str,
    model_path: str | None,
    name: str | None,
    context: str,
    concurrency: int,
    port: int,
    embeddings: bool,
    accept_licence: bool,
    doctor: bool,
    despite: tuple[str, ...],
    verify: bool,
    secrets: Path | None,
    hosts: str | None,
    ssh_config: Path | None,
    target: str | None,
    url: str | None,
    replace: bool,
    detach: bool,
    as_json: bool,
) -> int:
    """Begin the deployment and follow it until it serves; 1 when its verification fails."""
    from heavylift.cli.deployments import follow, status
    from heavylift.cli.kept import keep_of
    from heavylift.cli.licence import before_launch
    from heavylift.operate import operations

    out = sink(as_json)
    machines = () if hosts is None else tuple(filter(None, hosts.split(",")))
    ssh = ("ssh",) if ssh_config is None else ("ssh", "-F", str(ssh_config.absolute()))
    asked = Asked(
        engine=engine,
        rack=rack,
        context=context,
        concurrency=concurrency,
        port=port,
        model_path=model_path,
        embeddings=embeddings,
    )
    with contextlib.ExitStack() as made:
        thing = wanted(source, asked, made)
        typed = shlex.join(["heavylift", "up", source, *(["--name", name] if name else [])])
        before_launch(out, thing, accepted=accept_licence, typed=typed)
        examined: ShownReport | None = None
        # Machines elsewhere are looked at there: `heavylift doctor --collect` and `--from`.
        if doctor and not machines and target in (None, "processes", "docker"):
            examined, failed = _examined(out, thing, despite)
            if failed:
                return Exit.ENVIRONMENT
        begun = operations.up(
            operations.UpWish(
                source=thing,
                name=name,
                verify=verify,
                secrets=secrets,
                hosts=machines,
                ssh=ssh if machines else (),
                replace=replace,
                target=target,
                url=url,
            )
        )
    if begun.was_running:
        out.note("up.was_running", name=begun.name, release=begun.release)
    else:
        out.note("up.begun", name=begun.name, release=begun.release)
        if examined is not None:
            keep_of(out, "doctor", examined, begun.name)
    for what in ("ssh" if machines else None, begun.runs_by):
        if what is not None:
            out.note("up.not_run_here", what=what)
    if detach:
        out.record("status", status(begun.name))
        out.next_command(f"heavylift status {begun.name}")
        return Exit.PENDING
    try:
        return follow(out, begun)
    except KeyboardInterrupt:
        out.note("up.goes_on", name=begun.name)
        raise


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What was typed for a model in place of a recipe."""

    engine: str = "embedded"
    rack: str = "this-machine"
    context: str = "4096"
    concurrency: int = 4
    port: int = 0
    model_path: str | None = None
    embeddings: bool = False


def wanted(
    source: str,
    asked: Asked = Asked(),
    made: contextlib.ExitStack | None = None,
) -> Path | EmbeddedWish:
    """A recipe's folder, or what the embedded engine is to serve; the recipe of a model by another
    engine is made in a folder that lasts as long as `made`.

    Raises REC047 where there is no such `made`, REC048 for a context too small, REC057 for a recipe
    that is refused.
    """
    from heavylift.cli.verify import tokens
    from heavylift.operate.recipes import EmbeddedWish
    from heavylift.recipe.engines import embedded

    folder = Path(source)
    if folder.is_dir():
        return folder.absolute()
    total = tokens(asked.context)
    each = total // asked.concurrency // embedded.CONTEXT_MULTIPLE * embedded.CONTEXT_MULTIPLE
    if each == 0:
        raise HeavyliftError(
            "REC048",
            {
                "context": total,
                "concurrency": asked.concurrency,
                "least": embedded.CONTEXT_MULTIPLE,
            },
        )
    if asked.engine == embedded.ENGINE:
        return EmbeddedWish(
            model=source,
            slot_tokens=each,
            slots=asked.concurrency,
            port=asked.port,
            embeddings=asked.embeddings,
        )
    if asked.embeddings:
        raise click.UsageError(text("usage.up.embeddings"))
    if made is None:
        raise HeavyliftError("REC047", {"engine": asked.engine, "source": source})
    target = Path(made.enter_context(tempfile.TemporaryDirectory(prefix="heavylift-")))
    _write_recipe(source, asked, each, target)
    return target


def _write_recipe(model: str, asked: Asked, each: int, folder: Path) -> None:
    """The recipe of a model by an engine that is no part of heavylift."""
    import msgspec

    from heavylift.cli.recipe_words import refused
    from heavylift.launch import engine_env
    from heavylift.operate import recipes
    from heavylift.recipe.engines import embedded
    from heavylift.recipe.job import Start
    from heavylift.reciping import RecipeWish, Reciping
    from heavylift.records.plan import PlanRequest, Rack

    path = asked.model_path
    if path is None and model in (embedded.SMOLLM2_ID, "smollm2"):
        # The one model whose file is here: it came with the embedded engine.
        path, model = str(engine_env.smollm2_path()), embedded.SMOLLM2_ID

    def ask(rack: Rack) -> PlanRequest:
        return PlanRequest(
            model=model,
            rack=rack,
            engine=asked.engine,
            context_tokens=each * asked.concurrency,
            concurrency=asked.concurrency,
        )

    recipe = Reciping().recipe(
        RecipeWish(
            model=model,
            rack=asked.rack,
            ask=ask,
            engine=asked.engine,
            start=Start(port=asked.port or _free_port(), model_path=path),
        )
    )
    if recipe.launch is None:
        reason = " ".join(refused(recipe.refused)) if recipe.refused else ""
        raise HeavyliftError("REC057", {"model": model, "reason": reason})
    recipes.rewrite(folder, recipe.launch)
    recipes.write_files(folder, recipe.launch)
    (folder / recipes.PLAN).write_bytes(msgspec.json.encode(recipe.plan))


def _free_port() -> int:
    """A port that nobody has now."""
    import socket

    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _examined(
    out: Sink, thing: Path | EmbeddedWish, despite: tuple[str, ...]
) -> tuple[ShownReport, bool]:
    """What the doctor says of this machine for the recipe, and whether that stops the start: then
    what does is shown.
    """
    from heavylift.cli.doctor import show
    from heavylift.facts.catalog import Catalog
    from heavylift.operate import doctoring, recipes

    with tempfile.TemporaryDirectory(prefix="heavylift-") as scratch:
        folder = Path(scratch)
        if isinstance(thing, Path):
            folder = thing
        else:
            recipes.write_embedded(thing, folder)
        examined = doctoring.examine(recipes.read(folder), despite)
    catalog = Catalog()
    facts = {group: catalog.checks(group) for group in doctoring.GROUPS}
    shown = show(examined.report, facts)
    if not examined.failed:
        return shown, False
    names = {finding.id for finding in examined.failed}
    stopping = tuple(each for each in shown.findings if each.id in names)
    out.record("doctor", dataclasses.replace(shown, findings=stopping))
    for name in sorted(names):
        out.note("up.doctor_stops", finding=name)
    subject = str(thing / recipes.LAUNCH) if isinstance(thing, Path) else thing.model
    out.next_command(f"heavylift doctor --for {shlex.quote(subject)} -v")
    return shown, True
