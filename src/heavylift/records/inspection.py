"""Inspection: what the headers of a checkpoint say, counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

SCHEMA: Final = 1


class Origin(StrEnum):
    """Where the numbers are from."""

    FACTS = "facts"
    FILES = "files"
    HUB = "hub"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """Tensors of one role that are stored in one way.

    `bits_per_weight` are the bits of one weight without its scales; None where the packing is not
    known, and for tensors that are no weights. `quantised`: the weights are kept in fewer bits than
    they are computed in, by a type of blocks or with scales beside them. `scale_bytes` are those
    scales, zero points and the like, and part of `bytes`. `parameters` is None when not known.
    """

    role: str
    dtype: str
    bits_per_weight: float | None
    quantised: bool
    tensors: int
    bytes: int
    scale_bytes: int
    parameters: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Bytes of one dtype or role; for a role also its parameters, None when not known."""

    name: str
    tensors: int
    bytes: int
    parameters: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerBytes:
    """Layers (from 0) that take the same bytes each."""

    layers: tuple[int, ...]
    bytes_each: int


@dataclass(frozen=True, kw_only=True, slots=True)
class InspectedFile:
    """One file of the checkpoint. Bytes as stored."""

    name: str
    tensors: int
    tensor_bytes: int
    file_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundDefect:
    """One thing wrong: where, which, the values. A remark is wrong and harms nothing."""

    path: str
    problem: str
    detail: str
    remark: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """A checkpoint's figures.

    `total_params` and `active_params` count logical weights; None when some tensor's packing is not
    known (`uncounted_tensors` of them) or, for the active ones, the number of experts a token takes
    is not stated. Active are all parameters that one text token touches: without the vision and
    audio parts, draft layers and a separate embedding table, and of routed experts the chosen ones.
    `asked` are the addresses that were asked, without any secret.
    """

    where: str
    origin: Origin
    file_format: str
    tensors: int
    tensor_bytes: int
    file_bytes: int | None
    total_params: int | None
    active_params: int | None
    uncounted_tensors: int
    experts: int | None
    experts_per_token: int | None
    dtypes: tuple[Share, ...]
    roles: tuple[Share, ...]
    stored: tuple[Stored, ...]
    layers: tuple[LayerBytes, ...]
    other_bytes: int
    files: tuple[InspectedFile, ...]
    ignored: tuple[str, ...]
    index_total_bytes: int | None
    defects: tuple[FoundDefect, ...]
    sound: bool
    title: str | None = None
    source: str | None = None
    model_type: str | None = None
    asked: tuple[str, ...] = ()
    schema: int = field(default=SCHEMA)
