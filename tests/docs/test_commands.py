"""Every command in the documentation is one that this version has."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tests.docs.markdown import LANGUAGES, ROOT, named, pages, typed

from heavylift.cli.main import cli

EVERYWHERE = [
    *(page for language in LANGUAGES for page in pages(language)),
    *sorted(ROOT.glob("README*.md")),
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "design").glob("*.md")),
]


@pytest.fixture(autouse=True)
def only_in_a_checkout() -> None:
    """An installed package has no documentation beside it."""
    if not (ROOT / "docs" / "en").is_dir():
        pytest.skip("not a checkout")


def refused(words: list[str]) -> str | None:
    """Why the command line does not take these words; None when it does."""
    command: click.Command = cli
    parent: click.Context | None = None
    rest = words
    try:
        while isinstance(command, click.Group):
            if not rest or rest[0] in {"--help", "--version"} or (parent is None and _vague(rest)):
                return None
            context = command.make_context(
                command.name, list(rest), parent=parent, resilient_parsing=True
            )
            _, found, rest = command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            if found is None:
                return f"no such command: {rest}"
            command, parent = found, context
        context = click.Context(command, info_name=command.name, parent=parent)
        values, left, _ = command.make_parser(context).parse_args(list(rest))
    except click.UsageError as error:
        return error.format_message()
    if left and left != ["…"]:
        return f"too much: {left}"
    return _impossible(command, values)


def _vague(words: list[str]) -> bool:
    """`heavylift …` and `heavylift COMMAND` name no command."""
    return words[0].isupper() or not words[0].isascii()


def _impossible(command: click.Command, values: dict[str, object]) -> str | None:
    """A word that is none of those an option takes; words in capitals stand for one."""
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if not isinstance(parameter.type, click.Choice) or not isinstance(value, str):
            continue
        if value not in parameter.type.choices and not value.isupper() and "…" not in value:
            return f"{value} is none of {', '.join(parameter.type.choices)}"
    return None


@pytest.mark.parametrize("page", EVERYWHERE, ids=named)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    """Command, options and fixed words of each `heavylift …` are those of the command line."""
    wrong = {" ".join(words): reason for words in typed(page) if (reason := refused(words))}
    assert wrong == {}


@pytest.mark.parametrize(
    "words",
    [
        ["plann", "kimi-k3"],
        ["plan", "kimi-k3", "--onto", "8xB300"],
        ["recipe", "kimi-k3", "--target", "mainframe"],
        ["down", "a", "b"],
        ["keys", "make", "alice"],
    ],
)
def test_a_command_that_is_not_there_is_noticed(words: list[str]) -> None:
    """A wrong name, option, word or number of arguments does not pass."""
    assert refused(words) is not None
