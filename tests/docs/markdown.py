"""The documentation as data: pages, their blocks of code with markers, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TREE: Final = ROOT / "docs"
DRAWN: Final = ROOT / "tests" / "docs" / "drawn"
LANGUAGES: Final = ("en", "zh-Hans", "zh-Hant")
SHELL: Final = frozenset({"sh", "console"})
NEEDS: Final = frozenset({"gpu", "rack", "docker", "slurm", "network", "server"})

_FENCE: Final = re.compile(r"^```(?P<info>.*)$")
_HEREDOC: Final = re.compile(r"<<'?(?P<end>\w+)'?")
_TYPED: Final = re.compile(
    r"^(?:\$ |next: |  → |ExecStart=|[\d*/, ]{9,}|.*\$\(|.*\|\s)?\s*(?=heavylift\s)"
)
_SPAN: Final = re.compile(r"(?<!`)`(heavylift [^`]+)`(?!`)", re.DOTALL)
_LANGUAGE: Final = re.compile(r"(?:^|=)(?:en|zh-Han[st])$")
_OPERATORS: Final = frozenset({"|", "||", "&&", "&", ";", ")", ">", ">>", "<", "<<", "2>"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A fenced block: where it begins, its language, its markers and its text."""

    page: Path
    line: int
    language: str
    markers: tuple[str, ...]
    text: str

    @property
    def runs(self) -> bool:
        """True when the tests run it here."""
        return "runs" in self.markers

    @property
    def drawn(self) -> str | None:
        """The name of the recording in `tests/docs/drawn` that it shows as a screen."""
        return next(
            (m.removeprefix("drawn=") for m in self.markers if m.startswith("drawn=")), None
        )

    @property
    def is_screen(self) -> bool:
        """True when what it shows is what a command prints here."""
        return self.runs or self.drawn is not None

    @property
    def needs(self) -> str | None:
        """What it takes that is not here; None when nothing is stated."""
        return next(
            (m.removeprefix("needs=") for m in self.markers if m.startswith("needs=")), None
        )

    @property
    def status(self) -> int:
        """The exit status that its last command ends with."""
        stated = (m.removeprefix("exits=") for m in self.markers if m.startswith("exits="))
        return int(next(stated, "0"))


def pages(language: str) -> list[Path]:
    """The pages of a language, in order."""
    return sorted((TREE / language).rglob("*.md"))


def named(page: Path) -> str:
    """A page by its path in the repository, for the names of tests."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    begun = 0
    words: list[str] = []
    inner: list[str] = []
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence and not begun:
            begun, words, inner = number, fence["info"].split() or [""], []
        elif fence:
            yield Block(
                page=page,
                line=begun,
                language=words[0],
                markers=tuple(words[1:]),
                text="\n".join(inner) + "\n",
            )
            begun = 0
        elif begun:
            inner.append(line)
    assert not begun, f"{page}: a block is not closed"


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    inside = False
    kept = []
    for line in page.read_text("utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept) + "\n"


def neutral(page: Path) -> Counter[str]:
    """What of a page's prose is the same in every language: code spans and figures, counted. Names
    of languages are not: each page names its own first.
    """
    words = re.sub(r"\s+", " ", prose(page))
    spans = [span for span in re.findall(r"`([^`]+)`", words) if not _LANGUAGE.search(span)]
    bare = re.sub(r"`[^`]*`|\]\([^)]*\)", "", words)
    return Counter([*spans, *re.findall(r"\d(?:[\d,.]*\d)?", bare)])


def headings(page: Path) -> list[int]:
    """The levels of the headings of a page, in order."""
    return [
        len(line) - len(line.lstrip("#")) for line in prose(page).splitlines() if line[:1] == "#"
    ]


def links(page: Path) -> list[str]:
    """The targets of a page's links, in order, without what is a heading's own words."""
    return [
        target if "://" in target else target.partition("#")[0]
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page))
    ]


def uncommented(text: str) -> str:
    """A block without its comments and the space before them: they may be in any language."""
    return "\n".join(re.sub(r"\s+# .*$|^# .*$", "", line) for line in text.splitlines())


def typed(page: Path) -> Iterator[list[str]]:
    """The words of every `heavylift …` command of a page, in blocks and in prose."""
    for block in blocks(page):
        if block.language in SHELL | {"ini", "text", ""}:
            for line in _logical_lines(block.text):
                found = _TYPED.match(line)
                if found:
                    yield _words(line[found.end() :])
    for span in _SPAN.findall(prose(page)):
        yield _words(re.sub(r"\s+", " ", span))


def _logical_lines(text: str) -> Iterator[str]:
    """The lines of a block, those that go on joined, documents inside them left out."""
    end = ""
    for line in text.replace("\\\n", " ").splitlines():
        if end:
            end = "" if line == end else end
            continue
        yield line
        heredoc = _HEREDOC.search(line)
        end = heredoc["end"] if heredoc else ""


def _words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quotation that goes on elsewhere
        words = command.split()
    ends = [place for place, word in enumerate(words) if word in _OPERATORS]
    kept = words[: ends[0]] if ends else words
    redirected = bool(ends) and words[ends[0]].startswith(">") and kept[-1:] in (["1"], ["2"])
    return kept[1:-1] if redirected else kept[1:]
