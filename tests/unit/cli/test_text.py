"""The catalogue of texts: complete, well-formed, and the only source of words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

import heavylift
from heavylift.cli.main import COMMANDS
from heavylift.cli.text import keys, text
from heavylift.locale.catalogue import parse

SOURCE = Path(heavylift.__file__).parent
CODE = re.compile(
    r"(?:USE|FACT|CKPT|HUB|PLAN|REC|PRE|ENV|RUN|OPS|VER|BAT|GW|WIRE|DEV|STA|LINT|DIAG)\d{3}"
)


def strings(folder: Path) -> Iterator[str]:
    """Every string constant of the package's code."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_error_code_has_a_sentence() -> None:
    """A code that can be raised has a text; none is shown as a bare code."""
    codes = {value for value in strings(SOURCE) if CODE.fullmatch(value)}
    assert codes
    assert {f"error.{code}" for code in codes} <= keys()


def test_every_key_that_is_asked_for_exists() -> None:
    """`text("…")` with a literal key never fails at run time."""
    asked = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="text"), args=[ast.Constant(value=str() as key), *_]
                ):
                    asked.add(key)
    assert asked
    assert asked <= keys()


def test_a_key_without_text_is_an_error() -> None:
    """An unknown key is a mistake of ours and is not shown as if it were words."""
    with pytest.raises(KeyError):
        text("no.such.key")


@pytest.mark.parametrize("source", ["key without separator\n", "a = 1\na = 2\n"])
def test_a_malformed_catalogue_is_refused(source: str) -> None:
    """A line that is no entry, or a key given twice, is an error of the catalogue."""
    with pytest.raises(ValueError, match=r"key|a = 2"):
        parse(source)


def test_entries_may_go_on_over_lines() -> None:
    """A line that begins with two spaces belongs to the entry above; # begins a comment."""
    assert parse("# c\na = one\n  two\n\nb = three\n") == {"a": "one two", "b": "three"}


def test_text_is_made_only_at_the_edge() -> None:
    """No module below the command line and the pages asks the catalogue for words."""
    edges = {"cli", "web", "locale"}
    offenders = [
        path
        for path in SOURCE.rglob("*.py")
        if not edges & set(path.relative_to(SOURCE).parts)
        and re.search(r"heavylift\.(cli|web|locale\.text)\b", path.read_text("utf-8"))
    ]
    assert offenders == [SOURCE / "__main__.py"]


_TYPED = re.compile(r"\bheavylift\s+([a-z][a-z-]*)")


def test_every_command_that_a_text_names_exists() -> None:
    """In the catalogue and in the facts: nobody is sent to a command that is not there."""
    root = resources.files("heavylift")
    texts = [text(key) for key in keys()]
    texts += [path.read_text("utf-8") for path in Path(str(root)).joinpath("facts").rglob("*.toml")]
    named = {word for each in texts for word in _TYPED.findall(each)}
    assert named
    assert named <= set(COMMANDS)
