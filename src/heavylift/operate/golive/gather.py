"""The gathering: everything that is kept of a deployment, and what is handed in, as proofs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError, Scalar, reason
from heavylift.facts.catalog import Catalog
from heavylift.facts.golive_schema import GoLiveBook
from heavylift.gateway.store import default_folder
from heavylift.golive.evidence import ALWAYS_BOUND, Outcome, Proof, Subject, moment
from heavylift.operate import bring_up
from heavylift.operate.golive import front, said, standing
from heavylift.operate.golive.alerts import AlertsSeen
from heavylift.operate.golive.subject import Found, bound_of, plain_url, words_of
from heavylift.operate.licences import licence_of
from heavylift.records.golive import DataNote, LicenceState
from heavylift.state import backup, reports
from heavylift.state.backup import BackedUp
from heavylift.state.reports import KeptReport

ALERTS: Final = "alerts"
BACKUP: Final = "backup"
_ORIGINAL: Final = "native"
"""The variant that is the maker's own checkpoint."""
_CONTRADICTS: Final = (*ALWAYS_BOUND, "recipe", "checkpoint")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """A deployment as it is judged: what it is, everything seen of it, and what is told beside."""

    subject: Subject
    proofs: tuple[Proof, ...]
    licence: LicenceState
    data_notes: tuple[DataNote, ...]


def gather(
    found: Found,
    catalog: Catalog,
    *,
    evidence: Sequence[Path] = (),
    slo: str | None = None,
    gateway_state: Path | None = None,
) -> Gathered:
    """Gather. Raises OPS010 for a file of `evidence` that is no report."""
    book = catalog.golive()
    before = front.look(gateway_state or default_folder(), found)
    address = None if before.settings is None or not before.leads_here else before.settings.url
    bound = bound_of(found, address)
    if slo is not None:
        bound["slo"] = frozenset({slo})
    licence = licence_of(catalog, model_of(found))
    proofs = [
        *standing.proofs(found, licence),
        *front.proofs(before, found, book.prompt_log_flags),
        *_kept(found, bound),
        *_brought_up(found),
        *(proof for path in evidence for proof in _handed_in(path, found)),
        *_original(found, catalog),
    ]
    promised = _promised(found)
    words = words_of(found, promised, slo or book.slo)
    if before.settings is not None and before.leads_here:
        words["gateway"] = str(before.folder)
    notes: tuple[tuple[str, dict[str, Scalar]], ...] = (
        *front.notes(before, found, book.prompt_log_flags),
        *standing.data_notes(found),
        ("reports", {"path": str(reports.folder_of(found.name))}),
    )
    return Gathered(
        subject=Subject(bound=bound, promised=promised, words=words),
        proofs=tuple(proofs),
        licence=licence,
        data_notes=tuple(DataNote(code=code, params=params) for code, params in notes),
    )


def known_points(book: GoLiveBook, names: Iterable[str]) -> None:
    """Raises USE100 for a name that is no point, with those there are."""
    there = [point.id for point in book.points]
    for name in names:
        if name not in there:
            raise HeavyliftError("USE100", {"point": name, "known": ", ".join(there)})


def model_of(found: Found) -> str:
    """The model of a deployment, by its plan, else by its launch; empty when nobody knows."""
    if found.plan is not None:
        return found.plan.model
    return "" if found.spec is None else found.spec.model


def _promised(found: Found) -> dict[str, int]:
    """What the deployment is meant to hold: of context what the server says it takes, else the
    plan's; at once what the plan counted with.
    """
    plan = found.plan
    limit = standing.limit_of(found)
    context = limit if limit is not None else None if plan is None else plan.context_tokens
    promised = {
        "context_tokens": context,
        "concurrency": None if plan is None else plan.concurrency,
    }
    return {name: value for name, value in promised.items() if value is not None}


def _original(found: Found, catalog: Catalog) -> Iterator[Proof]:
    """A deployment of the maker's own checkpoint is no copy: there is nothing to hold it against
    but itself.
    """
    plan = found.plan
    if plan is None:
        return
    try:
        variants = catalog.model(plan.model).variants
    except HeavyliftError:
        return
    own = next((each for each in variants if each.id == plan.variant == _ORIGINAL), None)
    if own is not None:
        yield Proof(
            kind=said.QUALITY,
            outcome=Outcome.PASSED,
            reason="quality_original",
            at=own.as_of.isoformat(),
            params={"variant": own.title, "source": own.source},
            bound={"recipe": found.digest},
        )


# --- kept reports ------------------------------------------------------------------------------


def _kept(found: Found, bound: Mapping[str, frozenset[str]]) -> Iterator[Proof]:
    if found.name is not None:
        for path, report in reports.kept(found.name):
            yield from _of_file(path, report)
    for path, report in reports.kept(None):
        # Those of other servers and folders are no evidence about this one, for or against.
        if report is not None:
            yield from (proof for proof in _of_file(path, report) if _is_about(proof, bound))


def _is_about(proof: Proof, bound: Mapping[str, frozenset[str]]) -> bool:
    named = [name for name in _CONTRADICTS if name in proof.bound and name in bound]
    return bool(named) and all(proof.bound[name] in bound[name] for name in named)


def _of_file(path: Path, kept: KeptReport | None) -> Iterator[Proof]:
    """What a kept report says, bound to what it was made of."""
    kind = path.name.rpartition("-")[0].rpartition("-")[0] if kept is None else kept.kind
    if kept is None:
        yield _unreadable(kind, path)
        return
    try:
        found = _says(kept)
    except (msgspec.MsgspecError, RecursionError):
        yield _unreadable(kind, path)
        return
    of = {
        "deployment": kept.deployment,
        "release": None if kept.release is None else str(kept.release),
        "recipe": kept.recipe,
        "revision": kept.revision,
        "layout": kept.layout,
        "url": kept.url if kept.deployment is None else None,
    }
    stated = {name: value for name, value in of.items() if value is not None}
    for proof in found:
        own = {
            name: plain_url(value) if name == "url" else value
            for name, value in proof.bound.items()
            # The deployment is known; ports change with every start.
            if name != "url" or kept.deployment is None
        }
        yield _fresh(
            replace(proof, at=proof.at or kept.at, path=str(path), bound={**own, **stated})
        )


def _says(kept: KeptReport) -> tuple[Proof, ...]:
    if kept.kind == ALERTS:
        return (_alerts(msgspec.json.decode(kept.report, type=AlertsSeen)),)
    if kept.kind == BACKUP:
        return (_backup(msgspec.json.decode(kept.report, type=BackedUp)),)
    return said.proofs(kept.kind, kept.report) if kept.kind in said.KINDS else ()


def _alerts(seen: AlertsSeen) -> Proof:
    outcome = Outcome.FAILED if seen.missing else Outcome.PASSED
    return Proof(
        kind=ALERTS,
        outcome=outcome,
        reason=f"alerts_{outcome}",
        at="",
        params={
            "server": seen.server,
            "loaded": len(seen.loaded),
            "all": len(seen.loaded) + len(seen.missing),
            "first": seen.missing[0] if seen.missing else None,
        },
    )


def _backup(record: BackedUp) -> Proof:
    gone = backup.lost(record)
    outcome = Outcome.FAILED if gone else Outcome.PASSED
    return Proof(
        kind=BACKUP,
        outcome=outcome,
        reason=f"backup_{outcome}",
        at=record.at,
        params={
            "folder": record.folder,
            "files": len(record.files),
            "lost": len(gone),
            "first": gone[0] if gone else None,
        },
    )


def _unreadable(kind: str, path: Path) -> Proof:
    return Proof(
        kind=kind,
        outcome=Outcome.OPEN,
        reason="unreadable",
        at=_written(path),
        params={"path": str(path)},
        path=str(path),
    )


def _fresh(proof: Proof) -> Proof:
    """A check of files says nothing any more once one of them was written to."""
    place, at = proof.bound.get("checkpoint"), moment(proof.at)
    if place is None or at is None or proof.outcome is not Outcome.PASSED:
        return proof
    newest = _newest(Path(place))
    if newest is None or newest <= at:
        return proof
    return replace(
        proof,
        outcome=Outcome.OPEN,
        reason="changed_since",
        params={"at": proof.at, "changed": newest.isoformat(timespec="seconds")},
    )


def _newest(folder: Path) -> datetime | None:
    """When a file of a folder was written last; None when there is none to be seen."""
    try:
        times = [entry.stat().st_mtime for entry in os.scandir(folder) if entry.is_file()]
        return datetime.fromtimestamp(int(max(times)), UTC) if times else None
    except (OSError, ValueError, OverflowError):  # the last two: a year that no calendar has
        return None


def _brought_up(found: Found) -> Iterator[Proof]:
    if found.name is None:
        return
    record = bring_up.kept(found.name)
    if record is None:
        return
    path = str(bring_up.record_path(found.name))
    # It has a recipe folder of its own: what binds it is the release that it loaded.
    for proof in said.KINDS[said.BRING_UP].says(record):
        yield replace(proof, path=path)


# --- handed in ---------------------------------------------------------------------------------


def _handed_in(path: Path, found: Found) -> Iterator[Proof]:
    try:
        raw = path.read_bytes()
        document: Any = msgspec.json.decode(raw)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise HeavyliftError("OPS010", {"path": str(path), "reason": reason(error)}) from error
    if not isinstance(document, dict):
        raise HeavyliftError("OPS010", {"path": str(path), "reason": type(document).__name__})
    envelope = reports.read(path)
    if envelope is not None:
        if envelope.kind not in said.KINDS and envelope.kind not in (ALERTS, BACKUP):
            raise HeavyliftError("OPS010", {"path": str(path), "reason": envelope.kind})
        yield from _of_file(path, envelope)
        return
    kind = said.kind_of(document)
    if kind is None:
        known = ", ".join(said.KINDS)
        raise HeavyliftError("OPS010", {"path": str(path), "reason": known})
    try:
        proofs = said.proofs(kind, raw)
    except msgspec.MsgspecError as error:
        raise HeavyliftError("OPS010", {"path": str(path), "reason": str(error)}) from error
    for proof in proofs:
        at = proof.at or _written(path)
        bound: dict[str, str] = {
            name: plain_url(value) if name == "url" else value
            for name, value in proof.bound.items()
        }
        release = found.release_at(at)
        # The time says which release it was of a server; of which server says the address.
        if release is not None and "url" in bound:
            bound.setdefault("release", str(release))
        yield _fresh(replace(proof, at=at, path=str(path.absolute()), bound=bound))


def _written(path: Path) -> str:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except (OSError, ValueError, OverflowError):  # the last two: a year that no calendar has
        return ""
