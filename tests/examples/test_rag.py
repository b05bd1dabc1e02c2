"""The small RAG: real embeddings of the embedded engine, citations that can be looked up."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples.conftest import EXAMPLES, REAL, program

Example = Callable[..., int]
rag: Any = program("rag/rag.py")
ASKED = ("--model", REAL, "--passages", "2", "--max-tokens", "12")


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example's texts, English, Simplified and Traditional Chinese; embedded once."""
    target = tmp_path_factory.mktemp("rag") / "documents"
    return Path(shutil.copytree(EXAMPLES / "rag" / "documents", target))


@pytest.mark.e2e
@pytest.mark.parametrize(
    "about",
    [
        ("How many days are copies of databases kept?", "backups.md"),
        ("机房的温度保持在多少摄氏度之间？", "机房手册.md"),
        ("收到警報後幾分鐘內要有人回應？", "值班手冊.md"),
    ],
)
def test_every_source_is_a_place_in_a_file(
    about: tuple[str, str],
    documents: Path,
    as_client: Callable[..., None],
    example: Example,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What stands at the file and lines of a source is its text; the right file is among them."""
    question, file = about
    as_client()
    assert example("rag/rag.py", str(documents), question, *ASKED, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["answer"].strip()
    assert [source["number"] for source in found["sources"]] == [1, 2]
    for source in found["sources"]:
        lines = (documents / source["file"]).read_text("utf-8").split("\n")
        assert "\n".join(lines[source["first_line"] - 1 : source["last_line"]]) == source["text"]
    assert file in {source["file"] for source in found["sources"]}


@pytest.mark.e2e
def test_only_what_changed_is_embedded_again(
    documents: Path,
    as_client: Callable[..., None],
    example: Example,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A second question embeds no passage; a new paragraph is one; sources are shown to a person
    with file and line.
    """
    as_client()
    asked = ("rag/rag.py", str(documents), "Who pays a taxi?", *ASKED)
    assert example(*asked) == 0
    capsys.readouterr()
    assert example(*asked) == 0
    assert capsys.readouterr().err.endswith(" passages, 0 embedded\n")
    with (documents / "travel.md").open("a", encoding="utf-8") as text:
        text.write("\nTaxis are paid after ten in the evening.\n")
    assert example(*asked) == 0
    out, err = capsys.readouterr()
    assert err.endswith(" passages, 1 embedded\n")
    sources = out.strip().split("\n")[-2:]
    assert all(re.match(r"\[[12]\] [^:]+\.md:\d+", line) for line in sources)


def test_an_empty_folder_is_said_to_be_empty(
    tmp_path: Path, example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anybody is asked anything."""
    assert example("rag/rag.py", str(tmp_path), "What?", "--model", REAL) == 3
    assert str(tmp_path) in capsys.readouterr().err


@given(st.text(alphabet=st.sampled_from("ab 中文🏗\n"), max_size=2000))
def test_passages_hold_every_character_and_none_is_too_long(text: str) -> None:
    """Whatever the text; lines only lose the spaces around them."""
    found = list(rag._passages_of("a.md", text))
    assert all(0 < len(each.text.encode()) <= rag.PASSAGE_BYTES for each in found)
    inside = "".join(each.text for each in found)
    assert inside.replace("\n", "").replace(" ", "") == text.replace("\n", "").replace(" ", "")


def test_an_invented_number_is_no_citation() -> None:
    """Of two passages, [3] was never given."""
    two = [rag.Passage("a.md", 1, 1, "x"), rag.Passage("b.md", 4, 6, "y")]
    assert rag.cited("It is so [2], as 【1】 and [3] say.", two) == {1, 2}
    assert [each.place for each in two] == ["a.md:1", "b.md:4-6"]
