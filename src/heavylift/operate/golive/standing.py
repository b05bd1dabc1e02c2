"""What a deployment's own records say: plan, support, digests, start, memory, roll-back, now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from heavylift.errors import Scalar
from heavylift.golive.evidence import Outcome, Proof
from heavylift.operate import recipes
from heavylift.operate.golive import said
from heavylift.operate.golive.subject import Found, checkpoint_of, now_utc
from heavylift.records.deployment import Alive, RunState
from heavylift.records.finding import Severity
from heavylift.records.golive import LicenceState
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Plan, Status, Support
from heavylift.records.release import Verdict
from heavylift.units import GIB
from heavylift.verify.records import Verification

_RAN: Final = frozenset({Status.VERIFIED, Status.REPORTED})
_BROKEN: Final = frozenset({Status.BROKEN, Status.UNSUPPORTED})
_MEMORY: Final = "run.memory"
_BY_DIGEST: Final = "@sha256:"


def proofs(found: Found, licence: LicenceState) -> Iterator[Proof]:
    """All of them. What is seen now is dated now."""
    if found.plan is not None:
        yield _plan(found, found.plan)
    elif found.recipe is None:
        yield _now("plan", Outcome.OPEN, "recipe_unreadable", code=found.broken)
    if found.plan is not None or found.spec is not None:
        yield _support(found)
    if found.spec is not None:
        yield _digests(found, found.spec)
    yield _licence(licence)
    if found.release is not None:
        yield from _of_release(found)
    if found.status is not None:
        yield _alive(found)


def limit_of(found: Found) -> int | None:
    """The longest sequence that the server itself says it takes, by the proof of its last start."""
    for run in found.runs:
        report = _start_report(run)
        if report is not None and run.release == _number(found):
            return report.subject.context_tokens
    return None


def data_notes(found: Found) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """What of requests the deployment itself keeps."""
    if found.name is not None:
        yield "start_answers", {"name": found.name}
    for run in found.runs[:1]:
        for process in run.processes:
            yield "engine_log", {"path": process.log}


# --- before a start ----------------------------------------------------------------------------


def _plan(found: Found, plan: Plan) -> Proof:
    per_gpu = plan.per_gpu
    path = found.plan_file
    return Proof(
        kind="plan",
        outcome=Outcome.PASSED if plan.verdict.is_positive else Outcome.FAILED,
        reason=f"plan_{plan.verdict}",
        at=_written(path),
        params={
            "gpus": plan.rack.gpu_count,
            "rack": plan.rack.label,
            "layout": plan.layout.label,
            "need": round(per_gpu.known_total_bytes / GIB, 2),
            "budget": round(per_gpu.budget_bytes / GIB, 2),
        },
        path=str(path),
    )


def _support(found: Found) -> Proof:
    stated = None if found.spec is None else found.spec.support
    support: Support | None = stated or (None if found.plan is None else found.plan.support)
    path = str(found.plan_file if found.spec is None else found.folder / recipes.LAUNCH)
    if support is None:
        return _now("support", Outcome.OPEN, "support_unknown", path=path)
    outcome = Outcome.OPEN
    if support.status in _RAN:
        outcome = Outcome.PASSED
    elif support.status in _BROKEN:
        outcome = Outcome.FAILED
    return _now(
        "support",
        outcome,
        f"support_{outcome}",
        path=path,
        status=str(support.status),
        source=support.source,
        as_of=support.as_of,
    )


def _digests(found: Found, spec: LaunchSpec) -> Proof:
    path = str(found.folder / recipes.LAUNCH)
    images = {each for each in (spec.image, *(rank.image for rank in spec.ranks)) if each}
    tagged = sorted(
        image
        for image in images
        if _BY_DIGEST not in image and (spec.image_digest is None or image != spec.image)
    )
    if tagged:
        return _now("digests", Outcome.OPEN, "image_by_tag", path=path, image=tagged[0])
    if spec.model_revision is None and checkpoint_of(spec) is None:
        return _now("digests", Outcome.OPEN, "no_revision", path=path, model=spec.model)
    return _now(
        "digests",
        Outcome.PASSED,
        "digests_image" if images else "digests_version",
        path=path,
        image=spec.image_digest or (min(images) if images else None),
        engine=spec.engine,
        version=spec.engine_version,
        revision=spec.model_revision or str(checkpoint_of(spec)),
    )


def _licence(licence: LicenceState) -> Proof:
    if licence.name is None:
        return _now("licence", Outcome.OPEN, "licence_unknown")
    params: dict[str, Scalar] = {"licence": licence.name, "terms": len(licence.terms)}
    is_read = licence.acknowledged_at is not None
    return Proof(
        kind="licence",
        outcome=Outcome.PASSED if is_read else Outcome.OPEN,
        reason="licence_read" if is_read else "licence_unread",
        at=licence.acknowledged_at or _iso_now(),
        params=params,
    )


# --- the release that runs ---------------------------------------------------------------------


def _of_release(found: Found) -> Iterator[Proof]:
    runs = [run for run in found.runs if run.release == _number(found)]
    bound = {"release": str(_number(found))}
    for run in runs[:1]:
        yield from _loaded(run, found.spec, bound)
        yield from _remembered(run, bound)
    verdict = next((each for each in reversed(_verdicts(found)) if each.stage == said.VERIFY), None)
    if verdict is not None:
        outcome = {"pass": Outcome.PASSED, "warn": Outcome.PASSED, "fail": Outcome.FAILED}.get(
            verdict.status, Outcome.OPEN
        )
        yield Proof(
            kind="smoke",
            outcome=outcome,
            reason=f"smoke_{outcome}",
            at=verdict.at,
            params={"status": verdict.status, "names": _names(runs)},
            path=verdict.report,
            bound=bound,
        )
    before = found.before
    if before is None:
        yield _now("rollback", Outcome.OPEN, "no_rollback")
        return
    folder = recipes.release_dir(before.deployment, before.number)
    is_there = (folder / recipes.LAUNCH).is_file()
    yield Proof(
        kind="rollback",
        outcome=Outcome.PASSED if is_there else Outcome.FAILED,
        reason="rollback_ready" if is_there else "rollback_gone",
        at=before.created_at,
        params={"number": before.number, "version": before.engine_version},
        path=str(folder),
    )


def _names(runs: list[RunState]) -> str:
    reasons = runs[0].verdict_reasons if runs else ()
    return "; ".join(reasons[:2])


def _loaded(run: RunState, spec: LaunchSpec | None, bound: dict[str, str]) -> Iterator[Proof]:
    start = _untold("load", run)
    if run.ready_s is not None:
        yield replace(
            start,
            outcome=Outcome.PASSED,
            reason="load_passed",
            params={
                "seconds": round(run.ready_s, 1),
                "deadline": None if spec is None else spec.deadline_s,
                "restarts": run.restarts,
            },
            bound=bound,
        )
    elif run.failure is not None:
        yield replace(
            start,
            outcome=Outcome.FAILED,
            reason="load_failed",
            params={"code": run.failure.code, "phase": run.failure.phase or str(run.phase)},
            bound=bound,
        )


def _remembered(run: RunState, bound: dict[str, str]) -> Iterator[Proof]:
    """Planned against observed, by the findings that the start's log gave."""
    own = [each for each in run.findings if each.code.startswith(_MEMORY)]
    bad = [each for each in own if each.severity in (Severity.WARN, Severity.FAIL)]
    start = _untold("memory", run)
    if bad:
        first = bad[0]
        yield replace(
            start,
            outcome=Outcome.FAILED,
            reason="memory_failed",
            params={
                "count": len(bad),
                "term": first.subject,
                "observed": _readable(first.observed),
                "expected": _readable(first.expected),
            },
            bound=bound,
        )
    elif run.receipt_digest is not None:
        yield replace(
            start,
            outcome=Outcome.PASSED,
            reason="memory_passed",
            params={"receipt": run.receipt_digest[:19]},
            bound=bound,
        )
    elif run.ready_s is not None:
        yield start


def _untold(kind: str, run: RunState) -> Proof:
    """What a start says of `kind` as long as it says nothing: when, and in which log."""
    return Proof(
        kind=kind,
        outcome=Outcome.OPEN,
        reason=f"{kind}_untold",
        at=run.ready_at or run.phase_at or run.started_at,
        path=run.processes[0].log if run.processes else None,
    )


def _readable(value: Scalar) -> Scalar:
    return f"{value / GIB:,.2f} GiB" if isinstance(value, int) and value > GIB // 1024 else value


def _alive(found: Found) -> Proof:
    status = found.status
    bound = {"release": str(_number(found))}
    if status is None or (not status.ready and status.failure is None):
        word = None if status is None else str(status.phase)
        return _now("alive", Outcome.OPEN, "not_running", phase=word)
    if status.ready and status.alive is Alive.ALIVE:
        return Proof(
            kind="alive",
            outcome=Outcome.PASSED,
            reason="alive",
            at=_iso_now(),
            params={"pid": status.pid, "restarts": status.restarts},
            bound=bound,
        )
    return Proof(
        kind="alive",
        outcome=Outcome.OPEN if status.alive is Alive.UNKNOWN else Outcome.FAILED,
        reason="not_alive",
        at=_iso_now(),
        params={"phase": str(status.phase), "alive": str(status.alive)},
        bound=bound,
    )


def _verdicts(found: Found) -> tuple[Verdict, ...]:
    return () if found.release is None else found.release.verdicts


def _number(found: Found) -> int | None:
    return None if found.release is None else found.release.number


def _start_report(run: RunState) -> Verification | None:
    try:
        raw = (Path(run.folder) / "verification.json").read_bytes()
        return msgspec.json.decode(raw, type=Verification)
    except (OSError, msgspec.MsgspecError):
        return None


def _now(
    kind: str, outcome: Outcome, reason: str, *, path: str | None = None, **params: Scalar
) -> Proof:
    return Proof(kind=kind, outcome=outcome, reason=reason, at=_iso_now(), params=params, path=path)


def _iso_now() -> str:
    return now_utc().isoformat()


def _written(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
