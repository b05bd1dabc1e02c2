"""What several targets write: the files of addresses and secrets, and the steps every one has."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from heavylift.records.launch import RankSpec
from heavylift.recipe.targets.job import LOOPBACK, Job, host_variable
from heavylift.recipe.targets.records import Stage, Step, TargetFile
from heavylift.recipe.targets.words import (
    HOSTS_FILE,
    SECRETS_EXAMPLE,
    SECRETS_FILE,
    comment_lines,
)

SCRIPT_MODE: Final = 0o755
PRIVATE_MODE: Final = 0o600
CURL_TIMEOUT_S: Final = 5
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


def hosts_file(job: Job) -> tuple[TargetFile, ...]:
    """The file of addresses, filled in where the spec knows them; none where nobody needs one."""
    names = job.needed_hosts(job.ranks)
    if not names:
        return ()
    by_name = {rank.name: rank for rank in job.ranks}
    lines = [f"{host_variable(name)}={known_address(by_name[name])}" for name in names]
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
    """Both files of variables."""
    return (*hosts_file(job), *secrets_example(job))


def prepare_steps(job: Job) -> tuple[Step, ...]:
    """What must be filled in before a start where ranks read files of variables."""
    steps = []
    if any(not known_address(rank) for rank in _addressed(job)):
        steps.append(Step(stage=Stage.PREPARE, what="fill_hosts", argv=("${EDITOR}", HOSTS_FILE)))
    if job.secrets():
        steps += [
            Step(
                stage=Stage.PREPARE,
                what="make_secrets",
                argv=("install", "-m", "600", SECRETS_EXAMPLE, SECRETS_FILE),
            ),
            Step(stage=Stage.PREPARE, what="fill_secrets", argv=("${EDITOR}", SECRETS_FILE)),
        ]
    return tuple(steps)


def _addressed(job: Job) -> tuple[RankSpec, ...]:
    names = job.needed_hosts(job.ranks)
    return tuple(rank for rank in job.ranks if rank.name in names)


def local_address(job: Job) -> str:
    """Where a check on the rank's own machine asks."""
    bind = job.spec.bind_host
    return LOOPBACK[0] if bind is None or bind in _EVERY_ADDRESS else bind


def health_url(job: Job, rank: RankSpec, address: str) -> str | None:
    """What answers 200 once the rank serves; None where the engine has no such path."""
    if job.spec.health is None or rank not in job.serving:
        return None
    return f"http://{bracketed(address)}:{job.port(rank)}{job.spec.health.path}"


def bracketed(address: str) -> str:
    """An address as it stands before a port."""
    return f"[{address}]" if ":" in address else address


def watch_steps(job: Job, address: str) -> tuple[Step, ...]:
    """Asking each serving rank whether it is ready."""
    return tuple(
        Step(stage=Stage.WATCH, what="health", argv=("curl", "--fail", url), rank=rank.name)
        for rank in job.serving
        if (url := health_url(job, rank, address)) is not None
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
