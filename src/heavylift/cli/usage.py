"""`heavylift usage`: what was used, by key, team or day."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heavylift.cli.keys import opened_store, state_option
from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text

if TYPE_CHECKING:
    from heavylift.gateway.store import Grouping, Usage


@click.command(help=text("help.usage.long"))
@click.option(
    "--by",
    type=click.Choice(("key", "team", "day")),
    default="key",
    show_default=True,
    help=text("help.usage.by"),
)
@click.option(
    "--since", metavar="DATE", type=click.DateTime(["%Y-%m-%d"]), help=text("help.usage.since")
)
@click.option("--csv", "as_csv", is_flag=True, help=text("help.usage.csv"))
@state_option
@json_option
def command(by: Grouping, since: object, as_csv: bool, state: Path | None, as_json: bool) -> None:
    """Sum up what was used."""
    import calendar
    from datetime import datetime

    from heavylift.facts.catalog import Catalog
    from heavylift.gateway.quota import DAY_S

    if as_csv and as_json:
        raise click.UsageError(text("usage.json_or_csv"))
    first = calendar.timegm(since.timetuple()) // DAY_S if isinstance(since, datetime) else 0
    with opened_store(state, must_exist=True) as store:
        rows = store.priced_usage(by, Catalog().prices().api, since_day=first)
    if as_csv:
        _write_csv(by, rows)
        return
    sink(as_json).record("usage", rows)


def _write_csv(by: Grouping, rows: tuple[Usage, ...]) -> None:
    import csv

    groups = {"key": ("key_id", "name"), "team": ("team",), "day": ("day",)}[by]
    fields = (
        *groups,
        "requests",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "estimated",
        "cost_usd_low",
        "cost_usd_high",
    )
    writer = csv.writer(sys.stdout)
    writer.writerow(fields)
    writer.writerows([getattr(row, name) for name in fields] for row in rows)
