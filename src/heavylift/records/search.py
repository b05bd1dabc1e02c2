"""A search over everything: what was looked through, and the best of each card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heavylift.records.plan import Layout, PlanVerdict, Status

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Sought:
    """One way to serve the model: bytes per GPU, tokens that the pool holds at most."""

    rack: str
    gpus: int
    engine: str
    engine_version: str
    kv_cache_dtype: str
    layout: Layout
    verdict: PlanVerdict
    status: Status
    headroom_bytes: int
    kv_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """The best way on every card, and how many there were.

    `candidates` = layouts of all racks, engines and KV dtypes; of them `refused` by the engine,
    `too_small`: on racks whose cards do not hold the weights in any layout, and the rest was put in
    order. `best` has one way per card, the one that is surest and takes the fewest GPUs.
    """

    model: str
    title: str
    racks: int
    engines: int
    candidates: int
    refused: int
    too_small: int
    best: tuple[Sought, ...]
    schema: int = SCHEMA
