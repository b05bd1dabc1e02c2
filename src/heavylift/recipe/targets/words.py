"""Words of a launch as a shell, systemd or compose reads them. Quoting is shlex's, never a template.

Addresses of other ranks stand in words as tokens; here they become variables of the target.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from heavylift.records.launch import SELF, RankSpec
from heavylift.recipe.targets.job import Job, host_variable, pieces

SECRETS_FILE: Final = "secrets.env"
SECRETS_EXAMPLE: Final = "secrets.env.example"
HOSTS_FILE: Final = "hosts.env"

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variable(rank: RankSpec, name: str) -> str:
    """The shell variable of a token's address, as seen by `rank`."""
    return host_variable(rank.name if name == SELF else name)


def shell_word(text: str, rank: RankSpec) -> str:
    """One word as bash reads it: literals quoted, addresses as variables in double quotes."""
    found = pieces(text)
    if len(found) == 1:
        return shlex.quote(text)
    words = []
    for literal, name in found:
        if literal:
            words.append(shlex.quote(literal))
        if name is not None:
            words.append(f'"${{{variable(rank, name)}}}"')
    return "".join(words)


def filled_word(text: str, rank: RankSpec, addresses: Mapping[str, str]) -> str:
    """One word with addresses put in; `addresses` are by name of rank."""
    return "".join(
        literal + ("" if name is None else addresses[rank.name if name == SELF else name])
        for literal, name in pieces(text)
    )


def command_lines(words: Iterable[str], *, indent: str = "  ") -> list[str]:
    """Quoted words as lines that go on with a backslash: a flag and its value on one line."""
    lines: list[str] = []
    for word in words:
        if lines and not word.startswith("-") and lines[-1].startswith("-") and _open(lines[-1]):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    first, *others = lines
    return [f"{first}{' \\' if others else ''}"] + [
        f"{indent}{line}{' \\' if index < len(others) - 1 else ''}"
        for index, line in enumerate(others)
    ]


def _open(line: str) -> bool:
    """True when a line is a flag that has no value yet."""
    return " " not in line and "=" not in line


def export_lines(rank: RankSpec) -> list[str]:
    """The environment of a rank, a line each."""
    return [f"export {name}={shell_word(rank.env[name], rank)}" for name in sorted(rank.env)]


def required_lines(names: Iterable[str]) -> list[str]:
    """Lines that stop a script when a variable is absent or empty; bash says which."""
    return [f': "${{{name}:?}}"' for name in names]


def source_lines(folder: str, files: Iterable[str]) -> list[str]:
    """Lines that read files of variables that lie in `folder` (a quoted word)."""
    read = [
        line for name in files for line in ("# shellcheck source=/dev/null", f". {folder}/{name}")
    ]
    return ["set -a", *read, "set +a"] if read else []


def needed_files(job: Job, ranks: tuple[RankSpec, ...]) -> tuple[str, ...]:
    """The files of variables these ranks read."""
    hosts = (HOSTS_FILE,) if job.needed_hosts(ranks) else ()
    secrets = (SECRETS_FILE,) if any(rank.secrets for rank in ranks) else ()
    return (*hosts, *secrets)


def needed_variables(job: Job, rank: RankSpec) -> tuple[str, ...]:
    """The variables that those files must hold for a rank."""
    return (*map(host_variable, job.needed_hosts((rank,))), *rank.secrets)


def comment_lines(lines: Iterable[str]) -> list[str]:
    """Text as comments of a shell, a unit or YAML; a line break in it cannot end the comment."""
    return [f"# {' '.join(line.split())}".rstrip() for line in lines]


def is_variable(name: str) -> bool:
    """True for a name that a shell can export."""
    return _VARIABLE.fullmatch(name) is not None
