"""What must hold for any evidence: a proof taken away never makes a verdict better."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from heavylift.facts.catalog import Catalog
from heavylift.golive import judge
from heavylift.golive.evidence import Outcome, Proof, Subject
from heavylift.operate.golive import said
from heavylift.operate.golive.subject import plain_url
from heavylift.records.golive import Readiness, Standing, Waiver

unhurried = settings(deadline=None, max_examples=50)
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
BOOK = Catalog().golive()
KINDS = sorted({point.proof for point in BOOK.points})
POINTS = sorted(point.id for point in BOOK.points)
WORTH = list(Readiness)
SUBJECT = Subject(
    bound={"deployment": frozenset({"d"}), "release": frozenset({"2"})},
    promised={"context_tokens": 1000, "concurrency": 8},
)


@st.composite
def proofs(draw: st.DrawFn) -> Proof:
    """Evidence of any kind, outcome, age, release and reach."""
    days = draw(st.integers(-2, 400))
    release = draw(st.sampled_from([None, "1", "2", "2", "2"]))
    bound = {"deployment": draw(st.sampled_from(["d", "d", "d", "e"]))}
    return Proof(
        kind=draw(st.sampled_from(KINDS)),
        outcome=draw(st.sampled_from([Outcome.PASSED, Outcome.PASSED, *Outcome])),
        reason="any",
        at=(NOW - timedelta(days=days)).isoformat(),
        facets=frozenset({"acceptance", "slo", "load"}),
        bound=bound if release is None else {**bound, "release": release},
        reach={"context_tokens": draw(st.sampled_from([100, 1000])), "concurrency": 8},
    )


@st.composite
def waivers(draw: st.DrawFn) -> Waiver:
    """A waiver of any point that ended, ends or will end."""
    until = NOW.date() + timedelta(days=draw(st.integers(-3, 3)))
    return Waiver(
        point=draw(st.sampled_from(POINTS)),
        who="a",
        why="b",
        until=until.isoformat(),
        at=(NOW - timedelta(days=10)).isoformat(),
    )


def verdict(found: tuple[Proof, ...], given_up: tuple[Waiver, ...] = ()) -> Readiness:
    """The verdict on that evidence."""
    return judge.verdict(judge.points(BOOK, SUBJECT, found, given_up, NOW))


SETTLED = tuple(
    Waiver(point=name, who="a", why="b", until="2027-01-01", at="2026-11-01") for name in POINTS
)


@unhurried
@given(st.lists(proofs(), max_size=15), st.lists(waivers(), max_size=5), st.data())
def test_a_proof_less_is_never_better(
    found: list[Proof], given_up: list[Waiver], data: st.DataObject
) -> None:
    """Whatever passed and is taken away: each point stands as it did or worse, and so does
    the verdict.
    """
    passed = [each for each in found if each.outcome is Outcome.PASSED]
    if not passed:
        return
    gone = data.draw(st.sampled_from(passed))
    less = tuple(each for each in found if each is not gone)
    before, after = (
        judge.points(BOOK, SUBJECT, each, given_up, NOW) for each in (tuple(found), less)
    )
    for one, other in zip(before, after, strict=True):
        assert other.standing.is_settled <= one.standing.is_settled
    worth = WORTH.index
    assert worth(judge.verdict(after)) <= worth(judge.verdict(before))


@unhurried
@given(st.lists(proofs(), max_size=15), st.lists(waivers(), max_size=8))
def test_a_waiver_that_ended_is_no_waiver(found: list[Proof], given_up: list[Waiver]) -> None:
    """All standings are those without it."""
    ended = [each for each in given_up if each.until < NOW.date().isoformat()]
    kept = [each for each in given_up if each not in ended]
    # The newest of a point counts: two of one point are told apart by nothing here.
    kept = [each for each in kept if each.point not in {one.point for one in ended}]
    with_them = judge.points(BOOK, SUBJECT, tuple(found), [*kept, *ended], NOW)
    without = judge.points(BOOK, SUBJECT, tuple(found), kept, NOW)
    assert [each.standing for each in with_them] == [each.standing for each in without]


@unhurried
@given(st.lists(proofs(), max_size=15))
def test_nothing_failed_or_missing_is_ever_ready(found: list[Proof]) -> None:
    """Ready is every point proven; with every point waived whatever was seen, it is ready too."""
    points = judge.points(BOOK, SUBJECT, tuple(found), (), NOW)
    all_proven = all(each.standing is Standing.PROVEN for each in points)
    assert (judge.verdict(points) is Readiness.READY) == all_proven
    assert verdict(tuple(found), SETTLED) is Readiness.READY


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@unhurried
@given(st.sampled_from(sorted(said.KINDS)), st.data())
def test_any_document_is_a_report_or_none(kind: str, data: st.DataObject) -> None:
    """With the fields by which a kind is known, whatever is in them: proofs, or an error that the
    command knows how to tell.
    """
    document = {name: data.draw(anything) for name in sorted(said.KINDS[kind].fields)}
    assert said.kind_of(document) in said.KINDS
    try:
        found = said.proofs(kind, msgspec.json.encode(document))
    except msgspec.MsgspecError:
        return
    assert all(each.kind for each in found)


@unhurried
@given(st.text())
def test_any_address_has_one_spelling(words: str) -> None:
    """And its spelling is its own."""
    assert plain_url(plain_url(words)) == plain_url(words)
