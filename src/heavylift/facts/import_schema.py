"""Shapes of the facts on other planners' files: what their words mean in ours."""

from __future__ import annotations

from dataclasses import dataclass, field

from heavylift.facts.schema import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyWords(Rule):
    """A strategy of a recipe as a layout; sizes are `gpus` (all), `per_node`, `nodes` or `one`."""

    id: str
    tensor: str
    pipeline: str = "one"
    data: str = "one"
    expert: str = "one"
    nodes: str = "any"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportBook:
    """The engine that recipe pages are of, and their strategies; generations as architectures;
    engines and KV dtypes by other names; ends of system names that say nothing.
    """

    pages_engine: str
    strategies: tuple[StrategyWords, ...]
    generations: dict[str, str] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)
    kv_dtypes: dict[str, str] = field(default_factory=dict)
    system_ends: tuple[str, ...] = ()
