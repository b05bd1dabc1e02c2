"""Racks as people type them."""

from __future__ import annotations

import pytest

from heavylift.errors import HeavyliftError
from heavylift.plan.rack import parse_rack
from heavylift.planning import Planning


@pytest.mark.parametrize(
    ("text", "nodes", "per_node"),
    [
        ("8xMI355X", 1, 8),
        ("8 x MI355X", 1, 8),
        ("8×MI355X", 1, 8),
        ("mi355x:8", 1, 8),
        ("4xMI355X", 1, 4),
        ("2x8xH200", 2, 8),
        ("16xH200", 2, 8),
        ("8xGB300", 2, 4),
        ("1x4xGB300", 1, 4),
        ("8xNVIDIA B200", 1, 8),
    ],
)
def test_a_rack_text_gives_nodes_and_gpus_per_node(
    planning: Planning, text: str, nodes: int, per_node: int
) -> None:
    """A rack reads as machines of the size the card is built into."""
    _, rack = planning.rack(text)
    assert rack is not None
    assert (rack.nodes, rack.gpus_per_node) == (nodes, per_node)


@pytest.mark.parametrize(
    ("text", "reading"),
    [("8xGB300", "as_trays"), ("16xH200", "as_nodes"), ("2x8xH200", None), ("8xH200", None)],
)
def test_a_reading_that_is_not_literal_is_said(
    planning: Planning, text: str, reading: str | None
) -> None:
    """A count that becomes trays or machines carries the code of that reading."""
    _, rack = planning.rack(text)
    assert rack is not None
    assert rack.reading == reading


def test_a_card_alone_names_no_rack(planning: Planning) -> None:
    """Without a count there is a card and no rack: the smallest that holds is looked for."""
    gpu, rack = planning.rack("B200")
    assert (gpu.id, rack) == ("b200", None)


@pytest.mark.parametrize("text", ["", "  ", "0xB200", "B200:0", "2x0xB200"])
def test_what_is_no_rack_is_refused(text: str) -> None:
    """Nothing, or a count of zero, is no rack."""
    with pytest.raises(HeavyliftError) as caught:
        parse_rack(text)
    assert caught.value.code == "PLAN001"


def test_a_count_between_machines_names_the_nearest(planning: Planning) -> None:
    """12 B200 are no whole machines; 8 and 16 would be."""
    with pytest.raises(HeavyliftError) as caught:
        planning.rack("12xB200")
    assert caught.value.code == "PLAN002"
    assert (caught.value.params["nearest"], caught.value.params["next"]) == (8, 16)


def test_more_cards_than_a_machine_holds_are_refused(planning: Planning) -> None:
    """Two nodes of sixteen H200 do not exist."""
    with pytest.raises(HeavyliftError) as caught:
        planning.rack("2x16xH200")
    assert caught.value.code == "PLAN003"


@pytest.mark.parametrize(("text", "meant"), [("8xM1355X", "MI355X"), ("8xGB3000", "GB300")])
def test_a_misspelt_card_is_answered_with_the_near_one(
    planning: Planning, text: str, meant: str
) -> None:
    """Spellings seen in articles get a did-you-mean."""
    with pytest.raises(HeavyliftError) as caught:
        planning.rack(text)
    assert (caught.value.code, caught.value.params["suggestion"]) == ("FACT011", meant)
