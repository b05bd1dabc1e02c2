"""What several targets write: the files of addresses and secrets, and the steps every one has."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from heavylift.recipe.targets.job import LOOPBACK, Job, host_variable, pieces
from heavylift.recipe.targets.records import Stage, Step, TargetFile
from heavylift.recipe.targets.words import (
    HOSTS_FILE,
    SECRETS_EXAMPLE,
    SECRETS_FILE,
    comment_lines,
    unit_word,
)
from heavylift.records.launch import RankSpec

SCRIPT_MODE: Final = 0o755
PRIVATE_MODE: Final = 0o600
CURL_TIMEOUT_S: Final = 5
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


def hosts_file(
    job: Job, others: tuple[str, ...] = (), *, needs_hosts: bool = True
) -> tuple[TargetFile, ...]:
    """The file of addresses, filled in where the spec knows them, and of `others` that the machine
    knows; none where nobody needs one.
    """
    names = job.needed_hosts(job.ranks) if needs_hosts else ()
    if not names and not others:
        return ()
    lines = [f"{host_variable(name)}={known_address(job.rank(name))}" for name in names]
    lines += [f"{name}=" for name in others]
    return (TargetFile(path=HOSTS_FILE, text=_text(comment_lines(job.options.header), lines)),)


def known_address(rank: RankSpec) -> str:
    """The address of a rank where its host is one; empty where it is a name of ours or unknown."""
    try:
        return str(ip_address(rank.host))
    except ValueError:
        return ""


def secrets_example(job: Job) -> tuple[TargetFile, ...]:
    """The names of the secrets, without a value; none where there are no secrets."""
    names = job.secrets()
    if not names:
        return ()
    lines = [f"{name}=" for name in names]
    return (
        TargetFile(
            path=SECRETS_EXAMPLE,
            text=_text(comment_lines(job.options.header), lines),
            mode=PRIVATE_MODE,
        ),
    )


def host_files(job: Job) -> tuple[TargetFile, ...]:
    """The files of variables, and those of the launch's own."""
    return (*hosts_file(job), *secrets_example(job), *own_files(job))


def own_files(job: Job) -> tuple[TargetFile, ...]:
    """Files that ranks read, as the launch holds them."""
    return tuple(TargetFile(path=name, text=text) for name, text in sorted(job.spec.files.items()))


def prepare_steps(job: Job) -> tuple[Step, ...]:
    """What must be filled in and run before a start where ranks read files of variables."""
    fill = Step(stage=Stage.PREPARE, what="fill_hosts", argv=("vi", HOSTS_FILE))
    empty = any(not known_address(job.rank(name)) for name in job.needed_hosts(job.ranks))
    return (*((fill,) if empty else ()), *secret_steps(job), *own_steps(job))


def secret_steps(job: Job) -> tuple[Step, ...]:
    """Making the file of secrets; nothing where there are none."""
    if not job.secrets():
        return ()
    make = ("install", "-m", "600", SECRETS_EXAMPLE, SECRETS_FILE)
    return (
        Step(stage=Stage.PREPARE, what="make_secrets", argv=make),
        Step(stage=Stage.PREPARE, what="fill_secrets", argv=("vi", SECRETS_FILE)),
    )


def own_steps(job: Job) -> tuple[Step, ...]:
    """What the launch itself wants run once before it starts."""
    return tuple(
        Step(stage=Stage.PREPARE, what="own", argv=tuple(map(_with_files, words)))
        for words in job.spec.prepare
    )


def _with_files(text: str) -> str:
    """A word typed in the recipe's folder."""
    return "".join(
        literal + ("" if token is None else token.name) for literal, token in pieces(text)
    )


def _addressed(job: Job) -> tuple[RankSpec, ...]:
    names = job.needed_hosts(job.ranks)
    return tuple(rank for rank in job.ranks if rank.name in names)


def health_url(job: Job, rank: RankSpec) -> str | None:
    """What answers 200 on the rank's machine once it serves; None where there is no such path.

    It may hold the token of the rank's own address.
    """
    if job.spec.health is None or rank not in job.serving:
        return None
    at = job.listens_on(rank)
    address = LOOPBACK[0] if at is None or at in _EVERY_ADDRESS else bracketed(at)
    return f"http://{address}:{job.port(rank)}{job.spec.health.path}"


def bracketed(address: str) -> str:
    """An address as it stands before a port."""
    return f"[{address}]" if address.count(":") > 1 else address


def watch_steps(job: Job) -> tuple[Step, ...]:
    """Asking each serving rank whether it is ready."""
    return tuple(
        Step(
            stage=Stage.WATCH,
            what="health",
            argv=("curl", "--fail", unit_word(url, rank)),
            rank=rank.name,
        )
        for rank in job.serving
        if (url := health_url(job, rank)) is not None
    )


def deadline_places(job: Job, path: Callable[[RankSpec], str]) -> tuple[str, ...]:
    """Where variables and flags hold the deadline; `path` names the file of a rank."""
    return tuple(
        f"{path(rank)}: {name}" for rank in job.ranks for name in job.deadline_settings(rank)
    )


def script(job: Job, *parts: list[str]) -> str:
    """A bash script of these parts, an empty line between them."""
    head = ["#!/usr/bin/env bash", *comment_lines(job.options.header), "set -euo pipefail"]
    return _text(head, *parts)


def text_of(job: Job, *parts: list[str]) -> str:
    """A file with our head as comments and these parts."""
    return _text(comment_lines(job.options.header), *parts)


def _text(*parts: list[str]) -> str:
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"
