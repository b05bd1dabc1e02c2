"""A recipe with every word explained."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.screens import recipe as plain
from heavylift.records.recipe import Recipe


def lines(recipe: Recipe) -> Iterator[str]:
    """The screen of a recipe, then each flag and variable with its reason."""
    yield from plain.lines(recipe)
    yield from plain.explained(recipe)
