"""`heavylift explain`: where a number of a plan comes from, or what an error code means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import click

from heavylift.cli import codes, last
from heavylift.cli.output import json_option, sink
from heavylift.cli.plan import make
from heavylift.cli.request import Wish, plan_options
from heavylift.cli.text import text
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import Source
from heavylift.records.plan import Budget, Plan, Segment, Term

TOPICS: Final = (*(segment.value for segment in Segment), "budget", "defaults", "layouts")


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A topic of a plan with everything it rests on, sources spelt out."""

    topic: str
    plan: Plan
    terms: tuple[Term, ...]
    budgets: tuple[Budget, ...]
    sources: dict[str, Source]


class _Topic(click.Choice[str]):
    """A term of a plan, or an error code in any case."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The term or code that is meant."""
        word = str(value)
        if not codes.looks_like_code(word):
            return super().convert(value, param, ctx)
        if codes.page(word.upper()) is None:
            self.fail(text("codes.unknown", code=word.upper()), param, ctx)
        return word.upper()


@click.command(help=text("help.explain"))
@click.argument("topic", type=_Topic(TOPICS), metavar="TERM|CODE")
@click.argument("model", required=False)
@click.option("--on", "rack_text", metavar="RACK", help=text("option.on"))
@plan_options
@json_option
def command(
    topic: str, model: str | None, rack_text: str | None, as_json: bool, **options: Any
) -> int:
    """Explain an error code, or a topic of the last plan or of the one described."""
    found = codes.page(topic)
    if found is not None:
        if model is not None:
            raise click.UsageError(text("usage.explain_code"))
        out = sink(as_json)
        out.record("error_page", found)
        if found.next_command is not None:
            out.next_command(found.next_command)
        return 0
    if model is None and any(value not in (None, False) for value in options.values()):
        raise click.UsageError(text("usage.explain_options"))
    if (model is None) is not (rack_text is None):
        raise click.UsageError(text("usage.explain_what"))
    if model is not None and rack_text is not None:
        plan = make(Wish.of(model, options), rack_text)
        last.save(plan)
    else:
        plan = last.load()
    sink(as_json).record("explain", explanation(topic, plan))
    return 0


def explanation(topic: str, plan: Plan) -> Explanation:
    """What there is to say about a topic of a plan."""
    terms = tuple(term for term in plan.terms if term.segment == topic)
    named = {term.source for term in terms}
    named |= {part.source for term in terms for part in term.parts}
    if topic == "budget":
        named |= {budget.source for budget in plan.budgets}
    if topic == "defaults":
        named |= {default.source for default in plan.defaults}
    if topic == "layouts":
        named.add(plan.support.source)
    catalog = Catalog()
    known = {name: catalog.source_or_none(name) for name in sorted(named)}
    return Explanation(
        topic=topic,
        plan=plan,
        terms=terms,
        budgets=plan.budgets if topic == "budget" else (),
        sources={name: source for name, source in known.items() if source is not None},
    )
