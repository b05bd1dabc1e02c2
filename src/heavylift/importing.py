"""Other planners' outputs, checked against our memory: vLLM's recipe pages, aiconfigurator's
result folders. Nothing in them is run.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import yaml

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.import_schema import ImportBook, StrategyWords
from heavylift.facts.schema import GpuFacts
from heavylift.planning import Planning
from heavylift.records.imported import Imported, ImportedRow
from heavylift.records.plan import Capacity, Plan, PlanRequest, PlanVerdict, Rack
from heavylift.units import GB, GIB

_MOST_BYTES: Final = 4 * 2**20
_MOST_ROWS: Final = 200
_TOP: Final = "best_config_topn.csv"
_MOST_GPUS: Final = 1024
# More than any rack has: a number beyond it, an infinite one or none at all is no minimum.
_MOST_GB: Final = 2**40


def _count(word: str) -> int:
    """A count of at least one. Raises ValueError."""
    if (count := int(word)) < 1:
        raise ValueError(word)
    return count


def _fraction(word: str) -> float:
    """A fraction of memory, of which there is some. Raises ValueError."""
    if not 0 < (fraction := float(word)) <= 1:
        raise ValueError(word)
    return fraction


_FLAGS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "--gpu-memory-utilization": ("gpu_memory_utilization", _fraction),
    "--max-model-len": ("context_tokens", _count),
    "--max-num-seqs": ("max_num_seqs", _count),
    "--max-num-batched-tokens": ("max_num_batched_tokens", _count),
    "--kv-cache-dtype": ("kv_cache_dtype", str),
    "--moe-backend": ("moe_backend", str),
}
# A card of which a page's machine has several: `rtx_5090_2x`.
_COUNTED: Final = re.compile(r"_([1-9]\d?)x$")
_SIZES: Final = ("tensor", "pipeline", "data", "expert")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Offer:
    label: str
    model: str
    rack: Rack
    engine: str
    sizes: Mapping[str, int]
    settings: Mapping[str, Any]
    word: str | None = None
    said_bytes: int | None = None
    said_total: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """A form of a page's model on one of its cards."""

    model: str
    variant: str
    card: str
    word: str | None
    minimum_gb: float


class Importing:
    """A catalogue, and files read with it."""

    def __init__(self, planning: Planning | None = None) -> None:
        self._planning = planning or Planning()
        self._catalog: Catalog = self._planning.catalog

    def read(self, path: Path) -> Imported:
        """The offers of a recipe or of a result folder, planned.

        Raises PLAN062 for what is neither, PLAN063 for a file that cannot be read.
        """
        if path.is_dir():
            offers = list(self._results(path))
            form = "results"
        else:
            offers = list(self._recipe(path))
            form = "recipe"
        if not offers:
            raise HeavyliftError("PLAN062", {"path": str(path)})
        rows = tuple(
            offer if isinstance(offer, ImportedRow) else self._row(offer)
            for offer in offers[:_MOST_ROWS]
        )
        return Imported(path=str(path), form=form, model=rows[0].model, rows=rows)

    def _row(self, offer: _Offer) -> ImportedRow:
        try:
            plan = self._plan(offer)
        except HeavyliftError as error:
            return ImportedRow(
                label=offer.label,
                model=offer.model,
                rack=offer.rack.label,
                engine=offer.engine,
                layout=None,
                word=offer.word,
                said_bytes=offer.said_bytes,
                said_total=offer.said_total,
                code=error.code,
                params=error.params,
            )
        return ImportedRow(
            label=offer.label,
            model=offer.model,
            rack=offer.rack.label,
            engine=plan.engine,
            layout=plan.layout,
            word=offer.word,
            said_bytes=offer.said_bytes,
            said_total=offer.said_total,
            known_bytes=plan.per_gpu.known_total_bytes,
            total_bytes=plan.per_gpu.known_total_bytes * plan.rack.gpu_count,
            visible_bytes=plan.per_gpu.visible_bytes,
            short_bytes=max((limit.short_bytes for limit in plan.limits), default=0),
            capacity=_capacity(plan),
            status=plan.support.status,
        )

    def _plan(self, offer: _Offer) -> Plan:
        knowledge = self._planning.knowledge(offer.model)
        settings = dict(offer.settings)
        most = knowledge.model.model.max_context.value
        if settings.get("context_tokens"):
            settings["context_tokens"] = min(settings["context_tokens"], most)
        request = PlanRequest(
            model=offer.model,
            rack=offer.rack,
            engine=self._planning.engine(offer.engine),
            layout_constraints=dict(offer.sizes),
            **settings,
        )
        return self._planning.plan(request, knowledge, with_fixes=False)

    # --- recipes ---------------------------------------------------------------------------------

    def _recipe(self, path: Path) -> Iterator[_Offer | ImportedRow]:
        document = _yaml(path)
        meta, model = _table(document, "meta"), _table(document, "model")
        identifier = model.get("model_id")
        hardware = _table(meta, "hardware")
        if not isinstance(identifier, str) or not hardware:
            return
        for name, each in _table(document, "variants").items():
            minimum = each.get("vram_minimum_gb") if isinstance(each, dict) else None
            if not isinstance(minimum, int | float) or not 0 < minimum < _MOST_GB:
                continue
            named = each.get("model_id")
            wanted = named if isinstance(named, str) else identifier
            for card, word in hardware.items():
                entry = _Entry(
                    model=wanted,
                    variant=str(name),
                    card=str(card),
                    word=word if isinstance(word, str) else None,
                    minimum_gb=minimum,
                )
                yield from self._offers(document, entry)

    def _offers(self, document: Any, entry: _Entry) -> Iterator[_Offer | ImportedRow]:
        """The counts that the page offers on a card: the fewest machines whose nameplates add up to
        its minimum, in each strategy that it names for that many.
        """
        card = entry.card
        said_bytes = int(entry.minimum_gb * GB)
        try:
            gpu, _ = self._planning.rack(_COUNTED.sub("", card))
        except HeavyliftError as error:
            yield ImportedRow(
                label=entry.variant,
                model=entry.model,
                rack=card,
                engine=self._book.pages_engine,
                layout=None,
                code=error.code,
                params=error.params,
                said_bytes=said_bytes,
                word=entry.word,
                said_total=True,
            )
            return
        node = self._catalog.node(gpu.node)
        counted = _COUNTED.search(card)
        per_node = node.gpus_per_node.value if counted is None else int(counted[1])
        each_gb = gpu.memory_nameplate.value * per_node
        fewest = max(1, -(-int(entry.minimum_gb) // max(1, int(each_gb))))
        settings = _settings(self._arguments(document, gpu, card))
        listed = document.get("compatible_strategies")
        names = listed if isinstance(listed, list) else []
        least = _table(document, "strategy_min_gpus")
        for strategy in self._strategies:
            if not _offered(document, strategy.id, card, listed=strategy.id in names):
                continue
            asked = [each for key in (strategy.id, card) if isinstance(each := least.get(key), int)]
            gpus = max(fewest * per_node, *asked, 0)
            nodes = -(-gpus // per_node)
            if strategy.nodes == "one" and nodes > 1:
                continue
            nodes = max(nodes, 2) if strategy.nodes == "several" else nodes
            if nodes * per_node > _MOST_GPUS:
                continue
            yield _Offer(
                label=f"{entry.variant} · {strategy.id}",
                model=entry.model,
                rack=self._rack(gpu, nodes, per_node),
                engine=self._book.pages_engine,
                sizes=_layout(strategy, nodes, per_node),
                settings=settings,
                said_bytes=said_bytes,
                word=entry.word,
                said_total=True,
            )

    def _rack(self, gpu: GpuFacts, nodes: int, per_node: int) -> Rack:
        text = f"{nodes}x{per_node}x{gpu.id}" if nodes > 1 else f"{per_node}x{gpu.id}"
        _, rack = self._planning.rack(text)
        if rack is None:
            raise TypeError(text)
        return rack

    def _arguments(self, document: Any, gpu: GpuFacts, card: str) -> list[str]:
        words = _words(_table(document, "model").get("base_args"))
        overrides = _table(document, "hardware_overrides")
        for key, each in overrides.items():
            generation = self._book.generations.get(str(key))
            if key in (card, gpu.id, gpu.vendor) or generation == gpu.architecture:
                found = each if isinstance(each, dict) else {}
                words += _words(found.get("extra_args") or found.get("args"))
        return words

    @cached_property
    def _book(self) -> ImportBook:
        return self._catalog.import_words()

    @property
    def _strategies(self) -> tuple[StrategyWords, ...]:
        return self._book.strategies

    # --- result folders --------------------------------------------------------------------------

    def _results(self, folder: Path) -> Iterator[_Offer | ImportedRow]:
        for path in sorted(folder.glob(f"*/{_TOP}")) + sorted(folder.glob(_TOP)):
            rows = csv.DictReader(io.StringIO(_text(path)))
            for number, row in enumerate(rows):
                if number == _MOST_ROWS:
                    break
                prefixes = ("(p)", "(d)") if "(p)tp" in row else ("",)
                for prefix in prefixes:
                    yield from self._result(path.parent.name, number + 1, row, prefix)

    def _result(
        self, mode: str, number: int, row: Mapping[str, Any], prefix: str
    ) -> Iterator[_Offer | ImportedRow]:
        def get(name: str) -> str:
            return str(row.get(f"{prefix}{name}") or row.get(name) or "")

        sizes = {
            ours: _whole(get(theirs))
            for ours, theirs in (("tensor", "tp"), ("pipeline", "pp"), ("data", "dp"))
        }
        count = sizes["tensor"] * sizes["pipeline"] * sizes["data"]
        spread = _whole(get("moe_ep"))
        if spread > 1:
            sizes["expert"] = spread
        label = f"{mode} {number}{' prefill' if prefix == '(p)' else ' decode' if prefix else ''}"
        system = get("system")
        for end in self._book.system_ends:
            system = system.removesuffix(end)
        memory = re.fullmatch(r"\d{1,9}(?:\.\d+)?", get("memory"))
        said = None if memory is None else int(float(memory[0]) * GIB)
        engine = self._book.engines.get(get("backend"), get("backend"))
        try:
            _, rack = self._planning.rack(f"{count}x{system}")
        except HeavyliftError as error:
            yield ImportedRow(
                label=label,
                model=get("model"),
                rack=f"{count}x{system}",
                engine=engine,
                layout=None,
                said_bytes=said,
                code=error.code,
                params=error.params,
            )
            return
        if rack is None:
            return
        batch = _whole(get("bs")) * sizes["data"]
        settings: dict[str, Any] = {
            "context_tokens": _whole(get("isl")) + _whole(get("osl")),
            "output_tokens": _whole(get("osl")),
            "concurrency": batch,
        }
        kv_dtype = self._book.kv_dtypes.get(get("kvcache"))
        if kv_dtype is not None:
            settings["kv_cache_dtype"] = kv_dtype
        yield _Offer(
            label=label,
            model=get("model"),
            rack=rack,
            engine=engine,
            sizes=sizes,
            settings=settings,
            said_bytes=said,
        )


def _capacity(plan: Plan) -> Capacity:
    """Whether the bytes fit; of what is known to have run our bytes are not the last word."""
    too_large = plan.capacity_verdict is Capacity.DOES_NOT_FIT
    if too_large and plan.verdict is not PlanVerdict.DOES_NOT_FIT:
        return Capacity.TIGHT
    return plan.capacity_verdict


def _layout(strategy: StrategyWords, nodes: int, per_node: int) -> dict[str, int]:
    sizes = {"one": 1, "gpus": nodes * per_node, "per_node": per_node, "nodes": nodes}
    return {name: sizes[getattr(strategy, name)] for name in _SIZES}


def _offered(document: Any, strategy: str, card: str, *, listed: bool) -> bool:
    """Whether the page offers a strategy on a card: it lists it, or grants it to that card."""
    word = _table(_table(document, "strategy_hardware"), strategy).get(card)
    return word == "supported" or (listed and word != "unsupported")


def _settings(words: list[str]) -> dict[str, Any]:
    """Settings among an engine's arguments, the last of each; what is none is left out."""
    found: dict[str, Any] = {}
    flat = [part for word in words for part in word.split()]
    for flag, value in pairwise(flat):
        if flag in _FLAGS:
            name, convert = _FLAGS[flag]
            try:
                found[name] = convert(value)
            except ValueError:
                continue
    return found


def _words(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _table(document: Any, key: str) -> dict[Any, Any]:
    found = document.get(key) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _whole(text: str) -> int:
    """A count of a result row: at least one, as tables leave out what is one."""
    found = re.fullmatch(r"(\d{1,7})(?:\.0+)?", text)
    return max(1, int(found[1])) if found else 1


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise HeavyliftError("PLAN063", {"path": str(path), "reason": str(error)}) from error
    if len(raw) > _MOST_BYTES:
        raise HeavyliftError("PLAN063", {"path": str(path), "reason": f"> {_MOST_BYTES} B"})
    return raw.decode("utf-8", "replace")


def _yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(_text(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise HeavyliftError("PLAN063", {"path": str(path), "reason": reason[:120]}) from error
