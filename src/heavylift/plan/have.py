"""What somebody has, as they say it: `512GB-mac`, `8x96GB`, `64GB+nvme`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, TypeVar

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import Fact, FactKind, GpuFacts, MemoryShareRule, NodeFacts
from heavylift.plan.planner import Machine
from heavylift.plan.rack import MOST_GPUS, count_rack
from heavylift.plan.subject import HOST_VENDOR
from heavylift.records.plan import Rack
from heavylift.units import GB, GIB, plain_width

STATED: Final = "stated"
"""The id of a machine that is only what was said of it."""

UNKNOWN: Final = "unknown"
_SIZE: Final = r"([0-9]{1,7})(?:\.([0-9]{1,3}))?\s*(GB|GiB|TB|TiB|G|T)"
_POOL: Final = re.compile(rf"([0-9]{{1,6}})\s*[x×*]\s*{_SIZE}", re.IGNORECASE)
_MACHINE: Final = re.compile(
    rf"{_SIZE}(?:\s*RAM)?(?:[\s-]+([a-z][a-z -]*?))?(\s*\+\s*(?:nvme|ssd|disk))?", re.IGNORECASE
)

V = TypeVar("V", int, float, str)


@dataclass(frozen=True, kw_only=True, slots=True)
class Have:
    """A machine to serve from. `memory_bytes` is what may hold weights in all, `unasked_bytes` what
    of it the driver gives without a setting, `sold_bytes` what it was bought as; `share` is the
    rule of a machine with shared memory. `disk`: weights may stay on a fast disk.
    """

    text: str
    rack: Rack
    machine: Machine
    sold_bytes: int
    memory_bytes: int
    unasked_bytes: int
    share: MemoryShareRule | None = None
    disk: bool = False

    @property
    def vendor(self) -> str | None:
        """Whose cards they are; None where nobody said."""
        vendor = self.machine.gpu.vendor
        return None if vendor in (UNKNOWN, HOST_VENDOR) else vendor

    @property
    def is_host(self) -> bool:
        """True when there is no GPU."""
        return self.machine.gpu.vendor == HOST_VENDOR

    @property
    def is_one_memory(self) -> bool:
        """True when processor and GPU share the memory, or there is no GPU."""
        return self.share is not None or self.is_host


def parse_have(text: str, shares: Sequence[MemoryShareRule], today: date) -> Have | None:
    """What a text that names sizes stands for; None for one that does not (a rack).

    Memory of cards is read in the smaller unit, the least a nameplate can mean; memory of machines
    in the larger one, as it is sold. Raises PLAN006 for a machine of an unknown kind.
    """
    said = plain_width(text).strip()
    if match := _POOL.fullmatch(said):
        count = int(match[1])
        if not 0 < count <= MOST_GPUS:
            raise HeavyliftError("PLAN005", {"text": text, "most": MOST_GPUS})
        each = _bytes(match[2], match[3], match[4], GB)
        title = said[match.start(2) :].strip()
        return _have(text, count, each, (each, each), today=today, vendor=UNKNOWN, title=title)
    match = _MACHINE.fullmatch(said)
    if match is None:
        return None
    memory = _bytes(match[1], match[2], match[3], GIB)
    disk = match[5] is not None
    if match[4] is None:
        return _have(text, 1, memory, (memory, memory), today=today, vendor=HOST_VENDOR, disk=disk)
    name = " ".join(match[4].lower().replace("-", " ").split())
    for share in shares:
        if name in (host.replace("-", " ") for host in share.hosts):
            most, unasked = share.most_bytes(memory), share.unasked_bytes(memory)
            return _have(text, 1, memory, (most, unasked), today=today, share=share, disk=disk)
    known = ", ".join(host for share in shares for host in share.hosts)
    raise HeavyliftError("PLAN006", {"name": match[4], "known": known})


def of_rack(text: str, rack: Rack, machine: Machine, share: MemoryShareRule | None) -> Have:
    """A rack of the catalogue, with what its driver can be made to give."""
    shown = machine.gpu.memory_visible.value
    most = shown
    if share is not None:
        most = max(shown, share.most_bytes(int(machine.gpu.memory_nameplate.value * GIB)))
    return Have(
        text=text,
        rack=rack,
        machine=machine,
        sold_bytes=int(machine.gpu.memory_nameplate.value * (GB if share is None else GIB))
        * rack.gpu_count,
        memory_bytes=most * rack.gpu_count,
        unasked_bytes=shown * rack.gpu_count,
        share=share,
        disk=share is not None,
    )


def _bytes(whole: str, part: str | None, unit: str, small: int) -> int:
    size = GIB if unit.lower().endswith("ib") else small
    if unit.upper().startswith("T"):
        size *= 1000 if size == GB else 1024
    return int(whole) * size + (int(part) * size // 10 ** len(part) if part else 0)


def _have(
    text: str,
    count: int,
    sold: int,
    given: tuple[int, int],
    *,
    today: date,
    share: MemoryShareRule | None = None,
    vendor: str | None = None,
    title: str | None = None,
    disk: bool = False,
) -> Have:
    def stated(value: V, unit: str) -> Fact[V]:
        return Fact(
            value=value, unit=unit, kind=FactKind.ASSUMED, source=STATED, as_of=today, note=text
        )

    most, unasked = given
    if most <= 0:
        raise HeavyliftError("PLAN001", {"text": text})
    maker = share.vendors[0] if share is not None and share.vendors else vendor or UNKNOWN
    built = share.architectures[0] if share is not None and share.architectures else UNKNOWN
    gpu = GpuFacts(
        id=STATED,
        title=title or text.strip(),
        vendor=maker,
        architecture=built,
        aliases=(),
        memory_nameplate=stated(most / GB, "GB"),
        memory_visible=stated(most, "bytes"),
        native_formats=stated("", "names"),
        node=STATED,
    )
    node = NodeFacts(
        id=STATED,
        title=text.strip(),
        gpu=STATED,
        gpus_per_node=stated(count, "GPUs"),
        gpus_per_link_domain=stated(count, "GPUs"),
    )
    return Have(
        text=text.strip(),
        rack=count_rack(gpu, node, count, text=text.strip()),
        machine=Machine(gpu=gpu, node=node),
        sold_bytes=sold * count,
        memory_bytes=most * count,
        unasked_bytes=unasked * count,
        share=share,
        disk=disk or (share is not None),
    )
