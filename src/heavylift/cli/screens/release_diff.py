"""How two releases differ, field by field."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.text import text
from heavylift.operate.releases import ReleaseDiff


def lines(diff: ReleaseDiff) -> Iterator[str]:
    """The screen, line by line."""
    yield text("releases.diff_title", name=diff.deployment, before=diff.before, after=diff.after)
    if not diff.differences:
        yield text("releases.equal")
    for each in diff.differences:
        yield each.field
        yield f"  - {text('releases.absent') if each.before is None else each.before}"
        yield f"  + {text('releases.absent') if each.after is None else each.after}"
