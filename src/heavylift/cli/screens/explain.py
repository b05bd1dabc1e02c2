"""A number taken apart: parts with their rule and bytes, formula, source spelt out."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from heavylift.cli.cells import left, tail
from heavylift.cli.explain import Explanation
from heavylift.cli.output import WIDTH
from heavylift.cli.screens.plan import counted_tensors, interval, status, wrapped
from heavylift.cli.text import formula, labelled, listed, of_facts, refusal, text
from heavylift.records.plan import Part, Rejected, Segment, Term
from heavylift.units import format_bytes, format_gib


def lines(explanation: Explanation) -> Iterator[Text]:
    """The screen, line by line, within 80 columns."""
    for line in _lines(explanation):
        yield from wrapped(line, "    ")


def _lines(explanation: Explanation) -> Iterator[str]:
    plan = explanation.plan
    engine = f"{plan.engine_title} {plan.engine_version}"
    yield f"{plan.title} · {plan.rack.label} · {engine} · {plan.layout.label}"
    yield ""
    match explanation.topic:
        case "budget":
            yield from _budget(explanation)
        case "defaults":
            for entry in plan.defaults:
                yield text(
                    "explain.default",
                    name=entry.name,
                    value=entry.value,
                    origin=text(f"explain.origin.{entry.origin}"),
                    source=entry.source,
                )
        case "layouts":
            yield from _layouts(explanation)
        case topic:
            if not explanation.terms:
                yield text("explain.nothing", topic=topic)
            for term in explanation.terms:
                yield from _term(term)
    yield from _sources(explanation)


def _term(term: Term) -> Iterator[str]:
    yield f"{term.id}  {interval(term.bytes)} GiB  {text(f'kind.{term.kind}')}"
    if term.bytes.is_point:
        yield f"  = {format_bytes(term.bytes.low)}"
    if term.bytes.high is None:
        yield f"  {text('explain.unknown_high')}"
    if term.formula:
        yield f"  {labelled('explain.formula', formula(term.formula))}"
    if term.note:
        yield f"  {labelled('explain.note', of_facts(term.note))}"
    yield f"  {labelled('explain.source', term.source)}"
    if term.segment == Segment.WEIGHTS:
        yield from _weights(term.parts)
    else:
        for part in term.parts:
            yield f"  {part.id}: {formula(part.formula)} = {format_bytes(part.bytes)}"
            for line in filter(None, (_rule(part), formula(part.detail))):
                yield f"    {line}"
    yield ""


def _weights(parts: tuple[Part, ...]) -> Iterator[str]:
    """A line per tensor group, the heaviest first, with how it meets the ranks."""
    for part in sorted(parts, key=lambda part: -part.bytes):
        number = format_gib(part.bytes, 4)
        space = " " * max(1, 11 - cell_len(number))
        begin = f"{space}{number}  {left(_rule(part), 20)} "
        yield f"{begin}{tail(part.id, WIDTH - cell_len(begin))}"
    total = sum(part.bytes for part in parts)
    tensors = sum(part.tensors for part in parts)
    counted = counted_tensors(tensors)
    yield f"  {format_gib(total, 4):>13}  {listed((text('explain.total'), counted), 'list.parts')}"


def _rule(part: Part) -> str:
    return text(f"rule.{part.rule}", **part.params) if part.rule else ""


def _budget(explanation: Explanation) -> Iterator[str]:
    for budget in explanation.budgets:
        key = "explain.budget_all" if budget.fraction is None else "explain.budget"
        yield text(
            key,
            name=budget.name,
            fraction=budget.fraction,
            base=text(f"explain.base.{budget.base}"),
            bytes=format_gib(budget.bytes),
            inside=listed(budget.inside),
        )


def _layouts(explanation: Explanation) -> Iterator[str]:
    plan = explanation.plan
    yield text(
        "explain.chosen",
        layout=plan.layout.label,
        verdict=text(f"verdict.{plan.verdict}").lower(),
        status=status(plan.support),
    )
    for rejected in plan.rejected:
        yield text("explain.rejected", layout=rejected.layout.label, why=_why(rejected))


def _why(rejected: Rejected) -> str:
    return refusal(rejected.code, rejected.params)


def _sources(explanation: Explanation) -> Iterator[str]:
    if not explanation.sources:
        return
    yield ""
    yield text("explain.sources")
    for name, source in explanation.sources.items():
        where = f"  {source.url}" if source.url else ""
        yield (
            "  "
            + text(
                "explain.named_source",
                name=name,
                title=of_facts(source.title),
                day=source.retrieved,
            )
            + where
        )
