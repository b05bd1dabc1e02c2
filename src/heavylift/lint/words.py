"""Shell text into words and simple commands, forgiving what copying breaks. Nothing is expanded
but what the text itself assigns, and nothing runs.

On sound shell text the words are those of `shlex.split`. Beyond it: an unquoted JSON object is one
word, a line that begins with a flag continues the one before it, a placeholder in angle brackets is
a word, and an open quote ends with the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_CONTINUED: Final = re.compile(r"\n\s*(?=--?[A-Za-z])")
_PATIENCE: Final = 8
"""How many times the text is looked through in vain for what closes."""
_JOINED: Final = re.compile(r"\\[ \t]*\n")
_GAP: Final = re.compile(r"[ \t]*")
# Sentences stand around commands, and nothing is quoted in them: here's, don't, you'll.
_CONTRACTION: Final = re.compile(r"(?<=[A-Za-z])'(?:s|t|re|ve|ll|d|m)(?![\w'])")
_LEFT_OVER: Final = re.compile(r"\\(?:[ \t]|\Z)")
_PLACEHOLDER: Final = re.compile(r"<[^<>|&;\n]{1,60}>")
_REDIRECT: Final = re.compile(r"\d*(?:>>?|<)(?:&\d+|\s*\S+)")
_OPENS_JSON: Final = re.compile(r"\{\s*[\"']|\{\s*\}")


@dataclass(frozen=True, slots=True)
class Word:
    """One word. `loose_json`: a JSON object written without quotes around it. `items`: the
    elements where the word assigns an array. `in_one`: a flag that shares one element of a list
    with its value. `at`: where it stands in the text, first letter and the one after the last.
    """

    text: str
    quoted: bool = False
    loose_json: bool = False
    items: tuple[Word, ...] | None = None
    in_one: bool = False
    at: tuple[int, int] | None = field(default=None, compare=False)


@dataclass(slots=True)
class Split:
    """Simple commands in order, the comments, and what had to be forgiven. `fixes` are places in
    the text, and what to write there so that nothing need be forgiven.
    """

    commands: list[list[Word]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    fixes: list[tuple[int, int, str]] = field(default_factory=list)


class _Reader:
    """Walks the text once, keeping the word and the command that are being built."""

    def __init__(self, text: str, *, in_array: bool = False, offset: int = 0) -> None:
        """`in_array`: the text is what an array holds; arrays do not nest. `offset`: where it
        begins in the whole.
        """
        self.text = text
        self.in_array = in_array
        self.offset = offset
        self.at = 0
        self.begin = self.end = 0
        self.patience = _PATIENCE * len(text)
        self.out = Split()
        self.command: list[Word] = []
        self.letters: list[str] = []
        self.started = self.quoted = self.loose = False
        self.items: tuple[Word, ...] | None = None

    def read(self) -> Split:
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end_command()
        return self.out

    def _step(self, letter: str) -> None:
        if letter in _SIMPLE:
            _SIMPLE[letter](self)
        elif letter == "'" and _CONTRACTION.match(self.text, self.at):
            self._letter(letter)
        elif letter in "'\"":
            self._quote(letter)
        elif letter == "#" and not self.started:
            self._comment()
        elif letter == "$" and self.text[self.at : self.at + 2] in _PAIRS:
            self._balanced(*_PAIRS[self.text[self.at : self.at + 2]], start=self.at + 1)
        elif letter == "{" and self._at_value() and _OPENS_JSON.match(self.text, self.at):
            self._json()
        elif letter == "(" and self._opens_array():
            self._array()
        elif letter in "<>" or (letter.isdigit() and not self.started):
            self._angle(letter)
        elif letter in ";|&()":
            self._end_command()
            self.at += 1
        else:
            self._letter(letter)

    def blank(self) -> None:
        """End the word."""
        self._end_word()
        self.at += 1

    def backquote(self) -> None:
        """Take a command substitution as part of the word."""
        end = self.text.find("`", self.at + 1)
        self._take(len(self.text) if end < 0 else end + 1)

    # --- what may follow -------------------------------------------------------------------------

    def _start(self, at: int) -> None:
        """Begin a word, where none is begun."""
        if not self.started:
            self.started, self.begin = True, at

    def _letter(self, letter: str) -> None:
        self._start(self.at)
        self.letters.append(letter)
        self.at += 1
        self.end = self.at

    def _take(self, end: int) -> None:
        self._start(self.at)
        self.letters.append(self.text[self.at : end])
        self.at = self.end = end

    def _opens_array(self) -> bool:
        return not self.in_array and bool(self.letters) and self.letters[-1] == "="

    def _at_value(self) -> bool:
        return not self.started or (bool(self.letters) and self.letters[-1].endswith("="))

    def backslash(self) -> None:
        """Join lines, take the next letter as it is, or forgive a lost line break."""
        rest = _JOINED.match(self.text, self.at)
        if rest:
            if rest[0] != "\\\n":
                self._forgive("space_after_backslash", len(rest[0]), "\\\n")
                self._end_word()
            self.at += len(rest[0])
        elif not self.started and _LEFT_OVER.match(self.text, self.at):
            gap = _GAP.match(self.text, self.at + 1)
            after = self.at + 1 if gap is None else gap.end()
            if self.text[after : after + 1] in ("", "#"):
                self._forgive("lost_line_breaks", 1, "")
            else:
                self._forgive("lost_line_breaks", after - self.at, "\\\n  ")
            self.at += 1
        elif self.at + 1 < len(self.text):
            self.quoted = True
            self._start(self.at)
            self.at += 1
            self._letter(self.text[self.at])
        else:
            self.at += 1

    def _quote(self, mark: str) -> None:
        self._start(self.at)
        self.quoted = True
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != mark:
            if (
                mark == '"'
                and self.text[self.at] == "\\"
                and self.at + 1 < len(self.text)
                and self.text[self.at + 1] in '"\\$`\n'
            ):
                self.at += 1
                if self.text[self.at] == "\n":
                    self.at += 1
                    continue
            self.letters.append(self.text[self.at])
            self.at += 1
        if self.at >= len(self.text):
            self._forgive("open_quote")
        self.at += 1
        self.end = min(self.at, len(self.text))

    def newline(self) -> None:
        """End the command, unless the next line begins with a flag."""
        continued = _CONTINUED.match(self.text, self.at)
        self._end_word()
        if self.in_array:
            self.at += 1
        elif continued and self.command:
            gap = continued[0].rfind("\n") + 1
            joined = self.text.endswith("\\\n", 0, self.at)
            self._forgive("lost_continuations", gap, "" if joined else " \\\n")
            self.at = continued.end()
        else:
            self._end_command()
            self.at += 1

    def _comment(self) -> None:
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        self.out.comments.append(self.text[self.at + 1 : end].strip())
        if self.command and not self.in_array and _CONTINUED.match(self.text, end):
            self._comment_between(end)
        else:
            self.at = end

    def _comment_between(self, end: int) -> None:
        """A comment among the lines of one command: a shell would end the command there. Its place
        is above the command.
        """
        line = self.text.rfind("\n", 0, self.at) + 1
        before = self.text[line : self.at].rstrip(" \t\\")
        comment = self.text[self.at : end].strip()
        first = self.command[0].at
        if before:
            self.at = line + len(before)
            self._forgive("lost_continuations", end - self.at, " \\")
        else:
            self.at = line
            self._forgive("lost_continuations", end + 1 - self.at, "")
        if first is not None:
            start = self.text.rfind("\n", 0, first[0] - self.offset) + 1 + self.offset
            self.out.fixes.append((start, start, f"{comment}\n"))
        self.at = end + 1

    def _balanced(self, opening: str, closing: str, start: int) -> None:
        end = self._close_of(opening, closing, start)
        if end is None:
            self._letter(self.text[self.at])
        else:
            self._take(end)

    def _close_of(self, opening: str, closing: str, start: int) -> int | None:
        """The index after what opens at `start`; None when it never closes. Braces inside strings
        do not count. What is looked through in all is bounded: a text of openings alone must not
        be looked through once for each.
        """
        depth = 0
        inside: str | None = None
        for index in range(start, min(len(self.text), start + self.patience)):
            letter = self.text[index]
            if inside is not None:
                if letter == inside and self.text[index - 1] != "\\":
                    inside = None
            elif letter in "\"'":
                inside = letter
            elif letter == opening:
                depth += 1
            elif letter == closing:
                depth -= 1
                if depth == 0:
                    return index + 1
        self.patience -= min(self.patience, len(self.text) - start)
        return None

    def _json(self) -> None:
        """An object up to its closing brace; without one, only the brace."""
        end = self._close_of("{", "}", self.at)
        if end is None:
            self._letter("{")
            return
        self.loose = True
        self._take(end)

    def _array(self) -> None:
        end = self._array_end()
        text = self.text[self.at + 1 : end]
        inner = _Reader(text, in_array=True, offset=self.offset + self.at + 1).read()
        self.items = tuple(word for command in inner.commands for word in command)
        self.at = self.end = min(end + 1, len(self.text))

    def _array_end(self) -> int:
        """Where the array closes: parentheses of `$((A + 1))` inside it are its own."""
        depth, single = 0, False
        for index in range(self.at, len(self.text)):
            letter = self.text[index]
            if letter == "'":
                single = not single
            elif not single and letter in "()":
                depth += 1 if letter == "(" else -1
                if depth == 0:
                    return index
        end = self.text.find(")", self.at)
        return len(self.text) if end < 0 else end

    def _angle(self, letter: str) -> None:
        placeholder = _PLACEHOLDER.match(self.text, self.at)
        if letter == "<" and placeholder:
            self._take(placeholder.end())
            return
        redirect = _REDIRECT.match(self.text, self.at)
        if redirect and not self.started:
            self.at = redirect.end()
        elif letter in "<>":
            self._end_word()
            self.at += 1
        else:
            self._letter(letter)

    # --- ends ------------------------------------------------------------------------------------

    def _end_word(self) -> None:
        if self.started:
            self.command.append(
                Word(
                    "".join(self.letters),
                    self.quoted,
                    self.loose,
                    self.items,
                    at=(self.offset + self.begin, self.offset + self.end),
                )
            )
        self.letters = []
        self.started = self.quoted = self.loose = False
        self.items = None

    def _end_command(self) -> None:
        self._end_word()
        if self.command:
            self.out.commands.append(self.command)
        self.command = []

    def _forgive(self, repair: str, length: int = 0, instead: str | None = None) -> None:
        if repair not in self.out.repairs:
            self.out.repairs.append(repair)
        if instead is not None:
            start = self.offset + self.at
            self.out.fixes.append((start, start + length, instead))


_SIMPLE: Final[dict[str, Callable[[_Reader], None]]] = {
    "\\": _Reader.backslash,
    " ": _Reader.blank,
    "\t": _Reader.blank,
    "\n": _Reader.newline,
    "`": _Reader.backquote,
}
_PAIRS: Final = {"$(": ("(", ")"), "${": ("{", "}")}


def split(text: str) -> Split:
    """The simple commands of a text."""
    return _Reader(text).read()
