"""The published forms of a model: size, what runs them, how fast and how good, and which are no
choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.errors import Scalar
from heavylift.records.plan import Note

SCHEMA: Final = 1


class Holds(StrEnum):
    """Whether what somebody has holds a form, best first.

    `fits`: planned, with room. `tight`: planned, or by its weights alone, with little. `weights`:
    its weights fit, and nobody worked out the rest. `streams`: weights stay on disk. `unknown`: its
    size or its machine is not known well enough. `no`: it does not.
    """

    FITS = "fits"
    TIGHT = "tight"
    WEIGHTS = "weights"
    STREAMS = "streams"
    UNKNOWN = "unknown"
    NO = "no"

    @property
    def is_positive(self) -> bool:
        """True when it could be started."""
        return self not in (Holds.UNKNOWN, Holds.NO)


class Proof(StrEnum):
    """What is known of a form having run on a machine like what somebody has, best first: a
    verified recipe for exactly this (`planned`), a report from a like machine (`seen`), or nothing.
    """

    PLANNED = "planned"
    SEEN = "seen"
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallestRack:
    """The rack of the catalogue with the least memory that holds a form. `weights_alone`: nobody
    worked out more than that its weights fit.
    """

    rack: str
    memory_bytes_total: int
    weights_alone: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantRow:
    """One published form. Speeds are decode tokens per second of one stream, as reported on
    `hardware`. `dominated_by` names a form that is better at no more bytes, or no worse at fewer.
    `because` says why it does or does not hold, `holds` is None where nobody said what he has.
    """

    id: str
    title: str
    form: str
    engines: tuple[str, ...]
    host: str
    bytes_total: int | None
    least_memory_bytes: int | None
    hardware: str | None
    tokens_per_s_low: float | None
    tokens_per_s_high: float | None
    quality: str | None
    caution: str | None
    unusable: bool
    dominated_by: str | None
    confidence: str
    source: str
    as_of: str
    smallest_rack: SmallestRack | None
    holds: Holds | None
    because: Note | None
    max_context_tokens: int | None = None
    proof: Proof = Proof.NONE

    @property
    def is_choice(self) -> bool:
        """True when it holds and nothing speaks for another form instead."""
        good = self.holds is not None and self.holds.is_positive
        return good and not self.unusable and self.dominated_by is None


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantTable:
    """All forms of a model, the largest first. With `have`: what that holds, and the answer: ids of
    the forms to take, the best first; empty = no.
    """

    model: str
    title: str
    rows: tuple[VariantRow, ...]
    have: str | None = None
    have_params: dict[str, Scalar] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    schema: int = SCHEMA
