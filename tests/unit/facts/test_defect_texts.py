"""Every defect that facts can have can be said."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import heavylift.facts
from heavylift.cli.text import keys
from heavylift.locale.catalogue import parse

FOLDER = Path(heavylift.facts.__file__).parent
TEXTS = FOLDER.parent / "locale" / "en" / "facts.txt"


def problems() -> Iterator[str]:
    """The problem of every defect that the code makes; a name is one handed on."""
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="Defect") | ast.Attribute(attr="defect"),
                    args=[_, problem, *_],
                ):
                    match problem:
                        case ast.Constant(value=str() as code):
                            yield code
                        case ast.Name(id="problem") | ast.Attribute(attr="problem"):
                            pass
                        case _:
                            message = f"{path.name}:{node.lineno}: write the problem as a literal"
                            raise AssertionError(message)


def test_every_problem_has_a_text_and_every_text_a_problem() -> None:
    """A defect without words cannot be shown; words of facts without a defect are left over."""
    made = {f"defect.{problem}" for problem in problems()}
    assert len(made) > 30
    assert made <= keys()
    assert set(parse(TEXTS.read_text("utf-8"))) <= made
