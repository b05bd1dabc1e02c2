"""What reports of stages say of a deployment's points. Pure: a report in, proofs out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from heavylift.bench.records import Report, Stage
from heavylift.errors import Scalar
from heavylift.golive.evidence import Outcome, Proof
from heavylift.quality.records import Comparison
from heavylift.quality.records import Verdict as QualityVerdict
from heavylift.records.bring_up import BringUp, Rung, RungKind, RungStatus
from heavylift.records.fetched import Fetched
from heavylift.records.integrity import GOOD, WEIGHTS, Integrity
from heavylift.records.rehearsal import Rehearsal
from heavylift.records.served_model import ServedModel
from heavylift.verify.records import Profile, Status, Verification

DOCTOR: Final = "doctor"
VERIFY: Final = "verify"
BENCH: Final = "bench"
QUALITY: Final = "quality"
CHECKSUM: Final = "checksum"
FETCH: Final = "fetch"
REHEARSAL: Final = "rehearsal"
BRING_UP: Final = "bring-up"
LADDER: Final = "ladder"

SLO: Final = "slo"
LOAD: Final = "load"


class DoctorSaid(msgspec.Struct, frozen=True, kw_only=True):
    """What a go-live report reads of the doctor's answer."""

    hosts: tuple[str, ...]
    taken_at: tuple[str, ...]
    failed: bool
    counts: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of report: its record, the fields by which its document is known, what it says."""

    record: type
    fields: frozenset[str]
    says: Callable[[Any], Iterator[Proof]]


def proofs(kind: str, raw: bytes | msgspec.Raw) -> tuple[Proof, ...]:
    """What a report says. Raises `msgspec.MsgspecError` for a document that is no such report."""
    known = KINDS[kind]
    return tuple(known.says(msgspec.json.decode(raw, type=known.record)))


def kind_of(document: Mapping[str, Any]) -> str | None:
    """The kind of a report that somebody hands in, by its fields; None for another document."""
    fits = (name for name, kind in KINDS.items() if kind.fields <= document.keys())
    return next(fits, None)


# --- verify ------------------------------------------------------------------------------------


def _verification(report: Verification) -> Iterator[Proof]:
    failed = [check.id for check in report.checks if check.status is Status.FAIL]
    judged = [check for check in report.checks if check.status is not Status.SKIPPED]
    outcome = {
        Status.PASS: Outcome.PASSED,
        Status.WARN: Outcome.PASSED,
        Status.FAIL: Outcome.FAILED,
    }.get(report.verdict, Outcome.OPEN)
    # A part of the checks can fail the whole, and cannot prove it.
    is_part = report.narrowed and outcome is Outcome.PASSED
    yield Proof(
        kind=VERIFY,
        outcome=Outcome.OPEN if is_part else outcome,
        reason="verify_narrowed" if is_part else f"verify_{outcome}",
        at=report.started_at,
        params={
            "profile": report.profile,
            "checks": len(judged),
            "failed": len(failed),
            "names": ", ".join(failed[:4]),
        },
        facets=frozenset({str(report.profile)}),
        bound=_of_server(report.subject),
    )
    rungs = [
        round(check.figures["prompt_tokens"])
        for check in report.checks
        if check.status in (Status.PASS, Status.WARN) and "prefill_tokens_per_s" in check.figures
    ]
    if rungs and report.profile is not Profile.SMOKE:
        yield _ladder(max(rungs), report.started_at, _of_server(report.subject))


def _ladder(tokens: int, at: str, bound: Mapping[str, str]) -> Proof:
    return Proof(
        kind=LADDER,
        outcome=Outcome.PASSED,
        reason="ladder_passed",
        at=at,
        params={"tokens": tokens},
        bound=bound,
        reach={"context_tokens": tokens},
    )


# --- bench -------------------------------------------------------------------------------------


def _benchmark(report: Report) -> Iterator[Proof]:
    stage = _headline(report)
    if stage is None:
        return
    params = _figures(report, stage)
    bound = dict(_of_server(report.target))
    at_once = stage.load.concurrency
    reach = {} if at_once is None else {"concurrency": at_once}
    yield Proof(
        kind=BENCH,
        outcome=Outcome.PASSED if report.valid else Outcome.OPEN,
        reason="bench_passed" if report.valid else "bench_invalid",
        at=report.started_at,
        params=params,
        facets=frozenset({LOAD}),
        bound=bound,
        reach=reach,
    )
    goal = report.settings.get("slo")
    outcome = Outcome.OPEN
    if report.valid and isinstance(goal, str):
        outcome = Outcome.PASSED if stage.slo_met else Outcome.FAILED
    if isinstance(goal, str):
        bound["slo"] = goal
    reason = "bench_without_slo" if goal is None else f"bench_slo_{outcome}"
    yield Proof(
        kind=BENCH,
        outcome=outcome,
        reason=reason if report.valid else "bench_invalid",
        at=report.started_at,
        params={**params, "slo": goal if isinstance(goal, str) else None},
        facets=frozenset({SLO}),
        bound=bound,
        reach=reach,
    )


def _headline(report: Report) -> Stage | None:
    """The stage whose figures stand for the report: the one found, else the last."""
    if report.found is not None and report.found.concurrency is not None:
        for stage in report.stages:
            if stage.load.concurrency == report.found.concurrency:
                return stage
    return report.stages[-1] if report.stages else None


def _figures(report: Report, stage: Stage) -> dict[str, Scalar]:
    ttft, tpot = stage.ttft_s, stage.tpot_s
    return {
        "concurrency": stage.load.concurrency or 0,
        "requests": stage.requests.ok,
        "failed": stage.requests.failed,
        "tokens_per_s": round(stage.output_tokens_per_s, 1),
        "ttft_ms": None if ttft is None else _ms(ttft.p99, 0),
        "tpot_ms": None if tpot is None else _ms(tpot.p99, 1),
        "reasons": ", ".join(report.invalid_reasons[:3]),
    }


def _ms(seconds: float, digits: int) -> float | None:
    """Seconds as ms; None for what no clock has shown: a stranger's file may state anything."""
    shown = 1e3 * seconds
    if not math.isfinite(shown):
        return None
    return round(shown, digits) if digits else round(shown)


# --- quality -----------------------------------------------------------------------------------


def _comparison(report: Comparison) -> Iterator[Proof]:
    outcome = {
        QualityVerdict.EQUIVALENT: Outcome.PASSED,
        QualityVerdict.BETTER: Outcome.PASSED,
        QualityVerdict.WORSE: Outcome.FAILED,
    }.get(report.verdict, Outcome.OPEN)
    yield Proof(
        kind=QUALITY,
        outcome=outcome,
        reason=f"quality_{outcome}",
        at=report.started_at,
        params={
            "verdict": report.verdict,
            "difference": round(100 * report.difference, 1),
            "low": round(100 * report.interval.low, 1),
            "high": round(100 * report.interval.high, 1),
            "margin": round(100 * report.margin, 1),
        },
        bound=_of_server(report.candidate),
    )


# --- files, machine, rehearsals ----------------------------------------------------------------


def _integrity(report: Integrity, at: str = "") -> Iterator[Proof]:
    bad = [file.path for file in report.files if file.state not in GOOD]
    params: dict[str, Scalar] = {
        "files": len(report.files),
        "compared": report.compared,
        "bad": len(bad) + len(report.defects),
        "first": bad[0] if bad else None,
    }
    # Weights that nobody states are not proven by a list of the files beside them.
    unsaid = [
        file.path
        for file in report.files
        if file.expected is None and PurePosixPath(file.path).suffix in WEIGHTS
    ]
    outcome, reason = Outcome.FAILED, "checksum_failed"
    if report.sound and report.compared and unsaid:
        outcome, reason = Outcome.OPEN, "checksum_partly"
        params |= {"unsaid": len(unsaid), "first": unsaid[0]}
    elif report.sound:
        outcome = Outcome.PASSED if report.compared else Outcome.OPEN
        reason = f"checksum_{outcome}"
    yield Proof(
        kind=CHECKSUM,
        outcome=outcome,
        reason=reason,
        at=at,
        params=params,
        bound={"checkpoint": report.where},
    )


def _fetched(report: Fetched) -> Iterator[Proof]:
    if report.integrity is not None:
        yield from _integrity(report.integrity)


def _doctor(report: DoctorSaid) -> Iterator[Proof]:
    outcome = Outcome.FAILED if report.failed else Outcome.PASSED
    if outcome is Outcome.PASSED and not report.counts.get("ok"):
        # That nothing failed where nothing was seen says nothing.
        outcome = Outcome.OPEN
    yield Proof(
        kind=DOCTOR,
        outcome=outcome,
        reason=f"doctor_{outcome}",
        at=max(report.taken_at, default=""),
        params={
            "hosts": len(report.hosts),
            **{name: report.counts.get(name, 0) for name in ("ok", "warn", "fail", "unknown")},
        },
    )


def _rehearsal(report: Rehearsal) -> Iterator[Proof]:
    outcome = Outcome.PASSED if report.passed else Outcome.FAILED
    yield Proof(
        kind=REHEARSAL,
        outcome=outcome,
        reason=f"rehearsal_{outcome}",
        at=report.started_at,
        params={
            "layers": report.layers,
            "seconds": None if report.ready_s is None else round(report.ready_s, 1),
            "why": report.reason or (report.failure.code if report.failure else None),
        },
        bound={"recipe": report.recipe_digest},
    )


def _bring_up(report: BringUp) -> Iterator[Proof]:
    bound = {"deployment": report.name, "recipe": report.recipe_digest}
    if report.release is not None:
        bound["release"] = str(report.release)
    by_kind = {
        RungKind.CONTEXT: (LADDER, "context_tokens"),
        RungKind.CONCURRENCY: (BENCH, "concurrency"),
    }
    for rung in report.rungs:
        if rung.kind in by_kind and rung.status in (RungStatus.PASSED, RungStatus.FAILED):
            kind, figure = by_kind[rung.kind]
            yield _of_rung(rung, kind, figure, bound, report.updated_at)
        elif rung.kind is RungKind.DOCTOR and rung.status is RungStatus.PASSED:
            yield Proof(
                kind=DOCTOR,
                outcome=Outcome.PASSED,
                reason="doctor_rung",
                at=rung.started_at or report.updated_at,
                bound=bound,
            )


def _of_rung(rung: Rung, kind: str, figure: str, bound: Mapping[str, str], at: str) -> Proof:
    far = getattr(rung, figure) or 0
    passed = rung.status is RungStatus.PASSED
    return Proof(
        kind=kind,
        outcome=Outcome.PASSED if passed else Outcome.FAILED,
        reason=f"rung_{figure}_{'passed' if passed else 'failed'}",
        at=rung.started_at or at,
        params={
            figure: far,
            "requests": rung.requests,
            "errors": rung.errors,
            "why": rung.reason,
        },
        facets=frozenset({LOAD}) if kind == BENCH else frozenset(),
        bound=bound,
        reach={figure: far} if passed else {},
    )


def _of_server(served: ServedModel) -> dict[str, str]:
    """What a report says of the server it was made of."""
    bound = {}
    if "://" in served.url:
        bound["url"] = served.url
    if served.model is not None:
        bound["model"] = served.model
    if served.release is not None:
        bound["release"] = served.release
    return bound


KINDS: Final[Mapping[str, Kind]] = {
    VERIFY: Kind(
        record=Verification, fields=frozenset({"subject", "profile", "checks"}), says=_verification
    ),
    BENCH: Kind(record=Report, fields=frozenset({"target", "stages"}), says=_benchmark),
    QUALITY: Kind(
        record=Comparison, fields=frozenset({"candidate", "contrasts"}), says=_comparison
    ),
    FETCH: Kind(record=Fetched, fields=frozenset({"transferred", "integrity"}), says=_fetched),
    CHECKSUM: Kind(
        record=Integrity, fields=frozenset({"where", "files", "compared"}), says=_integrity
    ),
    DOCTOR: Kind(record=DoctorSaid, fields=frozenset({"taken_at", "counts"}), says=_doctor),
    REHEARSAL: Kind(
        record=Rehearsal, fields=frozenset({"recipe_digest", "passed"}), says=_rehearsal
    ),
    BRING_UP: Kind(record=BringUp, fields=frozenset({"recipe_digest", "rungs"}), says=_bring_up),
}
"""The reports that are read, by the name under which they are kept."""
