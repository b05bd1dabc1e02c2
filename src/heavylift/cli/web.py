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
@click.option(
    "--batch",
    "batches",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=text("help.web.batch"),
)
@click.option(
    "--state", type=click.Path(file_okay=False, path_type=Path), help=text("help.gateway.state")
)
def command(
    port: int, reports: tuple[Path, ...], batches: tuple[Path, ...], state: Path | None
) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    from heavylift.gateway.store import default_folder
    from heavylift.web.serve import Settings, serve

    out = sink(as_json=False)

    def on_listening(url: str, taken: int) -> None:
        out.note("web.listening", url=url)
        out.note("web.tunnel", port=taken)

    settings = Settings(
        port=port, reports=reports, batches=batches, gateway=state or default_folder()
    )
    serve(settings, on_listening)
    return 0
