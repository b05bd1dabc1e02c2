"""Names of copies: which model a hub id or a file name speaks of, and in which form. Pure.

`QuantTrio/GLM-5-AWQ` is GLM-5 in AWQ where GLM-5 is known; `GLM-5-Reap-AWQ` is nothing known, since
nobody said what the word in the middle does to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.facts.checkpoint_schema import FormBook, FormFacts

_BETWEEN_WORDS: Final = re.compile(r"[^a-z0-9.]+|\.(?![0-9])")


@dataclass(frozen=True, slots=True)
class Copy:
    """A name understood: the model's id and the form; None = the model's own."""

    model: str
    form: FormFacts | None


def read_name(name: str, book: FormBook, models: Mapping[str, Iterable[str]]) -> Copy | None:
    """The known model that a name speaks of, every word of it accounted for; None for any other.

    `models` gives the names of each model's id.
    """
    text = name.rpartition("/")[2].lower()
    form, rest = _form(text, book)
    wanted = _key(rest, book)
    for identifier, spellings in models.items():
        for spelling in spellings:
            # Some write the maker into the name of their copy: `Qwen_Qwen3.6-27B-GGUF`.
            if wanted in (_key(spelling.rpartition("/")[2].lower(), book), _whole(spelling, book)):
                return Copy(identifier, form)
    return None


def form_of(name: str, book: FormBook) -> FormFacts | None:
    """The form of weights that a name speaks of; None for a name without."""
    return _form(name.rpartition("/")[2].lower(), book)[0]


def _whole(spelling: str, book: FormBook) -> str:
    return _key(spelling.replace("/", " ").lower(), book)


def _form(text: str, book: FormBook) -> tuple[FormFacts | None, str]:
    for form in book.forms:
        for word in form.words:
            pattern = rf"(?<![a-z0-9]){'[-_ .]'.join(map(re.escape, re.split('[-_ ]', word)))}"
            match = re.search(rf"{pattern}(?![a-z0-9])", text)
            if match is not None:
                # What is left may name the form's tool or width once more: `AWQ … 4bit`.
                rest = f"{text[: match.start()]} {text[match.end() :]}"
                return form, rest
    return None, text


def _key(text: str, book: FormBook) -> str:
    return "".join(word for word in _words(text) if word not in book.plain_words)


def _words(text: str) -> Iterator[str]:
    return (word.strip(".") for word in _BETWEEN_WORDS.split(text) if word.strip("."))
