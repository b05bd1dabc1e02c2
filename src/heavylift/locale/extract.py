"""From English to what translators work on: `python -m heavylift.locale.extract` (`make locale`).

Brings every `AREA.po` of every language to the English texts as they are now: new ones are added,
changed ones marked fuzzy (and shown in English until looked at), gone ones dropped. Needs Babel.
"""

from __future__ import annotations

import io
import tomllib
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from heavylift.locale import catalogue

FACTS: Final = catalogue.FACTS

_PROSE: Final = frozenset(
    {"title", "note", "fix", "text", "reason", "caution", "quality", "engines", "hardware"}
    | {"unit", "term", "provider"}
)

# What Babel would write beside this changes with every run: times, and places for names.
_HEADER: Final = """msgid ""
msgstr ""
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"

"""


def english(area: str) -> Catalog:
    """The English texts of an area, with the key of each as its context."""
    found = Catalog(project="heavylift", charset="utf-8")
    if area == FACTS:
        for words in sorted(set(fact_words())):
            found.add(words)
    else:
        for key, text in catalogue.entries(area).items():
            found.add(text, context=key)
    return found


def fact_words() -> Iterator[str]:
    """Every sentence in the facts that a person is shown."""
    for file in _files(resources.files("heavylift.facts").joinpath("data")):
        if file.name.endswith(".toml"):
            yield from _prose(tomllib.loads(file.read_text("utf-8")))


def _files(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry)
        else:
            yield entry


def _prose(value: object, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _prose(inner, name if key == catalogue.ENGLISH else key)
    elif isinstance(value, list):
        for inner in value:
            yield from _prose(inner, name)
    elif isinstance(value, str) and name in _PROSE and " " in value:
        yield value


def read(language: str, area: str) -> Catalog:
    """The translations of an area as they lie in the checkout; empty when there are none."""
    path = _path(language, area)
    if not path.exists():
        return Catalog(locale=language, project="heavylift", charset="utf-8")
    return read_po(io.BytesIO(path.read_bytes()), locale=language)


def updated(language: str, area: str) -> Catalog:
    """The translations of an area, brought to the English texts as they are now."""
    found = read(language, area)
    found.update(english(area), no_fuzzy_matching=False)
    found.obsolete.clear()
    return found


def areas() -> tuple[str, ...]:
    """Every area there is something to translate in."""
    return (*catalogue.areas(), FACTS)


def _path(language: str, area: str) -> Path:
    return Path(str(catalogue.folder(language))) / f"{area}.po"


def main() -> None:
    """Bring every language up to date and say what is left."""
    for language in catalogue.LANGUAGES[1:]:
        Path(str(catalogue.folder(language))).mkdir(exist_ok=True)
        left = total = 0
        for area in areas():
            found = updated(language, area)
            messages = [message for message in found if message.id]
            total += len(messages)
            left += sum(not message.string or message.fuzzy for message in messages)
            with _path(language, area).open("wb") as file:
                file.write(_HEADER.format(language=language).encode())
                write_po(file, found, width=100, omit_header=True)
        print(f"{language}: {total - left} of {total} translated")  # noqa: T201 - a tool's own report


if __name__ == "__main__":
    main()
