"""`heavylift bundle`: redacted logs with their diagnosis in one file, to send to somebody."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path

import click

from heavylift.cli.diagnose import diagnose_logs
from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text

# Names that tell nobody, and words of the logs besides ("root cause").
_NOBODYS = frozenset({"root", "localhost", "user", "admin"})


@click.command(help=text("help.bundle"))
@click.argument("logs", nargs=-1, required=True, metavar="LOG…")
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("heavylift-bundle.tar.gz"),
    show_default=True,
    help=text("option.bundle.to"),
)
@click.option("--hosts", is_flag=True, help=text("option.bundle.hosts"))
@json_option
def command(logs: tuple[str, ...], target: Path, hosts: bool, as_json: bool) -> None:
    """Write the bundle and say what was taken out."""
    from heavylift.diagnose import evidence
    from heavylift.diagnose.bundle import write_bundle

    if evidence.STDIN in logs:
        raise click.UsageError(text("usage.bundle_stdin"))
    names = evidence.expand(logs)
    diagnosis = diagnose_logs(names, use_last=False)
    private = {getpass.getuser(), *([socket.gethostname()] if hosts else [])} - _NOBODYS
    bundle = write_bundle(names, diagnosis, target, hosts=hosts, names=tuple(sorted(private)))
    out = sink(as_json)
    out.record("bundle", bundle)
    out.next_command(f"tar --list --file {target}")
