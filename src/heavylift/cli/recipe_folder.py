"""The folder of a recipe: its files as bytes, written whole or not at all, and read back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.cli.pages.recipe_readme import readme
from heavylift.cli.place import target_options
from heavylift.cli.text import text
from heavylift.errors import HeavyliftError, reason
from heavylift.facts.access_schema import CardAccess
from heavylift.facts.catalog import Catalog
from heavylift.recipe.job import DECODE, SERVE
from heavylift.recipe.targets import render
from heavylift.recipe.targets.view import with_images
from heavylift.records.launch import LaunchSpec
from heavylift.records.recipe import Recipe, RecipeFile

LAUNCH: Final = "launch.json"
PLAN: Final = "plan.json"
README: Final = "README.md"
_RUNNABLE: Final = 0o111
_OTHERS: Final = 0o077


def with_files(recipe: Recipe, target: str, catalog: Catalog, place: Mapping[str, Any]) -> Recipe:
    """The recipe with the files of a target; one that is refused has none.

    `place` are the options that say where the files are for, as typed.

    Raises what a target raises for a launch that it cannot write.
    """
    spec = recipe.launch
    if spec is None:
        return replace(recipe, target=target)
    spec = with_images(spec, dict(place["images"]))
    rendering = render(
        target,
        spec,
        target_options(
            place,
            name=_name(recipe.model),
            header=(text("readme.title", **_title(recipe)),),
            model_bytes=recipe.plan.host.disk_bytes or None,
        ),
        _access(spec, catalog),
    )
    files = [
        RecipeFile(path=PLAN, content=_json(recipe.plan)),
        *(
            RecipeFile(path=f"plan-{role}.json", content=_json(plan))
            for role, plan in recipe.plans.items()
            if role not in (SERVE, DECODE)
        ),
        RecipeFile(path=LAUNCH, content=_json(spec)),
        RecipeFile(path=README, content=readme(recipe, spec, rendering)),
        *(
            RecipeFile(path=name, content=content)
            for name, content in spec.files.items()
            if name not in {each.path for each in rendering.files}
        ),
        *(
            RecipeFile(
                path=each.path,
                content=each.text,
                executable=bool(each.mode & _RUNNABLE),
                private=not each.mode & _OTHERS,
            )
            for each in rendering.files
        ),
    ]
    return replace(recipe, target=target, launch=spec, files=tuple(files))


def write(recipe: Recipe, folder: Path) -> None:
    """Write the files. Raises REC025 for a folder with something else in it, REC026 when it cannot
    be written.
    """
    try:
        if folder.exists() and any(folder.iterdir()) and not (folder / LAUNCH).is_file():
            raise HeavyliftError("REC025", {"path": str(folder)})
        for each in recipe.files:
            path = folder / each.path
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(f".{path.name}.new")
            scratch.touch(mode=0o600)
            scratch.write_bytes(each.content.encode())
            scratch.chmod(0o600 if each.private else 0o755 if each.executable else 0o644)
            scratch.replace(path)
    except OSError as error:
        raise HeavyliftError("REC026", {"path": str(folder), "reason": reason(error)}) from error


def read_launch(folder: Path) -> LaunchSpec:
    """The launch of a folder. Raises REC027 when it holds none."""
    path = folder / LAUNCH
    try:
        return msgspec.json.decode(path.read_bytes(), type=LaunchSpec)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise HeavyliftError("REC027", {"path": str(path), "reason": reason(error)}) from error


def _json(record: object) -> str:
    """Canonical: keys in order, two spaces, a line break at the end."""
    raw = msgspec.json.encode(record, order="deterministic")
    return msgspec.json.format(raw, indent=2).decode() + "\n"


def _access(spec: LaunchSpec, catalog: Catalog) -> CardAccess | None:
    return None if spec.gpu_vendor is None else catalog.card_access(spec.gpu_vendor)


def _name(model: str) -> str:
    """A model's id as a name of services: lower case letters, digits and dashes."""
    plain = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:40].rstrip("-")
    return plain if plain[:1].isalpha() else f"m-{plain}"


def _title(recipe: Recipe) -> dict[str, str]:
    return {
        "title": recipe.title,
        "rack": recipe.rack,
        "engine": recipe.engine_title,
        "version": recipe.engine_version,
    }
