"""Run the blocks of the documentation and write the screens that are no longer right.

    python -m tools.docs_screens [--check] [--again] [PAGE …]

English pages keep their choice of lines; Chinese pages get the lines that the English page shows,
as the Chinese screen has them. `--again` makes the Chinese screens anew also where they are right,
`--check` writes nothing. PAGE is a path below the language (`guides/mi355x.md`); all unless named.
Status 1 when something was, or would be, written, and when a block ended otherwise than it says.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.docs import screens
from tests.docs.markdown import LANGUAGES, TREE, Block, blocks, pages
from tests.docs.reader import Reader, Typed

from heavylift.launch import engine_env

ENGLISH = TREE / "en"
_WHOLE = re.compile(r"(```\n\$ (heavylift [^\n]+)\n)(?:.*\n)*?```")
STORE = TREE.parent / ".cache" / "heavylift-test"


def main() -> int:
    """Read, compare, write."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("pages", nargs="*", metavar="PAGE")
    asked.add_argument("--check", action="store_true")
    asked.add_argument("--again", action="store_true")
    given = asked.parse_args()
    os.environ["HEAVYLIFT_HOME"] = str(Path(os.environ.get("HEAVYLIFT_TEST_HOME", STORE)))
    engine_env.install_embedded()
    wanted = {ENGLISH / page for page in given.pages} or set(pages("en"))
    status = 0
    for page in sorted(wanted):
        if any(block.is_screen for block in blocks(page)):
            status |= renew(page.relative_to(ENGLISH), write=not given.check, again=given.again)
    if not given.pages:
        status |= readmes(write=not given.check)
    return status


def readmes(*, write: bool) -> int:
    """The screens in the READMEs, which are shown whole; 1 where something differed."""
    status = 0
    for page in sorted(TREE.parent.glob("README*.md")):
        words = page.read_text("utf-8")
        with tempfile.TemporaryDirectory() as folder:
            reader = Reader(Path(folder), Path(os.environ["HEAVYLIFT_HOME"]), "en")
            new = _WHOLE.sub(lambda found: f"{found[1]}{reader.types(found[2])[1]}```", words)  # noqa: B023
        status |= _kept(page, new, write=write)
    return status


def renew(name: Path, *, write: bool, again: bool) -> int:
    """One page in every language; 1 where something differed."""
    status = 0
    source: list[tuple[screens.Session, list[str]]] = []
    for language in LANGUAGES:
        page = TREE / language / name
        told = list(read(page, language))
        wrong = [
            each.status != each.expected or not screens.shows(each.session.shown, each.output)
            for each in told
        ]
        if language == "en":
            new = [_refreshed(each) for each in told]
            source = [(each, typed.output) for each, typed in zip(new, told, strict=True)]
        elif any(wrong) or again:
            more = list(read(page, language))
            new = [
                _translated(*english, typed, other.output, language)
                if unlike or again
                else typed.session
                for english, typed, other, unlike in zip(source, told, more, wrong, strict=True)
            ]
        else:
            new = [each.session for each in told]
        for each in told:
            if each.status != each.expected:
                print(f"{each.where}\nended with {each.status}, not {each.expected}\n")
                status = 1
        words = written(page, told, new)
        status |= _kept(page, words, write=write)
    return status


def _kept(page: Path, words: str, *, write: bool) -> int:
    if words == page.read_text("utf-8"):
        return 0
    print(f"{page.relative_to(TREE.parent)}: {'written' if write else 'differs'}")
    if write:
        page.write_text(words, "utf-8")
    return 1


def _refreshed(typed: Typed) -> screens.Session:
    shown = typed.session.shown
    if not shown or screens.shows(shown, typed.output):
        return typed.session
    try:
        return screens.Session(typed.session.command, tuple(screens.refreshed(shown, typed.output)))
    except screens.UnlikeError as line:
        print(f"{typed.where}\nno counterpart of: {line}\n")
        return typed.session


def _translated(
    english: screens.Session, source: list[str], typed: Typed, other: list[str], language: str
) -> screens.Session:
    if not english.shown or typed.block.language == "sh":
        return typed.session
    target = screens.steady(typed.output, other)
    try:
        shown = tuple(screens.translated(english.shown, source, target, language))
    except screens.UnlikeError as line:
        print(f"{typed.where}\nno counterpart of: {line}\n")
        return typed.session
    return screens.Session(typed.session.command, shown)


def read(page: Path, language: str) -> Iterator[Typed]:
    """What a reader meets; nothing that was started stays."""
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(Path(folder), Path(os.environ["HEAVYLIFT_HOME"]), language)
        try:
            yield from reader.reads(page)
        finally:
            reader.leaves()


def written(page: Path, told: Sequence[Typed], new: Sequence[screens.Session]) -> str:
    """The page with other lines below the commands of its sessions."""
    words = page.read_text("utf-8").splitlines()
    inside: dict[Block, list[str]] = {}
    for typed, session in zip(told, new, strict=True):
        if typed.block.language == "sh":
            continue
        mine = inside.setdefault(typed.block, [])
        if typed.block.drawn is None:
            mine += f"$ {session.command}".split("\n")
        mine += session.shown
    for block in sorted(inside, key=lambda each: -each.line):
        words[block.line : block.line + block.text.count("\n")] = inside[block]
    return "".join(f"{line}\n" for line in words)


if __name__ == "__main__":
    sys.exit(main())
