"""`heavylift recipe`: from a model and a rack to the files that start it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from heavylift.cli import recipe_folder, recipe_words
from heavylift.cli.output import json_option, sink
from heavylift.cli.place import place_options
from heavylift.cli.request import Wish, check_layout_fits_rack, plan_options
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError
from heavylift.recipe.differ import difference
from heavylift.recipe.engines.vllm_transfer import CONNECTORS, STORES
from heavylift.recipe.job import Start
from heavylift.recipe.targets import TARGETS
from heavylift.reciping import EmbeddedPlace, RecipeWish, Reciping
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import PlanRequest, Rack
from heavylift.records.recipe import Recipe

_FOLDER: Final = click.Path(path_type=Path, file_okay=False)


class Split(click.ParamType[tuple[int, int]]):
    """Machines of the prefill and of the decode pool: `1:2`."""

    name = "prefill:decode"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """The two counts."""
        if isinstance(value, tuple):
            return value
        prefill, _, decode = str(value).partition(":")
        if not (prefill.isdecimal() and decode.isdecimal() and int(prefill) and int(decode)):
            self.fail(text("usage.split", value=value), param, ctx)
        return int(prefill), int(decode)


class Plain(click.ParamType[str]):
    """A word of a command: nothing that steers a terminal, nothing that reads as a flag."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word, or a usage error."""
        words = str(value)
        odd = any(sign in words for sign in "{}") or not words.isprintable()
        if odd or not words.strip() or words.startswith("-"):
            self.fail(text("usage.recipe_text", value=repr(words)), param, ctx)
        return words


@click.command(help=text("help.recipe"))
@click.argument("model", required=False)
@click.option("--on", "rack_text", metavar="RACK", help=text("option.on"))
@plan_options
@click.option(
    "--target", type=click.Choice(list(TARGETS)), default="shell", help=text("recipe.option.target")
)
@click.option("-o", "--out", type=_FOLDER, help=text("recipe.option.out"))
@click.option("--host", type=Plain(), default="127.0.0.1", help=text("recipe.option.host"))
@click.option("--port", type=click.IntRange(1, 65535), help=text("recipe.option.port"))
@click.option("--key", is_flag=True, help=text("recipe.option.key"))
@click.option("--hosts", type=Plain(), help=text("recipe.option.hosts"))
@click.option("--model-path", type=Plain(), help=text("recipe.option.model_path"))
@click.option("--revision", type=Plain(), help=text("recipe.option.revision"))
@click.option("--served-name", type=Plain(), help=text("recipe.option.served_name"))
@click.option("--draft", type=Plain(), help=text("recipe.option.draft"))
@click.option(
    "--read-gb-per-s", type=click.FloatRange(0.01, 10_000), help=text("recipe.option.read")
)
@click.option("--split", type=Split(), help=text("recipe.option.split"))
@click.option(
    "--connector",
    type=click.Choice(list(CONNECTORS)),
    default="nixl",
    help=text("recipe.option.connector"),
)
@click.option("--kv-store", "store", type=click.Choice(STORES), help=text("recipe.option.store"))
@click.option(
    "--replicas", type=click.IntRange(1, 64), default=1, help=text("recipe.option.replicas")
)
@place_options
@click.option("--despite-report", "despite", is_flag=True, help=text("recipe.option.despite"))
@click.option("--explain", is_flag=True, help=text("recipe.option.explain"))
@click.option("--diff", nargs=2, metavar="OLD NEW", help=text("recipe.option.diff"))
@json_option
def command(model: str | None, rack_text: str | None, as_json: bool, **given: Any) -> int:
    """Plan, write or refuse, show; the exit status says which."""
    out = sink(as_json)
    reciping = Reciping()
    if given["diff"]:
        old, new = given["diff"]
        pair = tuple(_side(reciping, model, rack_text, given, each) for each in (old, new))
        out.record("recipe_diff", difference(pair[0], pair[1], (old, new)))
        return Exit.OK
    if model is None or rack_text is None:
        raise click.UsageError(text("usage.recipe_model"))
    if given["split"] is not None and given["replicas"] > 1:
        raise click.UsageError(text("usage.split_replicas"))
    recipe = reciping.recipe(_wish(reciping, model, rack_text, given))
    recipe = recipe_folder.with_files(recipe, given["target"], reciping.catalog, given)
    folder: Path | None = given["out"]
    if recipe.launch is not None and folder is not None:
        recipe_folder.write(recipe, folder)
        recipe = replace(recipe, folder=str(folder))
    out.record("recipe_explained" if given["explain"] else "recipe", recipe)
    out.next_command(_next(recipe, folder, click.get_current_context()))
    return Exit.OK if recipe.refused is None else Exit.NEGATIVE


def _wish(reciping: Reciping, model: str, rack_text: str, given: dict[str, Any]) -> RecipeWish:
    engine = given["engine"]
    typed = Wish.of(model, {**given, "engine": None})

    def ask(rack: Rack) -> PlanRequest:
        if given["split"] is None:
            check_layout_fits_rack(typed, rack)
        return typed.request(reciping.planning, rack)

    drafts = [draft.id for draft in reciping.catalog.serving_common().drafts]
    if given["draft"] is not None and given["draft"] not in drafts:
        raise HeavyliftError("REC028", {"draft": given["draft"], "known": ", ".join(drafts)})
    hosts = tuple(filter(None, (given["hosts"] or "").split(",")))
    return RecipeWish(
        model=model,
        rack=rack_text,
        ask=ask,
        engine=engine,
        start=Start(
            bind_host=given["host"],
            port=given["port"],
            key=given["key"],
            model_path=given["model_path"],
            revision=given["revision"],
            served_name=given["served_name"],
            draft=given["draft"],
            hosts=hosts,
            read_gb_per_s=given["read_gb_per_s"],
            connector=given["connector"],
            store=given["store"],
        ),
        replicas=given["replicas"],
        split=given["split"],
        despite=given["despite"],
        embedded=_embedded() if engine == "embedded" else None,
    )


def _embedded() -> EmbeddedPlace:
    """Where the embedded engine lies here. Raises ENV027 when it is not installed."""
    from heavylift.launch import engine_env
    from heavylift.launch.embedded import CHILD

    python = engine_env.engine_python(engine_env.require_installed())
    return EmbeddedPlace(
        python=str(python), child=str(CHILD), model_path=str(engine_env.smollm2_path())
    )


def _side(
    reciping: Reciping, model: str | None, rack: str | None, given: dict[str, Any], name: str
) -> LaunchSpec:
    """One side of a comparison: a folder, an engine version, or a rack.

    Raises REC027 for a folder that holds no launch, and what a refused recipe is refused for.
    """
    path = Path(name)
    if path.is_dir():
        return recipe_folder.read_launch(path)
    if model is None:
        raise click.UsageError(text("usage.recipe_model"))
    changed = dict(given)
    if _is_version(name):
        changed["engine_version"] = name
    else:
        rack = name
    if rack is None:
        raise click.UsageError(text("usage.recipe_model"))
    recipe = reciping.recipe(_wish(reciping, model, rack, changed))
    if recipe.launch is None or recipe.refused is not None:
        reason = " ".join(recipe_words.refused(recipe.refused)) if recipe.refused else ""
        raise HeavyliftError("REC027", {"path": name, "reason": reason})
    return recipe.launch


def _is_version(name: str) -> bool:
    """Versions begin with a digit and have a dot; racks name a card."""
    return name[:1].isdigit() and "." in name and not any(c in name for c in "x×*:")


def _next(recipe: Recipe, folder: Path | None, context: click.Context) -> str:
    if recipe.refused is not None:
        nearest = recipe.refused.nearest
        if nearest:
            return nearest[0].command
        return f"heavylift compare {shlex.quote(recipe.model)} --on {recipe.plan.rack.label} --all"
    if folder is None:
        name = f"{recipe.model}-{recipe.plan.rack.label}".lower()
        return shlex.join(("heavylift", "recipe", *_typed(context), "-o", name))
    return f"heavylift doctor --for {shlex.quote(str(folder / 'launch.json'))}"


def _typed(context: click.Context) -> list[str]:
    """What was typed, as words: arguments first, then options in the order of the help."""
    arguments, options = [], []
    for param in context.command.params:
        name = str(param.name)
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        if isinstance(param, click.Argument):
            arguments.append(str(value))
        elif isinstance(value, bool):
            options.append(param.opts[-1])
        else:
            options += [param.opts[-1], _word(name, value)]
    return arguments + options


def _word(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ":".join(map(str, value))
    return "all" if name == "ep" and value == 0 else str(value)
