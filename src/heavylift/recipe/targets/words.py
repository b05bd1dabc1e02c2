"""Words of a launch as a shell or compose reads them. Quoting is shlex's, never a template.

Addresses of other ranks stand in words as tokens; here they become variables of the target.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from heavylift.recipe.targets.view import LaunchView, host_variable, pieces
from heavylift.records.launch import SELF, RankSpec

SECRETS_FILE: Final = "secrets.env"
SECRETS_EXAMPLE: Final = "secrets.env.example"
HOSTS_FILE: Final = "hosts.env"

HERE: Final = '"$here"'
"""The folder of a script, as bash reads it."""

HERE_LINE: Final = 'here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)'

IN_CONTAINER: Final = "/heavylift"
"""Where a container sees the recipe's files."""

_WIDTH: Final = 80


def variable(rank: RankSpec, name: str) -> str:
    """The shell variable of a token's address, as seen by `rank`."""
    return host_variable(rank.name if name == SELF else name)


def shell_word(text: str, rank: RankSpec, folder: str = HERE) -> str:
    """One word as bash reads it: literals quoted, addresses as variables in double quotes.

    `folder` is where the rank sees the recipe's files, as bash reads it.
    """
    words = []
    for literal, token in pieces(text):
        if literal:
            words.append(shlex.quote(literal))
        if token is not None and token.kind == "host":
            words.append(f'"${{{variable(rank, token.name)}}}"')
        elif token is not None:
            words.append(f"{folder}/{token.name}")
    return "".join(words) or shlex.quote("")


def filled_word(
    text: str, addresses: Mapping[str, str], folder: str, escape: Callable[[str], str]
) -> str:
    """One word with addresses (by name of rank, and `self`) and paths put in; the rest escaped."""
    words = []
    for literal, token in pieces(text):
        words.append(escape(literal))
        if token is not None:
            words.append(
                addresses[token.name] if token.kind == "host" else f"{folder}/{token.name}"
            )
    return "".join(words)


def command_lines(words: Iterable[str]) -> list[str]:
    """Quoted words as the lines of one command."""
    return continued(in_lines(words))


def in_lines(words: Iterable[str]) -> list[str]:
    """Quoted words by line: a flag with its value, words before the first flag together."""
    lines: list[str] = []
    for word in words:
        if lines and not word.startswith("-") and _takes_more(lines[-1], word):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def continued(lines: list[str]) -> list[str]:
    """Lines of one command: all but the last end with a backslash, all but the first are set in."""
    inner = [*lines[:1], *(f"  {line}" for line in lines[1:])]
    return [*(f"{line} \\" for line in inner[:-1]), *inner[-1:]]


def _takes_more(line: str, word: str) -> bool:
    """True for a flag that has no value yet, and for plain words that leave room."""
    if line.startswith("-"):
        return " " not in line and "=" not in line
    return not line.startswith('"') and len(line) + len(word) < _WIDTH


def export_lines(rank: RankSpec, folder: str = HERE) -> list[str]:
    """The environment of a rank, a line each."""
    return [
        f"export {name}={shell_word(rank.env[name], rank, folder)}" for name in sorted(rank.env)
    ]


def required_lines(names: Iterable[str]) -> list[str]:
    """Lines that stop a script when a variable is absent or empty; bash says which."""
    return [f': "${{{name}:?}}"' for name in names]


def source_lines(folder: str, files: Iterable[str]) -> list[str]:
    """Lines that read files of variables that lie in `folder` (a quoted word)."""
    read = [
        line for name in files for line in ("# shellcheck source=/dev/null", f". {folder}/{name}")
    ]
    return ["set -a", *read, "set +a"] if read else []


def needed_files(view: LaunchView, ranks: tuple[RankSpec, ...]) -> tuple[str, ...]:
    """The files of variables these ranks read."""
    hosts = (HOSTS_FILE,) if view.needed_hosts(ranks) else ()
    secrets = (SECRETS_FILE,) if any(rank.secrets for rank in ranks) else ()
    return (*hosts, *secrets)


def needed_variables(view: LaunchView, rank: RankSpec) -> tuple[str, ...]:
    """The variables that those files must hold for a rank."""
    return (*map(host_variable, view.needed_hosts((rank,))), *rank.secrets)


def comment_lines(lines: Iterable[str]) -> list[str]:
    """Text as comments of a shell, a unit or YAML; a line break in it cannot end the comment."""
    return [f"# {' '.join(line.split())}".rstrip() for line in lines]


def unit_word(text: str, rank: RankSpec) -> str:
    """One word with addresses as `${VARIABLE}`: in a unit, and in a command to type."""
    return "".join(
        literal + ("" if token is None else f"${{{variable(rank, token.name)}}}")
        for literal, token in pieces(text)
    )
