"""What can be wrong with a checkpoint, as values: a reader collects them all and goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from heavylift.errors import HeavyliftError, Scalar

NAMED_PER_FILE: Final = 50
"""Defects of one file that are named one by one; a hostile header could have millions."""

_SHOWN_CHARACTERS: Final = 200

# No engine reads an index's own sum; published ones are wrong now and then.
_REMARKS: Final = frozenset(
    {"total_differs", "bad_total", "config_unreadable", "tower_not_counted", "form_in_name"}
)


def shown(name: str) -> str:
    """A name from a file as it may be printed: short, and without control characters.

    Names come from strangers: escape sequences in them must not reach a terminal.
    """
    cut = name if len(name) <= _SHOWN_CHARACTERS else name[:_SHOWN_CHARACTERS] + "…"
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")


@dataclass(frozen=True, kw_only=True, slots=True)
class Defect:
    """One thing wrong: in which file, with which tensor, what was found, what belongs there."""

    file: str
    problem: str
    tensor: str = ""
    observed: Scalar = None
    expected: Scalar = None

    @property
    def is_remark(self) -> bool:
        """True for what is wrong and harms nothing: engines load such files, and so do plans."""
        return self.problem in _REMARKS

    @property
    def path(self) -> str:
        """Where it is: `model-00001-of-000096.safetensors: model.norm.weight`."""
        return shown(f"{self.file}: {self.tensor}" if self.tensor else self.file)

    @property
    def detail(self) -> str:
        """The values in notation: `4096 ≠ 8192`, or the one there is."""
        found = "" if self.observed is None else shown(str(self.observed))
        return found if self.expected is None else f"{found} ≠ {shown(str(self.expected))}"


class CheckpointError(HeavyliftError):
    """A checkpoint with defects; `defects` holds every one of them."""

    def __init__(self, path: str, defects: Iterable[Defect]) -> None:
        self.defects = tuple(defects)
        super().__init__("CKPT020", {"path": path, "count": len(self.defects)})


def at_most(defects: Iterable[Defect], limit: int = NAMED_PER_FILE) -> Iterator[Defect]:
    """The first `limit` defects of a file, then one that says how many more there are."""
    rest = iter(defects)
    last = None
    for last in islice(rest, limit):
        yield last
    more = sum(1 for _ in rest)
    if last is not None and more:
        yield Defect(file=last.file, problem="more_defects", observed=more)
