"""The judgement: points and evidence become a standing each, standings a verdict. Pure.

A proof is a proof of this: the same release, the same weights, the same layout, not too old and not
from tomorrow. What fails one of these is missing, with both values named. Removing a proof never
makes a verdict better, and a waiver holds until its day and not longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Final

from heavylift.errors import Scalar
from heavylift.facts.golive_schema import GoLiveBook, GoLivePointFacts
from heavylift.golive import commands
from heavylift.golive.evidence import ALWAYS_BOUND, Outcome, Proof, Subject, moment
from heavylift.records.golive import (
    EvidenceFile,
    GoLivePoint,
    Level,
    LevelCount,
    Reach,
    Readiness,
    Standing,
    Waiver,
)

_REACHED: Final = {
    Level.START: Readiness.CAN_START,
    Level.VERIFY: Readiness.CAN_VERIFY,
    Level.TRAFFIC: Readiness.READY,
}
NOTHING: Final = "nothing"
"""The reason of a point of which nothing was seen."""
COVERED: Final = "covered"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Word:
    """What evidence says of a point."""

    standing: Standing
    reason: str
    params: Mapping[str, Scalar]
    proof: Proof | None = None


def points(
    book: GoLiveBook,
    subject: Subject,
    proofs: Sequence[Proof],
    waivers: Iterable[Waiver],
    now: datetime,
) -> tuple[GoLivePoint, ...]:
    """Every point with its standing, in the book's order. `now` is in UTC."""
    newest: dict[str, Waiver] = {}
    for waiver in sorted(waivers, key=lambda each: each.at):
        newest[waiver.point] = _bounded(waiver, book)
    words = {each.id: _word(each, book, subject, proofs, now) for each in book.points}
    return tuple(
        _point(
            each,
            _covered(each, words),
            subject,
            newest.get(each.id),
            otherwise=book.otherwise,
            in_force=each.id in newest and is_in_force(newest[each.id], book, now),
        )
        for each in book.points
    )


def verdict(found: Iterable[GoLivePoint]) -> Readiness:
    """The last level of which, and below which, everything is settled."""
    open_at = {point.needed_for for point in found if not point.standing.is_settled}
    reached = Readiness.CANNOT_START
    for level in Level:
        if level in open_at:
            break
        reached = _REACHED[level]
    return reached


def passes(found: Sequence[GoLivePoint], required: Sequence[str]) -> bool:
    """Whether a pipeline may go on: all of the points asked for, or everything, is settled."""
    if not required:
        return verdict(found) is Readiness.READY
    standings = {point.id: point.standing for point in found}
    return all(standings[name].is_settled for name in required)


def levels(found: Sequence[GoLivePoint]) -> tuple[LevelCount, ...]:
    """The points of each level, counted."""
    return tuple(
        LevelCount(
            level=level,
            points=sum(point.needed_for is level for point in found),
            settled=sum(point.needed_for is level and point.standing.is_settled for point in found),
        )
        for level in Level
    )


def reached(
    book: GoLiveBook, subject: Subject, proofs: Sequence[Proof], now: datetime
) -> tuple[Reach, ...]:
    """What was promised of each figure, and the most that a valid proof reached."""
    table = []
    for figure in dict.fromkeys(name for point in book.points for name in point.reach):
        far = [
            proof.reach[figure]
            for point in book.points
            if figure in point.reach
            for proof in _of(point, proofs)
            if proof.outcome is Outcome.PASSED
            and figure in proof.reach
            and _flaw(point, book, subject, proof, now) is None
        ]
        table.append(
            Reach(
                figure=figure,
                promised=subject.promised.get(figure),
                proven=max(far, default=None),
            )
        )
    return tuple(table)


def is_in_force(waiver: Waiver, book: GoLiveBook, now: datetime) -> bool:
    """True up to the end of the waiver's last day (UTC), for one that was given before now."""
    given, until = moment(waiver.at), moment(_bounded(waiver, book).until)
    if given is None or until is None:
        return False
    slack = timedelta(seconds=book.clock_slack_s)
    return given <= now + slack and now.date() <= until.date()


def last_day(given: datetime, book: GoLiveBook) -> date:
    """The last day that a waiver given at a time can name."""
    return given.date() + timedelta(days=book.waiver_days)


def _bounded(waiver: Waiver, book: GoLiveBook) -> Waiver:
    """A waiver with the day on which it ends, whatever later one it names."""
    given, until = moment(waiver.at), moment(waiver.until)
    if given is None or until is None or until.date() <= last_day(given, book):
        return waiver
    return replace(waiver, until=last_day(given, book).isoformat())


# --- one point ---------------------------------------------------------------------------------


def _word(
    point: GoLivePointFacts,
    book: GoLiveBook,
    subject: Subject,
    proofs: Sequence[Proof],
    now: datetime,
) -> _Word:
    """What the evidence says: the newest that decides, else why the newest decides nothing."""
    own = sorted(_of(point, proofs), key=_age)
    flaws = [(proof, _flaw(point, book, subject, proof, now)) for proof in own]
    sound = [proof for proof, flaw in flaws if flaw is None]
    if not sound:
        if not flaws:
            return _Word(standing=Standing.MISSING, reason=NOTHING, params={})
        proof, flaw = flaws[-1]
        reason, params = flaw or (proof.reason, proof.params)
        return _Word(standing=Standing.MISSING, reason=reason, params=params, proof=proof)
    if sound[-1].outcome is Outcome.FAILED:
        return _said(sound[-1], Standing.FAILED)
    since = [number for number, proof in enumerate(sound) if proof.outcome is Outcome.FAILED]
    good = sound[since[-1] + 1 if since else 0 :]
    short = [_short(point, book, subject, proof) for proof in good]
    if None in short:
        return _said(good[len(short) - 1 - short[::-1].index(None)], Standing.PROVEN)
    best = max(range(len(good)), key=lambda number: (_far(point, good[number]), number))
    lacking = short[best] or {}
    return _Word(standing=Standing.MISSING, reason="short", params=lacking, proof=good[best])


def _said(proof: Proof, standing: Standing) -> _Word:
    return _Word(standing=standing, reason=proof.reason, params=proof.params, proof=proof)


def _of(point: GoLivePointFacts, proofs: Iterable[Proof]) -> list[Proof]:
    """The evidence of a point's kind, with one of its facets. What could not be read has none, and
    is told of.
    """
    wanted = frozenset(point.facets)
    return [
        proof
        for proof in proofs
        if proof.kind == point.proof and (not wanted or not proof.facets or wanted & proof.facets)
    ]


def _age(proof: Proof) -> tuple[bool, float]:
    at = moment(proof.at)
    return (at is not None, 0.0 if at is None else at.timestamp())


def _flaw(
    point: GoLivePointFacts, book: GoLiveBook, subject: Subject, proof: Proof, now: datetime
) -> tuple[str, Mapping[str, Scalar]] | None:
    """Why evidence decides nothing about this deployment now; None when it does."""
    if proof.outcome is Outcome.OPEN:
        return proof.reason, proof.params
    for name in (*ALWAYS_BOUND, *point.bound_to):
        theirs, ours = proof.bound.get(name), subject.bound.get(name)
        if theirs is not None and ours and theirs not in ours:
            return f"other_{name}", {"theirs": theirs, "ours": ", ".join(sorted(ours))}
    if point.bound_to and not any(
        name in proof.bound for name in (*ALWAYS_BOUND[:1], *point.bound_to)
    ):
        return "unbound", {"what": ", ".join(point.bound_to)}
    return _wrong_time(point, book, proof, now)


def _wrong_time(
    point: GoLivePointFacts, book: GoLiveBook, proof: Proof, now: datetime
) -> tuple[str, Mapping[str, Scalar]] | None:
    """Why the date of evidence makes it none: unreadable, to come, too long ago."""
    at = moment(proof.at)
    if at is None:
        return "undated", {"at": proof.at[:40]}
    if at > now + timedelta(seconds=book.clock_slack_s):
        return "future", {"at": _shown(at), "now": _shown(now)}
    if point.max_age_days is not None and now - at > timedelta(days=point.max_age_days):
        return "too_old", {"days": (now - at).days, "limit": point.max_age_days}
    return None


def _short(
    point: GoLivePointFacts, book: GoLiveBook, subject: Subject, proof: Proof
) -> dict[str, Scalar] | None:
    """The first promised figure that a proof does not reach; None when it reaches them all."""
    for figure in point.reach:
        promised = subject.promised.get(figure)
        if promised is None:
            return {"figure": figure, "promised": None, "proven": proof.reach.get(figure)}
        far = proof.reach.get(figure, 0)
        if far < promised * book.reach_ratio:
            return {"figure": figure, "promised": promised, "proven": far}
    return None


def _far(point: GoLivePointFacts, proof: Proof) -> tuple[int, ...]:
    return tuple(proof.reach.get(figure, 0) for figure in point.reach)


def _covered(point: GoLivePointFacts, words: Mapping[str, _Word]) -> _Word:
    """The word on a point, or of the point that shows more than it would."""
    word = words[point.id]
    by = None if point.covered_by is None else words.get(point.covered_by)
    if word.standing is not Standing.MISSING or by is None or by.standing is not Standing.PROVEN:
        return word
    return _Word(
        standing=Standing.PROVEN,
        reason=COVERED,
        params={"point": point.covered_by},
        proof=by.proof,
    )


def _point(
    point: GoLivePointFacts,
    word: _Word,
    subject: Subject,
    waiver: Waiver | None,
    *,
    in_force: bool,
    otherwise: tuple[str, ...],
) -> GoLivePoint:
    standing = word.standing
    if not standing.is_settled and in_force:
        standing = Standing.WAIVED
    proof = word.proof
    return GoLivePoint(
        id=point.id,
        group=point.group,
        needed_for=Level(point.needed_for),
        standing=standing,
        reason=word.reason,
        params=dict(word.params),
        evidence=None
        if proof is None
        else EvidenceFile(kind=proof.kind, at=proof.at, path=proof.path),
        command=None
        if standing is Standing.PROVEN
        else commands.first((*point.commands, *otherwise), subject.words),
        waiver=waiver,
        source=point.source,
    )


def _shown(at: datetime) -> str:
    return at.isoformat(timespec="seconds")
