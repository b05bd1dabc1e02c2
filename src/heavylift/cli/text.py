"""The only way text leaves this package: `text(key, **params)`, in the language in use."""

from __future__ import annotations

from heavylift.locale.notation import formula
from heavylift.locale.others import evidence
from heavylift.locale.text import (
    keys,
    labelled,
    listed,
    of_facts,
    printable,
    refusal,
    sentence,
    text,
    words,
)

__all__ = [
    "evidence",
    "formula",
    "keys",
    "labelled",
    "listed",
    "of_facts",
    "printable",
    "refusal",
    "sentence",
    "text",
    "words",
]
