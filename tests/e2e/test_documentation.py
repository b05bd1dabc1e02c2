"""The commands in the pages, run as they stand there: statuses and what is shown.

A page is run as its reader would: in its language, in a new folder, with a home of its own, one
block after the other. `make docs-screens` runs all pages in all languages and writes the screens
that are no longer right; here the pages that start an engine are run in English, and the quickstart
in one language more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs import screens
from tests.docs.markdown import LANGUAGES, TREE, blocks, named, pages
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


@pytest.mark.parametrize("page", RUNNABLE, ids=named)
def test_what_a_page_says_is_what_happens(page: Path, engine_home: Path, tmp_path: Path) -> None:
    """Each runnable block ends with the status stated and shows the lines that the page shows."""
    for typed in reading(page, engine_home, tmp_path):
        assert typed.status == typed.expected, typed.where
        if typed.session.shown:
            assert screens.shows(typed.session.shown, typed.output), typed.where


def reading(page: Path, engines: Path, folder: Path) -> Iterator[Typed]:
    """What a reader of the page's language meets; nothing that was started stays."""
    reader = Reader(folder, engines, page.relative_to(TREE).parts[0])
    try:
        yield from reader.reads(page)
    finally:
        reader.leaves()


def test_pages_are_run() -> None:
    """Quickstart and every guide have something that is run here."""
    guides = (TREE / "en" / "guides").glob("*.md")
    assert {TREE / "en" / "quickstart.md", *guides} <= set(runnable("en"))
