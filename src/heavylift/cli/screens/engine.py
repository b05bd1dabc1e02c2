"""The list of engines."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.output import glyphs
from heavylift.cli.text import text
from heavylift.launch.engine_env import EngineList


def lines(record: EngineList) -> Iterator[str]:
    """One line per engine, one per package with its licence, and where it lies."""
    for state in record.engines:
        status = "ok" if state.installed else "info"
        word = text("engine.installed" if state.installed else "engine.not_installed")
        yield f"{glyphs()[status]} {state.engine} {state.version}  {word}"
        for package in state.packages:
            yield "    " + text(
                "engine.package",
                name=package.name,
                version=package.version,
                licence=package.licence,
                role=text(f"engine.role.{package.role}"),
            )
        if state.installed:
            yield f"    {state.path}"
