"""`heavylift fetch`: a model from a hub, with room, licence and integrity seen to."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heavylift.cli.kept import keep
from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError

if TYPE_CHECKING:
    from heavylift.checkpoint.hub_settings import HubId, HubSettings
    from heavylift.facts.catalog import Catalog
    from heavylift.fetch.room import Room
    from heavylift.fetch.selection import Selection
    from heavylift.fetch.transfer import Transfer
    from heavylift.records.fetched import Fetched
    from heavylift.records.sink import Sink


@click.command(help=text("help.fetch"))
@click.argument("model", metavar="MODEL")
@click.option("--to", "folder", type=click.Path(path_type=Path), help=text("option.fetch_to"))
@click.option("--variant", help=text("option.variant"))
@click.option("--hub", metavar="HUB", help=text("option.hub"))
@click.option("--accept-licence", is_flag=True, help=text("option.accept_licence"))
@click.option("--tight", is_flag=True, help=text("option.tight"))
@click.option("--dry-run", is_flag=True, help=text("option.fetch_dry_run"))
@json_option
def command(model: str, folder: Path | None, as_json: bool, **options: Any) -> int:
    """Look, ask, fetch, check; 1 when what arrived is not what was published."""
    from dataclasses import replace

    from heavylift.cli.hub import chosen_hub
    from heavylift.facts.catalog import Catalog
    from heavylift.fetch.room import require
    from heavylift.fetch.transfer import Transfer

    out = sink(as_json)
    catalog = Catalog()
    hub_id, known_licence = hub_id_of(catalog, model, options["variant"])
    to = folder or _default_folder(hub_id)
    hub = chosen_hub(catalog, options["hub"])
    plan, selection = _look(hub, hub_id, to, known_licence, out)
    if options["dry_run"]:
        out.record("fetch", plan)
        return Exit.OK
    _agree(plan, accepted=options["accept_licence"], typed=_typed(model, folder, options))
    require(_room_of(plan), to, tight=options["tight"])
    transfer = Transfer(hub=hub, model=hub_id, folder=to, files=selection.files)
    done = _fetch(transfer, plan, selection, out)
    out.record("fetch", done)
    if done.integrity is not None:
        keep(out, "checksum", replace(done.integrity, where=str(to.absolute())))
    sound = done.integrity is not None and done.integrity.sound
    if sound:
        rack = catalog.showcase().rack
        out.next_command(f"heavylift plan {shlex.quote(str(to.absolute()))} --on {rack}")
    return Exit.OK if sound else Exit.NEGATIVE


def hub_id_of(
    catalog: Catalog, model: str, variant: str | None
) -> tuple[HubId, tuple[str, str] | None]:
    """Where a model lies on a hub, and the licence the facts know with its source.

    Raises FACT010 for a name that is nothing, PLAN011 for an unknown variant, HUB018 for one that
    is published nowhere.
    """
    from heavylift.checkpoint.hub_settings import HubId

    given = HubId.parse(model)
    try:
        facts = catalog.model(model)
    except HeavyliftError:
        if given is None:
            raise
        return given, None
    licence = None if facts.licence is None else (facts.licence.value, facts.licence.source)
    if variant is None and given is not None:
        return given, licence
    chosen = [each for each in facts.variants if variant is None or each.id == variant]
    if not chosen:
        raise HeavyliftError("PLAN011", {"variant": variant})
    found = next((each for each in chosen if each.repo is not None), None)
    hub_id = None if found is None else HubId.parse(str(found.repo))
    if hub_id is None:
        raise HeavyliftError("HUB018", {"model": facts.title})
    return hub_id, licence


def _look(
    hub: HubSettings,
    hub_id: HubId,
    to: Path,
    known_licence: tuple[str, str] | None,
    out: Sink,
) -> tuple[Fetched, Selection]:
    """What fetching takes: files, room, licence. Raises as `reach_hub` and `select` do."""
    from heavylift.checkpoint.hub import HubFiles
    from heavylift.cli.hub import say_what_is_asked
    from heavylift.fetch.licence import stated_licence
    from heavylift.fetch.room import room
    from heavylift.fetch.selection import select
    from heavylift.records.fetched import Fetched

    say_what_is_asked(hub, hub_id, out, "hub.fetching")
    with HubFiles(hub, hub_id) as files:
        selection = select(hub_id, files.listed)
        licence = stated_licence(files.information())
    space = room(to, selection.files, selection.weights_bytes, selection.total_bytes)
    host = hub.endpoint.partition("://")[2]
    stated = (licence, host) if licence is not None else known_licence
    return (
        Fetched(
            model=hub_id.id,
            revision=hub_id.revision or hub.facts.revision,
            host=host,
            folder=str(to),
            files=len(selection.files),
            weights_bytes=selection.weights_bytes,
            total_bytes=selection.total_bytes,
            needed_bytes=space.needed_bytes,
            safe_bytes=space.safe_bytes,
            free_bytes=space.free_bytes,
            licence=None if stated is None else stated[0],
            licence_from=None if stated is None else stated[1],
            transferred=False,
        ),
        selection,
    )


def _agree(plan: Fetched, *, accepted: bool, typed: str) -> None:
    """The licence is acknowledged now or was before. Raises USE085 when it was not."""
    from heavylift.state.digests import DigestStore

    licence = plan.licence or ""
    with DigestStore() as store:
        if accepted:
            store.accept(plan.model, licence)
        elif not store.accepted(plan.model, licence):
            raise HeavyliftError(
                "USE085" if licence else "USE086",
                {"model": plan.model, "licence": licence, "source": plan.licence_from},
                hint_command=f"{typed} --accept-licence",
            )


def _room_of(plan: Fetched) -> Room:
    from heavylift.fetch.room import Room

    return Room(
        needed_bytes=plan.needed_bytes, safe_bytes=plan.safe_bytes, free_bytes=plan.free_bytes
    )


def _fetch(transfer: Transfer, plan: Fetched, selection: Selection, out: Sink) -> Fetched:
    import time
    from dataclasses import replace

    from heavylift.cli.checksum import check_folder, duration
    from heavylift.fetch.room import bytes_present

    folder = transfer.folder
    began, before = time.monotonic(), bytes_present(folder, selection.files)
    shown_at = [began]

    def look() -> None:
        now = time.monotonic()
        if now - shown_at[0] < _EVERY_S:
            return
        shown_at[0] = now
        present = bytes_present(folder, selection.files)
        speed = (present - before) / (now - began)
        left = duration((plan.total_bytes - present) / speed) if speed > 0 else text("fetch.soon")
        out.step(
            "fetch.progress",
            done=f"{present / 1e9:,.1f}",
            total=f"{plan.total_bytes / 1e9:,.1f}",
            speed=f"{speed / 1e6:,.0f}",
            left=left,
        )

    transfer.run(look)
    checked = check_folder(folder, selection.files, out)
    return replace(plan, transferred=True, integrity=checked)


_EVERY_S = 5.0


def _default_folder(hub_id: HubId) -> Path:
    from heavylift.state.paths import data_dir

    owner, _, name = hub_id.id.partition("/")
    part = f"--{hub_id.part.replace('/', '--')}" if hub_id.part else ""
    return data_dir() / "models" / f"{owner}--{name}{part}"


def _typed(model: str, folder: Path | None, options: dict[str, Any]) -> str:
    """The command as it was typed."""
    words = ["heavylift", "fetch", model]
    if folder is not None:
        words += ["--to", str(folder)]
    for name in ("variant", "hub"):
        if options[name] is not None:
            words += [f"--{name}", options[name]]
    words += ["--tight"] if options["tight"] else []
    return shlex.join(words)
