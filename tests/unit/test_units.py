"""Token counts as people write them; bytes, GiB and GB as they are shown."""

from __future__ import annotations

import pytest

from heavylift.units import (
    GIB,
    format_bytes,
    format_gb,
    format_gib,
    format_tokens,
    gib,
    parse_bytes,
    parse_tokens,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("32768", 32_768),
        ("131,072", 131_072),
        ("1_000_000", 1_000_000),
        ("128k", 131_072),
        ("128K", 131_072),
        (" 128 k ", 131_072),
        ("1M", 1_048_576),
        ("1.5M", 1_572_864),
        ("0.5k", 512),
    ],
)
def test_token_counts_read_as_the_field_writes_them(text: str, tokens: int) -> None:
    """The letters stand for powers of two, as in published lengths; commas part thousands."""
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k",
        "0",
        "-1",
        "1.5",
        "0.3k",
        "1G",
        "1GiB",
        "1,5k",
        "12,34",
        "1__0",
        "1e6",
        "١٢",
        "9" * 9999,
    ],
)
def test_what_is_no_token_count_is_refused(text: str) -> None:
    """Another unit, a part of a token, none at all, or a comma that is no thousands sign."""
    with pytest.raises(ValueError, match=r"^"):
        parse_tokens(text)


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [(1, "1"), (1024, "1k"), (2389, "2,389"), (1_048_576, "1M"), (2**30, "1,024M")],
)
def test_token_counts_are_short_where_that_loses_nothing(tokens: int, shown: str) -> None:
    """Whole powers of two get a letter, everything else its digits."""
    assert format_tokens(tokens) == shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("884736", 884_736),
        ("884,736 B", 884_736),
        ("288 GB", 288 * 10**9),
        ("288GiB", 288 * GIB),
        ("190.97 gib", 205_052_476_129),
        ("0", 0),
        ("1.5 KiB", 1536),
        ("2 TB", 2 * 10**12),
    ],
)
def test_bytes_read_in_both_families_of_units(text: str, value: int) -> None:
    """Decimal and binary units are told apart; a part of a byte goes to the nearest one."""
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "G", "64G", "-1 GB", "1.2.3 GB", "1 GBit", "1,5 GB"])
def test_a_size_that_could_mean_two_things_is_refused(text: str) -> None:
    """A bare G has meant both; a comma is no decimal point."""
    with pytest.raises(ValueError, match=r"^"):
        parse_bytes(text)


def test_memory_is_shown_in_gib_and_nameplates_in_gb() -> None:
    """288 GiB of memory are 309.2 GB; bytes are never rounded."""
    assert format_gib(288 * GIB) == "288.00"
    assert gib(288 * GIB) == 288.0
    assert format_gb(288 * GIB) == "309.2"
    assert format_bytes(884_736) == "884,736 B"
