"""The shipped scenarios, and scenarios from files."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from heavylift.devserver.scenario import Scenario, decode
from heavylift.errors import HeavyliftError, reason

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

    Raises DEV003 when there is neither, DEV006 and DEV007 for no file of text, DEV001 and
    DEV002 as `scenario.decode`.
    """
    if name_or_path in names():
        file = f"{name_or_path}{_SUFFIX}"
        folder = resources.files("heavylift.devserver").joinpath("scenarios")
        return decode(folder.joinpath(file).read_text("utf-8"), file)
    hint = "heavylift dev scenarios"
    try:
        text = Path(name_or_path).read_text("utf-8")
    except FileNotFoundError as problem:
        raise HeavyliftError("DEV003", {"name": name_or_path}, hint_command=hint) from problem
    except OSError as problem:
        params = {"path": name_or_path, "reason": reason(problem)}
        raise HeavyliftError("DEV006", params, hint_command=hint) from problem
    except UnicodeDecodeError as problem:
        raise HeavyliftError("DEV007", {"path": name_or_path}, hint_command=hint) from problem
    return decode(text, name_or_path)


def _faults(scenario: Scenario) -> tuple[str, ...]:
    return tuple(str(rule.fault.kind) for rule in scenario.rules if rule.fault is not None)
