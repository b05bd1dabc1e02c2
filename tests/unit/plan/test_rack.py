"""Racks as people type them."""

from __future__ import annotations

import pytest

from heavylift.errors import HeavyliftError
from heavylift.plan.rack import parse_rack
from heavylift.planning import Planning
from heavylift.records.plan import PlanRequest, PlanVerdict, Status


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
        ("8 MI355X", 1, 8),
        ("MI355X x 8", 1, 8),
        ("MI355Xx8", 1, 8),
        ("B300x8", 1, 8),
        ("B300 ×8", 1, 8),
        ("８ｘＢ３００", 1, 8),
        ("8卡B300", 1, 8),
        ("8张 B300", 1, 8),
        ("B300 8張", 1, 8),
        ("2台8卡H200", 2, 8),
        ("2x4090", 1, 2),
        ("4090x2", 1, 2),
        ("4090:2", 1, 2),
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


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "0xB200", "B200:0", "2x0xB200", "-8xB200"),
        *("8", "8x", "x8", "8 x", "x", "8x8", "2x8x", "2x8", "B200 x", "B200:", ":8", "8:B200"),
        *(
            "8xB200,8xH200",
            "8xB200 8xH200",
            "8xB200+8xH200",
            "2x2x8xB200",
            "8xB200x2",
            "8 B200 x 2",
        ),
        *("1,024xB200", "8xB\x1b[2J200", "8xB200\n8xH200", "٨xB200", "---"),
    ],
)
def test_what_is_no_rack_is_refused(text: str) -> None:
    """Nothing, a count of zero, a count without a card, several racks, other signs: no rack."""
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


@pytest.mark.parametrize("name", ["RTX4090", "rtx 4090", "RTX 6000 Ada", "B300SXM"])
def test_digits_in_a_name_are_no_count(name: str) -> None:
    """Cards are numbered by their makers, also behind an x."""
    assert parse_rack(name).count is None
    assert parse_rack(f"8x{name}").gpu == name


@pytest.mark.parametrize(
    "text", ["65537xB300", "100000xB300", "B300:100000", "257x256xB300", "9" * 5000 + "xB300"]
)
def test_more_gpus_than_any_network_joins_are_refused(text: str) -> None:
    """65,536 are read, one more is a slip of the keys."""
    with pytest.raises(HeavyliftError) as caught:
        parse_rack(text)
    assert (caught.value.code, caught.value.params["most"]) == ("PLAN005", 65_536)
    assert parse_rack("256x256xB300").nodes == 256


def test_a_card_that_is_not_known_is_planned_by_its_memory(planning: Planning) -> None:
    """Its size is all that is taken of it, what a driver shows before what a box says; nothing of
    what a release lists is said of it.
    """
    _, rack = planning.rack("4x24GB GPU (23.68 GiB)")
    assert rack is not None
    knowledge = planning.knowledge("llama-3.1-8b")
    request = PlanRequest(model="llama-3.1-8b", rack=rack, engine="vllm")
    plan = planning.plan(request, knowledge, with_fixes=False)
    assert plan.per_gpu.visible_bytes == int(23.68 * 2**30)
    assert plan.support.status is Status.UNKNOWN
    assert plan.verdict is PlanVerdict.UNKNOWN
    assert "card_by_memory" in {note.code for note in plan.notes}
    with pytest.raises(HeavyliftError, match="FACT011"):
        planning.rack("4xGPU")
