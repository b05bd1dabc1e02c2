"""LaunchSpec: everything needed to start an engine, as data. No shell string anywhere in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A path of the host made visible to the engine."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Why one flag or variable has its value: `computed`, `published` or `engine default`."""

    name: str
    value: str
    origin: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSpec:
    """One process. `argv` is a list, never a line; `env` holds no secrets.

    `secrets` maps a variable to the name of a secret that the runner resolves at start.
    """

    rank: int
    host: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    ports: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSpec:
    """What to start: a process per rank, the phases to expect, and by when it must be ready.

    `plan_digest` is the `sha256:` of the plan it was made from. `deadline_s` counts from the
    first process start to the first generated token.
    """

    engine: str
    engine_version: str
    image_digest: str | None
    model: str
    model_revision: str | None
    ranks: tuple[RankSpec, ...]
    expected_phases: tuple[str, ...]
    deadline_s: int
    plan_digest: str
    settings: tuple[Setting, ...] = ()
    schema: int = SCHEMA
