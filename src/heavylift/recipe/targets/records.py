"""What a target is asked for and what it returns: files as text, and commands as words."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from heavylift.records.finding import Finding


class Runtime(StrEnum):
    """What runs a rank: the engine as installed on the host, Docker, or pyxis under Slurm."""

    HOST = "host"
    DOCKER = "docker"
    PYXIS = "pyxis"


class Stage(StrEnum):
    """When a step of the recipe is taken, in this order."""

    PREPARE = "prepare"
    CHECK = "check"
    START = "start"
    WATCH = "watch"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetOptions:
    """What the launch spec does not say because it is the place's, not the model's.

    `name` prefixes services, containers and objects: lower case letters, digits and dashes.
    `header` are lines of text that every file begins with, as comments. `runtime` None = what the
    target takes where an image is known, else the host. `folder` is where the files lie on the
    machines. `user` runs the service (systemd on the host). `rdma`: the machines have InfiniBand or
    RoCE devices; `extra_resources` asks a cluster for them by name. `model_bytes` sizes the claim
    that is made where `model_claim` names none. Where a name is None the place's default holds.
    """

    name: str
    header: tuple[str, ...] = ()
    runtime: Runtime | None = None
    folder: str = "/etc/heavylift"
    user: str = "heavylift"
    rdma: bool = False
    namespace: str | None = None
    secret: str | None = None
    model_claim: str | None = None
    cache_claim: str | None = None
    storage_class: str | None = None
    model_bytes: int | None = None
    extra_resources: dict[str, str] = field(default_factory=dict)
    partition: str | None = None
    account: str | None = None
    time_limit: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetFile:
    """A file of a recipe: its path inside the folder, its text, its mode on disk."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A command of the recipe as words. `rank` names the one whose machine it is typed on, None =
    wherever the folder lies. `what` is the code of its text.
    """

    stage: Stage
    what: str
    argv: tuple[str, ...]
    rank: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendering:
    """A launch as files of one target, the steps to take with them, and what is not right yet.

    `deadline_at` says where the load's deadline stands in the files, as `path: setting`.
    """

    target: str
    files: tuple[TargetFile, ...]
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...] = ()
    deadline_at: tuple[str, ...] = ()
