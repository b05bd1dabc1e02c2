"""A simulated fleet on 80 columns: three runs side by side, then what they say together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from heavylift.cli.screens.plan import wrapped
from heavylift.cli.screens.speed import basis, number
from heavylift.cli.text import of_facts, text
from heavylift.records.simulation import FleetLayout, FleetRun, FleetVerdict, Simulation

_STYLE: Final = {
    FleetVerdict.MEETS: "bold green",
    FleetVerdict.DEPENDS: "bold yellow",
    FleetVerdict.MISSES: "bold red",
    FleetVerdict.NOT_ASKED: "bold",
}
_NAME_CELLS: Final = 32
_CELLS: Final = 15


def lines(found: Simulation) -> Iterator[Text | str]:
    """The screen, line by line."""
    yield Text(text(f"simulate.verdict.{found.verdict}"), style=_STYLE[found.verdict])
    yield from wrapped(_subject(found), "")
    yield from wrapped(_traffic(found), "  ")
    if found.slo:
        yield from wrapped(text("simulate.slo", slo=found.slo.replace(",", ", ")), "  ")
    yield ""
    yield from _table(found)
    yield ""
    yield from _together(found)
    yield from basis(found.basis)
    for note in found.notes:
        words = text(f"simulate.note.{note.code}", **note.params)
        yield from wrapped(f"! {words}", "  ", style="yellow")


def _fleet(fleet: FleetLayout) -> str:
    if fleet.prefill_rack is None:
        return text("simulate.fleet", racks=fleet.racks, rack=fleet.rack.label)
    return text(
        "simulate.fleet_split",
        racks=fleet.racks,
        rack=fleet.rack.label,
        prefill_racks=fleet.prefill_racks,
        prefill_rack=fleet.prefill_rack.label,
    )


def _subject(found: Simulation) -> str:
    replicas = found.fleet.racks * found.fleet.layout.data_parallel_size
    key = "simulate.replicas.one" if replicas == 1 else "simulate.replicas.many"
    first = text(
        "simulate.subject",
        title=found.title,
        variant=of_facts(found.variant_title),
        fleet=_fleet(found.fleet),
    )
    second = text(
        "simulate.engine",
        engine=found.engine_title,
        version=found.engine_version,
        layout=found.fleet.layout.label,
        replicas=text(key, count=f"{replicas:,}"),
        router=found.router,
    )
    return f"{first} · {second}"


def _traffic(found: Simulation) -> str:
    traffic = found.traffic
    return text(
        "simulate.traffic",
        name=traffic.name,
        rate=number(traffic.rate_per_s),
        input=f"{traffic.input_tokens:,.0f}",
        output=f"{traffic.output_tokens:,.0f}",
        seed=found.seed,
    )


def _time(seconds: float) -> str:
    return f"{number(seconds * 1000)} ms" if seconds < 1 else f"{number(seconds)} s"


_ROWS: Final[dict[str, Callable[[FleetRun], str]]] = {
    "ttft_p50": lambda run: _time(run.ttft_s.p50),
    "ttft_p99": lambda run: _time(run.ttft_s.p99),
    "tpot_p50": lambda run: _time(run.tpot_s.p50),
    "tpot_p99": lambda run: _time(run.tpot_s.p99),
    "e2e_p50": lambda run: _time(run.e2e_s.p50),
    "within": lambda run: f"{run.within_ratio:.1%}",
    "served": lambda run: number(run.requests_per_s),
    "output": lambda run: number(run.output_tokens_per_s),
    "busy": lambda run: f"{run.busy_ratio:.0%}",
    "prefill": lambda run: f"{run.prefill_ratio:.0%}",
    "batch": lambda run: number(run.decode_batch),
    "hits": lambda run: f"{run.hit_ratio:.0%}",
    "preempted": lambda run: f"{run.preemptions:,}",
    "broken": lambda run: f"{run.broken:,}",
    "binding": lambda run: text(f"simulate.limit.{run.binding}"),
}
_ONLY_WITH: Final[dict[str, Callable[[Simulation], bool]]] = {
    "within": lambda found: bool(found.slo),
    "preempted": lambda found: any(run.preemptions for run in found.runs),
    "broken": lambda found: any(run.failures for run in found.runs),
}


def _row(name: str, values: list[str]) -> str:
    padded = "".join(" " * max(1, _CELLS - cell_len(value)) + value for value in values)
    return f"  {name}{' ' * max(1, _NAME_CELLS - cell_len(name))}{padded}"


def _table(found: Simulation) -> Iterator[Text | str]:
    yield Text(_row("", text("simulate.columns").split("|")), style="bold")
    for name, value in _ROWS.items():
        asked = _ONLY_WITH.get(name)
        if asked is None or asked(found):
            yield _row(text(f"simulate.row.{name}"), [value(run) for run in found.runs])


def _together(found: Simulation) -> Iterator[Text]:
    highest = found.highest_rate_per_s
    if highest is not None:
        yield from wrapped(_highest(found), "")
    if found.racks_needed is not None:
        fast, slow = (
            text("simulate.needed_none") if count is None else f"{count:,}"
            for count in found.racks_needed
        )
        rate = number(found.traffic.rate_per_s)
        yield from wrapped(text("simulate.needed", rate=rate, fast=fast, slow=slow), "")
    for gain in found.gains:
        words = text(
            f"simulate.gain.{gain.change}",
            rate=number(gain.rate_per_s),
            ratio=f"{gain.ratio:.2f}",
        )
        yield from wrapped(words, "")
    if found.cost is not None:
        each, hour = found.cost.usd_per_million_output, found.cost.usd_per_hour
        words = text(
            "simulate.cost" if highest is not None else "simulate.cost_run",
            low=number(each.low),
            high=number(each.high),
            hour=f"{number(hour.low)} – {number(hour.high)}",
        )
        yield from wrapped(words, "")
    seats = "" if found.seats is None else f" {text('simulate.seats', seats=f'{found.seats:,}')}"
    key = "simulate.held" if found.state_tokens else "simulate.held_stateless"
    state = f"{found.state_tokens:,}"
    yield from wrapped(text(key, tokens=f"{found.tokens_held:,}", seats=seats, state=state), "")
    if found.start_s is not None and any(run.failures for run in found.runs):
        yield from wrapped(text("simulate.start", time=_time(found.start_s)), "")


def _highest(found: Simulation) -> str:
    highest = found.highest_rate_per_s
    if highest is None or not highest.high:
        return text("simulate.highest_never")
    if not highest.low:
        return text("simulate.highest_none", high=number(highest.high))
    return text(
        "simulate.highest",
        low=number(highest.low),
        high=number(highest.high),
        fleet=_fleet(found.fleet),
    )
