"""What a value is, among the many ways tools have to say that there is none."""

from __future__ import annotations

import pytest

from heavylift.errors import HeavyliftError
from heavylift.telemetry import values


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "N/A",
        "[N/A]",
        "[Not Supported]",
        "None",
        "<unknown>",
        "[Unknown Error]",
        "[Requested functionality has been deprecated]",
        "[Function Not Found]",
    ],
)
def test_absent(text: str | None) -> None:
    """Every way of saying nothing reads as nothing, and never as zero."""
    assert values.known(text) is None
    assert values.number(text) is None
    assert values.whole(text) is None
    assert values.size_bytes(text) is None
    assert values.flag(text) is None


@pytest.mark.parametrize(
    ("text", "binary", "bytes_"),
    [
        ("81559 MiB", False, 85_520_809_984),
        ("10.5 GiB", False, 11_274_289_152),
        ("1 GB", False, 1_000_000_000),
        ("196592 MB", True, 206_141_652_992),
        ("0 B", False, 0),
        ("17 bytes", False, 17),
    ],
)
def test_sizes(text: str, binary: bool, bytes_: int) -> None:
    """MiB is 2**20, MB is 10**6 unless the tool means 2**20 by it."""
    assert values.size_bytes(text, binary=binary) == bytes_


def test_bare_size_takes_the_unit_of_its_heading() -> None:
    """A number without a unit is a size only where a unit is known for it."""
    assert values.size_bytes("7") is None
    assert values.size_bytes("7", unit="MiB") == 7 * 2**20
    assert values.size_bytes("x7", unit="MiB") is None


def test_long_digits_are_no_number() -> None:
    """A run of digits longer than any 64-bit count is cut, not an error."""
    assert values.whole("9" * 5000) == int("9" * 20)


def test_whole_numbers() -> None:
    """Decimal and hexadecimal whole numbers are read, fractions are not."""
    assert values.whole("16x") == 16
    assert values.whole("0x74a1") == 0x74A1
    assert values.whole("1.5") is None


def test_flags() -> None:
    """Enabled, Yes and Active are true, every other known word is false."""
    assert values.flag("Enabled") is True
    assert values.flag("Active") is True
    assert values.flag("Not Active") is False


@pytest.mark.parametrize(
    ("text", "version"),
    [("580.95.05", (580, 95, 5)), ("v1.14.0-1", (1, 14, 0)), ("none", ()), (None, ())],
)
def test_versions(text: str | None, version: tuple[int, ...]) -> None:
    """A version is its numbers, in order."""
    assert values.version(text) == version


def test_tree_follows_indentation() -> None:
    """A line belongs to the nearest line above that is indented less."""
    root = values.tree(["A: 1", "  B: 2", "    C: 3", "  D: 4", "", "E: 5"])
    assert root.get("A/B/C") == "3"
    assert root.get("A/D") == "4"
    assert root.get("E") == "5"
    assert root.get("A/C") is None
    assert [entry.key for entry in root.walk()] == ["", "E", "A", "D", "B", "C"]


def test_json_with_commas_and_warnings() -> None:
    """Warnings before a document, trailing commas and dots of omission are passed over."""
    assert values.decode_json('note\n{"a": [1, 2,],\n...\n}', "tool") == {"a": [1, 2]}


@pytest.mark.parametrize("text", ["", "no json here", "{broken"])
def test_no_json_is_a_coded_error(text: str) -> None:
    """What is no document is PRE101, with the tool's name."""
    with pytest.raises(HeavyliftError) as caught:
        values.decode_json(text, "tool")
    assert caught.value.code == "PRE101"
    assert caught.value.params["what"] == "tool"


def test_flattened_trees() -> None:
    """`### path` lines part the files of a recorded tree; text before the first is dropped."""
    assert values.flattened("x\n### /a\n1\n2\n### /b\n") == {"/a": "1\n2", "/b": ""}
