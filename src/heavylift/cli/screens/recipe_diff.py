"""What differs between two recipes."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.text import text
from heavylift.records.recipe import LaunchDiff


def lines(diff: LaunchDiff) -> Iterator[str]:
    """One line per difference."""
    yield text("recipe.diff", old=diff.old, new=diff.new)
    if not diff.differences:
        yield text("recipe.diff.same")
    for each in diff.differences:
        if each.old is None:
            words = text("recipe.diff.added", name=each.name, new=each.new)
        elif each.new is None:
            words = text("recipe.diff.gone", name=each.name, old=each.old)
        else:
            words = text("recipe.diff.row", name=each.name, old=each.old, new=each.new)
        role = f"  [{each.role}]" if each.role not in (None, "serve") else ""
        yield f"  {words.rstrip()}{role}"
