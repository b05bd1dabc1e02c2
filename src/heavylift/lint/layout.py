"""The mended text in the lines of the text itself: only what changes is written anew.

Every change is a place in the text and what to write there. The result counts only when reading it
gives the very commands that were meant, and nothing in it need be forgiven.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from heavylift.lint.command import Command, Document, Option, Span
from heavylift.lint.mend import Draft, assignment, entry_words, option_words, quoted
from heavylift.redact import without_secrets

Edit = tuple[int, int, str]
_BLANK: Final = re.compile(r"(?:[ \t]|\\?\n)*")
_NAMES: Final = re.compile(r"[A-Za-z0-9$]")
"""What any name of a model has in it; a word of a sentence in Chinese has not."""
_EXPORTS: Final = re.compile(r"\bexport[ \t]+\Z")
_ENDS: Final = re.compile(r"[ \t]*(?:;|&&)[ \t]*")
_PREFIX: Final = re.compile(r"[ \t]*(?:\\\n[ \t]*)?")


class _NoPlaceError(Exception):
    """A part that changes does not stand in the text itself."""


def laid_out(
    document: Document, drafts: Sequence[Draft], meant: str, read: Callable[[str], Document]
) -> str | None:
    """The text with the drafts in place of its commands; None where that cannot be told for sure.
    `meant` is how the drafts are written on their own; `read` reads a text.
    """
    text = document.text
    if text is None or not drafts or any(draft.command.fragment for draft in drafts):
        return None
    try:
        edits = {edit for draft in drafts for edit in _Placing(text, draft).edits()}
    except _NoPlaceError:
        return None
    patched = _applied(text, edits)
    if patched is None:
        return None
    again = read(patched)
    if again.repairs or _meanings(again) != _meanings(read(meant)):
        return None
    return _clean(patched, again).strip("\n")


def repaired(document: Document, read: Callable[[str], Document]) -> Document:
    """The document as it reads once what copying broke is mended in its text; itself where that
    says something else.
    """
    fixed = _applied(document.text, set(document.fixes)) if document.text is not None else None
    if fixed is None or not document.fixes:
        return document
    again = read(fixed)
    same = not again.repairs and _meanings(again) == _meanings(document)
    return replace(again, repairs=document.repairs) if same else document


def _meanings(document: Document) -> list[object]:
    """What commands say, whatever they look like."""
    return [
        (
            each.engine.id if each.engine else None,
            [(one.name, one.member, one.value) for one in each.options],
            each.env,
            each.positionals,
            each.container.image if each.container else None,
            sorted(_box(each)),
        )
        for each in document.commands
    ]


def _box(command: Command) -> Iterator[tuple[str, str]]:
    for one in command.container.options if command.container else ():
        if one.name != "--env":
            yield one.name, one.value or ""


def _applied(text: str, edits: set[Edit]) -> str | None:
    """The text with every edit; None where two of them meet."""
    ordered = sorted(edits)
    if any(before[1] > after[0] for before, after in pairwise(ordered)):
        return None
    parts: list[str] = []
    at = 0
    for start, end, instead in ordered:
        parts += [text[at:start], instead]
        at = end
    return "".join([*parts, text[at:]])


def _clean(text: str, document: Document) -> str:
    """The text without the secrets of lines that are no part of a command."""
    spans = [span for command in document.commands for span in _spans(command)]
    lines: list[str] = []
    at = 0
    for line in text.split("\n"):
        inside = any(start <= at + len(line) and at <= end for start, end in spans)
        lines.append(line if inside else without_secrets(line))
        at += len(line) + 1
    return "\n".join(lines)


def _spans(command: Command) -> Iterator[Span]:
    placed = command.placed
    box = command.container.options if command.container else ()
    for span in (
        placed.entry,
        placed.image,
        *placed.env.values(),
        *placed.positionals,
        *(each.at for each in (*command.options, *box)),
    ):
        if span is not None:
            yield span


class _Placing:
    """The edits that one draft makes of its command's text."""

    def __init__(self, text: str, draft: Draft) -> None:
        self.text, self.draft, self.command = text, draft, draft.command
        self.placed = draft.command.placed
        self.spans = sorted(set(_spans(draft.command)))

    def edits(self) -> Iterator[Edit]:
        """Every edit. Raises _NoPlaceError."""
        command, draft = self.command, self.draft
        yield from self._options(command.options, draft.options, self._last())
        box = command.container
        if box is not None and box.form == "docker":
            before, after = list(box.options), draft.box
            image = self.placed.image
            if image is None:
                raise _NoPlaceError
            yield from self._options(_no_env(before), _no_env(after), self._before(image[0]))
            if draft.image != box.image:
                yield (*image, quoted(draft.image))
            yield from self._container_env(before)
        elif box is not None and box.form != "systemd":
            raise _NoPlaceError
        else:
            yield from self._env()
        yield from self._entry()
        places = self.placed.positionals or (None,) * len(command.positionals)
        for old, new, at in zip(command.positionals, draft.positionals, places, strict=True):
            if old != new:
                if at is None:
                    raise _NoPlaceError
                yield (*at, quoted(new))

    # --- flags -----------------------------------------------------------------------------------

    def _options(
        self, before: Sequence[Option], after: Sequence[Option], last: int
    ) -> Iterator[Edit]:
        if any(each.at is None for each in before):
            raise _NoPlaceError
        kept = {each.at: each for each in after if each.at is not None}
        for old in before:
            if old.at is None:
                raise _NoPlaceError
            new = kept.get(old.at)
            if new is None:
                yield self._drop(old.at)
            elif new != old or old.loose_json or old.slip is not None:
                yield (*old.at, " ".join(option_words(new)))
        added = [" ".join(option_words(each)) for each in after if each.at is None]
        if added:
            gap = self._gap(last)
            yield last, last, "".join(gap + each for each in added)

    def _drop(self, span: Span) -> Edit:
        """Take a part out with what separates it from the part before, or from the one after."""
        before = max((end for _, end in self.spans if end <= span[0]), default=None)
        if before is not None and _BLANK.fullmatch(self.text, before, span[0]):
            return before, span[1], ""
        behind = _PREFIX.match(self.text, span[1])
        return span[0], behind.end() if behind else span[1], ""

    def _last(self) -> int:
        """The end of the last word of the engine's own arguments. No engine takes more than one
        word beside its flags, the model: what else stands there is the text going on.
        """
        ends = [each.at[1] for each in self.command.options if each.at is not None]
        words = zip(self.command.positionals[:1], self.placed.positionals[:1], strict=False)
        ends += [at[1] for word, at in words if at is not None and _NAMES.search(word)]
        ends += [at[1] for at in (self.placed.entry, self.placed.image) if at is not None]
        if not ends:
            raise _NoPlaceError
        return max(ends)

    def _before(self, start: int) -> int:
        """The end of the part before a place."""
        ends = [end for _, end in self.spans if end <= start]
        if not ends:
            raise _NoPlaceError
        return max(ends)

    def _gap(self, last: int) -> str:
        """What separates the part that ends there from the one before it."""
        start = next((begin for begin, end in self.spans if end == last), None)
        before = max(
            (end for _, end in self.spans if start is not None and end <= start), default=None
        )
        if start is None or before is None:
            return " "
        gap = self.text[before:start]
        return gap if gap and _BLANK.fullmatch(gap) else " "

    # --- variables -------------------------------------------------------------------------------

    def _env(self) -> Iterator[Edit]:
        before, after = self.command.env, self.draft.env
        gone = [name for name in before if name not in after]
        new = [name for name in after if name not in before]
        for name in before:
            at = self.placed.env.get(name)
            if name in after:
                if after[name] != before[name]:
                    if at is None:
                        raise _NoPlaceError
                    yield (*at, assignment(name, after[name]))
                continue
            if at is None:
                raise _NoPlaceError
            heir = self._heir(name, gone, new)
            yield (*at, assignment(heir, after[heir])) if heir else self._drop_variable(at)
        if new:
            start = self.placed.entry
            if start is None:
                raise _NoPlaceError
            words = "".join(f"{assignment(name, after[name])} " for name in new)
            yield start[0], start[0], words

    def _heir(self, name: str, gone: list[str], new: list[str]) -> str | None:
        """The new name of a variable that was renamed: it has its value."""
        for other in new:
            if self.draft.env[other] == self.command.env[name]:
                new.remove(other)
                gone.remove(name)
                return other
        return None

    def _drop_variable(self, at: Span) -> Edit:
        line = self.text.rfind("\n", 0, at[0]) + 1
        end = self.text.find("\n", at[1])
        end = len(self.text) if end < 0 else end
        words = self.text[line:end].split()
        if words[:1] == ["export"] and len(words) == 2:  # noqa: PLR2004 - `export NAME=value`
            return line, min(end + 1, len(self.text)), ""
        alone = _EXPORTS.search(self.text[line : at[0]]), _ENDS.match(self.text, at[1])
        if alone[0] and alone[1]:
            return line + alone[0].start(), alone[1].end(), ""
        behind = _PREFIX.match(self.text, at[1])
        return at[0], behind.end() if behind else at[1], ""

    def _container_env(self, before: Sequence[Option]) -> Iterator[Edit]:
        """Variables of a container stand in flags of it."""
        old, after = self.command.env, self.draft.env
        given = {
            (each.value or "").partition("=")[0]: each for each in before if each.name == "--env"
        }
        gone = [name for name in old if name not in after]
        new = [name for name in after if name not in old]
        for name in old:
            if name in after and after[name] == old[name]:
                continue
            option = given.get(name)
            if option is None or option.at is None:
                raise _NoPlaceError
            heir = name if name in after else self._heir(name, gone, new)
            if heir is None:
                yield self._drop(option.at)
            else:
                between = "=" if option.joined else " "
                yield (*option.at, f"{option.written}{between}{assignment(heir, after[heir])}")
        if new and self.placed.image is not None:
            last = self._before(self.placed.image[0])
            gap = self._gap(last)
            yield (
                last,
                last,
                "".join(f"{gap}-e {assignment(name, after[name])}" for name in new),
            )

    # --- the words that start it -----------------------------------------------------------------

    def _entry(self) -> Iterator[Edit]:
        if self.draft.entry == self.command.entry and self.command.repeated is None:
            return
        at = self.placed.entry
        if at is None:
            raise _NoPlaceError
        if self.command.repeated is not None:
            yield self._drop(at)
        else:
            yield (*at, entry_words(self.draft.entry))


def _no_env(options: Sequence[Option]) -> list[Option]:
    return [each for each in options if each.name != "--env"]
