"""Speed on 80 columns: what it rests on, the bands, where the time of a token goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from heavylift.cli.cells import wrap
from heavylift.cli.output import WIDTH
from heavylift.cli.screens.plan import wrapped
from heavylift.cli.text import formula, of_facts, text
from heavylift.records.ranges import Interval
from heavylift.records.speed import Band, Evidence, Speed, SpeedBasis, SpeedWorkload

EVIDENCE_STYLE: Final = {
    Evidence.ANCHORED: "bold green",
    Evidence.KNOWN: "bold green",
    Evidence.THIN: "bold yellow",
    Evidence.UNSEEN: "bold yellow",
}
_NAME_CELLS: Final = 27
_NUMBER_CELLS: Final = 16


def lines(speed: Speed) -> Iterator[Text | str]:
    """The screen, line by line."""
    yield Text(text(f"speed.evidence.{speed.basis.evidence}"), style=_style(speed.basis))
    yield text(
        "plan.subject",
        title=speed.title,
        variant=of_facts(speed.variant_title),
        rack=speed.rack.label.replace("x", " × ", speed.rack.label.count("x")),
        engine=speed.engine_title,
        version=speed.engine_version,
        layout=speed.layout.label,
    )
    yield from wrapped(workload(speed.workload), "  ")
    yield ""
    yield from _bands(speed)
    yield ""
    yield from _terms(speed)
    yield ""
    yield from wrapped(_batch(speed), "")
    yield from basis(speed.basis)
    yield from _remarks(speed)


def _style(found: SpeedBasis) -> str:
    return EVIDENCE_STYLE[found.evidence]


def workload(work: SpeedWorkload, *, clients: bool = True) -> str:
    """The workload in a line; without `clients` where as many are meant as fill the service."""
    line = text(
        "speed.workload" if clients else "speed.workload_filled",
        clients=f"{work.concurrency:,}",
        input=f"{work.input_tokens:,}",
        output=f"{work.output_tokens:,}",
        cached=f"{work.cached_ratio:.0%}",
    )
    if work.speculation is None:
        return line
    drafted = text(
        "speed.speculation",
        method=work.speculation.method,
        drafted=work.speculation.draft_tokens,
        accepted=f"{work.speculation.accepted_tokens:g}",
        source=work.speculation.source,
    )
    return f"{line} · {drafted}"


def seconds(band: Band) -> str:
    """A band of times, in ms below a second."""
    unit, size = ("ms", 1000.0) if band.low < 1 else ("s", 1.0)
    return f"{number(band.low * size)} – {number(band.high * size)} {unit}"


def number(value: float) -> str:
    """Three digits that matter."""
    if value >= 100:  # noqa: PLR2004 - whole numbers from three digits on
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004 - as above


def band(value: Band) -> str:
    """A band without a unit."""
    return f"{number(value.low)} – {number(value.high)}"


def row(name: str, value: str, rest: str = "") -> str:
    """Three columns, by cells."""
    left = name + " " * max(1, _NAME_CELLS - cell_len(name))
    middle = " " * max(0, _NUMBER_CELLS - cell_len(value)) + value
    return f"  {left}{middle}  {rest}".rstrip()


def rows(name: str, value: str, rest: str) -> Iterator[str]:
    """Three columns; a rest that has no room goes on a line of its own."""
    line = row(name, value, rest)
    if cell_len(line) <= WIDTH:
        yield line
        return
    yield row(name, value)
    yield from wrap(rest, "      ")


def _bands(speed: Speed) -> Iterator[str]:
    tpot = speed.tpot_s
    user = Band(low=1 / tpot.high, high=1 / tpot.low)
    floor = f"{number(speed.tpot_floor_s * 1000)} ms"
    yield row(text("speed.tpot"), seconds(tpot))
    yield row(text("speed.ttft"), seconds(speed.ttft_s), text("speed.ttft_range"))
    yield row(text("speed.per_user"), band(user), text("speed.tokens_per_s"))
    yield row(text("speed.service"), band(speed.output_tokens_per_s), text("speed.tokens_per_s"))
    per_gpu = band(speed.output_tokens_per_s_per_gpu)
    yield row(text("speed.per_gpu"), per_gpu, text("speed.tokens_per_s"))
    yield row(text("speed.floor"), floor, text("speed.floor_is"))


def _terms(speed: Speed) -> Iterator[str]:
    yield text("speed.terms", binding=text(f"speed.part.{speed.binding}"))
    for term in speed.terms:
        name = text(f"speed.part.{term.id}")
        yield from rows(name, f"{term.share_ratio:.0%}", formula(term.formula))


def _batch(speed: Speed) -> str:
    words = text(
        "speed.batch",
        batch=number(speed.decode_batch),
        room=_room(speed.room_sequences),
        context=f"{speed.workload.context_tokens:,}",
    )
    if speed.distinct_experts is None:
        return words
    touched = text(
        "speed.experts", touched=f"{speed.distinct_experts:,.0f}", experts=f"{speed.experts:,}"
    )
    return f"{words} {touched}"


def _room(room: Interval) -> str:
    high = f"{room.high or 0:,}"
    return high if room.is_point else text("plan.range", low=f"{room.low:,}", high=high)


def basis(found: SpeedBasis) -> Iterator[Text]:
    """What the bands rest on, in a sentence."""
    words = text(
        f"speed.basis.{found.evidence}",
        gpu=found.gpu,
        engine=found.engine,
        where=text("speed.over_nodes" if found.crosses_nodes else "speed.in_domain"),
        rows=found.rows,
        sweeps=found.sweeps,
        first=found.first or "?",
        last=found.last or "?",
        low=f"{found.low_ratio:.2f}",
        high=f"{found.high_ratio:.2f}",
    )
    if found.sources:
        words = f"{words} {text('speed.sources', sources=', '.join(found.sources))}"
    yield from wrapped(words, "")


def _remarks(speed: Speed) -> Iterator[Text]:
    if speed.refusal is not None:
        words = text(f"speed.refusal.{speed.refusal.code}", **speed.refusal.params)
        yield from wrapped(f"x {words}", "  ", style="bold red")
    for note in speed.notes:
        words = text(f"speed.note.{note.code}", **note.params)
        yield from wrapped(f"! {words}", "  ", style="yellow")
