"""Shapes of the facts on routers: programs before engines that prefill and decode apart."""

from __future__ import annotations

from dataclasses import dataclass

from heavylift.facts.schema import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class RouterFacts(Rule):
    """How a router is started. `argv` names `{port}` and `{metrics_port}`; `prefill` and `decode`
    are the words that add an engine of that half at `{url}`. `package` and `version` are what was
    read, as PyPI names them.
    """

    package: str
    version: str
    argv: tuple[str, ...]
    prefill: tuple[str, ...]
    decode: tuple[str, ...]
