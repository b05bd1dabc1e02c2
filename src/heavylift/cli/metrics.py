"""`heavylift metrics`: an exporter for Prometheus, its dashboard and alerts, the kept series."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from heavylift.cli.numbers import FiniteRange
from heavylift.cli.output import json_option, sink
from heavylift.cli.served import KEY_VARIABLE
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heavylift.operate.watching import Target, Watching
    from heavylift.records.watch import WatchReport

PORT: Final = 9410
_FOLDER: Final = click.Path(file_okay=False, path_type=Path)


@click.group(
    invoke_without_command=True,
    help=text("help.metrics.long"),
    short_help=text("help.metrics"),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help=text("metrics.port"),
)
@click.option("--url", "urls", multiple=True, metavar="URL", help=text("metrics.url"))
@click.option(
    "--interval",
    type=FiniteRange(min=0.5),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help=text("metrics.interval"),
)
@click.option(
    "--key-env",
    default=KEY_VARIABLE,
    show_default=True,
    metavar="NAME",
    help=text("served.key_env"),
)
@click.pass_context
def command(
    context: click.Context, port: int, urls: tuple[str, ...], interval: float, key_env: str
) -> int:
    """Serve until it is told to stop."""
    if context.invoked_subcommand is not None:
        return Exit.OK
    from heavylift.observe.exporter import Exporter
    from heavylift.operate import watching

    key = os.environ.get(key_env) or None
    asked = tuple(watching.find(url, key=key) for url in urls)
    watched = _Watched(asked)
    out = sink(as_json=False)
    exporter = Exporter(watched.look, port=port, say=text, period_s=interval)
    with exporter:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: exporter.stop())
        out.note("metrics.listening", url=f"http://127.0.0.1:{exporter.port}/metrics")
        with watched.kept():
            exporter.run(watched.keep)
    return Exit.OK


class _Watched:
    """Every deployment that is wanted up, as they come and go, and the addresses asked for; this
    machine alone where there is none.
    """

    def __init__(self, asked: tuple[Any, ...]) -> None:
        from heavylift.facts.catalog import Catalog

        self._asked = asked
        self._names = Catalog().metric_names()
        self._watches: dict[str, Watching] = {}
        self._store: Any = None

    def look(self) -> Sequence[WatchReport]:
        """A look at each. One that cannot be looked at now is left out: the others go on."""
        from heavylift.operate import watching

        before, self._watches = self._watches, {}
        for target in self._asked:
            self._take(before, target.name or target.url or "", target)
        with contextlib.suppress(HeavyliftError):
            for name in watching.wanted():
                self._take(before, name, name)
        if not self._watches:
            self._take(before, "", None)
        looks = []
        for watch in self._watches.values():
            with contextlib.suppress(HeavyliftError):
                looks.append(watch.look())
        return looks

    def _take(self, before: dict[str, Watching], key: str, what: Target | str | None) -> None:
        from heavylift.operate import watching

        if key in self._watches:
            return
        if key in before:
            self._watches[key] = before[key]
            return
        with contextlib.suppress(HeavyliftError):
            target = what if isinstance(what, watching.Target) else watching.find(what)
            self._watches[key] = watching.Watching(target, names=self._names)

    @contextlib.contextmanager
    def kept(self) -> Any:
        """Keep the figures of what no supervisor keeps, unless another exporter does."""
        from heavylift.state.db import writer_lock
        from heavylift.state.series import open_series, series_path

        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(writer_lock(series_path()))
                self._store = stack.enter_context(open_series(series_path()))
            except HeavyliftError as error:
                sink(as_json=False).note("metrics.not_kept", code=error.code)
            yield

    def keep(self, reports: Sequence[WatchReport]) -> None:
        from heavylift.operate.watching import feed

        for report in reports:
            # A deployment's own supervisor keeps its figures.
            if report.name is None and self._store is not None:
                with contextlib.suppress(HeavyliftError):
                    feed(self._store, report)


@command.command("dashboard", help=text("metrics.dashboard"))
@click.option("-o", "--out", "folder", type=_FOLDER, required=True, help=text("metrics.out"))
def dashboard(folder: Path) -> int:
    """Write the Grafana dashboard."""
    import json

    from heavylift.observe.dashboard import document

    written = json.dumps(document(text), indent=2, ensure_ascii=False) + "\n"
    return _written(folder / "heavylift-dashboard.json", written)


@command.command("alerts", help=text("metrics.alerts"))
@click.option("-o", "--out", "folder", type=_FOLDER, required=True, help=text("metrics.out"))
def alerts(folder: Path) -> int:
    """Write the alert rules."""
    import yaml

    from heavylift.observe.alerts import document

    written = yaml.safe_dump(document(text), sort_keys=False, allow_unicode=True, width=100)
    return _written(folder / "heavylift-alerts.yml", written)


def _written(path: Path, words: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words, "utf-8")
    sink(as_json=False).note("metrics.written", path=str(path))
    return Exit.OK


@command.command("history", help=text("metrics.history"))
@click.argument("name", required=False)
@click.option("--figure", "figures", multiple=True, metavar="NAME", help=text("metrics.figure"))
@click.option(
    "--hours",
    type=FiniteRange(min=0.0, min_open=True),
    default=1.0,
    show_default=True,
    help=text("metrics.hours"),
)
@json_option
def history(name: str | None, figures: tuple[str, ...], hours: float, as_json: bool) -> int:
    """Show what was kept of a deployment, or of this machine."""
    from heavylift.operate import watching

    out = sink(as_json)
    kept = watching.history(name, figures=figures, span_s=hours * 3600)
    out.record("history", kept)
    if not kept.figures:
        out.next_command("heavylift metrics" if name is None else f"heavylift status {name}")
    return Exit.OK
