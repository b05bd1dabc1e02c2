"""Racks as people type them: `8xMI355X`, `mi355x:8`, `2x8xH200`, `B200`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import GpuFacts, NodeFacts
from heavylift.records.plan import Rack

_NODES_COUNT: Final = re.compile(r"(\d{1,5})\s*[x×*]\s*(\d{1,5})\s*[x×*]\s*(\S.*)", re.IGNORECASE)
_COUNT_FIRST: Final = re.compile(r"(\d{1,5})\s*[x×*]\s*(\S.*)", re.IGNORECASE)
_COUNT_LAST: Final = re.compile(r"(\S.*?)\s*:\s*(\d{1,5})")


@dataclass(frozen=True, slots=True)
class RackText:
    """A rack text taken apart. `count` and `nodes` are None when not written."""

    text: str
    gpu: str
    count: int | None
    nodes: int | None


def parse_rack(text: str) -> RackText:
    """Take a rack text apart. Raises PLAN001 when it is no rack or a count is zero."""
    stripped = text.strip()
    if match := _NODES_COUNT.fullmatch(stripped):
        parsed = RackText(text, match[3].strip(), int(match[2]), int(match[1]))
    elif match := _COUNT_FIRST.fullmatch(stripped):
        parsed = RackText(text, match[2].strip(), int(match[1]), None)
    elif match := _COUNT_LAST.fullmatch(stripped):
        parsed = RackText(text, match[1].strip(), int(match[2]), None)
    else:
        parsed = RackText(text, stripped, None, None)
    if not parsed.gpu or parsed.count == 0 or parsed.nodes == 0:
        raise HeavyliftError("PLAN001", {"text": text})
    return parsed


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
