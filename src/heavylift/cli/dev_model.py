"""`heavylift dev model-facts`: a facts file from a config.json, for the next model."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from heavylift.cli.output import sink
from heavylift.cli.text import text
from heavylift.errors import HeavyliftError


@click.command("model-facts", help=text("help.dev_model_facts"))
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--title", required=True, help=text("help.dev_model_title"))
@click.option("--repo", required=True, help=text("help.dev_model_repo"))
@click.option("--source", required=True, help=text("help.dev_model_source"))
@click.option(
    "--as-of", "as_of", type=click.DateTime(["%Y-%m-%d"]), help=text("help.dev_model_date")
)
@click.option("--form", default="", help=text("help.dev_model_form"))
@click.option("--engine", "engines", multiple=True, help=text("help.dev_model_engine"))
def command(config: Path, **given: Any) -> None:
    """Write the facts of the model a config describes to standard output."""
    from heavylift.checkpoint.config import model_from_config
    from heavylift.checkpoint.files import LocalFiles
    from heavylift.checkpoint.model_text import Publication, model_text
    from heavylift.facts.catalog import Catalog
    from heavylift.planning import read_config

    catalog = Catalog()
    folder = config.parent if config.is_file() else config
    read = read_config(LocalFiles(folder))
    family = catalog.family_for_hf_type(read.model_type())
    if family is None:
        raise HeavyliftError("PLAN051", {"model_type": read.model_type()})
    model = model_from_config(read, family, identifier=given["title"], formats=("safetensors",))
    day = given["as_of"] or datetime.now(UTC)
    publication = Publication(
        title=given["title"],
        names=(),
        repo=given["repo"],
        source=given["source"],
        as_of=day.date().isoformat(),
        engines=given["engines"],
        variant_title=given["form"] or "safetensors",
    )
    sink(as_json=False).record("model_facts", model_text(model, family, publication))
