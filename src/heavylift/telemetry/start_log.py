"""A start-up log of any engine as a receipt: which engine wrote it, what each card took. Pure.

What the lines look like is facts. Here is what they mean together: vLLM counts its estimate of the
graphs into the peak activation, a drafter's pool comes after the model's, every rank repeats the
lines of the others, and replicas add up their tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.log_schema import LogBook
from heavylift.records.plan import Plan, Segment
from heavylift.records.receipt import POOL, MeasuredTerm, Receipt
from heavylift.records.speed import AnchorPoint
from heavylift.telemetry import llamacpp
from heavylift.telemetry.decode_log import decode_points
from heavylift.telemetry.engine_log import EngineWords, LogReader, read
from heavylift.units import GIB

_UNEXPLAINED: Final = f"{Segment.OUTSIDE_POOL}.unexplained"
# Words of logs -> terms of plans.
_ACTIVATION: Final = f"{Segment.WORKSPACE}.activations"
_GRAPHS: Final = f"{Segment.OUTSIDE_POOL}.graphs"
_REST: Final = (Segment.WORKSPACE, Segment.OUTSIDE_POOL)
_PLAN_TERMS: Final = ("weights", "kv_cache", "recurrent_state", POOL)


@dataclass(frozen=True, kw_only=True, slots=True)
class StartLog:
    """What a log tells. `terms` by the engine's words, each of the fullest card; `figures` are
    numbers that are no bytes; `ranks` the widest tensor rank it names, None where it names none.
    `speeds` are points of decoding, one replica's. `buffers` is memory told buffer by buffer.
    """

    engine: str
    version: str | None
    terms: Mapping[str, MeasuredTerm]
    figures: Mapping[str, float] = field(default_factory=dict)
    ranks: int | None = None
    speeds: tuple[AnchorPoint, ...] = ()
    buffers: llamacpp.LlamaMemory | None = None

    @property
    def settings(self) -> dict[str, int | float | str]:
        """What the engine was started with, as far as the log says, by the names of a request."""
        if self.buffers is not None:
            memory = self.buffers
            told = {
                "context_tokens": memory.context_tokens,
                "concurrency": memory.slots,
                "max_num_batched_tokens": memory.ubatch_tokens,
            }
            found: dict[str, int | float | str] = {
                name: value for name, value in told.items() if value is not None
            }
            return found | ({} if memory.kv is None else {"kv_cache_dtype": memory.kv.k_dtype})
        found = {}
        if "context_tokens" in self.figures:
            found["context_tokens"] = int(self.figures["context_tokens"])
        if "fraction" in self.figures:
            found["gpu_memory_utilization"] = self.figures["fraction"]
        return found


def read_start(lines: Sequence[str], book: LogBook) -> StartLog:
    """The log of a start. Raises RUN020 where it tells no memory term of any engine, or where one
    that is told buffer by buffer is not whole.
    """
    for writer in book.buffers:
        if any(writer.sign in line for line in lines):
            memory = llamacpp.parse(lines)
            terms = {term.term: term for term in llamacpp.measured_terms(memory)}
            return StartLog(engine=writer.engine, version=None, terms=terms, buffers=memory)
    engines = dict.fromkeys(term.engine for term in book.terms)
    found = [(engine, read(lines, EngineWords(book, engine))) for engine in engines]
    engine, reader = max(found, key=lambda each: len(each[1].measured_terms()))
    measured = reader.measured_terms()
    if not measured:
        raise HeavyliftError("RUN020", {"what": "memory"})
    start = told(engine, measured, _figures(reader), version=reader.version)
    speeds = decode_points(lines, book, engine, kv_tokens=_pool_tokens(reader))
    return replace(start, speeds=speeds)


def told(
    engine: str,
    terms: Iterable[MeasuredTerm],
    figures: Mapping[str, float],
    *,
    version: str | None = None,
) -> StartLog:
    """What the logs of a start told, whichever way they were read: terms in the engine's words."""
    terms = tuple(terms)
    return StartLog(
        engine=engine,
        version=version,
        terms=_fullest(terms),
        figures=figures,
        ranks=_ranks(terms),
    )


def _pool_tokens(reader: LogReader) -> float | None:
    """Tokens of one replica's pool."""
    by_replica = reader.replica_figures.get("kv_tokens", {})
    return min(by_replica.values(), default=reader.figures.get("kv_tokens"))


def _fullest(terms: Iterable[MeasuredTerm]) -> dict[str, MeasuredTerm]:
    """Of each term the card that holds most; of pools the one that holds least binds."""
    found: dict[str, MeasuredTerm] = {}
    for term in terms:
        before = found.get(term.term)
        fuller = before is None or (
            term.bytes < before.bytes if term.term == POOL else term.bytes > before.bytes
        )
        if fuller:
            found[term.term] = term
    return found


def _figures(reader: LogReader) -> dict[str, float]:
    """The figures; those that each replica tells, added up."""
    figures = dict(reader.figures)
    for name, by_replica in reader.replica_figures.items():
        figures[name] = sum(by_replica.values())
    return figures


def _ranks(terms: Iterable[MeasuredTerm]) -> int | None:
    numbers = [int(term.device.rpartition("tp")[2]) for term in terms]
    widest = max(numbers, default=0)
    return widest + 1 if widest else None


def receipt_of(start: StartLog, plan: Plan) -> Receipt:
    """The log as a receipt of the plan's start, in the plan's terms.

    What the log tells and the plan has no term for is in the unexplained rest. A layout that the
    log contradicts is the log's, so that the receipt is not taken for this plan's.
    """
    layout = plan.layout
    terms: tuple[MeasuredTerm, ...]
    if start.ranks is not None and start.ranks > layout.tensor_parallel_size:
        layout = replace(layout, tensor_parallel_size=start.ranks)
    if start.buffers is not None:
        terms = tuple(_of_a_card(llamacpp.measured_terms(start.buffers)))
    else:
        terms = tuple(_in_plan_terms(start, plan))
    return Receipt(
        model=plan.model,
        variant=plan.variant,
        engine=start.engine,
        engine_version=plan.engine_version,
        backend=plan.rack.gpu,
        layout=layout,
        rack=plan.rack.label,
        terms=terms,
        figures=dict(start.figures),
        logged_version=start.version,
        speeds=tuple(
            replace(point, concurrency=point.concurrency * layout.data_parallel_size)
            for point in start.speeds
        ),
    )


def _of_a_card(terms: Iterable[MeasuredTerm]) -> Iterable[MeasuredTerm]:
    """What the fullest card took of each term; what lies in host memory beside it is none of it,
    and a sum over cards is no card's. Without a card, all: then the host is what was planned.
    """
    # A pass that only tries sizes prints them as zero: nothing was allocated.
    allocated = [term for term in terms if term.bytes]
    on_cards = [term for term in allocated if term.device != llamacpp.HOST]
    if not on_cards:
        return allocated
    return _fullest(term for term in on_cards if "+" not in term.device).values()


def _in_plan_terms(start: StartLog, plan: Plan) -> list[MeasuredTerm]:
    said = _untangled(start)
    known = {term.id for term in plan.terms} | {POOL}
    found = [term for name, term in said.items() if name in known and name != _UNEXPLAINED]
    rest = [term for name, term in said.items() if name not in known or name == _UNEXPLAINED]
    if rest and _UNEXPLAINED in known:
        found.append(_sum(_UNEXPLAINED, rest))
    return found


def _untangled(start: StartLog) -> dict[str, MeasuredTerm]:
    """The log's words as terms that do not overlap."""
    words = start.terms
    found = {name: words[name] for name in _PLAN_TERMS if name in words}
    found |= {name: term for name, term in words.items() if name.partition(".")[0] in _REST}
    graphs, estimate = words.get("graphs"), words.get("graphs_estimated")
    peak = words.get("peak_activation")
    if peak is not None:
        # The peak is printed with the estimate inside.
        inside = estimate.bytes if estimate is not None and estimate.bytes < peak.bytes else 0
        found[_ACTIVATION] = replace(peak, term=_ACTIVATION, bytes=peak.bytes - inside)
    shown = graphs or estimate
    if shown is not None:
        found[_GRAPHS] = replace(shown, term=_GRAPHS)
    rest = _rest(start, found)
    if rest is not None:
        found[_UNEXPLAINED] = rest
    return found


def _rest(start: StartLog, found: Mapping[str, MeasuredTerm]) -> MeasuredTerm | None:
    """What is neither weights nor cache nor named: as printed, or what the budget leaves."""
    words, weights, pool = start.terms, found.get("weights"), found.get(POOL)
    if "non_torch" in words:
        return replace(words["non_torch"], term=_UNEXPLAINED)
    if "consumed" in words and weights is not None:
        whole = words["consumed"]
        return replace(whole, term=_UNEXPLAINED, bytes=max(0, whole.bytes - weights.bytes))
    budget = start.figures.get("budget_gib")
    if budget is None or weights is None or pool is None:
        return None
    named = sum(term.bytes for name, term in found.items() if name not in ("weights", POOL))
    bytes_ = max(0, round(budget * GIB) - weights.bytes - pool.bytes - named)
    return replace(pool, term=_UNEXPLAINED, bytes=bytes_)


def _sum(name: str, terms: Sequence[MeasuredTerm]) -> MeasuredTerm:
    return MeasuredTerm(
        term=name,
        device=terms[0].device,
        bytes=sum(term.bytes for term in terms),
        resolution_bytes=sum(term.resolution_bytes for term in terms),
        line="\n".join(dict.fromkeys(term.line for term in terms)),
    )
