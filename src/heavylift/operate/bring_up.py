"""Bringing a deployment up rung by rung: it stops at the first that fails, and goes on there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.operate import recipes, truth
from heavylift.operate.climbing import Climbing
from heavylift.operate.recipes import EmbeddedWish, Recipe
from heavylift.records.bring_up import BringUp, Rung, RungKind, RungStatus
from heavylift.records.deployment import RunState
from heavylift.state import paths
from heavylift.state.deployments import deployments_path, open_deployments

RECORD: Final = "bring-up.json"
_FOLDER: Final = "bring-up"
CONTEXTS: Final = (16_384, 65_536, 262_144, 1_048_576)
CONCURRENCIES: Final = (1, 4, 16, 64, 256)
_LAYERS: Final = 4

OnRung = Callable[[Rung], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class BringUpWish:
    """What to bring up. `source` None = what was begun under the name.

    `contexts` and `concurrencies` None = the ladders that the server's limit and the plan allow.
    `small`: a recipe to try first. `again`: rungs that passed are climbed again.
    """

    source: Path | EmbeddedWish | None
    name: str | None = None
    small: Path | EmbeddedWish | None = None
    contexts: tuple[int, ...] | None = None
    concurrencies: tuple[int, ...] | None = None
    doctor: bool = True
    despite: tuple[str, ...] = ()
    rehearse: bool = True
    again: bool = False
    secrets: Path | None = None
    hosts: tuple[str, ...] = ()
    ssh: tuple[str, ...] = ()
    target: str | None = None
    answer_tokens: int = 512


def bring_up(wish: BringUpWish, on_rung: OnRung, on_change: Callable[[RunState], None]) -> BringUp:
    """Climb. `on_rung` gets each rung as it begins and ends, `on_change` each state of a start.

    Raises OPS007 for a name under which nothing was begun, and what reading a recipe raises.
    """
    folder, name = _recipe(wish)
    recipe = recipes.read(folder)
    with open_deployments(deployments_path()) as store:
        runs = (
            store.deployment(name) is not None
            and truth.status(store, truth.require(store, name)).ready
        )
    record = _begun(name, recipe, folder, wish)
    climbing = Climbing(wish=wish, name=name, folder=folder, recipe=recipe, on_change=on_change)
    record = replace(record, rungs=_first_rungs(wish, record, serves=runs))
    _keep(record)
    number = 0
    while number < len(record.rungs):
        rung = record.rungs[number]
        if rung.status in (RungStatus.PASSED, RungStatus.SKIPPED):
            number += 1
            continue
        on_rung(rung)
        climbed = _climbed(climbing, rung)
        rungs = tuple(climbed if each.id == rung.id else each for each in record.rungs)
        record = replace(
            record,
            rungs=rungs,
            updated_at=_now(),
            release=climbing.release or record.release,
            url=climbing.url or record.url,
            stopped_at=climbed.id if climbed.status is RungStatus.FAILED else None,
        )
        if climbed.kind is RungKind.SMOKE and climbed.status is RungStatus.PASSED:
            record = replace(record, rungs=_with_ladders(record, wish, recipe, climbing.limit))
        _keep(record)
        on_rung(climbed)
        if climbed.status is RungStatus.FAILED:
            break
        number += 1
    return record


def record_path(name: str) -> Path:
    """Where the record of a bring-up lies."""
    return paths.deployment_dir(name) / RECORD


def kept(name: str) -> BringUp | None:
    """The bring-up that was begun under a name; None when there is none."""
    try:
        return msgspec.json.decode(record_path(name).read_bytes(), type=BringUp)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError):
        # Of another version: its rungs are climbed anew.
        return None


def _climbed(climbing: Climbing, rung: Rung) -> Rung:
    began_s = time.monotonic()
    began_at = _now()
    try:
        climbed = climbing.climb(rung)
    except HeavyliftError as error:
        climbed = replace(
            rung, status=RungStatus.FAILED, reason=error.code, params=dict(error.params)
        )
    return replace(climbed, started_at=began_at, seconds=round(time.monotonic() - began_s, 3))


# --- rungs -------------------------------------------------------------------------------------


def _first_rungs(wish: BringUpWish, record: BringUp, *, serves: bool) -> tuple[Rung, ...]:
    """The rungs up to the ladders, and the ladders where they are known; those that passed stay.

    What is wanted to be served and serves no more is loaded again.
    """
    rungs: list[Rung] = []
    if wish.small is not None:
        rungs.append(Rung(id="small_model", kind=RungKind.SMALL_MODEL))
    if wish.doctor:
        rungs.append(Rung(id="doctor", kind=RungKind.DOCTOR))
    if wish.rehearse:
        rungs.append(Rung(id=f"rehearsal.{_LAYERS}", kind=RungKind.REHEARSAL, layers=_LAYERS))
        rungs.append(Rung(id="rehearsal.full", kind=RungKind.REHEARSAL))
    rungs.append(Rung(id="load", kind=RungKind.LOAD))
    rungs.append(Rung(id="smoke", kind=RungKind.SMOKE))
    known = {rung.id: rung for rung in record.rungs}
    if not serves and "load" in known:
        del known["load"]
    ladder = [
        rung for rung in record.rungs if rung.kind in (RungKind.CONTEXT, RungKind.CONCURRENCY)
    ]
    if wish.contexts is not None or wish.concurrencies is not None or not ladder:
        ladder = [*_contexts(wish.contexts or ()), *_concurrencies(wish.concurrencies or ())]
    return tuple(known.get(rung.id, rung) for rung in (*rungs, *ladder))


def _with_ladders(
    record: BringUp, wish: BringUpWish, recipe: Recipe, limit: int | None
) -> tuple[Rung, ...]:
    """The rungs with the ladders that nobody stated, up to what the server and the plan allow."""
    known = {rung.id: rung for rung in record.rungs}
    plain = [
        rung for rung in record.rungs if rung.kind not in (RungKind.CONTEXT, RungKind.CONCURRENCY)
    ]
    contexts = wish.contexts
    if contexts is None:
        contexts = CONTEXTS[:1] if limit is None else (*(n for n in CONTEXTS if n < limit), limit)
    concurrencies = wish.concurrencies
    if concurrencies is None:
        most = CONCURRENCIES[2] if recipe.plan is None else recipe.plan.concurrency
        concurrencies = (*(n for n in CONCURRENCIES if n < most), most)
    ladder = (*_contexts(contexts), *_concurrencies(concurrencies))
    return tuple(known.get(rung.id, rung) for rung in (*plain, *ladder))


def _contexts(tokens: tuple[int, ...]) -> tuple[Rung, ...]:
    return tuple(
        Rung(id=f"context.{each}", kind=RungKind.CONTEXT, context_tokens=each)
        for each in sorted(set(tokens))
    )


def _concurrencies(counts: tuple[int, ...]) -> tuple[Rung, ...]:
    return tuple(
        Rung(id=f"concurrency.{each}", kind=RungKind.CONCURRENCY, concurrency=each)
        for each in sorted(set(counts))
    )


# --- the record --------------------------------------------------------------------------------


def _recipe(wish: BringUpWish) -> tuple[Path, str]:
    """A folder of our own with the recipe, and the deployment's name."""
    if wish.source is None:
        name = wish.name or ""
        record = kept(name)
        if record is None or not Path(record.recipe).is_dir():
            raise HeavyliftError("OPS007", {"name": name})
        return Path(record.recipe), name
    if isinstance(wish.source, Path):
        name = recipes.name_of(wish.name, recipes.read(wish.source).spec)
        return recipes.copy(wish.source, paths.deployment_dir(name) / _FOLDER / "recipe"), name
    name = recipes.named(wish.name, wish.source.model)
    folder = paths.deployment_dir(name) / _FOLDER / "recipe"
    recipes.write_embedded(wish.source, folder)
    return folder, name


def _begun(name: str, recipe: Recipe, folder: Path, wish: BringUpWish) -> BringUp:
    before = None if wish.again else kept(name)
    if before is not None and before.recipe_digest == recipe.digest:
        return before
    spec = recipe.spec
    return BringUp(
        name=name,
        model=spec.served_name or spec.model,
        engine=spec.engine,
        engine_version=spec.engine_version,
        recipe_digest=recipe.digest,
        recipe=str(folder),
        started_at=_now(),
        updated_at=_now(),
    )


def _keep(record: BringUp) -> None:
    path = paths.deployment_dir(record.name) / RECORD
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_suffix(".new")
    scratch.write_bytes(msgspec.json.encode(record))
    scratch.replace(path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
