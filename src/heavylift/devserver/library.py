"""The shipped scenarios, and scenarios from files."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from heavylift.devserver.scenario import Scenario, decode
from heavylift.errors import HeavyliftError

_SUFFIX = ".toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shipped:
    """A shipped scenario: its name and the kinds of fault in it."""

    name: str
    faults: tuple[str, ...]


def names() -> tuple[str, ...]:
    """Names of the shipped scenarios, in alphabetical order."""
    folder = resources.files("heavylift.devserver").joinpath("scenarios")
    return tuple(
        sorted(
            entry.name.removesuffix(_SUFFIX)
            for entry in folder.iterdir()
            if entry.name.endswith(_SUFFIX)
        )
    )


def shipped() -> tuple[Shipped, ...]:
    """The shipped scenarios."""
    return tuple(Shipped(name=name, faults=_faults(load(name))) for name in names())


def load(name_or_path: str) -> Scenario:
    """A scenario by its shipped name, else from the file of that path.

    Raises DEV003 when there is neither, DEV001 and DEV002 as `scenario.decode`.
    """
    if name_or_path in names():
        file = f"{name_or_path}{_SUFFIX}"
        folder = resources.files("heavylift.devserver").joinpath("scenarios")
        return decode(folder.joinpath(file).read_text("utf-8"), file)
    try:
        text = Path(name_or_path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise HeavyliftError(
            "DEV003", {"name": name_or_path}, hint_command="heavylift dev scenarios"
        ) from problem
    return decode(text, name_or_path)


def _faults(scenario: Scenario) -> tuple[str, ...]:
    return tuple(str(rule.fault.kind) for rule in scenario.rules if rule.fault is not None)
