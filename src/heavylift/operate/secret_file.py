"""The secrets of a deployment: an environment file that its owner alone can read."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.engines import embedded
from heavylift.records.launch import LaunchSpec

FILE: Final = "secrets.env"
_MODE: Final = 0o600


def prepare(folder: Path, spec: LaunchSpec, given: Path | None) -> Path:
    """The file with every secret that a launch names, made or completed.

    A key for clients is made up once. Others come from the file `given`, or from the variable of
    their own name in the environment of whoever calls. Raises REC044 for one that is nowhere,
    REC045 for a file that others can read.
    """
    path = folder / FILE
    known = read(path) if path.is_file() else {}
    offered = {} if given is None else read(given)
    wanted = {name: variable for rank in spec.ranks for variable, name in rank.secrets.items()}
    for name, variable in wanted.items():
        value = offered.get(name) or offered.get(variable) or known.get(name)
        value = value or os.environ.get(variable)
        if value is None and name == embedded.KEY_SECRET:
            value = secrets.token_urlsafe(24)
        if value is None:
            raise HeavyliftError("REC044", {"name": name, "variable": variable})
        known[name] = value
    write(path, known)
    return path


def read(path: Path) -> dict[str, str]:
    """The names and values of a file. Raises REC045 when others can read it."""
    try:
        mode = path.stat().st_mode
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HeavyliftError("REC046", {"path": str(path), "reason": str(error)}) from error
    if stat.S_IMODE(mode) & 0o077:
        raise HeavyliftError("REC045", {"path": str(path)}, hint_command=f"chmod 600 {path}")
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and line[0] != "#")
    return {name.strip(): value.strip() for name, _, value in pairs}


def write(path: Path, values: Mapping[str, str]) -> None:
    """Write it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_suffix(".new")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in sorted(values.items()))
    scratch.replace(path)
