"""No English prose in the Chinese pages: sentences are Chinese, names and code stay."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.cli import english

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    (
        *ROOT.glob("docs/zh-*/**/*.md"),
        *ROOT.glob("README.zh-*.md"),
        *ROOT.glob("examples/*.zh-*.md"),
    )
)
# Blocks of code, comments, where a link leads, and log lines, which pages set in italics.
_NO_WORDS = re.compile(
    r"^(```|~~~).*?^\1|<!--.*?-->|(?<=\])\([^)]*\)|(?<!\*)\*[^*\n]+\*(?!\*)",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_chinese_page_holds_no_english_prose(page: Path) -> None:
    """What a reader of the site reads, by the detector of the screens."""
    words = _NO_WORDS.sub("", page.read_text("utf-8"))
    language = "zh_Hans" if "zh-Hans" in str(page.relative_to(ROOT)) else "zh_Hant"
    assert [*english.prose(words), *english.ours(words, language)] == []
