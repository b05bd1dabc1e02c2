"""Where heavylift keeps its files.

`HEAVYLIFT_HOME` puts all of them under one folder (tests, shared machines); otherwise the XDG base
directories are used. Nothing is created here.
"""

from __future__ import annotations

import os
from pathlib import Path

from heavylift.errors import HeavyliftError


def data_dir() -> Path:
    """Engines and models: large, can be made again."""
    return _base("data", "XDG_DATA_HOME", ".local/share")


def cache_dir() -> Path:
    """What may be deleted at any time."""
    return _base("cache", "XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    """Records of what was done: receipts, releases, logs. Not to be deleted."""
    return _base("state", "XDG_STATE_HOME", ".local/state")


def engine_dir(engine: str, version: str) -> Path:
    """The environment of one version of an engine."""
    return data_dir() / "engines" / engine / version


def deployment_dir(name: str) -> Path:
    """What is kept of one deployment: its releases, its runs with their logs, its secrets."""
    return state_dir() / "deployments" / name


def _base(kind: str, variable: str, fallback: str) -> Path:
    home = os.environ.get("HEAVYLIFT_HOME")
    if home:
        return Path(home).absolute() / kind
    given = os.environ.get(variable, "")
    # The XDG specification: a relative path counts as unset.
    if Path(given).is_absolute():
        return Path(given) / "heavylift"
    try:
        return Path.home() / fallback / "heavylift"
    except RuntimeError as error:
        raise HeavyliftError("ENV010", {"variable": variable}) from error
