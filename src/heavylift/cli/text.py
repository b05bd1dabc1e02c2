"""The catalogue of everything a person reads: key -> text. One language today, room for more.

A language is a folder under `locale` with a file per area. Keys are stable; text is not.
`text(key, **params)` is the only way text leaves this package, so that another language is another
catalogue and no change of code.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any


@functools.cache
def _catalogue() -> dict[str, str]:
    entries: dict[str, str] = {}
    for area in resources.files("heavylift.locale").joinpath("en").iterdir():
        entries.update(parse(area.read_text("utf-8")))
    return entries


def parse(source: str) -> dict[str, str]:
    """The entries of a catalogue file: `key = text`, `#` comments, a line that begins with two
    spaces goes on the one above. Raises ValueError for any other line or a key given twice.
    """
    entries: dict[str, str] = {}
    key = ""
    for line in source.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith("  ") and key:
            entries[key] = f"{entries[key]} {line.strip()}".strip()
            continue
        key, separator, value = line.partition(" = ")
        if not separator or key in entries:
            raise ValueError(line)
        entries[key] = value.strip()
    return entries


def text(key: str, /, **params: Any) -> str:
    """The text of `key` with `params` filled in. An unknown key raises KeyError: a test's job.

    Words in `params` may be a stranger's: what does not print in them is shown as an escape. Where
    the catalogue writes `{name:lines}`, each line of the words begins one of its own, indented.
    """
    template = _catalogue()[key]
    if not params:
        return template.replace("{{", "{").replace("}}", "}")
    return template.format(**{name: _made_safe(value) for name, value in params.items()})


def printable(words: str) -> str:
    """`words` with everything a terminal would act on or not show as a backslash escape."""
    if words.isprintable():
        return words
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in words
    )


class _Words(str):
    """A text parameter. Only the catalogue decides whether its line breaks are kept."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        if spec == "lines":
            return "".join(f"\n  {printable(line)}" for line in self.splitlines())
        return format(printable(str(self)), spec)


def _made_safe(value: Any) -> Any:
    return _Words(value) if isinstance(value, str) else value


def keys() -> frozenset[str]:
    """All keys of the catalogue."""
    return frozenset(_catalogue())


def refusal(code: str, params: dict[str, Any]) -> str:
    """Why a layout was refused or lost. What an engine does not offer is a sentence each."""
    key = f"refusal.{code}"
    return text(f"{key}.{params['what']}" if code == "not_offered" else key, **params)
