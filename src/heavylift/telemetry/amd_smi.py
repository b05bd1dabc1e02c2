"""amd-smi: static, metric, monitor, process, topology, partition, bad pages; as text or JSON.

Key names and nesting changed between releases, so values are looked for by alias anywhere in a
card's section, compared without case, spaces and underscores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from heavylift.telemetry.values import (
    Entry,
    as_list,
    as_mapping,
    as_text,
    decode_json,
    known,
    number,
    size_bytes,
    tree,
    unreadable,
    whole,
)

_DEPTH_LIMIT: Final = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class AmdProcess:
    """A process with memory on a card. `name` None = the tool does not tell."""

    pid: int
    name: str | None
    vram_bytes: int | None
    gpu: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AmdGpu:
    """One card (or partition) as amd-smi or rocm-smi shows it."""

    index: int
    name: str | None = None
    gfx: str | None = None
    device_id: str | None = None
    bus_id: str | None = None
    unique_id: str | None = None
    vbios: str | None = None
    compute_units: int | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    visible_memory_bytes: int | None = None
    ecc_uncorrectable: int | None = None
    ecc_correctable: int | None = None
    bad_pages: int | None = None
    bad_pages_pending: int | None = None
    numa_node: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    use_percent: float | None = None
    gtt_used_bytes: int | None = None
    gtt_total_bytes: int | None = None
    driver_version: str | None = None


# Field -> the names it goes by, newest first, as `_plain` writes them.
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("marketname", "productname", "cardseries", "devicename"),
    "gfx": ("targetgraphicsversion", "gfxversion"),
    "device_id": ("deviceid", "gpuid"),
    "bus_id": ("bdf", "pcibus"),
    "unique_id": ("asicserial", "uniqueid", "uuid"),
    "vbios": ("vbiosversion",),
    "compute_units": ("numcomputeunits",),
    "compute_partition": ("computepartition", "acceleratortype", "profiletype"),
    "memory_partition": ("memorypartition",),
    "numa_node": ("numanode", "node"),
    "driver_version": ("driverversion",),
}


def parse_text(text: str) -> tuple[AmdGpu, ...]:
    """`amd-smi static|metric|partition` in text. Raises PRE101 when no GPU section is there."""
    sections = _sections(text, "amd-smi")
    return tuple(_gpu(index, list(_text_values(section))) for index, section in sections)


def parse_json(text: str) -> tuple[AmdGpu, ...]:
    """`amd-smi static|metric|partition|bad-pages --json`. Raises PRE101."""
    cards = _cards(decode_json(text, "amd-smi --json"))
    if not cards:
        raise unreadable("amd-smi --json", "no GPU")
    return tuple(
        _gpu(_index(card, place), list(_json_values(card, ""))) for place, card in enumerate(cards)
    )


def merge(*reports: Iterable[AmdGpu]) -> tuple[AmdGpu, ...]:
    """Cards of several commands joined by index; the first value that is known counts."""
    joined: dict[int, dict[str, Any]] = {}
    for report in reports:
        for gpu in report:
            fields = joined.setdefault(gpu.index, {})
            for name in AmdGpu.__slots__:
                if fields.get(name) is None:
                    fields[name] = getattr(gpu, name)
    return tuple(AmdGpu(**joined[index]) for index in sorted(joined))


def driver_missing(text: str) -> str | None:
    """The line with which amd-smi says that the driver is not there; None when it does not."""
    signs = ("driver not initialized", "Unable to detect any GPU devices", "amdgpu not found")
    return next((line.strip() for line in text.splitlines() if any(s in line for s in signs)), None)


# --- values by alias -----------------------------------------------------------------------------


def _plain(key: str) -> str:
    return "".join(character for character in key.lower() if character.isalnum())


def _sections(text: str, what: str) -> list[tuple[int, Entry]]:
    lines = [line for line in text.splitlines() if not line.startswith("$ ")]
    sections = [
        (number_of, entry)
        for entry in tree(lines).children
        if entry.key == "GPU" and (number_of := whole(entry.value)) is not None
    ]
    if not sections:
        first = next((line.strip() for line in lines if line.strip()), "empty")
        raise unreadable(what, driver_missing(text) or first)
    return sections


def _text_values(section: Entry) -> Iterator[tuple[str, str, str]]:
    """Parent, key and value of every line of a card's section."""
    waiting = [section]
    while waiting:
        parent = waiting.pop(0)
        for entry in parent.children:
            yield _plain(parent.key), _plain(entry.key), entry.value
            waiting.append(entry)


def _json_values(value: Any, parent: str, depth: int = 0) -> Iterator[tuple[str, str, str]]:
    """Parent, key and value of every scalar of a card's object."""
    if depth > _DEPTH_LIMIT:
        return
    for key, inner in as_mapping(value).items():
        text = as_text(inner)
        if text is not None:
            yield parent, _plain(key), text
        elif isinstance(inner, dict):
            yield from _json_values(inner, _plain(key), depth + 1)
        elif isinstance(inner, list):
            yield parent, f"{_plain(key)}count", str(len(inner))
            for item in inner:
                yield from _json_values(item, _plain(key), depth + 1)


def _cards(document: Any) -> list[Mapping[str, Any]]:
    """The cards of a document: a list, or under `gpu_data` in newer releases."""
    cards = as_list(document) or as_list(as_mapping(document).get("gpu_data"))
    return [card for card in cards if isinstance(card, dict) and "gpu" in card]


def _index(card: Mapping[str, Any], place: int) -> int:
    index = whole(as_text(card.get("gpu")))
    return place if index is None else index


def _gpu(index: int, values: list[tuple[str, str, str]]) -> AmdGpu:
    by_key: dict[str, str] = {}
    for _, key, value in values:
        if known(value) is not None:
            by_key.setdefault(key, value)

    def found(field: str) -> str | None:
        return next((by_key[name] for name in _ALIASES[field] if name in by_key), None)

    def total(word: str) -> int | None:
        """A total where the tool gives one, else the sum over the blocks."""
        stated = by_key.get(f"total{word}count") or by_key.get(f"total{word}")
        if whole(stated) is not None:
            return whole(stated)
        counts = [whole(value) for _, key, value in values if key in (word, f"{word}count")]
        given = [count for count in counts if count is not None]
        return sum(given) if given else None

    return AmdGpu(
        index=index,
        name=found("name"),
        gfx=found("gfx"),
        device_id=found("device_id"),
        bus_id=found("bus_id"),
        unique_id=found("unique_id"),
        vbios=found("vbios") or _within(values, "vbios", "version"),
        compute_units=whole(found("compute_units")),
        compute_partition=found("compute_partition"),
        memory_partition=found("memory_partition"),
        numa_node=whole(found("numa_node")),
        driver_version=found("driver_version") or _within(values, "driver", "version"),
        # MB of this tool is 2**20: 196,592 "MB" is what 206,141,652,992 bytes come to.
        memory_total_bytes=size_bytes(
            _within(values, "vram", "size") or by_key.get("totalvram"), unit="MB", binary=True
        ),
        memory_used_bytes=size_bytes(by_key.get("usedvram"), unit="MB", binary=True),
        ecc_uncorrectable=total("uncorrectable"),
        ecc_correctable=total("correctable"),
        bad_pages=_pages(by_key, "retired"),
        bad_pages_pending=_pages(by_key, "pending"),
        temperature_c=number(by_key.get("hotspot") or by_key.get("edge")),
        power_w=number(
            by_key.get("socketpower")
            or by_key.get("currentsocketpower")
            or by_key.get("averagesocketpower")
        ),
        power_limit_w=number(by_key.get("powerlimit")),
        use_percent=number(by_key.get("gfxactivity")),
        gtt_used_bytes=size_bytes(by_key.get("usedgtt"), unit="MB", binary=True),
        gtt_total_bytes=size_bytes(by_key.get("totalgtt"), unit="MB", binary=True),
    )


def _within(values: list[tuple[str, str, str]], parent: str, key: str) -> str | None:
    return next((value for above, name, value in values if (above, name) == (parent, key)), None)


def _pages(by_key: Mapping[str, str], kind: str) -> int | None:
    """How many bad pages are listed; the text form says `No bad pages found`."""
    value = by_key.get(f"{kind}count") or by_key.get(kind)
    if value is None:
        return None
    return 0 if value.lower().startswith("no ") else whole(value)


# --- monitor, process, topology, version ---------------------------------------------------------

_UNITS: Final = re.compile(r"(?<=\d) (?=(?:W|°C|%|MHz|[KMGT]i?B)(?:\s|$))")


def parse_monitor(text: str) -> tuple[AmdGpu, ...]:
    """`amd-smi monitor`: power, temperature and VRAM by card. Raises PRE101 without a heading."""
    lines = [line for line in text.splitlines() if not line.startswith("$ ")]
    rows = [_UNITS.sub("", line).split() for line in lines if line.strip()]
    heads = [place for place, row in enumerate(rows) if row[0] == "GPU"]
    if not heads:
        raise unreadable("amd-smi monitor", driver_missing(text) or "no heading")
    head = rows[heads[0]]
    gpus = []
    for row in rows[heads[0] + 1 :]:
        cells = dict(zip(head, row, strict=False))
        index = whole(cells.get("GPU"))
        if index is not None:
            gpus.append(
                AmdGpu(
                    index=index,
                    power_w=number(cells.get("POWER")),
                    temperature_c=number(cells.get("GPU_TEMP") or cells.get("GPU_T")),
                    use_percent=number(cells.get("GFX_UTIL") or cells.get("GFX%")),
                    memory_used_bytes=size_bytes(_spaced(cells.get("VRAM_USED")), binary=True),
                    memory_total_bytes=size_bytes(_spaced(cells.get("VRAM_TOTAL")), binary=True),
                )
            )
    return tuple(gpus)


def _spaced(cell: str | None) -> str | None:
    return None if cell is None else re.sub(r"(?<=\d)(?=[KMGT])", " ", cell)


def parse_processes(text: str) -> tuple[AmdProcess, ...]:
    """`amd-smi process`, text or JSON. Raises PRE101 when it is neither."""
    if "PROCESS_INFO" in text:
        return tuple(
            process
            for index, section in _sections(text, "amd-smi process")
            for entry in section.all("PROCESS_INFO")
            if (process := _process(list(_text_values(entry)), index)) is not None
        )
    found = []
    for place, card in enumerate(_cards(decode_json(text, "amd-smi process --json"))):
        for item in as_list(card.get("process_list")):
            info = as_mapping(item).get("process_info", item)
            process = _process(list(_json_values(info, "")), _index(card, place))
            if process is not None:
                found.append(process)
    return tuple(found)


def _process(values: list[tuple[str, str, str]], gpu: int) -> AmdProcess | None:
    by_key = {key: value for _, key, value in values}
    pid = whole(by_key.get("pid"))
    if pid is None:
        return None
    return AmdProcess(
        pid=pid,
        name=known(by_key.get("name")),
        vram_bytes=size_bytes(by_key.get("vrammem"), unit="B", binary=True),
        gpu=gpu,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AmdLink:
    """The link between two cards; `kind` is `XGMI`, `PCIE` or what else the tool says."""

    first: int
    second: int
    kind: str
    hops: int | None


def parse_topology(text: str) -> tuple[AmdLink, ...]:
    """`amd-smi topology --json`: links between different cards. Raises PRE101."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("$ "))
    links = []
    for place, card in enumerate(_cards(decode_json(body, "amd-smi topology --json"))):
        for link in map(as_mapping, as_list(card.get("links"))):
            other = whole(as_text(link.get("gpu")))
            kind = as_text(link.get("link_type"))
            if other is not None and kind is not None and kind != "SELF":
                links.append(
                    AmdLink(
                        first=_index(card, place),
                        second=other,
                        kind=kind.upper(),
                        hops=whole(as_text(link.get("num_hops"))),
                    )
                )
    return tuple(links)


@dataclass(frozen=True, kw_only=True, slots=True)
class AmdVersions:
    """Versions of the tool, of ROCm and of the kernel driver, where they are stated."""

    tool: str | None
    rocm: str | None
    driver: str | None


def parse_version(text: str) -> AmdVersions:
    """`amd-smi version`, text or JSON. Raises PRE101 when it states none."""
    if text.lstrip().startswith(("{", "[")):
        document = decode_json(text, "amd-smi version --json")
        first = as_list(document)[0] if as_list(document) else document
        stated = {key: value for _, key, value in _json_values(first, "")}
    else:
        cells = re.split(r"[|\n]", text)
        stated = {_plain(k): v.strip() for k, c, v in (cell.partition(":") for cell in cells) if c}
    found = AmdVersions(
        tool=known(stated.get("amdsmitool") or stated.get("version")),
        rocm=known(stated.get("rocmversion")),
        driver=known(stated.get("amdgpuversion")),
    )
    if found == AmdVersions(tool=None, rocm=None, driver=None):
        raise unreadable("amd-smi version", text.strip()[:80] or "empty")
    return found
