"""The reference pages: whole, the same every time, in the language that is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from heavylift.cli import codes
from heavylift.cli.main import COMMANDS
from heavylift.facts.catalog import Catalog
from heavylift.records.json_schema import RECORDS

ROOT = Path(__file__).parents[3]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def written(folder: Path, language: str) -> dict[str, bytes]:
    """The pages of a language; help is made when it is loaded, so each has its own process."""
    run = [sys.executable, "-m", "heavylift.cli.reference", str(folder)]
    subprocess.run(run, env=os.environ | {"HEAVYLIFT_LANG": language}, check=True)
    return tree(folder)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The English pages."""
    found = written(tmp_path_factory.mktemp("reference"), "en")
    return {path: content.decode() for path, content in found.items()}


def test_every_command_code_and_record_has_its_page(pages: dict[str, str]) -> None:
    """Nothing that the code has is left out of the reference."""
    assert {f"cli/{name}.md" for name in COMMANDS} <= set(pages)
    assert {f"errors/{code}.md" for code in codes.codes()} <= set(pages)
    assert {f"contracts/{name}.schema.json" for name in RECORDS} <= set(pages)
    for code in codes.codes():
        assert f"[{code}]({code}.md)" in pages["errors/index.md"]


def test_commands_within_commands_are_shown_with_their_options(pages: dict[str, str]) -> None:
    """`keys create` stands on the page of `keys`, as its own help has it."""
    page = pages["cli/keys.md"]
    assert "## `heavylift keys create`" in page
    assert "--tokens-per-day COUNT" in page


def test_every_value_names_a_source_that_is_listed(pages: dict[str, str]) -> None:
    """A card's memory stands with number, kind and source; the source is on its page."""
    catalog = Catalog()
    for card in catalog.gpus():
        assert (
            f"[{card.memory_visible.source}](sources.md#{card.memory_visible.source})"
            in (pages["facts/gpus.md"])
        )
    for source in catalog.all_sources():
        assert f'<a id="{source.id}"></a>' in pages["facts/sources.md"]


def test_no_row_of_a_table_has_more_or_fewer_cells_than_its_head(pages: dict[str, str]) -> None:
    """A `|` in a value does not break a table."""
    for path, words in pages.items():
        width = 0
        for line in words.splitlines() if path.endswith(".md") else ():
            if not line.startswith("|"):
                width = 0
                continue
            cells = line.replace("\\|", "").count("|")
            assert cells == (width or cells), f"{path}: {line}"
            width = cells


def test_another_process_and_language_writes_the_same_pages(
    pages: dict[str, str], tmp_path: Path
) -> None:
    """The same bytes in English; in Chinese the same files, options and schemas as they are."""
    again = written(tmp_path / "en", "en")
    assert again == {path: words.encode() for path, words in pages.items()}
    told = written(tmp_path / "zh-Hant", "zh-Hant")
    chinese = {path: content.decode() for path, content in told.items()}
    assert set(chinese) == set(pages)
    assert chinese["contracts/plan.schema.json"] == pages["contracts/plan.schema.json"]
    assert "--tokens-per-day" in chinese["cli/keys.md"]
    assert "顯示記憶體" in chinese["facts/gpus.md"]


def test_the_site_shows_every_page() -> None:
    """The order of the site names each page of the tree once, and no other."""
    tree_of_pages = ROOT / "docs" / "en"
    if not tree_of_pages.is_dir():
        pytest.skip("not a checkout")
    site = yaml.safe_load((ROOT / "docs" / "mkdocs.yml").read_text("utf-8"))
    named = [
        page
        for entry in site["nav"]
        for page in ([entry] if isinstance(entry, str) else next(iter(entry.values())))
    ]
    lying = {path.relative_to(tree_of_pages).as_posix() for path in tree_of_pages.rglob("*.md")}
    assert len(named) == len(set(named))
    assert lying == {page for page in named if (tree_of_pages / page).is_file()}
