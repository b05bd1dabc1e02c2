"""Racks as people type them: `8xMI355X`, `mi355x:8`, `B300 x 8`, `2x8xH200`, `B200`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import GpuFacts, NodeFacts
from heavylift.records.plan import Rack, RackPart
from heavylift.units import plain_width

MOST_GPUS: Final = 65_536
"""More than any fast network joins; beyond it a count is taken for a slip of the keys."""

# `8卡H100`, `2台8卡H200`, `H100 8张`: the words that Chinese counts cards and machines by.
_COUNTED_BEFORE: Final = re.compile(
    r"([0-9]+)\s*(?:[卡张張块塊片枚台]|[机機節节](?:器|点|點)?)\s*(?=\S)"
)
_COUNTED_AFTER: Final = re.compile(r"\s*[xX×*:]?\s*([0-9]+)\s*[卡张張块塊片枚]$")
# Numbers are plain digits: `\d` would read digits of every script.
_NODES_COUNT: Final = re.compile(r"([0-9]+)\s*[xX×*]\s*([0-9]+)\s*[xX×*]\s*(\S.*)")
_COUNT_FIRST: Final = re.compile(r"([0-9]+)(?:\s*[xX×*]\s*|\s+)(\S.*)")
# Names of cards end in X and in digits (MI300X, RTX4090): an x belongs to the count only where it
# stands apart or follows a digit or another x.
_COUNT_LAST: Final = re.compile(r"(\S.*?)\s*(?:[:×*]|(?<=[\s0-9xX])[xX])\s*([0-9]+)")
_CARD: Final = re.compile(r"[A-Za-z0-9][\w./()-]*\+?(?: +[\w./()-]+\+?)*", re.ASCII)
# No machine has so many cards: the number is the card's.
_NUMBERED: Final = re.compile(r"[0-9]{4}")
# What is left of a count that was not understood: `8x`, `x8`, `8xH200` inside a name, `H200 x`.
# Names of cards have longer numbers before an X (RX 7900XTX), or letters behind it (RX 7900 XTX).
_TORN_COUNT: Final = re.compile(
    r"(?:^|.* )(?:[0-9]{1,3}[xX]|[0-9]+ *[xX](?:[ 0-9]|$)|x *[0-9]).*|(?:.* )?[xX]"
)


# `4xA100-80+4xA100-40`, `RTX 5090 + RTX 5080`. A plus may also end a card's name (Ryzen AI Max+),
# or stand in it before a number.
_AND: Final = re.compile(
    r"\+(?=\s*[0-9]+\s*(?:[xX×*]\s*(?:[A-Za-z]|[1-9][0-9]{3}\b)|[卡张張块塊片枚台]))|\s\+\s"
)


def rack_parts(text: str) -> tuple[str, ...]:
    """The racks that a text joins with a plus; the text itself where it joins none."""
    return tuple(part.strip() for part in _AND.split(plain_width(text)))


@dataclass(frozen=True, slots=True)
class RackText:
    """A rack text taken apart. `count` and `nodes` are None when not written."""

    text: str
    gpu: str
    count: int | None
    nodes: int | None


def parse_rack(text: str) -> RackText:
    """Take a rack text apart.

    Raises PLAN001 when it is no rack or a count is zero, PLAN005 when it has more than `MOST_GPUS`.
    """
    nodes, count, gpu = _taken_apart(text)
    if not _is_card(gpu) or count == 0 or nodes == 0:
        raise HeavyliftError("PLAN001", {"text": text})
    if count is not None and count * (nodes or 1) > MOST_GPUS:
        raise _too_many(text)
    return RackText(text, gpu, count, nodes)


def _taken_apart(text: str) -> tuple[int | None, int | None, str]:
    """Machines, cards of each and the card's name, as far as they are written."""
    stripped = plain_width(text).strip()
    stripped = _COUNTED_AFTER.sub(r":\1", stripped)
    stripped = _COUNTED_BEFORE.sub(r"\1x", stripped)
    if match := _NODES_COUNT.fullmatch(stripped):
        return _count(text, match[1]), _count(text, match[2]), match[3]
    first, last = _COUNT_FIRST.fullmatch(stripped), _COUNT_LAST.fullmatch(stripped)
    # A card can be a number: `4080 x 2` are two of them.
    if first and not (last and _NUMBERED.fullmatch(last[1]) and not _is_card(first[2])):
        return None, _count(text, first[1]), first[2]
    if last:
        return None, _count(text, last[2]), last[1]
    return None, None, stripped


def _count(text: str, digits: str) -> int:
    # Python refuses to read thousands of digits; nobody means them.
    significant = digits.lstrip("0")
    if len(significant) > len(str(MOST_GPUS)):
        raise _too_many(text)
    return int(significant or "0")


def _too_many(text: str) -> HeavyliftError:
    return HeavyliftError("PLAN005", {"text": text, "most": MOST_GPUS})


def _is_card(name: str) -> bool:
    """Whether it can be a card's name: with a letter, or numbered as cards are; and no count."""
    return (
        _CARD.fullmatch(name) is not None
        and (
            any(character.isalpha() for character in name) or _NUMBERED.fullmatch(name) is not None
        )
        and _TORN_COUNT.fullmatch(name) is None
        and _COUNT_LAST.fullmatch(name) is None
    )


def resolve_rack(parsed: RackText, gpu: GpuFacts, node: NodeFacts) -> Rack | None:
    """The rack, with the machines the card is built into; None when only a card was named.

    Raises PLAN002 when the count does not divide into whole machines.
    """
    if parsed.count is None:
        return None
    per_node = node.gpus_per_node.value
    if parsed.nodes is not None:
        return _nodes(parsed.text, gpu, parsed.nodes, parsed.count, per_node)
    if parsed.count <= per_node:
        return _rack(parsed.text, gpu, 1, parsed.count)
    if parsed.count % per_node:
        raise HeavyliftError(
            "PLAN002",
            {
                "gpu": gpu.title,
                "count": parsed.count,
                "per_node": per_node,
                "nearest": parsed.count // per_node * per_node,
                "next": (parsed.count // per_node + 1) * per_node,
            },
        )
    return count_rack(gpu, node, parsed.count, text=parsed.text)


def joined_rack(text: str, parts: Sequence[tuple[RackText, GpuFacts, NodeFacts]]) -> Rack:
    """Cards of several kinds: in one machine where that holds so many, else a machine for each
    kind. The one with the least memory stands for them. A card without a count is one.

    Raises PLAN001 for a part of several machines, PLAN003 for one that is more
    than its machine holds, PLAN008 for cards of several makers, PLAN017 where machines of unlike
    counts would be joined.
    """
    counts: list[int] = []
    for parsed, gpu, node in parts:
        if parsed.nodes is not None:
            raise HeavyliftError("PLAN001", {"text": text})
        count = parsed.count or 1
        _nodes(text, gpu, 1, count, node.gpus_per_node.value)
        counts.append(count)
    gpus = [gpu for _, gpu, _ in parts]
    if len({gpu.vendor for gpu in gpus}) > 1:
        raise HeavyliftError("PLAN008", {"text": text})
    least = min(gpus, key=lambda gpu: gpu.memory_visible.value)
    if sum(counts) <= max(node.gpus_per_node.value for _, _, node in parts):
        whole = _rack(text, least, 1, sum(counts))
    elif len(set(counts)) == 1:
        whole = _rack(text, least, len(counts), counts[0])
    else:
        raise HeavyliftError("PLAN017", {"text": text})
    if len({gpu.id for gpu in gpus}) == 1:
        return whole
    found = tuple(
        RackPart(gpu=gpu.id, gpu_title=gpu.title, count=parsed.count or 1)
        for parsed, gpu, _ in parts
    )
    return replace(whole, parts=found)


def sold_counts(node: NodeFacts, most_nodes: int) -> tuple[int, ...]:
    """Counts of a card from one upwards, as it is sold: parts of a machine, then whole machines,
    joined up to `most_nodes` or as few as such machines usually are.
    """
    per_node = node.gpus_per_node.value
    joined = most_nodes if node.most_nodes is None else min(most_nodes, node.most_nodes.value)
    parts = [size for size in (1, 2, 4, 8) if size < per_node]
    return (*parts, *(per_node * nodes for nodes in range(1, joined + 1)))


def count_rack(gpu: GpuFacts, node: NodeFacts, count: int, *, text: str | None = None) -> Rack:
    """`count` cards in as few machines as they are built into; `count` must divide."""
    per_node = node.gpus_per_node.value
    nodes = max(1, count // per_node)
    if nodes == 1:
        return _rack(text or f"{count}x{gpu.title}", gpu, 1, count)
    # Trays of one link domain are no machines of their own to the links, but they are to the
    # launcher: 8xGB300 is two trays of four.
    trays = node.gpus_per_link_domain.value > per_node
    return _rack(
        text or f"{count}x{gpu.title}", gpu, nodes, per_node, "as_trays" if trays else "as_nodes"
    )


def _nodes(text: str, gpu: GpuFacts, nodes: int, count: int, per_node: int) -> Rack:
    if count > per_node:
        raise HeavyliftError(
            "PLAN003", {"gpu": gpu.title, "count": count, "per_node": per_node, "nodes": nodes}
        )
    return _rack(text, gpu, nodes, count)


def _rack(text: str, gpu: GpuFacts, nodes: int, per_node: int, reading: str | None = None) -> Rack:
    return Rack(
        text=text,
        gpu=gpu.id,
        gpu_title=gpu.title,
        nodes=nodes,
        gpus_per_node=per_node,
        reading=reading,
    )
