"""Files that are no facts files at all, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.defects import FactsError
from heavylift.facts.document import read_document

WriteFacts = Callable[..., Catalog]

HOSTILE = {
    "not UTF-8": (b'title = "\xff"', "not_text"),
    "UTF-16": ("title = 1".encode("utf-16"), "not_text"),
    "no TOML": (b"title", "not_toml"),
    "nested without end": (b"a = " + b"[" * 5000, "not_toml"),
    "nested tables": (b"a = " + b"{b = " * 5000, "not_toml"),
    "a number of 5,000 digits": (b"a = " + b"9" * 5000, "not_toml"),
    "a hex number of 5,000 digits": (b"a = 0x" + b"f" * 5000, "integer_too_large"),
    "a number beyond 64 bits": (b"a = [{b = 9223372036854775808}]", "integer_too_large"),
    "one below 64 bits": (b"a = -9223372036854775809", "integer_too_large"),
    "null": (b"\0", "not_toml"),
}


@pytest.mark.parametrize(("content", "problem"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("file", ["sources.toml", "gpus/card.toml", "engines/runner.toml"])
def test_whatever_the_bytes_are_the_file_has_a_defect(
    facts: WriteFacts, tmp_path: Path, file: str, content: bytes, problem: str
) -> None:
    """No file of facts ends the check of the others."""
    catalog = facts()
    (tmp_path / file).write_bytes(content)
    found = {(defect.path.partition(":")[0], defect.problem) for defect in catalog.check()}
    assert (file, problem) in found


def test_a_number_too_large_is_named_by_its_place(tmp_path: Path) -> None:
    """The path leads through lists and tables; the number itself is not printed."""
    (tmp_path / "x.toml").write_text("a = [{b = 0xffffffffffffffffff}]")
    with pytest.raises(FactsError) as caught:
        read_document(tmp_path, "x.toml")
    assert caught.value.params["path"] == "x.toml: a[0].b"


def test_the_limits_of_64_bits_are_inside(tmp_path: Path) -> None:
    """What TOML promises is read."""
    (tmp_path / "x.toml").write_text("a = 9223372036854775807\nb = -9223372036854775808")
    assert read_document(tmp_path, "x.toml") == {"a": 2**63 - 1, "b": -(2**63)}


def test_a_folder_in_place_of_a_file_is_a_defect(facts: WriteFacts, tmp_path: Path) -> None:
    """What cannot be opened is named with the system's reason."""
    catalog = facts()
    (tmp_path / "gpus/odd.toml").mkdir()
    (defect,) = catalog.check()
    assert (defect.path, defect.problem) == ("gpus/odd.toml", "unreadable")


def test_a_link_to_nowhere_is_a_defect(facts: WriteFacts, tmp_path: Path) -> None:
    """A listed file that is not there is one too; the rest is still checked."""
    catalog = facts("nodes/box.toml", "gpus_per_node = { value = 2", "gpus_per_node = { value = 0")
    (tmp_path / "gpus/odd.toml").symlink_to(tmp_path / "nowhere")
    assert {(defect.path, defect.problem) for defect in catalog.check()} == {
        ("gpus/odd.toml", "no_file"),
        ("nodes/box.toml: gpus_per_node.value", "zero"),
    }


def test_a_folder_without_sources_is_a_defect(tmp_path: Path) -> None:
    """Nothing can be checked without the list of sources."""
    (defect,) = Catalog(tmp_path).check()
    assert (defect.path, defect.problem) == ("sources.toml", "no_file")


def test_names_that_are_no_names_do_not_end_a_search(facts: WriteFacts) -> None:
    """A search looks into files nobody has checked: what is no text there is passed over."""
    catalog = facts("gpus/card.toml", 'aliases = ["Maker Card-9000", "the card"]', "aliases = 7")
    with pytest.raises(HeavyliftError, match="FACT011"):
        catalog.gpu("other")
