"""What copying from an article does to a command, undone: quotes, dashes, wide characters."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_QUOTES: Final = str.maketrans(dict.fromkeys("“”„‟″", '"') | dict.fromkeys("‘’‚‛′", "'"))
_SPACES: Final = str.maketrans(dict.fromkeys("\u00a0\u2002\u2003\u2009\u202f\u3000", " "))
_INVISIBLE: Final = re.compile("[\u200b\u200c\u200d\u2060\ufeff\u00ad]")
_LONG_DASH: Final = re.compile(r"(?<![^\s=\"'])[\u2013\u2014\u2212]{1,2}(?=[A-Za-z])")
# A dash before one letter and a space is a short flag; before a word it was two.
_SHORT_DASH: Final = re.compile(r"(?<!\S)[\u2010\u2011\u2013\u2212](?=[A-Za-z]\s)")
_PROMPT: Final = re.compile(r"^[ \t]*(?:\$|>|root@[\w.-]+:?[^\n#$]*[#$])[ \t]+(?=\S)", re.MULTILINE)
_FENCE: Final = re.compile(r"^[ \t]*(?:>[ \t]*)*```[\w+-]*[ \t]*$", re.MULTILINE)
# PowerShell and cmd.exe continue a line with other marks, and set variables in other words.
_OTHER_CONTINUATION: Final = re.compile(r"(?<=[ \t])[`^][ \t]*\n")
_OTHER_ASSIGNMENT: Final = re.compile(
    r"^[ \t]*(?:\$env:(\w+)[ \t]*=[ \t]*|set[ \t]+\"?(\w+)=)", re.MULTILINE | re.IGNORECASE
)
# A sentence around a command: words of no program, and nothing that only commands have.
_SENTENCE: Final = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|[:.!?：。！？]\s*\Z")
_OF_COMMANDS: Final = re.compile(r"(?:^|\s)[-\u2010-\u2015\u2212\uff0d]{1,3}[A-Za-z]|[={}\\$|]")
_ENTITY: Final = re.compile(r"&(?:quot|apos|amp|lt|gt|nbsp|#\d{2,4}|#x[0-9a-fA-F]{2,4});")
_WINDOWS_PATH: Final = re.compile(
    r"(?<![\w\\])(?:[A-Za-z]:|\.{1,2})\\(?=[\w.(])[\w .()+-]*(?:\\[\w.()+-]+)*"
)
_WIDE_FIRST: Final = 0xFF01
_WIDE_LAST: Final = 0xFF5E
_WIDE_OFFSET: Final = 0xFEE0


@dataclass(frozen=True, slots=True)
class Straightened:
    """Text as a shell needs it, and what had to be changed (`quotes`, `dashes`, `wide`,
    `invisible`) in order.
    """

    text: str
    repairs: tuple[str, ...]


def straighten(text: str) -> Straightened:
    """Undo smart quotes, long dashes, full-width and invisible characters; drop prompts and
    fences. Prompts and fences are no defect of the command and are not reported.
    """
    repairs = []
    plain = text.replace("\r\n", "\n").replace("\r", "\n").translate(_SPACES)
    if _ENTITY.search(plain):
        plain = html.unescape(plain)
    plain = _FENCE.sub("", plain)
    plain = _PROMPT.sub("", plain)
    plain = _OTHER_CONTINUATION.sub("\\\\\n", plain)
    plain = _WINDOWS_PATH.sub(lambda found: found[0].replace("\\", "/"), plain)
    plain = _OTHER_ASSIGNMENT.sub(lambda found: f"export {found[1] or found[2]}=", plain)
    for name, changed in (
        ("invisible", _INVISIBLE.sub("", plain)),
        ("quotes", None),
        ("wide", None),
        ("dashes", None),
    ):
        after = changed if changed is not None else _CHANGES[name](plain)
        if after != plain:
            repairs.append(name)
        plain = after
    return Straightened(plain, tuple(repairs))


def _narrow(text: str) -> str:
    """Full-width ASCII made narrow where it stands in commands: beside ASCII, not in prose."""

    def replaced(match: re.Match[str]) -> str:
        return "".join(chr(ord(character) - _WIDE_OFFSET) for character in match[0])

    wide = f"[{chr(_WIDE_FIRST)}-{chr(_WIDE_LAST)}]+"
    return re.sub(rf"(?<=[\x21-\x7e]){wide}|{wide}(?=[\x21-\x7e])", replaced, text)


def _outside_sentences(change: Callable[[str], str], text: str) -> str:
    """The text with the lines changed that may be of a command; a sentence keeps its typography."""
    return "".join(
        line if _SENTENCE.search(line) and not _OF_COMMANDS.search(line) else change(line)
        for line in text.splitlines(keepends=True)
    )


def _dashes(text: str) -> str:
    return _LONG_DASH.sub("--", _SHORT_DASH.sub("-", text))


_CHANGES: Final = {
    "quotes": lambda text: _outside_sentences(lambda line: line.translate(_QUOTES), text),
    "wide": lambda text: _outside_sentences(_narrow, text),
    "dashes": _dashes,
}
