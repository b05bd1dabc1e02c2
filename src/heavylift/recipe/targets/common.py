"""What several targets write: the files of addresses and secrets, and the steps every one has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from heavylift.recipe.targets.records import Stage, Step, TargetFile
from heavylift.recipe.targets.view import LOOPBACK, LaunchView, host_variable, pieces
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
    view: LaunchView, others: tuple[str, ...] = (), *, needs_hosts: bool = True
) -> tuple[TargetFile, ...]:
    """The file of addresses to fill in, and of `others` that the machine knows; none where nobody
    needs one.
    """
    names = view.needed_hosts(view.ranks) if needs_hosts else ()
    if not names and not others:
        return ()
    lines = [f"{host_variable(name)}=" for name in names]
    lines += [f"{name}=" for name in others]
    return (TargetFile(path=HOSTS_FILE, text=_text(comment_lines(view.options.header), lines)),)


def secrets_example(view: LaunchView) -> tuple[TargetFile, ...]:
    """The names of the secrets, without a value; none where there are no secrets."""
    names = view.secrets()
    if not names:
        return ()
    lines = [f"{name}=" for name in names]
    return (
        TargetFile(
            path=SECRETS_EXAMPLE,
            text=_text(comment_lines(view.options.header), lines),
            mode=PRIVATE_MODE,
        ),
    )


def host_files(view: LaunchView) -> tuple[TargetFile, ...]:
    """The files of variables, and those of the launch's own."""
    return (*hosts_file(view), *secrets_example(view), *own_files(view))


def own_files(view: LaunchView) -> tuple[TargetFile, ...]:
    """Files that ranks read, as the launch holds them."""
    return tuple(TargetFile(path=name, text=text) for name, text in sorted(view.spec.files.items()))


def prepare_steps(view: LaunchView) -> tuple[Step, ...]:
    """What must be filled in and run before a start where ranks read files of variables."""
    fill = Step(stage=Stage.PREPARE, what="fill_hosts", argv=("vi", HOSTS_FILE))
    needed = view.needed_hosts(view.ranks)
    return (
        *((fill,) if needed else ()),
        *secret_steps(view),
        *package_steps(view),
        *own_steps(view),
    )


def package_steps(view: LaunchView) -> tuple[Step, ...]:
    """Installing what no image holds, on the machines that run it without a container."""
    return tuple(
        Step(
            stage=Stage.PREPARE,
            what="install_package",
            argv=("python3", "-m", "pip", "install", rank.package),
            rank=rank.name,
        )
        for rank in view.ranks
        if rank.package is not None and rank.image is None
    )


def secret_steps(view: LaunchView) -> tuple[Step, ...]:
    """Making the file of secrets; nothing where there are none."""
    if not view.secrets():
        return ()
    make = ("install", "-m", "600", SECRETS_EXAMPLE, SECRETS_FILE)
    return (
        Step(stage=Stage.PREPARE, what="make_secrets", argv=make),
        Step(stage=Stage.PREPARE, what="fill_secrets", argv=("vi", SECRETS_FILE)),
    )


def own_steps(view: LaunchView) -> tuple[Step, ...]:
    """What the launch itself wants run once before it starts."""
    return tuple(
        Step(stage=Stage.PREPARE, what="own", argv=tuple(map(_with_files, words)))
        for words in view.spec.prepare
    )


def _with_files(text: str) -> str:
    """A word typed in the recipe's folder."""
    return "".join(
        literal + ("" if token is None else token.name) for literal, token in pieces(text)
    )


def health_url(view: LaunchView, rank: RankSpec) -> str | None:
    """What answers 200 on the rank's machine once it serves; None where there is no such path.

    It may hold the token of the rank's own address.
    """
    if view.spec.health is None or rank not in view.serving:
        return None
    at = view.listens_on(rank)
    address = LOOPBACK[0] if at is None or at in _EVERY_ADDRESS else bracketed(at)
    return f"http://{address}:{view.port(rank)}{view.spec.health.path}"


def bracketed(address: str) -> str:
    """An address as it stands before a port."""
    return f"[{address}]" if address.count(":") > 1 else address


def watch_steps(view: LaunchView) -> tuple[Step, ...]:
    """Asking each serving rank whether it is ready."""
    return tuple(
        Step(
            stage=Stage.WATCH,
            what="health",
            argv=("curl", "--fail", unit_word(url, rank)),
            rank=rank.name,
        )
        for rank in view.serving
        if (url := health_url(view, rank)) is not None
    )


def deadline_places(view: LaunchView, path: Callable[[RankSpec], str]) -> tuple[str, ...]:
    """Where variables and flags hold the deadline; `path` names the file of a rank."""
    return tuple(
        f"{path(rank)}: {name}" for rank in view.ranks for name in view.deadline_settings(rank)
    )


def script(view: LaunchView, *parts: list[str]) -> str:
    """A bash script of these parts, an empty line between them."""
    head = ["#!/usr/bin/env bash", *comment_lines(view.options.header), "set -euo pipefail"]
    return _text(head, *parts)


def text_of(view: LaunchView, *parts: list[str]) -> str:
    """A file with our head as comments and these parts."""
    return _text(comment_lines(view.options.header), *parts)


def _text(*parts: list[str]) -> str:
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"
