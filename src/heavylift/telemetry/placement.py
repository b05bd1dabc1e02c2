"""Where an engine says that its loaded models lie: on cards, or with the host."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """A loaded model: its bytes in all, and those of them on cards."""

    name: str
    size_bytes: int
    vram_bytes: int

    @property
    def share(self) -> float:
        """The part of it on cards, 0 to 1."""
        return self.vram_bytes / self.size_bytes if self.size_bytes else 0.0


def placements(page: str) -> tuple[Placement, ...]:
    """The models of a list of what runs (`{"models": [{"name", "size", "size_vram"}]}`); one that
    does not state both sizes is left out. Nothing for a page that is no such list.
    """
    try:
        document = json.loads(page)
    except ValueError:
        return ()
    models = document.get("models") if isinstance(document, dict) else None
    return tuple(
        Placement(name=str(each.get("name")), size_bytes=each["size"], vram_bytes=each["size_vram"])
        for each in (models if isinstance(models, list) else ())
        if isinstance(each, dict)
        and isinstance(each.get("size"), int)
        and isinstance(each.get("size_vram"), int)
    )
