"""Words on a terminal, counted in cells: a Chinese character takes two."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len, chop_cells

__all__ = ["WIDTH", "cell_len", "clipped", "fold", "left", "right", "tail", "wrap"]

WIDTH: Final = 80

# Chinese typesetting: what may not begin a line, and what may not end one.
_CLOSING: Final = frozenset("，。；：！？、）】》〉」』”’…")
_FULL_STOPS: Final = frozenset("，。；：！？、）")
_OPENING: Final = frozenset("（【《〈「『“‘")
_COPIED: Final = re.compile(
    r"`[^`]+`"
    r"|\b(?:heavylift(?: (?:batch|bench|dev|engine|keys|metrics))?"
    r"|pip|docker|kubectl|sudo|ssh|curl|chmod) [a-z-]+"
    r"(?: (?:[-'\"/{A-Z0-9]\S*|\S*[=/.]\S+))*"
)
_JOINED: Final = "\u00a0"


def left(words: str, cells: int) -> str:
    """The words at the left of so many cells."""
    return words + " " * (cells - cell_len(words))


def right(words: str, cells: int) -> str:
    """The words at the right of so many cells."""
    return " " * (cells - cell_len(words)) + words


def clipped(words: str, cells: int) -> str:
    """The words in at most so many cells; what is left out at the end is a `…`."""
    if cell_len(words) <= cells:
        return words
    kept = chop_cells(words, cells - 1)[0] if cells > 1 else ""
    return f"{kept}…"


def tail(words: str, cells: int) -> str:
    """The words in at most so many cells; what is left out at the beginning is a `…`."""
    kept = words
    while kept and cell_len(kept) > cells - 1:
        kept = kept[1:]
    return words if cell_len(words) <= cells else f"…{kept}"


def wrap(
    words: str,
    first: str = "",
    more: str | None = None,
    *,
    width: int = WIDTH,
    cuts: bool = True,
    most: int | None = None,
) -> Iterator[str]:
    """The words on lines of at most `width` cells, after `first` and on later lines after `more`.

    Lines end at spaces and between Chinese characters. A word that is wider than a line is cut
    where `cuts` says so. After `most` lines the rest is a `…`. No words make no line.
    """
    later = first if more is None else more
    line, empty, done = first, True, 0
    for spaced, piece in _pieces(words.strip(" ")):
        # Between Chinese sentences there is no space.
        gap = " " if spaced and not empty and line[-1] not in _FULL_STOPS else ""
        if not empty and cell_len(line) + len(gap) + cell_len(piece) > width:
            done += 1
            if done == most:
                yield clipped(f"{line} …", width)
                return
            yield line.rstrip(" ")
            line, empty, gap = later, True, ""
        rest = piece
        while cuts and cell_len(line) + cell_len(rest) > width:
            head = chop_cells(rest, max(2, width - cell_len(line)))[0]
            done += 1
            if done == most:
                yield clipped(f"{line}{rest}", width)
                return
            yield f"{line}{head}"
            line, rest = later, rest[len(head) :]
        line = f"{line}{gap}{rest}"
        empty = empty and not rest
    if not empty:
        yield line


def fold(words: str) -> Iterator[str]:
    """A line on lines of at most 80 cells, the later ones indented more than the first.

    What is there to be copied (a command, a path, what stands between backticks) is not parted.
    """
    lead = " " * (len(words) - len(words.lstrip(" ")))
    kept = _COPIED.sub(lambda found: found[0].replace(" ", _JOINED), words)
    for line in wrap(kept, lead, f"{lead}    ", cuts=False):
        yield line.replace(_JOINED, " ")


def _pieces(words: str) -> Iterator[tuple[bool, str]]:
    """What may not be parted: words, and each Chinese character with its punctuation.

    True goes with a piece that a space stands before.
    """
    if words.isascii():
        # Most lines of most people.
        yield from ((True, word) for word in words.split(" "))
        return
    for word in words.split(" "):
        piece, spaced, joins = "", True, True
        for character in word:
            wide = cell_len(character) > 1
            parts = wide or joins
            if piece and parts and character not in _CLOSING and piece[-1] not in _OPENING:
                yield spaced, piece
                piece, spaced = "", False
            piece += character
            joins = wide
        yield spaced, piece
