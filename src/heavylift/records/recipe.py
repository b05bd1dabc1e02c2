"""Recipe: what `heavylift recipe` writes, or why it does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from heavylift.errors import Scalar
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Plan, PlanVerdict, Status, Support

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeFile:
    """A file of the recipe's folder; `path` is relative to it. `private`: its owner's alone."""

    path: str
    content: str
    executable: bool = False
    private: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceNote:
    """A source that the recipe rests on. `recipe` is set where it is a published recipe."""

    id: str
    title: str
    url: str | None = None
    as_of: str | None = None
    recipe: str | None = None
    status: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineChoice:
    """An engine that was weighed for a rack: what its plan says, or the error that it has none."""

    engine: str
    title: str
    chosen: bool
    verdict: PlanVerdict | None = None
    support: Support | None = None
    layout: str | None = None
    code: str | None = None
    params: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Nearest:
    """A command that works instead: its rack and layout, its verdict, who ran it."""

    command: str
    rack: str
    layout: str
    engine: str
    verdict: PlanVerdict
    status: Status


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRefusal:
    """Why no recipe is written: `does_not_fit`, `unsupported`, `reported_broken`."""

    code: str
    params: dict[str, Scalar] = field(default_factory=dict)
    source: str | None = None
    as_of: str | None = None
    nearest: tuple[Nearest, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A launch with its plan and everything that is said about it.

    `launch` is None when refused. `plans` holds the plan of each pool by role, `plan` the one that
    decodes. `argv` is one command per rank, in the order of `launch.ranks`; `env` what all ranks of
    the service share. `files` are what a target makes of it, empty when none was asked for.
    """

    model: str
    title: str
    rack: str
    engine: str
    engine_title: str
    engine_version: str
    layout: str
    target: str | None
    status: Status
    support: Support
    plan: Plan
    plans: dict[str, Plan]
    launch: LaunchSpec | None = None
    argv: tuple[tuple[str, ...], ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    sources: tuple[SourceNote, ...] = ()
    files: tuple[RecipeFile, ...] = ()
    choices: tuple[EngineChoice, ...] = ()
    refused: RecipeRefusal | None = None
    folder: str | None = None
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One thing that is not the same. `subject`: launch, flag, variable, rank. None = not there."""

    subject: str
    name: str
    old: str | None = None
    new: str | None = None
    role: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchDiff:
    """What differs between two launches, each by the name it was asked for."""

    old: str
    new: str
    differences: tuple[Difference, ...]
    schema: int = SCHEMA
