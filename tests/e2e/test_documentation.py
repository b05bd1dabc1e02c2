"""The commands in the English pages, run as they stand there: statuses and what is shown.

The other languages have the same commands; what these show is the English screen, except in the
quickstart, which is run in every language. A page is run as its reader would: in a new
folder, with a home of its own, one block after the other.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.markdown import LANGUAGES, ROOT, TREE, Block, blocks, named, pages
from tests.e2e.deployments import free_port

pytestmark = pytest.mark.e2e

PORTS = ("8123", "8080")
"""Ports as the pages have them; each run has others, that are free."""
RUNNABLE = [page for page in pages("en") if any(block.runs for block in blocks(page))]
SPOKEN = [TREE / language / "quickstart.md" for language in LANGUAGES[1:]]
"""Pages that show the screens of their own language."""


class Reader:
    """Somebody who types what a page says: a folder, an environment that lasts, two ports."""

    def __init__(self, folder: Path, engines: Path) -> None:
        home = folder / "heavylift"
        home.mkdir()
        (home / "data").symlink_to(engines / "data")
        programs = folder / "bin"
        programs.mkdir()
        program = programs / "heavylift"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m heavylift "$@"\n')
        program.chmod(0o755)
        self._folder = folder / "work"
        self._folder.mkdir()
        self._kept = folder / "environment"
        self._kept.write_text("")
        self._started = False
        self._ports = {port: str(free_port()) for port in PORTS}
        self._environment = {
            "HEAVYLIFT_HOME": str(home),
            "HOME": str(folder),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "LC_ALL": "C.UTF-8",
        }

    def speaks(self, language: str) -> None:
        """Have the screens in a language."""
        self._environment["HEAVYLIFT_LANG"] = language

    def types(self, commands: str) -> tuple[int, str]:
        """Run commands in a shell; what they export is there for the next ones."""
        self._started |= "heavylift up" in commands
        script = f". '{self._kept}'\ntrap 'export -p > {self._kept}' EXIT\n{self.here(commands)}"
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout

    def here(self, words: str) -> str:
        """Words of a page with the ports of this run."""
        for shown, free in self._ports.items():
            words = re.sub(rf"\b{shown}\b", free, words)
        return words

    def leaves(self) -> None:
        """Stop what the page has started and not stopped."""
        if not self._started:
            return
        _, told = self.types("heavylift status --json || true")
        for deployment in json.loads(told)["deployments"]:
            self.types(f"heavylift down {deployment['name']}")


@pytest.fixture
def reader(engine_home: Path, tmp_path: Path) -> Iterator[Reader]:
    """A reader with the embedded engine at hand."""
    reader = Reader(tmp_path, engine_home)
    yield reader
    reader.leaves()


def sessions(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with the output that is shown below it."""
    if block.language == "sh":
        yield block.text, "…\n"
        return
    typed = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert typed[0] == "", f"{block.page}:{block.line}: begins with output"
    for each in typed[1:]:
        command, _, shown = each.partition("\n")
        yield command, shown


def pattern(shown: str) -> re.Pattern[str]:
    """What an output must be: `…` alone stands for any lines, in a line for any characters."""
    parts = [
        r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in shown.splitlines()
    ]
    return re.compile("".join(parts))


@pytest.mark.parametrize("page", [*RUNNABLE, *SPOKEN], ids=named)
def test_what_a_page_says_is_what_happens(page: Path, reader: Reader) -> None:
    """Each runnable block ends with the status stated and shows the lines that the page shows."""
    reader.speaks(page.relative_to(TREE).parts[0])
    for block in blocks(page):
        if not block.runs:
            continue
        commands = list(sessions(block))
        for number, (command, shown) in enumerate(commands, start=1):
            status, output = reader.types(command)
            where = f"{named(page)}:{block.line}: {command}\n{output}"
            assert status == (block.status if number == len(commands) else 0), where
            if shown:
                told = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
                assert pattern(reader.here(shown)).fullmatch(told), where


def test_an_output_that_differs_is_noticed() -> None:
    """Lines in another order, missing or with other numbers are not what was shown."""
    assert pattern("a\n…\nb … d\n").fullmatch("a\nx\nb c d\n")
    for told in ("b c d\na\n", "a\nb c\n", "a\nb c d\nmore\n"):
        assert not pattern("a\n…\nb … d\n").fullmatch(told)


def test_pages_are_run() -> None:
    """Quickstart and every guide have something that is run here."""
    assert {TREE / "en" / "quickstart.md", *(TREE / "en" / "guides").glob("*.md")} <= set(RUNNABLE)
