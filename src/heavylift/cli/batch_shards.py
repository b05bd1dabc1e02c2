"""Batches in shards on the command line: who runs them, and what they cannot promise."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heavylift.batch.records import Ended, Settings
from heavylift.cli.text import text
from heavylift.errors import HeavyliftError

if TYPE_CHECKING:
    from heavylift.batch.intake import Source
    from heavylift.records.sink import Sink


@dataclass(frozen=True, kw_only=True, slots=True)
class Hands:
    """Who runs the shards, and where each machine keeps its journals."""

    workers: int | None
    ray_address: str | None
    work: Path | None


def spread(
    place: str, hands: Hands, shown: Sink, asked: tuple[Source, Settings], *, quiet: bool
) -> Ended:
    """Run what is left of a batch in shards. Raises as `ray_runner.run`."""
    from heavylift.batch import ray_runner, shards
    from heavylift.state.paths import state_dir

    source, settings = asked
    if "://" not in source.path:
        # Workers do not start in this folder.
        source = replace(source, path=str(Path(source.path).absolute()))
    out = place if "://" in place else str(Path(place).absolute())
    manifest = shards.survey(source, settings)

    def told(name: str, ended: Ended) -> None:
        if not quiet:
            audit = ended.audit
            shown.step(
                "batch.shard",
                name=name,
                ok=audit.ok,
                failed=audit.failed,
                input=audit.input,
                seconds=f"{ended.elapsed_s:.1f}",
            )

    return ray_runner.run(
        manifest,
        out,
        work=str((hands.work or state_dir() / "batch").absolute()),
        address=hands.ray_address,
        workers=hands.workers,
        has_key=bool(os.environ.get(settings.key_env)),
        on_shard=told,
    )


def refuse_unshared(given: dict[str, Any]) -> None:
    """What one machine cannot know of the others."""
    for name in ("max_cost", "max_total_tokens", "max_time", "dedupe"):
        if given[name]:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(text("usage.batch.unshared", option=option))


def refuse_shards(folder: Path) -> None:
    """Raises BAT021 when the folder holds a batch in shards."""
    from heavylift.batch import shards

    if shards.is_sharded(str(folder)):
        raise HeavyliftError("BAT021", {"path": str(folder)})
