"""The catalogue of everything a person reads: key -> text. One language today, room for more.

Keys are stable; text is not. `text(key, **params)` is the only way text leaves this package, so
that another language is another catalogue and no change of code.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any


@functools.cache
def _catalogue() -> dict[str, str]:
    entries: dict[str, str] = {}
    key = None
    source = resources.files("heavylift.locale").joinpath("en.txt").read_text("utf-8")
    for line in source.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith("  "):
            if key is None:
                raise ValueError(line)
            entries[key] = f"{entries[key]} {line.strip()}".strip()
        else:
            key, _, value = line.partition(" = ")
            entries[key] = value.strip()
    return entries


def text(key: str, **params: Any) -> str:
    """The text of `key` with `params` filled in. An unknown key raises KeyError: a test's job."""
    template = _catalogue()[key]
    return template.format(**params) if params else template.replace("{{", "{").replace("}}", "}")


def keys() -> frozenset[str]:
    """All keys of the catalogue."""
    return frozenset(_catalogue())
