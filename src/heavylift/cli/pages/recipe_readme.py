"""README.md of a recipe's folder: who ran it, checks, how to start, why each word is there."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from heavylift.cli import recipe_words as words
from heavylift.cli.pages import recipe_checklist as checklist
from heavylift.cli.text import keys, text
from heavylift.facts.catalog import Catalog
from heavylift.recipe.targets.records import Rendering, Stage
from heavylift.records.launch import LaunchSpec
from heavylift.records.recipe import Recipe

_SPLIT = "prefill_decode"
_LOOPBACK = ("127.0.0.1", "localhost", "::1", None)


def readme(recipe: Recipe, spec: LaunchSpec, rendering: Rendering | None) -> str:
    """The page as Markdown."""
    parts = [
        f"# {_title(recipe)}",
        text("readme.made"),
        *_section("readme.status", [words.status(recipe.support, recipe.status.value)]),
        *(() if rendering is None else checklist.findings(spec, rendering)),
        *_before(spec),
        *_steps(rendering),
        *(() if rendering is None else checklist.deadline(spec, rendering)),
        *checklist.secrets(spec),
        *_after(recipe, spec),
        *checklist.hand_over(spec),
        *_together(recipe, spec),
        *_settings(recipe, spec),
        *_section("readme.sources", [f"- {each}" for each in words.sources(recipe)], gap="\n"),
    ]
    return "\n\n".join(parts) + "\n"


def _title(recipe: Recipe) -> str:
    return text(
        "readme.title",
        title=recipe.title,
        rack=recipe.rack,
        engine=recipe.engine_title,
        version=recipe.engine_version,
    )


def _section(key: str, body: Iterable[str], gap: str = "\n\n") -> Iterator[str]:
    found = list(body)
    if found:
        yield f"## {text(key)}"
        yield gap.join(found)


def _before(spec: LaunchSpec) -> Iterator[str]:
    yield f"## {text('readme.before')}"
    yield text("readme.before.doctor")
    yield _block(["heavylift doctor --for launch.json"])
    if spec.notes:
        yield text("readme.before.notes")
        yield "\n".join(f"- {words.note(each)}" for each in spec.notes)


def _steps(rendering: Rendering | None) -> Iterator[str]:
    if rendering is None:
        return
    yield f"## {text('readme.start')}"
    for stage in Stage:
        steps = [step for step in rendering.steps if step.stage is stage]
        if not steps:
            continue
        yield f"### {text(f'readme.stage.{stage}')}"
        rows = []
        for step in steps:
            said = f"recipe.step.{step.what}"
            place = "" if step.rank is None else f"{step.rank}: "
            remark = f"{place}{text(said) if said in keys() else ''}".strip(" :")
            rows += [*([f"# {remark}"] if remark else []), _typed(step.argv)]
        yield _block(rows)


def _typed(argv: Iterable[str]) -> str:
    """A command as it is typed; variables of the folder's files stay variables."""
    return " ".join(word if "${" in word else shlex.quote(word) for word in argv)


def _after(recipe: Recipe, spec: LaunchSpec) -> Iterator[str]:
    host = spec.bind_host if spec.bind_host in _LOOPBACK else "127.0.0.1"
    url = f"http://{host or '127.0.0.1'}:{spec.served_port or 8000}"
    yield f"## {text('readme.after')}"
    yield text("readme.after.verify")
    yield _block([f"heavylift verify {url} --profile acceptance --plan plan.json"])
    if spec.topology == _SPLIT:
        yield text("readme.after.equal")
        yield _block([f"heavylift quality http://UNDIVIDED:8000 {url}"])
    yield text("readme.after.bench")
    yield _block([f"heavylift bench {url}"])
    del recipe


def _together(recipe: Recipe, spec: LaunchSpec) -> Iterator[str]:
    has_state = recipe.plan.state_bytes_per_sequence > 0
    if spec.topology != _SPLIT and has_state and Catalog().serving(recipe.engine).splits:
        yield f"## {text('readme.together')}"
        yield text("readme.together.text")


def _settings(recipe: Recipe, spec: LaunchSpec) -> Iterator[str]:
    if not spec.settings:
        return
    yield f"## {text('readme.settings')}"
    several = len(recipe.plans) > 1
    heads = [text(f"readme.head.{name}") for name in ("setting", "value", "why", "origin")]
    rows = [f"| {' | '.join(heads)} |", "|---|---|---|---|"]
    for setting in spec.settings:
        name = f"`{setting.name}`" + (f" ({setting.role})" if several and setting.role else "")
        value = setting.value.replace("|", "\\|")
        cell = f"`{value}`" if value else ""
        rows.append(f"| {name} | {cell} | {words.why(setting)} | {words.origin(setting)} |")
    yield "\n".join(rows)


def _block(rows: Iterable[str]) -> str:
    return "\n".join(("```", *rows, "```"))
