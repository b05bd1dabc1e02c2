"""LaunchSpec: everything needed to start an engine, as data. No shell string anywhere in it.

Addresses that are known only where the engine is started are written as tokens inside `argv` and
`env`: `{host:NAME}` is the address of the rank of that name (`{host:serve-0}`), `{host:self}` the
rank's own; `{file:NAME}` is the path at which the process finds a file of the recipe's folder.
`resolve` fills them in; everything else is literal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from heavylift.records.plan import Note, Support

SCHEMA: Final = 2
SELF: Final = "self"
_TOKEN: Final = re.compile(r"\{host:([a-z0-9-]+)\}")
_FILE: Final = re.compile(r"\{file:([A-Za-z0-9._-]+)\}")


def host_token(name: str) -> str:
    """The token for the address of the rank of that name (`SELF`: of the rank itself)."""
    return f"{{host:{name}}}"


def host_tokens(text: str) -> tuple[str, ...]:
    """Names of the ranks whose addresses a word needs, in order; `self` for the rank's own."""
    return tuple(_TOKEN.findall(text))


def file_token(name: str) -> str:
    """The token for the path of a file of the recipe's folder."""
    return f"{{file:{name}}}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A path of the host made visible to the engine."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Why one flag or variable has its value: `computed`, `published` or `engine default`.

    `origin` may also be `user` (asked for) and `security` (how it is exposed). `why` is a code
    whose text is in the catalogue; `role` the ranks it is for, None = all.
    """

    name: str
    value: str
    origin: str
    source: str
    why: str = ""
    role: str | None = None
    as_of: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """How to ask whether the service is ready: `GET path` on the served port answers 200.

    `start_period_s` is the deadline of the load, before which a failure says nothing.
    """

    path: str
    start_period_s: int
    interval_s: int = 10
    timeout_s: int = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendezvous:
    """How the processes of a pool find each other.

    `kind`: `native` (the engine's own flags, in `argv` already), `ray`, `mpi`. `head` is the name
    of the rank whose address the others need. `head_flag` and `rank_flag` are the flags that carry
    address and number of the node, for targets that number their nodes themselves.
    """

    kind: str
    head: str
    port: int
    head_flag: str | None = None
    rank_flag: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSpec:
    """One process. `argv` is a list, never a line; `env` holds no secrets.

    `secrets` maps a variable to the name of a secret that the runner resolves at start. `name` is
    unique in the launch (`serve-0`, `prefill-1`, `router-0`), `role` one of serve, prefill, decode,
    router, store; `node` counts the machines of the role from 0; `gpus` are the cards it takes
    (None = not known, 0 = none). `serves`: it answers HTTP on its port `api`. `package` is the
    pinned requirement that pip gets its program from, where no image holds it. `tasks`: how often
    MPI starts it on its machine, one task to a card.
    """

    rank: int
    host: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    ports: dict[str, int] = field(default_factory=dict)
    name: str = ""
    role: str = "serve"
    node: int | None = None
    gpus: int | None = None
    serves: bool | None = None
    image: str | None = None
    package: str | None = None
    tasks: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSpec:
    """What to start: a process per rank, the phases to expect, and by when it must be ready.

    `plan_digest` is the `sha256:` of the plan it was made from. `deadline_s` counts from the
    first process start to the first generated token. None = not known, in every field.

    `image` is the reference as its publisher writes it, for all ranks that name none of their own
    (None = no image is known); `image_digest` its `sha256:` where known. `model_path` is what the
    engine is given: a repository, or a folder inside the container; `model_mount` says which folder
    of the host that is. `cache_mounts` are folders that must survive a restart. `topology`:
    `single_node`, `multi_node`, `prefill_decode`, `replicas`. `host_network`: ranks talk to each
    other on ports of their own. `support` says who ran it; `notes` list what differs from the
    published recipe and what else must be read before a start. `files` are contents that ranks
    read, by name; `prepare` commands to run once on the node of a rank before it starts.
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
    image: str | None = None
    gpu_vendor: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    topology: str | None = None
    model_path: str | None = None
    model_mount: Mount | None = None
    served_name: str | None = None
    bind_host: str | None = None
    served_port: int | None = None
    health: Health | None = None
    rendezvous: tuple[Rendezvous, ...] = ()
    cache_mounts: tuple[Mount, ...] = ()
    shm_bytes: int | None = None
    host_network: bool | None = None
    stop_grace_s: int | None = None
    support: Support | None = None
    notes: tuple[Note, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    prepare: tuple[tuple[str, ...], ...] = ()
    schema: int = SCHEMA


def resolve(rank: RankSpec, hosts: Mapping[str, str], folder: str = ".") -> RankSpec:
    """The rank with every token filled in; `hosts` maps names of ranks to their addresses, `folder`
    is where the process sees the recipe's folder.

    Raises `KeyError` with the name of a rank whose address is missing.
    """

    def filled(text: str) -> str:
        text = _FILE.sub(lambda found: f"{folder}/{found[1]}", text)
        return _TOKEN.sub(lambda found: hosts[rank.name if found[1] == SELF else found[1]], text)

    return replace(
        rank,
        argv=tuple(map(filled, rank.argv)),
        env={name: filled(value) for name, value in rank.env.items()},
    )
