"""English prose in a screen that is not English: what is passed over and what is found."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterator

from heavylift.cli.cells import WIDTH, cell_len
from heavylift.locale import extract

# What is typed or looked up: commands, flags, paths, addresses, names with signs, quotations.
_CODE = re.compile(
    r"https?://\S+|`[^`]*`|'[^'\n]*'|\"[^\"\n]*\"|\S*[/_=<>{}@#\[\]|~]\S*|--?[a-zA-Z]\S*"
    r"|\b(?:heavylift|docker|pip|inspect|vllm)(?: [a-z][a-z-]*| [A-Z]+\b)*"
)
_CITED = re.compile(r"`[^`]*`")
# Names that are several words.
_NAMES = re.compile(r"\b(?:ryzen ai max|mac studio|strix halo|dgx spark|JSON lines|Red Hat)\b")
# What the engine's log, the scripted engine and a server say is quoted as it came.
_QUOTED = re.compile(
    r"\b(?:CUDA out of|memory\. Tried to allocate|has a total capacity|which [\d.]+ GiB is free"
    r"|of [\d.]+ GiB of|Let me think about what was|The model .* does not exist|The tool says"
    r"|messages and model are required|tools are declared in .*|must be positive"
    r"|(?:amber|birch|cedar|delta|ember|fjord|grove|heath)\b)"
)
_RUN = re.compile(r"(?:[A-Za-z][A-Za-z'’-]+[.:;]? ){2,}[A-Za-z][A-Za-z'’-]+")
_GRAMMAR = re.compile(
    r"\b(?:the|of|and|is|are|was|were|not|for|with|from|than|that|which|when|where|has|have|but"
    r"|only|each|one|your|you|it|its|they|them|this|these|be|or|as|an)\b"
)
# Chinese parts what is told of it.
_PARTS = re.compile(r"[\u3000-\u9fff\uff00-\uffef]+|\n")

# What is there to be copied is not folded: commands, addresses and paths.
COPIED = re.compile(r"heavylift |^\s+--|https?://|^\s*(?:vllm|docker) |^\s*\$ |/srv/models|/tmp/")


def prose(shown: str) -> Iterator[str]:
    """Runs of three English words, and words of English grammar, that nothing excuses."""
    words = re.sub(r"[ \t]*\n[ \t]+", " ", shown)
    for part in _PARTS.split(_NAMES.sub("-", _CODE.sub(" - ", _QUOTED.sub(" - ", words)))):
        # Of three names in a row at most one is written small.
        runs = (len(re.findall(r"\b[a-z']{2,}", found[0])) > 1 for found in _RUN.finditer(part))
        if any(runs) or (_GRAMMAR.search(part) and len(re.findall(r"[A-Za-z]+", part)) > 1):
            yield part.strip()


def ours(shown: str, language: str) -> Iterator[str]:
    """Texts of the catalogue and of the facts that stand in a screen in English."""
    words = _CITED.sub(" - ", _QUOTED.sub(" - ", " ".join(shown.split())))
    for english, pattern in _texts(language):
        if english in words and pattern.search(words):
            yield english


@functools.cache
def _texts(language: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The longest piece of each English text between two parameters, where it is two words."""
    found = set()
    for area in extract.areas():
        for message in extract.read(language, area):
            english, other = str(message.id), str(message.string)
            if not english or not re.search(r"[\u4e00-\u9fff]", other):
                continue
            is_fact = area == extract.FACTS
            pieces = [english] if is_fact else [p[0] for p in string.Formatter().parse(english)]
            piece = max((piece.strip(" .,;:()'") for piece in pieces), key=len, default="")
            if len(re.findall(r"[A-Za-z]{2,}", piece)) > 1 and " " in piece and piece not in other:
                found.add(piece)
    return tuple(
        (piece, re.compile(rf"(?<![\w-]){re.escape(piece)}(?![\w-])")) for piece in sorted(found)
    )


def too_wide(shown: str) -> Iterator[str]:
    """Lines over 80 cells that nobody is to copy."""
    for line in shown.splitlines():
        if cell_len(line) > WIDTH and not COPIED.search(line):
            yield line
