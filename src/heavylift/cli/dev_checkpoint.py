"""`heavylift dev sparse-checkpoint`: the whole checkpoint of a model, without its weights."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text


@click.command("sparse-checkpoint", help=text("help.dev_sparse_checkpoint"))
@click.argument("model")
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def command(model: str, folder: Path, as_json: bool) -> None:
    """Write the model's first safetensors variant and say how large it looks and is."""
    from heavylift.devserver.sparse_checkpoint import safetensors_variant, write_checkpoint
    from heavylift.facts.catalog import Catalog

    catalog = Catalog()
    facts = catalog.model(model)
    family = catalog.family(facts.family)
    written = write_checkpoint(facts, family, safetensors_variant(facts), folder)
    out = sink(as_json)
    out.record("sparse_checkpoint", written)
    out.next_command(f"heavylift plan {shlex.quote(str(folder))} --on this-machine")
