"""The mended command: the edits of all findings applied, and the result written for a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from heavylift.facts.command_schema import FlagFacts
from heavylift.lint.arguments import options
from heavylift.lint.command import Command, Option
from heavylift.lint.words import Word
from heavylift.recipe.flags import FlagTable

_INDENT: Final = " \\\n  "
_SAFE_VARIABLE: Final = ("$", "${")


@dataclass(slots=True)
class Draft:
    """A command while it is being changed, each part with its place where it has one."""

    command: Command
    table: FlagTable | None
    options: list[Option] = field(default_factory=list)
    box: list[Option] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    entry: str = ""
    image: str = ""
    positionals: list[str] = field(default_factory=list)

    def edit(self, edit: str) -> None:
        """Apply one edit: a verb and what it works on."""
        verb, _, rest = edit.partition(" ")
        if verb in _VERBS:
            _VERBS[verb](self, rest)

    def drop(self, name: str) -> None:
        """Take a flag out."""
        self.options = [each for each in self.options if not _is(each, name)]

    def assign(self, assignment: str) -> None:
        """Give a variable a value."""
        name, _, value = assignment.partition("=")
        self.env[name] = value

    def unset(self, name: str) -> None:
        """Take a variable out."""
        self.env.pop(name, None)

    def newest_entry(self, _: str) -> None:
        """Start it with the words of today."""
        if self.command.engine is not None:
            self.entry = self.command.engine.entries[0]

    def set(self, name: str, value: str | None) -> None:
        """Give a flag a value, where it stands or behind the others."""
        made = options([Word(name), *([] if value is None else [Word(value)])], self.table)[0]
        for index, each in enumerate(self.options):
            if each.name == name:
                self.options[index] = replace(made[0], at=each.at)
                return
        self.options += made

    def rename(self, old: str, new: str) -> None:
        """Another name for a flag or a variable."""
        if old in self.env:
            self.env = {new if name == old else name: value for name, value in self.env.items()}
        for index, each in enumerate(self.options):
            if _is(each, old):
                words = [Word(new), *([] if each.value is None else [Word(each.value)])]
                made = options(words, self.table)[0]
                if made:
                    self.options[index] = replace(made[0], at=each.at)

    def member(self, flag: str, change: str) -> None:
        """Set or drop a member of a JSON value."""
        key, equals, value = change.partition("=")
        for index, each in enumerate(self.options):
            members = each.members
            if each.name == flag and key in members:
                if equals:
                    members[key] = value
                else:
                    del members[key]
                words = [Word(each.written), Word(json.dumps(members, separators=(",", ":")))]
                self.options[index] = replace(options(words, self.table)[0][0], at=each.at)

    def put_image(self, vendor: str) -> None:
        """The engine's image for other cards, of the same tag."""
        engine = self.command.engine
        names = [
            each.name
            for each in (engine.images if engine is not None else ())
            if each.vendor == vendor and each.name is not None
        ]
        if names:
            _, colon, tag = self.image.rpartition(":")
            self.image = f"{names[0]}:{tag}" if colon and "/" not in tag else names[0]

    def put_model(self, old: str, new: str) -> None:
        """Another name or path of the model."""
        self.positionals = [new if each == old else each for each in self.positionals]
        self.options = [
            replace(each, value=new) if each.value == old else each for each in self.options
        ]

    def put_container(self, change: str) -> None:
        """Change the container's flags: `--flag=value` in place of those of that name, `more
        --flag=value` beside them, `drop --flag`, `rename --old --new`.
        """
        verb, _, rest = change.partition(" ")
        if verb == "rename":
            old, new = rest.split(" ", 1)
            self.box = [
                replace(each, written=new, name=new) if each.written == old else each
                for each in self.box
            ]
        elif verb == "drop":
            self.box = [each for each in self.box if each.name != rest]
        elif verb == "more":
            self.box.append(_flag_of(rest))
        else:
            made = _flag_of(change)
            self.box = [*(each for each in self.box if each.name != made.name), made]


def _flag_of(text: str) -> Option:
    name, _, value = text.partition("=")
    return Option(written=name, name=name, value=value, joined=True)


_VERBS: Final[dict[str, Callable[[Draft, str], None]]] = {
    "drop": Draft.drop,
    "add": lambda draft, name: draft.set(name, None),
    "set": lambda draft, rest: draft.set(*rest.split(" ", 1)),
    "rename": lambda draft, rest: draft.rename(*rest.rsplit(" ", 1)),
    "member": lambda draft, rest: draft.member(*rest.split(" ", 1)),
    "env": Draft.assign,
    "unset": Draft.unset,
    "container": Draft.put_container,
    "image": Draft.put_image,
    "model": lambda draft, rest: draft.put_model(*rest.split(" ", 1)),
    "entry": Draft.newest_entry,
}
"""What an edit's verb does. `respell` and `quote` are none: writing the command does them."""


def drafted(command: Command, table: FlagTable | None, edits: Iterable[str]) -> Draft:
    """The command with the edits."""
    draft = Draft(
        command=command,
        table=table,
        options=list(command.options),
        box=list(command.container.options) if command.container else [],
        env=dict(command.env),
        entry=command.entry,
        image=(command.container.image or "") if command.container else "",
        positionals=list(command.positionals),
    )
    for edit in dict.fromkeys(edits):
        draft.edit(edit)
    return draft


def written(draft: Draft) -> str:
    """The command as a shell can run it, a flag a line; without edits, as it was read.

    JSON is quoted and malformed flags are respelt whatever the edits: that is how it is written.
    Nothing of a variable's value is invented: `$NAME` stays.
    """
    if draft.command.fragment:
        return _fragment(draft)
    return _INDENT.join(_lines(draft))


def _fragment(draft: Draft) -> str:
    lines = [f"export {assignment(name, value)}" for name, value in draft.env.items()]
    lines += [text for option in draft.options for text in option_words(option)]
    return "\n".join(lines)


def _lines(draft: Draft) -> list[str]:
    box = draft.command.container
    arguments = [text for option in draft.options for text in option_words(option)]
    words = [quoted(each) for each in draft.positionals]
    entry = entry_words(draft.entry)
    if box is not None and box.form == "docker" and box.image is not None:
        lines = ["docker run"]
        lines += [
            text for option in draft.box for text in option_words(option) if option.name != "--env"
        ]
        lines += [f"-e {assignment(name, value)}" for name, value in draft.env.items()]
        own = box.image_facts is not None and box.image_facts.entry
        lines.append(" ".join([quoted(draft.image), *([] if own else [entry]), *words]))
        return [*lines, *arguments]
    before = [assignment(name, value) for name, value in draft.env.items()]
    return [*before, " ".join([entry, *words]).strip(), *arguments]


def _is(option: Option, name: str) -> bool:
    return name in (option.name, option.written)


def entry_words(entry: str) -> str:
    """The words that start it, as a shell needs them."""
    return f"python3 {entry}" if entry.startswith("-m ") else entry


def option_words(option: Option) -> Sequence[str]:
    """A flag and its value, quoted; one text where they stand together."""
    name = option.written
    if option.value is None:
        return (name,)
    facts: FlagFacts | None = option.found.facts if option.found is not None else None
    if facts is not None and facts.type == "list" and not option.joined:
        return (" ".join([name, *(quoted(each) for each in option.value.split(" "))]),)
    between = "=" if option.joined else " "
    return (f"{name}{between}{quoted(option.value)}",)


def assignment(name: str, value: str) -> str:
    """`NAME=value`, quoted for a shell."""
    return f"{name}={quoted(value)}"


def quoted(text: str) -> str:
    """Quoted for a shell; a variable stays one."""
    if text.startswith("~/"):
        return "~/" + quoted(text[2:])
    if any(mark in text for mark in _SAFE_VARIABLE) and "'" not in text and '"' not in text:
        return f'"{text}"' if " " in text else text
    return shlex.quote(text)
