"""What can be wrong with facts files, as values: checks collect them all and go on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heavylift.errors import HeavyliftError


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing wrong in a facts file: where (`gpus/mi355x.toml: memory_visible.unit`), what.

    `problem` is a code whose text is `defect.<problem>`; `detail` is notation, not prose.
    """

    path: str
    problem: str
    detail: str = ""


class FactsError(HeavyliftError):
    """Facts files with defects; `defects` holds every one of them, each with its path."""

    def __init__(self, defects: Iterable[Defect]) -> None:
        self.defects = tuple(defects)
        first = self.defects[0]
        super().__init__(
            "FACT001",
            {
                "count": len(self.defects),
                "path": first.path,
                "problem": first.problem,
                "detail": first.detail,
            },
        )
