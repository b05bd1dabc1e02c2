"""`heavylift web`: the planner and the live view as pages on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from heavylift.cli.output import sink
from heavylift.cli.text import text


@click.command(help=text("help.web.long"))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8090,
    show_default=True,
    help=text("help.web.port"),
)
@click.option(
    "--measured",
    "reports",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=text("help.web.measured"),
)
def command(port: int, reports: tuple[Path, ...]) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    from heavylift.web.serve import serve

    out = sink(as_json=False)

    def on_listening(url: str, taken: int) -> None:
        out.note("web.listening", url=url)
        out.note("web.tunnel", port=taken)

    serve(port, reports, on_listening)
    return 0
