"""Recipes whose words are kept, and the page of published recipes: as the code makes them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from heavylift.locale import catalogue
from heavylift.reciping import Reciping

ROOT = Path(__file__).parents[3]
LEAST_CASES = 25


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


GOLDEN = _tool("golden_recipes")
CASES = GOLDEN.cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case["args"]))
def test_a_kept_recipe_is_what_is_made(case: dict[str, list[str]]) -> None:
    """Commands, remarks and files of the target; `make recipe-golden` writes them anew."""
    folder, text = GOLDEN.made(case["args"])
    path = GOLDEN.GOLDEN / folder / f"{case['name']}.txt"
    assert text == path.read_text("utf-8")


def test_no_kept_recipe_is_without_a_case() -> None:
    """Every file belongs to a case, and there are enough of them, for every target."""
    kept = {path.stem for path in GOLDEN.GOLDEN.glob("*/*.txt")}
    assert kept == {case["name"] for case in CASES}
    assert len(CASES) >= LEAST_CASES
    targets = {case["args"][case["args"].index("--target") + 1] for case in CASES}
    assert targets >= {"shell", "docker", "compose", "systemd", "slurm", "kubernetes"}


def test_the_pages_of_published_recipes_are_current() -> None:
    """`make recipe-docs` writes them; every published recipe stands in each, in every language."""
    table = _tool("recipes_table")
    reciping = Reciping()
    made = table.pages(reciping)
    assert set(made) == set(catalogue.LANGUAGES)
    for language, words in made.items():
        assert table.OUTPUTS[language].read_text("utf-8") == words
        for recipe in reciping.catalog.recipes(table.MODEL).recipes:
            assert f"| {recipe.id} |" in words
