"""Codes of a recipe as sentences: notes, reasons, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heavylift.cli.text import keys, labelled, listed, of_facts, text
from heavylift.records.launch import Setting
from heavylift.records.plan import Note, Status, Support
from heavylift.records.recipe import EngineChoice, Recipe, RecipeRefusal

_NOTHING = "-"


def note(said: Note) -> str:
    """A remark as a sentence."""
    return text(f"recipe.note.{said.code}", **_shown(said.params))


def why(setting: Setting) -> str:
    """Why a flag or variable is set."""
    return text(f"recipe.why.{setting.why or 'none'}")


def origin(setting: Setting) -> str:
    """Where its value is from, with the day where there is one."""
    kind = f"recipe.origin.{setting.origin}"
    said = listed([each for each in (setting.source, setting.as_of) if each], "list.parts")
    return labelled(kind, said)


def status(support: Support, shown: str) -> str:
    """Who says it runs, or that it does not: nobody but the plan where there is no source."""
    source = support.recipe or support.source
    if not source and shown == Status.UNSUPPORTED:
        return text("recipe.status.by_plan", word=text("verdict.unsupported"))
    return text(f"recipe.status.{shown}", source=source, as_of=support.as_of)


def refused(refusal: RecipeRefusal) -> Iterator[str]:
    """Why no recipe is written."""
    params = _shown(refusal.params)
    said = f"support.{params.get('note')}"
    if said in keys():
        params["note"] = text(said)
    yield text(f"recipe.refused.{refusal.code}", **params)
    note = refusal.params.get("note")
    if refusal.code == "does_not_fit" and isinstance(note, str) and " " in note:
        yield of_facts(note)
    if refusal.params.get("other"):
        yield text("recipe.refused.other", other=params["other"])


def choice(each: EngineChoice) -> str:
    """One engine that was weighed."""
    if each.support is None or each.verdict is None:
        error = text(f"error.{each.code}", **_with_why(each.params)) if each.code else _NOTHING
        return text("recipe.choice.none", title=each.title, error=error)
    return text(
        "recipe.choice.taken" if each.chosen else "recipe.choice.other",
        title=each.title,
        verdict=text(f"verdict.{each.verdict}").lower(),
        status=text(f"fix.status.{each.support.status}"),
        layout=each.layout,
    )


def sources(recipe: Recipe) -> Iterator[str]:
    """Every source once."""
    for source in recipe.sources:
        if source.recipe is None:
            words = text("recipe.source", title=of_facts(source.title))
        else:
            words = text(
                "recipe.source_recipe",
                recipe=source.recipe,
                status=text(f"fix.status.{source.status}") if source.status else _NOTHING,
                as_of=source.as_of,
                title=of_facts(source.title),
            )
        yield f"{words} {source.url}" if source.url else words


def _with_why(params: dict[str, Any]) -> dict[str, Any]:
    key = f"recipe.why.{params.get('why')}"
    shown = _shown(params)
    if key in keys():
        shown["why"] = text(key)
    return {"refusal": _NOTHING, "why": _NOTHING, **shown}


def _shown(params: Any) -> dict[str, Any]:
    return {
        name: of_facts(value) if isinstance(value, str) else _NOTHING if value is None else value
        for name, value in params.items()
    }
