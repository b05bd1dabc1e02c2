"""The pages: the same in three languages, every block marked, every link leading somewhere."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from tests.docs.markdown import (
    DRAWN,
    LANGUAGES,
    NEEDS,
    ROOT,
    SHELL,
    TREE,
    Block,
    blocks,
    headings,
    links,
    named,
    neutral,
    pages,
    uncommented,
)

ENGLISH = pages("en")
TRANSLATED = [(language, page) for language in LANGUAGES[1:] for page in ENGLISH]
EXAMPLES = sorted((ROOT / "examples").rglob("README.zh-Hant.md"))
AVOIDED: list[str] = tomllib.loads(
    resources.files("heavylift.locale").joinpath("glossary.toml").read_text("utf-8")
)["avoid"]["zh_Hant"]
ALL = [page for language in LANGUAGES for page in pages(language)]


@pytest.fixture(autouse=True)
def only_in_a_checkout() -> None:
    """An installed package has no documentation beside it."""
    if not ENGLISH:
        pytest.skip("not a checkout")


def counterpart(language: str, page: Path) -> Path:
    """The page of another language that says the same."""
    return TREE / language / page.relative_to(TREE / "en")


def asked(block: Block) -> tuple[str, tuple[str, ...], str]:
    """What is the same in every language: of a session what is typed, not what is shown."""
    text = block.text
    if block.language == "console":
        text = "\n".join(line for line in text.splitlines() if line.startswith("$ "))
    if block.drawn is not None:
        text = block.drawn
    return block.language, tuple(block.markers), uncommented(text)


@pytest.mark.parametrize(("language", "page"), TRANSLATED, ids=str)
def test_a_page_has_its_counterpart(language: str, page: Path) -> None:
    """Same headings by level, same blocks apart from comments and from what a command shows, same
    links, in the same order.
    """
    other = counterpart(language, page)
    assert other.is_file()
    assert headings(other) == headings(page)
    assert [asked(block) for block in blocks(other)] == [asked(block) for block in blocks(page)]
    assert links(other) == links(page)


@pytest.mark.parametrize(("language", "page"), TRANSLATED, ids=str)
def test_a_page_says_as_much_as_its_counterpart(language: str, page: Path) -> None:
    """Every command, option, file and figure in the prose stands in every language, as often."""
    ours, theirs = neutral(page), neutral(counterpart(language, page))
    assert (dict(ours - theirs), dict(theirs - ours)) == ({}, {})


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_no_language_has_a_page_of_its_own(language: str) -> None:
    """A page that is gone in English is gone in every language."""
    assert set(pages(language)) <= {counterpart(language, page) for page in ENGLISH}


@pytest.mark.parametrize("page", ALL, ids=named)
def test_every_shell_block_says_whether_it_runs_here(page: Path) -> None:
    """`runs`, with the status where it is not 0, or `needs=` something that is not here."""
    for block in blocks(page):
        where = f"{named(page)}:{block.line}"
        assert block.language, f"{where}: a block without a language"
        if block.language in SHELL:
            assert block.runs is not (block.needs in NEEDS), f"{where}: {block.markers}"
            extra = {
                m for m in block.markers if m != "runs" and not m.startswith(("needs=", "exits="))
            }
            assert extra == set(), where
        elif block.drawn is not None:
            assert (DRAWN / f"{block.drawn}.jsonl").is_file(), where
        else:
            assert block.markers == (), where


@pytest.mark.parametrize("page", ALL, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    """A link is a page of the same language, or one that is generated under its reference."""
    for target in links(page):
        if "://" in target or not target:
            continue
        found = (page.parent / target).resolve()
        generated = found.is_relative_to(TREE / page.relative_to(TREE).parts[0] / "reference")
        assert found.is_file() or generated, f"{named(page)}: {target}"


@pytest.mark.parametrize(
    "page",
    [
        *pages("zh-Hant"),
        *sorted(ROOT.glob("README.zh-Hant.md")),
        *sorted(TREE.glob("*.zh-Hant.md")),
        *EXAMPLES,
    ],
    ids=named,
)
def test_traditional_is_written_as_in_taiwan(page: Path) -> None:
    """No character outside Taiwan's own set, no word that the glossary avoids, comments included;
    what is typed may be in any language.
    """
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("python "):
            continue
        words = line.replace("简体中文", "")
        "".join(re.findall(r"[\u4e00-\u9fff]+", words)).encode("big5")
        assert [word for word in AVOIDED if re.search(word, words)] == [], line


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_a_readme_names_the_same_commands(language: str) -> None:
    """What can be typed is the same in every language; only the plan shown is asked in its own."""
    other = commands_of(ROOT / f"README.{language}.md")
    spoken = f"heavylift --lang {language} "
    assert {each.replace(spoken, "heavylift ") for each in other} == commands_of(ROOT / "README.md")


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_a_readme_says_as_much(language: str) -> None:
    """All commands, folders and figures of the English prose; how words are chosen and translated
    is said besides.
    """
    ours, theirs = neutral(ROOT / "README.md"), neutral(ROOT / f"README.{language}.md")
    assert dict(ours - theirs) == {}
    about_words = re.compile(r"--lang |HEAVYLIFT_LANG|locale")
    assert [each for each in theirs - ours if not about_words.search(each)] == []


def commands_of(page: Path) -> set[str]:
    """The lines of a page that can be typed, without their comments."""
    lines = page.read_text("utf-8").splitlines()
    typed = [line.removeprefix("$ ") for line in lines]
    return {uncommented(line).strip() for line in typed if line.startswith(("heavylift ", "make "))}
