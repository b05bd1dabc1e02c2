"""A recipe on 80 columns: who ran it, the commands, what to read before, why each word is there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from heavylift.cli import recipe_words as words
from heavylift.cli.cells import wrap
from heavylift.cli.output import glyphs
from heavylift.cli.text import text
from heavylift.records.launch import RankSpec
from heavylift.records.plan import Status
from heavylift.records.recipe import Recipe

_GLYPHS = {
    Status.VERIFIED: "ok",
    Status.REPORTED: "info",
    Status.UNVERIFIED: "warn",
    Status.UNKNOWN: "unknown",
    Status.UNSUPPORTED: "fail",
    Status.BROKEN: "fail",
}


def lines(recipe: Recipe) -> Iterator[str]:
    """The screen, line by line. Commands are not wrapped inside a word: they are there to be read
    with their flags under one another.
    """
    title = text(
        "recipe.title",
        title=recipe.title,
        rack=recipe.rack,
        engine=recipe.engine_title,
        version=recipe.engine_version,
        layout=recipe.layout,
    )
    yield from _wrapped(title)
    glyph = glyphs()[_GLYPHS[recipe.status]]
    yield from _wrapped(f"{glyph} {words.status(recipe.support, recipe.status.value)}")
    yield from _choices(recipe)
    if recipe.refused is not None:
        yield from _refused(recipe)
        return
    assert recipe.launch is not None  # noqa: S101 - a recipe is refused or has a launch
    yield from _ranks(recipe)
    yield from _notes(recipe)
    yield from _files(recipe)


def explained(recipe: Recipe) -> Iterator[str]:
    """Every flag and variable with its reason and source."""
    if recipe.launch is None:
        return
    yield ""
    yield text("recipe.explain")
    seen = set()
    for setting in recipe.launch.settings:
        shown = f"  {setting.name} {setting.value}".rstrip()
        if (setting.role, shown) in seen:
            continue
        seen.add((setting.role, shown))
        yield f"{shown}   [{setting.role}]" if len(recipe.plans) > 1 else shown
        yield from _wrapped(
            text("aside", words=words.why(setting), aside=words.origin(setting)), "      "
        )


def _choices(recipe: Recipe) -> Iterator[str]:
    if not recipe.choices:
        return
    yield ""
    yield text("recipe.choices")
    for each in recipe.choices:
        yield from _wrapped(words.choice(each), "  ", "    ")


def _refused(recipe: Recipe) -> Iterator[str]:
    refusal = recipe.refused
    assert refusal is not None  # noqa: S101
    yield ""
    yield f"{glyphs()['fail']} {text('recipe.refused')}"
    for sentence in words.refused(refusal):
        yield from _wrapped(sentence, "  ")
    if not refusal.nearest:
        return
    yield text("recipe.nearest")
    for near in refusal.nearest:
        yield "  → " + text(
            "recipe.nearest_row",
            rack=near.rack,
            layout=near.layout,
            engine=near.engine,
            verdict=text(f"verdict.{near.verdict}").lower(),
            status=text(f"fix.status.{near.status}"),
        )


def _ranks(recipe: Recipe) -> Iterator[str]:
    assert recipe.launch is not None  # noqa: S101
    for rank in recipe.launch.ranks:
        yield ""
        key = "recipe.rank" if rank.gpus else "recipe.rank_plain"
        yield text(key, name=rank.name, host=rank.host, gpus=rank.gpus)
        for name, value in rank.env.items():
            yield f"  {name}={shlex.quote(value)} \\"
        yield from command(rank)


def command(rank: RankSpec) -> Iterator[str]:
    """A command with a flag per line."""
    rows: list[list[str]] = [[]]
    for word in rank.argv:
        if word.startswith("-") and rows[-1] and not word[1:2].isdigit():
            rows.append([])
        rows[-1].append(shlex.quote(word))
    for number, row in enumerate(rows):
        yield ("  " if number == 0 else "    ") + " ".join(row) + " \\" * (number + 1 < len(rows))


def _notes(recipe: Recipe) -> Iterator[str]:
    assert recipe.launch is not None  # noqa: S101
    if not recipe.launch.notes:
        return
    yield ""
    yield text("recipe.notes")
    for each in recipe.launch.notes:
        yield from _wrapped(f"{glyphs()['warn']} {words.note(each)}", "", "  ")


def _files(recipe: Recipe) -> Iterator[str]:
    if not recipe.files:
        return
    yield ""
    if recipe.folder is None:
        yield text("recipe.files_would", count=len(recipe.files))
    else:
        yield text("recipe.files", folder=recipe.folder)
    for each in recipe.files:
        yield f"  {each.path}"


def _wrapped(words_: str, indent: str = "", more: str | None = None) -> Iterator[str]:
    return wrap(words_, indent, more, cuts=False)
