"""Receipt: memory an engine was seen to use, term by term, with the log line of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from heavylift.records.plan import Layout
from heavylift.records.speed import AnchorPoint

SCHEMA: Final = 1

POOL: Final = "pool"
"""The term of all that an engine took for what grows with use."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredTerm:
    """Bytes of one memory term on one GPU (or the host), as the engine printed it.

    `term` is the id the plan uses (`weights`, `kv_cache`, `recurrent_state.kda_conv`,
    `workspace.compute_buffer`). `resolution_bytes` is the last printed digit: two numbers closer
    than that are equal as far as the log can tell.
    """

    term: str
    device: str
    bytes: int
    resolution_bytes: int
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """What one start of an engine showed. A plan takes it in place of assumed and unknown terms.

    `rack` is the rack as typed, or `this-machine`. `workload` holds the settings the terms depend
    on (context_tokens, max_num_seqs, kv_cache_dtype, max_num_batched_tokens): a receipt answers
    only for a plan with equal ones. `figures` are numbers of a log that are no bytes (`kv_tokens`,
    `most_sequences`), `logged_version` the version it names. `speeds` are points of decoding that
    its log told of, for forecasts to rest on.
    """

    model: str
    variant: str
    engine: str
    engine_version: str
    backend: str
    layout: Layout
    rack: str
    terms: tuple[MeasuredTerm, ...]
    workload: dict[str, int | str] = field(default_factory=dict)
    taken_at: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    logged_version: str | None = None
    speeds: tuple[AnchorPoint, ...] = ()
    schema: int = SCHEMA
