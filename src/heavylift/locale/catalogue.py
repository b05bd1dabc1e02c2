"""The catalogues: key -> text, English as the source, other languages through gettext.

English lies in `en/AREA.txt`, a file per area. A language is a folder of `AREA.po` files with the
key as context and the English text as message: a changed English text is shown in English until its
translation is looked at again. An installed package holds them compiled, as `AREA.mo`.
"""

from __future__ import annotations

import functools
import gettext
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

ENGLISH: Final = "en"
LANGUAGES: Final = (ENGLISH, "zh_Hans", "zh_Hant")
VARIABLE: Final = "HEAVYLIFT_LANG"
FACTS: Final = "facts_words"
"""The area of words that facts hold: they have no keys."""

_HANT: Final = frozenset({"hant", "tw", "hk", "mo"})
_LOCALE_VARIABLES: Final = ("LC_ALL", "LC_MESSAGES", "LANG")

_language: ContextVar[str] = ContextVar("language", default=ENGLISH)


def normalised(tag: str) -> str | None:
    """The language of ours that a tag or locale means: `zh_TW.UTF-8` is `zh_Hant`; None = none."""
    words = re.split(r"[.@]", tag, maxsplit=1)[0].replace("-", "_").lower().split("_")
    if words[0] in {ENGLISH, "c", "posix"}:
        return ENGLISH
    if words[0] != "zh":
        return None
    if "hans" in words:
        return "zh_Hans"
    return "zh_Hant" if _HANT.intersection(words[1:]) else "zh_Hans"


def of_environment(environment: Mapping[str, str]) -> str:
    """The language the environment asks for; English where it asks for one that is not here.

    `HEAVYLIFT_LANG` first, then as POSIX has it: the first set of LC_ALL, LC_MESSAGES, LANG.
    """
    given = (environment.get(name, "") for name in (VARIABLE, *_LOCALE_VARIABLES))
    return normalised(next(filter(None, given), ENGLISH)) or ENGLISH


def of_header(accepted: str) -> str:
    """The language a browser asks for by its Accept-Language header; English for none of ours."""
    ranked = []
    for place, part in enumerate(accepted.split(",")):
        tag, _, weight = part.strip().partition(";q=")
        try:
            ranked.append((-float(weight or 1), place, tag))
        except ValueError:
            continue
    found = (normalised(tag) for _, _, tag in sorted(ranked))
    return next(filter(None, found), ENGLISH)


def use(language: str) -> None:
    """Speak this language from here on, in this context. Raises ValueError for one that is not
    here.
    """
    if language not in LANGUAGES:
        raise ValueError(language)
    _language.set(language)


@contextmanager
def spoken(language: str) -> Iterator[None]:
    """Speak this language inside the block."""
    before = _language.set(language)
    try:
        yield
    finally:
        _language.reset(before)


def current() -> str:
    """The language in use."""
    return _language.get()


def template(key: str) -> str:
    """The text of a key in the language in use, its parameters not filled in. Raises KeyError."""
    area, english = _english()[key]
    language = _language.get()
    if language == ENGLISH:
        return english
    return _translations(language, area).pgettext(key, english)


def words(area: str, english: str) -> str:
    """English words that have no key of their own (a note in the facts), in the language in use."""
    language = _language.get()
    # In gettext the empty message is the catalogue's own header.
    if language == ENGLISH or not english:
        return english
    return _translations(language, area).gettext(english)


def keys() -> frozenset[str]:
    """All keys."""
    return frozenset(_english())


def areas() -> tuple[str, ...]:
    """The names of the areas, in order."""
    return tuple(sorted({area for area, _ in _english().values()}))


def entries(area: str) -> dict[str, str]:
    """The English entries of an area."""
    return {key: text for key, (place, text) in _english().items() if place == area}


def parse(source: str) -> dict[str, str]:
    """The entries of a catalogue file: `key = text`, `#` comments, a line that begins with two
    spaces goes on the one above. Raises ValueError for any other line or a key given twice.
    """
    found: dict[str, str] = {}
    key = ""
    for line in source.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith("  ") and key:
            found[key] = f"{found[key]} {line.strip()}".strip()
            continue
        key, separator, value = line.partition(" = ")
        if not separator or key in found:
            raise ValueError(line)
        found[key] = value.strip()
    return found


def folder(language: str) -> Traversable:
    """Where the files of a language lie."""
    return resources.files("heavylift.locale").joinpath(language)


@functools.cache
def _english() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for file in folder(ENGLISH).iterdir():
        area = file.name.removesuffix(".txt")
        found.update((key, (area, text)) for key, text in parse(file.read_text("utf-8")).items())
    return found


@functools.cache
def _translations(language: str, area: str) -> gettext.NullTranslations:
    compiled = folder(language).joinpath(f"{area}.mo")
    if compiled.is_file():
        return gettext.GNUTranslations(io.BytesIO(compiled.read_bytes()))
    source = folder(language).joinpath(f"{area}.po")
    if source.is_file():
        return _compiled(source.read_bytes())
    return gettext.NullTranslations()


def _compiled(source: bytes) -> gettext.NullTranslations:
    """A checkout has no compiled catalogues; its environment has the compiler."""
    try:
        from babel.messages import mofile, pofile  # noqa: PLC0415 - a tool, not in an installation
    except ImportError:
        return gettext.NullTranslations()
    compiled = io.BytesIO()
    mofile.write_mo(compiled, pofile.read_po(io.BytesIO(source)))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


def wanted(arguments: Iterable[str], environment: Mapping[str, str]) -> str:
    """The language of a command line: `--lang` before the command's name, else the environment's.

    It must be known before the options are read, because their help is text as well. A tag that is
    none of ours is left for the option itself to refuse.
    """
    following = False
    for word in arguments:
        if following:
            return normalised(word) or ENGLISH
        if word.startswith("--lang="):
            return normalised(word.removeprefix("--lang=")) or ENGLISH
        following = word == "--lang"
        if not word.startswith("-"):
            break
    return of_environment(environment)
