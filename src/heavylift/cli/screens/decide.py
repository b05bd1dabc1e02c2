"""The decision on 80 columns: the question in words, costs, what flips it, what is beside money."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from heavylift.cli.screens.plan import wrapped
from heavylift.cli.screens.speed import band, basis, number, row, rows, seconds, workload
from heavylift.cli.text import formula, listed, text
from heavylift.plan.money import STATED
from heavylift.records.decision import Decision, DecisionVerdict, Flip, OwnOption, TokenPrice
from heavylift.records.speed import Band

_STYLE: Final = {
    DecisionVerdict.API: "bold green",
    DecisionVerdict.OWN: "bold green",
    DecisionVerdict.DEPENDS: "bold yellow",
    DecisionVerdict.OWN_BY_RULE: "bold green",
}
_OTHERS_SHOWN: Final = 3
_FLIPS_SHOWN: Final = 4
_SHARES: Final = frozenset({"cached_share", "residual_ratio", "network_ratio", "draw_ratio"})


def lines(decision: Decision) -> Iterator[Text | str]:
    """The screen, line by line."""
    yield Text(text(f"decide.verdict.{_verdict(decision)}"), style=_STYLE[decision.verdict])
    weights = f"{decision.checkpoint_bytes / 1e12:.2f}"
    yield from wrapped(text("decide.question", terabytes=weights, title=decision.title), "")
    yield from wrapped(workload(decision.workload, clients=False), "  ")
    yield ""
    yield from _point(decision)
    yield ""
    yield from _api(decision)
    for option in decision.options:
        yield ""
        yield from _option(decision, option)
    for note in decision.not_priced:
        yield from wrapped(f"? {text(f'decide.not_priced.{note.code}', **note.params)}", "  ")
    yield ""
    yield from _flips(decision)
    yield from _assumptions(decision)
    yield text("decide.beside_money")
    for note in decision.beside_money:
        yield from wrapped(f"· {text(f'decide.beside.{note.code}')}", "  ")
    yield from basis(decision.basis)


def _verdict(decision: Decision) -> str:
    if decision.verdict is DecisionVerdict.DEPENDS and decision.output_tokens_per_day is None:
        return "no_volume"
    return decision.verdict.value


def _point(decision: Decision) -> Iterator[Text | str]:
    where = f"{decision.rack.label} {decision.layout.label}"
    simulated, engine = decision.simulated, decision.engine_title
    if simulated is not None:
        words = {"where": where, "engine": engine, "slo": simulated.slo}
        yield from wrapped(
            text(
                "decide.point_simulated", **words, racks=simulated.racks, traffic=simulated.traffic
            ),
            "",
        )
        yield row(text("decide.requests_per_s"), band(simulated.requests_per_s))
    else:
        limit = number((decision.tpot_limit_s or 0.0) * 1000)
        yield text("decide.point", where=where, engine=engine, limit=limit)
    clients = decision.point_concurrency
    if clients is not None:
        yield row(text("decide.clients"), f"{clients.low:,.0f} – {clients.high:,.0f}")
    rate = band(decision.point_output_tokens_per_s)
    yield row(text("speed.service"), rate, text("speed.tokens_per_s"))
    if decision.point_ttft_s is not None:
        yield row(text("speed.ttft"), seconds(decision.point_ttft_s), text("decide.settled"))


def _api(decision: Decision) -> Iterator[Text | str]:
    price = decision.price
    yield from wrapped(text("decide.api", **_price(price)), "  ")
    each = decision.api_usd_per_million_output
    yield row(text("decide.per_million"), f"{each:,.2f}", text("decide.per_million_is"))
    if decision.api_usd_per_day is not None:
        yield row(text("decide.per_day"), f"{decision.api_usd_per_day:,.0f}", "USD")
    for other in decision.other_prices[:_OTHERS_SHOWN]:
        yield from wrapped(f"· {text('decide.other', **_price(other))}", "    ")


def _price(price: TokenPrice) -> dict[str, str]:
    name = f"{price.name} ({price.tier})" if price.tier else price.name
    return {
        "provider": price.provider,
        "name": name,
        "input": f"{price.input_usd:g}",
        "cached": f"{price.cached_input_usd:g}",
        "output": f"{price.output_usd:g}",
        "kind": text(f"kind.{price.kind}"),
        "source": price.source,
        "as_of": price.as_of or "?",
    }


def _option(decision: Decision, option: OwnOption) -> Iterator[Text | str]:
    yield text(f"decide.tenure.{option.tenure}")
    for part in option.parts:
        name = text(f"decide.part.{part.id}")
        yield from rows(name, f"{part.usd_per_hour:,.2f}", formula(part.formula))
        said = [text(f"kind.{part.kind}")]
        if part.source != STATED:
            said.append(f"{part.source} {part.as_of}".rstrip())
        yield f"      {listed(said, 'list.parts')}"
    yield row(text("decide.part.staff"), f"{option.staff_usd_per_hour:,.2f}", "USD/h")
    per_million = _money(option.usd_per_million_output)
    yield row(text("decide.per_million"), per_million, text("decide.at_full_use"))
    ratio = option.break_even_ratio
    yield row(
        text("decide.break_even"),
        f"{ratio.low:.0%} – {ratio.high:.0%}",
        text("decide.break_even_is"),
    )
    yield row(
        text("decide.most_used"), f"{option.most_used_ratio:.0%}", text("decide.most_used_is")
    )
    tokens = option.break_even_output_tokens_per_day
    yield row(
        text("decide.break_even_volume"),
        f"{tokens.low / 1e6:,.1f} – {tokens.high / 1e6:,.1f}",
        text("decide.break_even_tokens"),
    )
    if option.usd_per_day is None or option.units is None or option.utilisation_ratio is None:
        return
    used = option.utilisation_ratio
    units = text(
        "decide.units",
        low=option.units[0],
        high=option.units[1],
        rack=decision.rack.label,
        used=f"{used.low:.0%} – {used.high:.0%}",
    )
    yield row(text("decide.per_day"), _money(option.usd_per_day, 0), units)


def _money(value: Band, digits: int = 2) -> str:
    return f"{value.low:,.{digits}f} – {value.high:,.{digits}f}"


def _flips(decision: Decision) -> Iterator[Text]:
    if decision.output_tokens_per_day is None:
        yield from wrapped(text("decide.no_volume"), "  ")
        return
    if decision.decisive is None:
        yield from wrapped(text("decide.no_flip"), "  ")
    else:
        yield from wrapped(text("decide.decisive", **_flip(decision.decisive)), "  ")
    others = [flip for flip in decision.flips if flip != decision.decisive]
    for flip in others[:_FLIPS_SHOWN]:
        key = "decide.flip" if flip.in_range else "decide.flip_far"
        yield from wrapped(f"· {text(key, **_flip(flip))}", "  ")


def _flip(flip: Flip) -> dict[str, str]:
    return {
        "input": text(f"decide.input.{flip.input}"),
        "now": _amount(flip.input, flip.now),
        "at": _amount(flip.input, flip.flips_at),
    }


def _amount(name: str, value: float) -> str:
    if name in _SHARES:
        return f"{value:.0%}"
    if name == "volume":
        return text("decide.million_tokens", amount=f"{value / 1e6:,.1f}")
    return number(value)


def _assumptions(decision: Decision) -> Iterator[Text]:
    shown = [
        text(
            "decide.assumption",
            name=entry.id,
            value=f"{entry.value:g}",
            low=f"{entry.low:g}",
            high=f"{entry.high:g}",
            kind=text(f"kind.{entry.kind}"),
        )
        for entry in decision.assumptions
    ]
    yield from wrapped(
        text("decide.assumptions", listed=listed(shown, "list.clauses")), "  ", style="dim"
    )
