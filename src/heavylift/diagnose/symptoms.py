"""The symptoms of the facts, compiled for reading logs: anchors to watch for, regexes to confirm.

The normal form of a text is lower case, without digits, each punctuation mark a space. Anchors and
lines are compared in it, so that one line of a healthy log stands for all that differ in numbers.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.facts.symptom_schema import (
    CauseFacts,
    ConsequenceFacts,
    LogMark,
    NumberFacts,
    SymptomBook,
    SymptomFacts,
)

_LOWER: Final = bytes(range(256)).lower()
_NORMAL: Final = _LOWER.translate(
    bytes.maketrans(string.punctuation.encode(), b" " * len(string.punctuation))
)
_DIGITS: Final = b"0123456789"
_HEXADECIMAL: Final = b"0123456789abcdefABCDEF"

# Shorter words stand inside too many others (`ring` in `string`): they must stand alone.
_WHOLE_WORD_BELOW: Final = 5


def sketch(text: bytes) -> bytes:
    """The text in lower case without digits and the letters a to f: lines of one sketch differ in
    numbers and hexadecimal ids only.
    """
    return text.translate(_LOWER, _HEXADECIMAL)


def normal_form(text: bytes) -> bytes:
    """The text in lower case, without digits, with a space for every punctuation mark."""
    return text.translate(_NORMAL, _DIGITS)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a line is tested with: one of the symptoms, consequences or marks."""

    what: SymptomFacts | ConsequenceFacts | LogMark
    cause: CauseFacts | None
    anchors: tuple[str, ...]
    regex: re.Pattern[str]
    by_digits: bool
    """True when lines of one sketch may differ in the answer."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """An anchor in normal form, the word of it that is watched for, and whose anchor it is."""

    text: bytes
    word: bytes
    whole_word: bool
    patterns: tuple[int, ...]

    def stands_in(self, normal: bytes) -> bool:
        """True when a line in normal form, with a space at both ends, holds the anchor."""
        if not self.whole_word:
            return self.text in normal
        return b" " + self.text + b" " in normal


class CompiledSymptoms:
    """All patterns of the books with an index from words to anchors."""

    def __init__(self, books: Iterable[SymptomBook]) -> None:
        books = tuple(books)
        self.causes: Mapping[str, CauseFacts] = {
            cause.id: cause for book in books for cause in book.causes
        }
        self.numbers: tuple[tuple[NumberFacts, re.Pattern[str]], ...] = tuple(
            (entry, re.compile(entry.regex, re.IGNORECASE))
            for book in books
            for entry in book.numbers
        )
        self.patterns: tuple[Pattern, ...] = tuple(
            [
                _pattern(symptom, cause)
                for cause in self.causes.values()
                for symptom in cause.symptoms
            ]
            + [_pattern(entry, None) for book in books for entry in book.consequences]
            + [_pattern(entry, None) for book in books for entry in book.marks]
        )
        self.anchors = _anchors(self.patterns)
        self._by_word: dict[bytes, list[Anchor]] = {}
        for anchor in self.anchors:
            self._by_word.setdefault(anchor.word, []).append(anchor)
        inside = sorted(
            {anchor.word for anchor in self.anchors if not anchor.whole_word}, key=len, reverse=True
        )
        self._inside = re.compile(b"|".join(map(re.escape, inside)) or b"(?!)")
        self._alone = frozenset(anchor.word for anchor in self.anchors if anchor.whole_word)

    def anchors_at(self, word: bytes) -> tuple[Anchor, ...]:
        """Anchors to which a word of a line may belong: it is their word, or holds it."""
        parts = {word} & self._alone
        start = 0
        while (match := self._inside.search(word, start)) is not None:
            # The alternation takes the longest; shorter ones that begin at the same place count.
            ends = range(1, len(match[0]) + 1)
            parts.update(match[0][:end] for end in ends if match[0][:end] in self._by_word)
            start = match.start() + 1
        return tuple(anchor for part in parts for anchor in self._by_word[part])


def _pattern(what: SymptomFacts | ConsequenceFacts | LogMark, cause: CauseFacts | None) -> Pattern:
    stated = "" if isinstance(what, LogMark) else what.regex
    source = stated or "|".join(map(re.escape, what.anchors))
    return Pattern(
        what=what,
        cause=cause,
        anchors=what.anchors,
        regex=re.compile(source, re.IGNORECASE),
        # Counts in braces are lengths, not digits to be found.
        by_digits=re.search(r"\\d|\d", re.sub(r"\{[\d,]*\}", "", source)) is not None,
    )


def _anchors(patterns: Iterable[Pattern]) -> tuple[Anchor, ...]:
    owners: dict[bytes, list[int]] = {}
    for index, pattern in enumerate(patterns):
        for anchor in pattern.anchors:
            owners.setdefault(normal_form(anchor.encode()), []).append(index)
    anchors = []
    for text, indices in owners.items():
        words = text.split()
        longest = max(words, key=len)
        alone = len(longest) < _WHOLE_WORD_BELOW
        anchors.append(
            Anchor(
                text=text.strip() if alone else text,
                word=longest,
                whole_word=alone,
                patterns=tuple(indices),
            )
        )
    return tuple(anchors)
