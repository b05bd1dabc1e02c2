"""`heavylift golive`: whether a deployment may take traffic, point by point, by what is proven."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.served import OutputFile
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError

if TYPE_CHECKING:
    from heavylift.facts.golive_schema import GoLiveBook
    from heavylift.operate.golive.subject import Found
    from heavylift.records.sink import Sink

_FILE = OutputFile()
_FOLDER = click.Path(file_okay=False, path_type=Path)
_WAIVER = ("waive", "who", "why", "until")


@click.command(help=text("help.golive.long"), short_help=text("help.golive"))
@click.argument("name", metavar="NAME|RECIPE_DIR|PLAN")
@click.option("--require", metavar="POINT,…", help=text("golive.require"))
@click.option(
    "--evidence",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help=text("golive.evidence"),
)
@click.option("--slo", metavar="GOALS", help=text("golive.slo"))
@click.option("--waive", metavar="POINT", help=text("golive.waive"))
@click.option("--who", help=text("golive.who"))
@click.option("--why", help=text("golive.why"))
@click.option("--until", metavar="YYYY-MM-DD", help=text("golive.until"))
@click.option("--accept-licence", is_flag=True, help=text("option.accept_licence"))
@click.option("--prometheus", metavar="URL", help=text("golive.prometheus"))
@click.option("--back-up", "backed", type=_FOLDER, metavar="DIR", help=text("golive.back_up"))
@click.option("--gateway-state", type=_FOLDER, metavar="DIR", help=text("golive.gateway_state"))
@click.option("--html", type=_FILE, metavar="FILE", help=text("bench.html"))
@click.option("--markdown", type=_FILE, metavar="FILE", help=text("golive.markdown"))
@json_option
def command(
    name: str,
    html: Path | None,
    markdown: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Do what was asked for first, gather, judge, show; 1 when something is not settled."""
    from heavylift.cli.pages import golive as page
    from heavylift.facts.catalog import Catalog
    from heavylift.operate.golive import gather, subject
    from heavylift.operate.golive.report import report
    from heavylift.slo import parse_goals
    from heavylift.state import waivers

    if not name.strip():
        raise click.UsageError(text("usage.golive_name"))
    out = sink(as_json)
    catalog = Catalog()
    book = catalog.golive()
    required = _names(given["require"])
    gather.known_points(book, required)
    if given["slo"] is not None:
        parse_goals(given["slo"])
    found = subject.find(name)
    kept_waivers = waivers.path_of(found.name, found.digest)
    _waive(kept_waivers, book, given, out)
    _act(found, given, catalog, out)
    record = report(
        found,
        gather.gather(
            found,
            catalog,
            evidence=given["evidence"],
            slo=given["slo"],
            gateway_state=given["gateway_state"],
        ),
        book,
        waivers=waivers.read(kept_waivers),
        required=required,
        now=subject.now_utc(),
    )
    out.record("golive", record)
    for path, render in ((html, page.html), (markdown, page.markdown)):
        if path is not None:
            path.write_text(render(record), "utf-8")
            out.note("bench.html_written", path=path)
    if record.next_command is not None:
        out.next_command(record.next_command)
    return Exit.OK if record.passed else Exit.NEGATIVE


def _names(required: str | None) -> tuple[str, ...]:
    """Points as typed, each once. Raises click.BadParameter for a list of nothing."""
    if required is None:
        return ()
    names = tuple(dict.fromkeys(filter(None, (each.strip() for each in required.split(",")))))
    if not names:
        raise click.BadParameter(text("usage.golive_require"), param_hint="'--require'")
    return names


def _waive(path: Path, book: GoLiveBook, given: dict[str, Any], out: Sink) -> None:
    """Keep a waiver. Raises click.UsageError unless point, who, why and until are all stated."""
    from datetime import UTC, datetime

    from heavylift.golive import judge
    from heavylift.operate.golive import gather
    from heavylift.records.golive import Waiver
    from heavylift.state import waivers

    stated = [name for name in _WAIVER if given[name] is not None]
    if not stated:
        return
    blank = [name for name in _WAIVER if not (given[name] or "").strip()]
    if blank:
        raise click.UsageError(text("usage.golive_waive", missing=f"--{blank[0]}"))
    gather.known_points(book, (given["waive"],))
    now = datetime.now(UTC)
    try:
        until = datetime.strptime(given["until"], "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise click.BadParameter(
            text("usage.golive_until", value=given["until"]), param_hint="'--until'"
        ) from None
    if until < now.date():
        raise HeavyliftError("USE101", {"until": until.isoformat(), "now": now.date().isoformat()})
    if until > judge.last_day(now, book):
        raise HeavyliftError(
            "USE103",
            {
                "until": until.isoformat(),
                "last": judge.last_day(now, book).isoformat(),
                "days": book.waiver_days,
            },
        )
    waiver = Waiver(
        point=given["waive"],
        who=given["who"].strip(),
        why=given["why"].strip(),
        until=until.isoformat(),
        at=now.isoformat(timespec="seconds"),
    )
    waivers.add(path, waiver)
    out.note("golive.waived", point=waiver.point, until=waiver.until)


def _act(found: Found, given: dict[str, Any], catalog: Any, out: Sink) -> None:
    """What the command proves itself: a licence read, rules loaded, a copy of the state."""
    from heavylift.operate import reporting
    from heavylift.operate.golive import alerts, gather
    from heavylift.operate.golive.subject import now_utc
    from heavylift.operate.licences import acknowledge
    from heavylift.state import backup

    if given["accept_licence"]:
        accepted = acknowledge(catalog, gather.model_of(found))
        out.note("golive.acknowledged", licence=accepted.name)
    if given["prometheus"] is not None:
        reporting.keep(gather.ALERTS, alerts.ask(given["prometheus"]), name=found.name)
    if given["backed"] is not None:
        copied = backup.back_up(given["backed"], at=now_utc().isoformat())
        reporting.keep(gather.BACKUP, copied, name=found.name)
        out.note("golive.backed_up", folder=copied.folder, files=len(copied.files))
