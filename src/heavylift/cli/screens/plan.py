"""The plan on 80 columns: verdict, a bar and a row per part, what it holds, what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from heavylift.cli.cells import clipped, left, wrap
from heavylift.cli.output import glyphs
from heavylift.cli.text import keys, listed, of_facts, text
from heavylift.plan.thumb import beside_weights
from heavylift.records.plan import (
    Agreement,
    EngineChoice,
    Kind,
    Plan,
    PlanVerdict,
    Rack,
    Segment,
    Status,
    Support,
    Term,
    TermComparison,
)
from heavylift.records.ranges import Interval
from heavylift.units import GIB, MIB, format_gb, format_gib, format_tokens

_BAR_CELLS: Final = 40
# Where the column of numbers ends, in cells.
_NUMBER_END: Final = 62
_GLYPH: Final = {
    Segment.WEIGHTS: "█",
    Segment.KV_CACHE: "▓",
    Segment.RECURRENT_STATE: "▓",
    Segment.WORKSPACE: "▒",
    Segment.OUTSIDE_POOL: "?",
}
# Of a measured term, by its size.
_UNITS: Final = ((GIB, "GiB"), (MIB, "MiB"), (1, "B"))
_LEFT: Final = "·"
VERDICT_GLYPH: Final = {
    PlanVerdict.FITS: "ok",
    PlanVerdict.TIGHT: "warn",
    PlanVerdict.UNKNOWN: "unknown",
    PlanVerdict.UNSUPPORTED: "fail",
    PlanVerdict.DOES_NOT_FIT: "fail",
}
VERDICT_STYLE: Final = {
    PlanVerdict.FITS: "bold green",
    PlanVerdict.TIGHT: "bold yellow",
    PlanVerdict.UNKNOWN: "bold yellow",
    PlanVerdict.UNSUPPORTED: "bold red",
    PlanVerdict.DOES_NOT_FIT: "bold red",
}


def lines(plan: Plan) -> Iterator[Text | str]:
    """The screen, line by line."""
    verdict = Text(text(f"verdict.{plan.verdict}"), style=VERDICT_STYLE[plan.verdict])
    yield Text.assemble(verdict, f"  ({status(plan.support)})")
    subject = text(
        "plan.subject",
        title=plan.title,
        variant=of_facts(plan.variant_title),
        rack=_rack(plan.rack),
        engine=plan.engine_title,
        version=plan.engine_version,
        layout=plan.layout.label,
    )
    yield from wrapped(subject, "  ")
    yield text(
        "plan.workload",
        concurrency=plan.concurrency,
        context=f"{plan.context_tokens:,}",
        kv_dtype=plan.kv_cache_dtype,
        vision=text(_vision_key(plan)),
    )
    yield ""
    unit = _unit(plan)
    yield _row(_heading(plan), text("plan.gib" if unit == GIB else "plan.mib"), text("plan.kind"))
    known = Interval.exactly(plan.per_gpu.known_total_bytes)
    yield _row(f"  {_bar(plan)}", interval(known, unit), text("plan.known"))
    for segment in Segment:
        yield from _segment(plan, segment)
    yield _left(plan)
    yield ""
    yield from _measured(plan)
    for paragraph in (
        _holds,
        _limits,
        _smaller,
        _host,
        _remarks,
        _rules,
        _engines,
        _fixes,
        _defaults,
    ):
        yield from paragraph(plan)


def _measured(plan: Plan) -> Iterator[Text | str]:
    """A row per measured term: planned, measured, the difference."""
    if not plan.measured:
        return
    yield text("plan.measured.heading", by=plan.receipt or "-")
    for row in plan.measured:
        unit, symbol = next(
            (each for each in _units(row) if row.measured_bytes >= each[0] // 10), _UNITS[-1]
        )
        shown = _planned(row, unit)
        name = row.term.removeprefix("workspace.").removeprefix("outside_pool.")
        name = name.removeprefix("recurrent_state.")
        measured = f"{_amount(row.measured_bytes, unit)} {symbol:<3}"
        words = text(f"plan.measured.{row.agreement}", difference=_difference(row))
        line = f"  {name:<22}{shown:>20}{measured:>14}  {words}"
        yield Text(line, style="yellow") if row.agreement is Agreement.OUTSIDE else line
    yield ""


def _units(row: TermComparison) -> tuple[tuple[int, str], ...]:
    """A token's bytes are counted out: in MiB two decimals would tell them apart no more."""
    return _UNITS[-1:] if row.term.endswith("_per_token") else _UNITS


def _planned(row: TermComparison, unit: int) -> str:
    planned = row.planned
    if planned is None:
        return "–"
    low = _amount(planned.low, unit)
    if planned.is_point:
        return low
    return f"{low} – {'?' if planned.high is None else _amount(planned.high, unit)}"


def _amount(value_bytes: int, unit: int) -> str:
    return f"{value_bytes:,}" if unit == 1 else f"{value_bytes / unit:,.2f}"


def _difference(row: TermComparison) -> str:
    """Per cent between what was measured and the nearest planned number."""
    planned = row.planned
    if planned is None or not planned.low:
        return ""
    near = planned.low
    if planned.high is not None and row.measured_bytes > planned.high:
        near = planned.high
    return f"{100 * (row.measured_bytes / near - 1):+.1f} %"


def _vision_key(plan: Plan) -> str:
    if plan.vision:
        return "plan.vision"
    return "plan.text_only" if plan.request.vision is False else "plan.text_model"


def _rack(rack: Rack) -> str:
    if rack.parts:
        return " + ".join(f"{part.count} × {part.gpu_title}" for part in rack.parts)
    if rack.gpu == rack.gpu_title:
        return rack.label
    if rack.nodes == 1:
        return f"{rack.gpus_per_node} × {rack.gpu_title}"
    return f"{rack.nodes} × {rack.gpus_per_node} × {rack.gpu_title}"


def status(support: Support) -> str:
    """Who says it runs, in words, with the date where there is one."""
    return text(f"status.{support.status}", as_of=support.as_of)


def _unit(plan: Plan) -> int:
    """GiB, or MiB for what would be all zeros in GiB."""
    return GIB if plan.per_gpu.known_total_bytes >= GIB else MIB


def interval(value: Interval, unit: int = GIB, digits: int = 2) -> str:
    """An interval of bytes in GiB: one number, a range, or an open range."""
    low = f"{value.low / unit:,.{digits}f}"
    if value.is_point:
        return low
    if value.high is None:
        return f"{low} – ?" if value.low else "0 – ?"
    return f"{low} – {value.high / unit:,.{digits}f}"


def _heading(plan: Plan) -> str:
    if len(plan.stages) == 1:
        return text("plan.per_gpu")
    worst = plan.stages[plan.worst_stage]
    return text(
        "plan.per_gpu_stage",
        stages=len(plan.stages),
        first=worst.first_layer,
        last=worst.last_layer,
    )


def _row(what: str, number: str, rest: str) -> str:
    """Three columns, by cells: what, GiB, kind and the rest."""
    space = max(1, _NUMBER_END - cell_len(what) - cell_len(number))
    return f"{what}{' ' * space}{number}  {rest}".rstrip()


def _bar(plan: Plan) -> str:
    """Known terms against the whole budget; what is left is dots, what is short overruns."""
    whole = max(plan.per_gpu.budget_bytes, plan.per_gpu.known_total_bytes)
    bar = ""
    filled = 0
    for segment in Segment:
        low = sum(term.bytes.low for term in plan.terms if term.segment == segment)
        filled += low
        bar += _GLYPH[segment] * (round(filled / whole * _BAR_CELLS) - len(bar))
    return bar + _LEFT * (_BAR_CELLS - len(bar))


def _segment(plan: Plan, segment: Segment) -> Iterator[str]:
    """A row per term; the parts of a state are one row, because they are had or not together."""
    terms = [term for term in plan.terms if term.segment == segment]
    if segment is Segment.RECURRENT_STATE and terms:
        bytes_ = terms[0].bytes
        for term in terms[1:]:
            bytes_ = bytes_ + term.bytes
        detail = text("plan.state_detail", each=f"{plan.state_bytes_per_sequence:,}")
        number = interval(bytes_, _unit(plan))
        yield _term_row(segment, segment, detail, number, terms[0].kind)
        return
    for term in terms:
        if len(terms) > 1 and term.bytes.high == 0:
            continue  # a buffer that this stage or layout does not have
        name = segment if len(terms) == 1 else term.id.removeprefix(f"{segment}.")
        number = interval(term.bytes, _unit(plan))
        yield _term_row(segment, name, _detail(plan, term), number, term.kind)


def _term_row(segment: Segment, name: str, detail: str, number: str, kind: Kind) -> str:
    label = f"  {_GLYPH[segment]} {name:<17}"
    room = _NUMBER_END - cell_len(label) - cell_len(number) - 2
    return _row(f"{label} {clipped(detail, room)}", number, text(f"kind.{kind}"))


def counted_tensors(count: int) -> str:
    """A count of tensors with its word."""
    return f"{count:,} {text('explain.tensors.one' if count == 1 else 'explain.tensors')}"


def _detail(plan: Plan, term: Term) -> str:
    if term.segment == Segment.WEIGHTS:
        tensors = sum(part.tensors for part in term.parts)
        return counted_tensors(tensors) if tensors else ""
    if term.segment == Segment.KV_CACHE:
        return text("plan.kv_detail", each=f"{plan.kv_bytes_per_token:,}")
    return text("plan.no_receipt") if term.kind is Kind.UNKNOWN else ""


def _left(plan: Plan) -> str:
    pool = plan.budgets[0]
    visible = interval(Interval.exactly(plan.per_gpu.visible_bytes), _unit(plan))
    if pool.fraction is None:
        of = text("plan.left_of_all", budget=visible)
    elif pool.base == "free_after_load":
        budget = interval(Interval.exactly(pool.bytes), _unit(plan))
        of = text("plan.left_of_free", fraction=f"{pool.fraction:g}", budget=budget)
    else:
        of = text(
            "plan.left_of_fraction",
            fraction=f"{pool.fraction:g}",
            visible=visible,
            budget=interval(Interval.exactly(pool.bytes), _unit(plan)),
        )
    headroom = plan.per_gpu.headroom_bytes
    high = sum(
        (term.bytes.high or 0) - term.bytes.low
        for term in plan.terms
        if term.segment in pool.inside
    )
    open_ended = any(term.bytes.high is None for term in plan.terms if term.segment in pool.inside)
    unit = _unit(plan)
    most = interval(Interval.exactly(headroom), unit)
    least = "?" if open_ended else interval(Interval.exactly(headroom - high), unit)
    number = most if least == most else f"{least} – {most}"
    return _row(f"  {_LEFT} {left(text('plan.left'), 6)} {of}", number, "")


def _range(value: Interval, show: str = "{:,}") -> str:
    high = show.format(value.high or 0)
    if value.low == value.high:
        return high
    if value.low == 0:
        return text("plan.up_to", high=high)
    return text("plan.range", low=show.format(value.low), high=high)


def _holds(plan: Plan) -> Iterator[Text]:
    held = plan.capacity
    context = format_tokens(plan.context_tokens)
    if held.max_sequences.high is None:
        yield from wrapped(text("plan.holds_unknown"), "")
        return
    if not held.max_sequences.high:
        yield Text(text("plan.holds_nothing", context=context))
        return
    binding = next(limit for limit in plan.limits if limit.binds)
    words = text(
        "plan.holds",
        sequences=_range(held.max_sequences),
        context=context,
        longest=_range(held.max_context_tokens),
        tokens=_range(held.kv_tokens),
        term=binding.term,
    )
    seqs = plan.max_num_seqs
    if seqs is not None and seqs < (held.max_sequences.high or 0):
        words = f"{words} {text('plan.admits', seqs=seqs)}"
    yield from wrapped(words, "")


def _limits(plan: Plan) -> Iterator[Text]:
    for limit in plan.limits:
        if limit.short_bytes:
            words = text(
                "plan.limit.short",
                limit=text(f"plan.limit.{limit.id}"),
                need=format_gib(limit.need_bytes),
                have=format_gib(limit.have_bytes),
                short=format_gib(limit.short_bytes),
            )
            yield from wrapped(f"x {words}", "  ", style="red")


def _smaller(plan: Plan) -> Iterator[Text]:
    """The counts below the one taken; those that are hopeless are one line."""
    hopeless = [each for each in plan.smaller if each.weights_alone]
    if hopeless:
        last = hopeless[-1]
        words = text(
            "plan.smaller_weights",
            racks=last.rack,
            need=format_gib(last.need_bytes, 1),
            have=format_gib(last.have_bytes, 1),
        )
        yield from wrapped(words, "  ")
    for each in plan.smaller:
        if each.weights_alone:
            continue
        key = "plan.smaller_short" if each.code is None else "plan.smaller_no_layout"
        words = text(
            key,
            rack=each.rack,
            need=format_gib(each.need_bytes, 1),
            have=format_gib(each.have_bytes, 1),
        )
        yield from wrapped(words, "  ")


def _engines(plan: Plan) -> Iterator[Text]:
    """What the other engines made of it: who has a recipe, who refuses and why."""
    if len(plan.engines) < 2:  # noqa: PLR2004 - one is no choice
        return
    yield Text(text("plan.engines"))
    for each in plan.engines:
        layout = "" if each.layout is None else each.layout.label
        words = text(
            "plan.engine" if layout else "plan.engine_refuses",
            glyph=glyphs()[VERDICT_GLYPH[each.verdict]],
            engine=each.title,
            version=each.version,
            verdict=text(f"verdict.{each.verdict}").lower(),
            layout=layout,
            why=engine_reason(each),
        )
        yield from wrapped(f"  {words}", "      ")


def engine_reason(choice: EngineChoice) -> str:
    """The word on an engine for this model and card: its recipe, or why it refuses."""
    support = choice.support
    if support.recipe is not None and support.status is not Status.UNKNOWN:
        key = f"fix.status.{support.status}"
        return text("plan.engine_recipe", status=text(key), recipe=support.recipe)
    reason = f"support.{support.note}" if support.note else ""
    if reason in keys():
        return text(reason)
    return text(f"fix.status.{support.status}")


def _rules(plan: Plan) -> Iterator[Text]:
    """Rules of thumb beside the account, each with where it goes wrong here."""
    if not plan.rules_of_thumb:
        return
    yield from wrapped(text("plan.rules", reserve=interval(beside_weights(plan))), "  ")
    for answer in plan.rules_of_thumb:
        verdict = "unsure" if answer.holds is None else "holds" if answer.holds else "no"
        words = text(
            f"plan.rule.{answer.id}",
            kept=interval(answer.reserve_bytes, digits=1),
            share=format_gib(answer.weights_bytes, 1),
            verdict=text(f"plan.rule_says.{verdict}"),
        )
        yield from wrapped(f"  {words}", "    ")
        for fault in answer.faults:
            params = {
                name: format_gib(value, 1)
                if name in _RULE_BYTES and isinstance(value, int)
                else value
                for name, value in fault.params.items()
            }
            yield from wrapped(f"    {text(f'plan.rule_fault.{fault.code}', **params)}", "      ")


_NOTE_BYTES: Final = frozenset({"shown", "most"})
_RULE_BYTES: Final = frozenset({"weights", "share", "need", "spare"})


def _host(plan: Plan) -> Iterator[Text]:
    """What the machines must have beside the cards."""
    key = "plan.host_all" if plan.host.load_bytes_per_node else "plan.host_parts"
    yield from wrapped(text(key, disk=format_gb(plan.host.disk_bytes)), "")


def _remarks(plan: Plan) -> Iterator[Text]:
    for note in plan.notes:
        params = {
            name: format_gib(value, 1) if name in _NOTE_BYTES and isinstance(value, int) else value
            for name, value in note.params.items()
        }
        words = text(f"note.{note.code}", **params)
        yield from wrapped(f"! {words}", "  ", style="yellow")


def _fixes(plan: Plan) -> Iterator[Text]:
    if not plan.fixes:
        return
    yield Text(text("plan.fixes"))
    for fix in plan.fixes:
        words = text(
            "fix.line",
            text=text(f"fix.{fix.id}", **fix.params),
            verdict=text(f"verdict.{fix.verdict}").lower(),
            status=text(f"fix.status.{fix.status}"),
            left=format_gib(fix.headroom_bytes, 1),
        )
        yield Text(f"  → {words}")


def wrapped(words: str, indent: str, *, style: str = "") -> Iterator[Text]:
    """Words on lines of at most 80 cells, the second and later ones indented.

    Spaces inside the words are kept; a word that is wider than a line is cut, never run over.
    """
    lead = " " * (len(words) - len(words.lstrip(" ")))
    shown = list(wrap(words, lead, indent)) or [lead]
    yield from (Text(line, style=style) for line in shown)


def _defaults(plan: Plan) -> Iterator[Text]:
    if not plan.defaults:
        return
    shown = [
        text("plan.default", name=entry.name, value=entry.value, source=entry.source)
        for entry in plan.defaults
    ]
    yield Text("")
    yield from wrapped(
        text("plan.defaults", listed=listed(shown, "list.clauses")), "  ", style="dim"
    )
