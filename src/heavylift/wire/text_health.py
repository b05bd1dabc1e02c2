"""Whether a text is one: no sound engine fills it with one sign or word. Pure."""

from __future__ import annotations

from typing import Final

_FEWEST_REPEATED: Final = 12
_FEWEST_DRAWN: Final = 100
"""Signs in a row that no answer to our questions has: an engine that computes NaN, or with damaged
weights, writes them. Signs that lines are drawn with (`----`, `....`) may repeat more often.
"""

_FEWEST_WORDS: Final = 12
"""Times one word in a row: no prose has that."""


def is_garbage(text: str) -> bool:
    """True when one sign fills the text or repeats beyond any sense (`!!!!`)."""
    run, previous = 0, ""
    for sign in text:
        run = run + 1 if sign == previous and not sign.isspace() else 1
        previous = sign
        is_plain = sign.isalnum() or sign in "!?"
        if run >= (_FEWEST_REPEATED if is_plain else _FEWEST_DRAWN):
            return True
    return False


def repeats_a_word(text: str) -> bool:
    """True when one word follows itself beyond any sense (`the the the …`)."""
    run, previous = 0, ""
    for word in text.split():
        run = run + 1 if word == previous else 1
        previous = word
        if run >= _FEWEST_WORDS:
            return True
    return False


def defect(text: str) -> str | None:
    """The name of what is wrong with a text whatever was asked; None = nothing."""
    if is_garbage(text):
        return "garbage_text"
    if repeats_a_word(text):
        return "repeated_word"
    return "unicode_mangled" if "\ufffd" in text else None
