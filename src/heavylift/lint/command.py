"""Command: what one pasted start of an engine says, whatever it was written in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from heavylift.facts.command_schema import CommandEngineFacts, ImageFacts
from heavylift.recipe.flags import Found

TRUE: Final = "true"
FALSE: Final = "false"


Span = tuple[int, int]
"""A place in a text: its first letter, and the one after its last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """Where the parts of a command stand in its text: the words that start it, its variables, its
    positional arguments in order, its image, the end of its words. None = not in the text itself.
    """

    entry: Span | None = None
    env: dict[str, Span] = field(default_factory=dict)
    positionals: tuple[Span | None, ...] = ()
    image: Span | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """A flag of the engine as written, and what it is.

    `name` is the main name of the table, or the written one where the table has none. `member` is
    the part after a dot (`--attention-config.backend`). `slip` says how it is malformed: `no_space`
    (`--device/dev/kfd`), `parted` (`-- device`) or `one_element` (a list's `"--dtype auto"`).
    """

    written: str
    name: str
    value: str | None = None
    member: str | None = None
    found: Found | None = None
    joined: bool = False
    loose_json: bool = False
    slip: str | None = None
    at: Span | None = field(default=None, compare=False)

    @property
    def text(self) -> str | None:
        """The value, or `true`/`false` of a switch."""
        if self.found is not None and self.found.negated:
            return FALSE
        return TRUE if self.value is None else self.value

    @property
    def members(self) -> dict[str, Any]:
        """The value as a JSON object; empty when it is none."""
        if self.value is None or not self.value.lstrip().startswith("{"):
            return {}
        try:
            decoded = json.loads(self.value)
        except (ValueError, RecursionError):
            return {}
        return decoded if isinstance(decoded, dict) else {}

    @property
    def likely_members(self) -> dict[str, Any]:
        """`members`, or those of a flat object that lost its quotes: `{kv_role:kv_both}`."""
        lost = re.fullmatch(r"\{(.*)\}", (self.value or "").strip(), re.DOTALL)
        if self.members or lost is None:
            return self.members
        pairs = (part.partition(":") for part in re.split(r"[,{}]", lost[1]) if ":" in part)
        return {key.strip("'\" "): value.strip("'\" ") for key, _, value in pairs}


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """The container around a command. Paths of mounts are (outside, inside).

    `form`: `docker`, `compose`, `kubernetes` or `systemd` (none, but with a time limit). `devices`
    are device nodes, resources of a cluster, and `--gpus` for all cards. `entry_replaced`: the
    image's own entry point is not what starts. `start_budget_s` is how
    long it may take to become ready before it is killed, where a probe says so.
    """

    form: str
    image: str | None = None
    image_facts: ImageFacts | None = None
    options: tuple[Option, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    network: str | None = None
    ipc: str | None = None
    shm_bytes: int | None = None
    privileged: bool = False
    entry_replaced: bool = False
    start_budget_s: int | None = None
    start_budget_from: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One start of an engine.

    `entry` are the words that start it. `fragment`: only part of a command was pasted (variables or
    flags alone), so what is absent says nothing. `repeated`: words after an image that starts the
    engine itself, which name the program once more. `takes_module`: a program other than Python is
    handed the entry's module. `comments` are the words around it.
    """

    engine: CommandEngineFacts | None
    entry: str = ""
    launcher: str | None = None
    legacy: bool = False
    options: tuple[Option, ...] = ()
    positionals: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    container: Container | None = None
    repeated: str | None = None
    takes_module: bool = False
    fragment: bool = False
    comments: tuple[str, ...] = ()
    placed: Placed = field(default_factory=Placed, compare=False)

    def given(self, name: str) -> tuple[Option, ...]:
        """The options of that main name, in order."""
        return tuple(option for option in self.options if option.name == name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """Everything read from one text: commands, comments, and what copying had broken.

    `text` is what the places of the commands' parts refer to; None where they refer to nothing that
    could be handed back. `fixes` are places in it and what to write there instead.
    """

    form: str
    commands: tuple[Command, ...]
    comments: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    text: str | None = None
    fixes: tuple[tuple[int, int, str], ...] = ()
