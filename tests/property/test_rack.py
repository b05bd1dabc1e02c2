"""Rules of rack texts that hold for any card and any text."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.plan.rack import MOST_GPUS, RackText, parse_rack

NAMES = [name for gpu in Catalog().gpus() for name in (gpu.id, gpu.title, *gpu.aliases)]
names = st.sampled_from(NAMES)
counts = st.integers(1, MOST_GPUS)
signs = st.sampled_from(["x", "X", "×", "*", " x ", " X ", " × ", " "])


@given(names)
def test_a_cards_name_alone_is_no_count(name: str) -> None:
    """However a card is called, its name is read whole."""
    assert parse_rack(name) == RackText(name, name, None, None)


@given(counts, signs, names)
def test_a_count_before_a_card_reads_back(count: int, sign: str, name: str) -> None:
    """`8xB300`, `8 × B300`, `8 B300`."""
    text = f"{count}{sign}{name}"
    assert parse_rack(text) == RackText(text, name, count, None)


@given(counts, st.sampled_from([":", " x ", " X", " x", "×", " * "]), names)
def test_a_count_behind_a_card_reads_back(count: int, sign: str, name: str) -> None:
    """`B300:8`, `B300 x 8`, `4080 x 8`; of two numbers like a card's the first is the count."""
    assume(not name.isdigit() or count < 1000)
    text = f"{name}{sign}{count}"
    assert parse_rack(text) == RackText(text, name, count, None)


@given(st.integers(1, 256), st.integers(1, 256), names)
def test_machines_of_cards_read_back(nodes: int, count: int, name: str) -> None:
    """`2x8xH200`: machines, then cards of each."""
    text = f"{nodes}x{count}x{name}"
    assert parse_rack(text) == RackText(text, name, count, nodes)


@given(st.integers(MOST_GPUS + 1, 10**30), names)
def test_more_than_the_most_is_refused(count: int, name: str) -> None:
    """A slip of the keys is not planned for, wherever the count stands."""
    for text in (f"{count}x{name}", f"{name}:{count}", f"2x{count}x{name}", f"{count}x1x{name}"):
        with pytest.raises(HeavyliftError) as caught:
            parse_rack(text)
        assert caught.value.code == "PLAN005"


@given(st.text() | st.text(alphabet="0128xX×*:, .-BH\t\n\0", max_size=12))
def test_any_text_is_a_rack_or_refused(text: str) -> None:
    """Nothing a person types gives another error, no card, or a count out of range."""
    try:
        parsed = parse_rack(text)
    except HeavyliftError as error:
        assert error.code in {"PLAN001", "PLAN005"}  # noqa: PT017 - both are right answers
        return
    assert parsed.gpu.isprintable()
    assert any(character.isalpha() for character in parsed.gpu)
    assert 1 <= (parsed.count or 1) * (parsed.nodes or 1) <= MOST_GPUS
