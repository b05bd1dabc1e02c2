"""The commands in the pages, run as they stand there: statuses and what is shown.

A page is run as its reader would: in its language, in a new folder, with a home of its own, one
block after the other. `make docs-screens` runs all pages in all languages and writes the screens
that are no longer right; here the pages that start an engine are run in English, and the quickstart
in one language more; the others by commands whose imports were done once for all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.docs import screens
from tests.docs.markdown import LANGUAGES, ROOT, TREE, blocks, named, pages
from tests.docs.reader import Reader, Typed

pytestmark = pytest.mark.e2e

EVERYTHING = "HEAVYLIFT_TEST_SCREENS" in os.environ


def runnable(language: str) -> list[Path]:
    """The pages of a language that have something that runs here."""
    return [page for page in pages(language) if any(block.is_screen for block in blocks(page))]


def starts_an_engine(page: Path) -> bool:
    """True for pages that take several seconds."""
    return any(block.runs and "heavylift up " in block.text for block in blocks(page))


RUNNABLE = [
    page
    for language in LANGUAGES
    for page in runnable(language)
    if EVERYTHING
    or language == "en"
    or not starts_an_engine(page)
    or page == TREE / "zh-Hant" / "quickstart.md"
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Processes that have the command line imported, one for each language that is asked for."""
    running: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def server(language: str) -> Path:
        if language not in running:
            path = tmp_path_factory.mktemp("server") / "s"
            words = [sys.executable, "-m", "tests.docs.preloaded", str(path), language]
            environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
            process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
            running[language] = process, path
            while not path.exists():
                assert process.poll() is None
                time.sleep(0.05)
        return running[language][1]

    yield server
    for process, _ in running.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("page", RUNNABLE, ids=named)
def test_what_a_page_says_is_what_happens(
    page: Path, engine_home: Path, tmp_path: Path, servers: Callable[[str], Path]
) -> None:
    """Each runnable block ends with the status stated and shows the lines that the page shows."""
    language = page.relative_to(TREE).parts[0]
    server = None if EVERYTHING or starts_an_engine(page) else servers(language)
    for typed in reading(page, engine_home, tmp_path, server):
        assert typed.status == typed.expected, typed.where
        if typed.session.shown:
            assert screens.shows(typed.session.shown, typed.output), typed.where


def reading(page: Path, engines: Path, folder: Path, server: Path | None) -> Iterator[Typed]:
    """What a reader of the page's language meets; nothing that was started stays."""
    reader = Reader(folder, engines, page.relative_to(TREE).parts[0], server)
    try:
        yield from reader.reads(page)
    finally:
        reader.leaves()


def test_pages_are_run() -> None:
    """Quickstart and every guide have something that is run here."""
    guides = (TREE / "en" / "guides").glob("*.md")
    assert {TREE / "en" / "quickstart.md", *guides} <= set(runnable("en"))
