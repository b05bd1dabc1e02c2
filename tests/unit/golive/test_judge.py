"""The judgement of a go-live report over evidence that is made up here."""

from __future__ import annotations

import string
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import click
import pytest

from heavylift.cli.main import cli
from heavylift.cli.text import keys, text
from heavylift.facts.catalog import Catalog
from heavylift.facts.golive_schema import GoLiveBook
from heavylift.golive import commands, judge
from heavylift.golive.evidence import Outcome, Proof, Subject, moment
from heavylift.records.golive import GoLivePoint, Level, Readiness, Standing, Waiver

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SUBJECT = Subject(
    bound={
        "deployment": frozenset({"chat"}),
        "release": frozenset({"2"}),
        "recipe": frozenset({"sha256:r"}),
        "layout": frozenset({"tp8"}),
        "revision": frozenset({"abc"}),
        "model": frozenset({"m"}),
        "url": frozenset({"127.0.0.1:8000"}),
        "checkpoint": frozenset({"/models/m"}),
    },
    promised={"context_tokens": 1000, "concurrency": 8},
    words={"name": "chat", "live": "chat", "subject": "chat", "slo": "ttft_p99=2s"},
)
OWN = {"deployment": "chat", "release": "2", "recipe": "sha256:r", "checkpoint": "/models/m"}


@pytest.fixture(scope="module")
def book() -> GoLiveBook:
    """The shipped points."""
    return Catalog().golive()


def proof(kind: str, **more: object) -> Proof:
    """A proof of yesterday that passed, of this deployment."""
    base = Proof(
        kind=kind,
        outcome=Outcome.PASSED,
        reason="verify_passed",
        at=(NOW - timedelta(days=1)).isoformat(),
        facets=frozenset({"acceptance", "slo", "load"}),
        bound=OWN,
        reach={"context_tokens": 1000, "concurrency": 8},
    )
    return replace(base, **more)  # type: ignore[arg-type]


def everything(book: GoLiveBook) -> tuple[Proof, ...]:
    """A proof of every kind."""
    return tuple(proof(kind) for kind in dict.fromkeys(each.proof for each in book.points))


def judged(
    book: GoLiveBook, *proofs: Proof, waivers: tuple[Waiver, ...] = (), now: datetime = NOW
) -> dict[str, GoLivePoint]:
    """The points by name."""
    return {each.id: each for each in judge.points(book, SUBJECT, proofs, waivers, now)}


def waiver(point: str, until: str = "2026-12-31", at: str = "2026-11-01T00:00:00+00:00") -> Waiver:
    """A waiver of a point."""
    return Waiver(point=point, who="kim", why="agreed", until=until, at=at)


# --- the points as they ship ---------------------------------------------------------------------


def test_the_points_are_four_eleven_five_and_three(book: GoLiveBook) -> None:
    """In that order, each point once, each level known, each source that of a fact."""
    groups = [each.group for each in book.points]
    counted = {group: groups.count(group) for group in dict.fromkeys(groups)}
    assert counted == {"first": 4, "deployment": 11, "production": 5, "traps": 3}
    assert groups == sorted(groups, key=list(counted).index)
    assert len({each.id for each in book.points}) == len(book.points)
    assert {each.needed_for for each in book.points} == set(Level)
    names = {each.id for each in book.points}
    assert {each.covered_by for each in book.points} - {None} <= names


def test_every_point_and_reason_has_its_texts(book: GoLiveBook) -> None:
    """Titles, groups, and a reason for each way in which evidence can be of something else."""
    known = keys()
    for each in book.points:
        assert f"golive.point.{each.id}" in known
        assert f"golive.group.{each.group}" in known
        for name in each.bound_to:
            assert f"golive.reason.other_{name}" in known
        for name in each.reach:
            assert {f"golive.figure.{name}", f"golive.reach.{name}"} <= known


def test_every_command_of_every_point_parses(book: GoLiveBook) -> None:
    """Whatever a deployment's words are, click takes the command as it is shown."""
    values = {
        "slo": "ttft_p99=2s",
        "concurrency": "8",
        "url": "http://127.0.0.1:1",
        "rack": "8xH200",
    }
    for each in book.points:
        for template in (*each.commands, *book.otherwise):
            names = commands.needed(template)
            words = commands.filled(template, {name: values.get(name, "/tmp") for name in names})  # noqa: S108
            parse(words)


def parse(words: list[str]) -> None:
    """Raises click's error for a command that is none."""
    group = cli
    # With the group's own settings: a command keeps the help option of its first context.
    root = click.Context(group, **group.context_settings)
    name, command, rest = group.resolve_command(root, words)
    assert command is not None
    context = command.make_context(str(name), list(rest), parent=root)
    while isinstance(command, click.Group) and context.args:
        inner, sub, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert sub is not None
        command, context = sub, sub.make_context(str(inner), list(rest), parent=context)


# --- standings -----------------------------------------------------------------------------------


def test_with_a_proof_of_everything_it_is_ready(book: GoLiveBook) -> None:
    """Every point proven, no command left to type."""
    found = judged(book, *everything(book))
    assert {each.standing for each in found.values()} == {Standing.PROVEN}
    assert {each.command for each in found.values()} == {None}
    assert judge.verdict(found.values()) is Readiness.READY
    assert judge.passes(tuple(found.values()), ())


def test_with_nothing_it_cannot_start(book: GoLiveBook) -> None:
    """Every point is missing; the verdict counts nothing as given."""
    found = judged(book)
    assert {each.standing for each in found.values()} == {Standing.MISSING}
    assert {each.reason for each in found.values()} == {judge.NOTHING}
    assert judge.verdict(found.values()) is Readiness.CANNOT_START
    levels = judge.levels(tuple(found.values()))
    assert [each.settled for each in levels] == [0, 0, 0]
    assert sum(each.points for each in levels) == len(book.points)


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        ("start", Readiness.CAN_START),
        ("start verify", Readiness.CAN_VERIFY),
        ("verify traffic", Readiness.CANNOT_START),
    ],
)
def test_a_level_needs_those_below_it(book: GoLiveBook, kinds: str, verdict: Readiness) -> None:
    """A service that benchmarks well and whose weights nobody checked cannot start."""
    proofs = [proof(each.proof) for each in book.points if each.needed_for in kinds.split()]
    # A proof that one level shares with another would settle both.
    shared = {each.proof for each in book.points if each.needed_for not in kinds.split()}
    found = judged(book, *(each for each in proofs if each.kind not in shared))
    assert judge.verdict(found.values()) is verdict


@pytest.mark.parametrize(
    ("flaw", "reason", "params"),
    [
        ({"bound": {**OWN, "release": "1"}}, "other_release", {"theirs": "1", "ours": "2"}),
        ({"bound": {**OWN, "layout": "tp16"}}, "other_layout", {"theirs": "tp16", "ours": "tp8"}),
        ({"bound": {**OWN, "revision": "x"}}, "other_revision", {"theirs": "x", "ours": "abc"}),
        ({"bound": {**OWN, "model": "n"}}, "other_model", {"theirs": "n", "ours": "m"}),
        ({"bound": {"deployment": "b"}}, "other_deployment", {"theirs": "b", "ours": "chat"}),
        ({"bound": {"model": "m"}}, "unbound", {"what": "release, revision, layout, recipe"}),
        ({"at": "2026-01-01"}, "too_old", {"days": 333, "limit": 90}),
        ({"at": "2026-12-01T12:00:00+00:00"}, "future", {}),
        ({"at": "yesterday"}, "undated", {"at": "yesterday"}),
        ({"outcome": Outcome.OPEN, "reason": "verify_open"}, "verify_open", {}),
    ],
)
def test_a_proof_of_something_else_is_none(
    book: GoLiveBook, flaw: dict[str, object], reason: str, params: dict[str, object]
) -> None:
    """An older release, another layout, revision or model, too old, from tomorrow: missing, and
    both values are told.
    """
    found = judged(book, proof("verify", **flaw))["acceptance"]
    assert (found.standing, found.reason) == (Standing.MISSING, reason)
    assert params.items() <= found.params.items()
    assert found.command == "heavylift verify chat --profile acceptance"


def test_a_clock_that_is_a_little_ahead_is_forgiven(book: GoLiveBook) -> None:
    """Two machines differ by minutes, not by days."""
    soon = (NOW + timedelta(seconds=book.clock_slack_s)).isoformat()
    assert judged(book, proof("verify", at=soon))["acceptance"].standing is Standing.PROVEN


def test_the_newest_word_counts(book: GoLiveBook) -> None:
    """A pass before a failure is history; a pass after it counts; what decides nothing does not."""
    old = proof("verify", at="2026-11-01")
    failed = proof("verify", at="2026-11-10", outcome=Outcome.FAILED, reason="verify_failed")
    new = proof("verify", at="2026-11-20")
    undecided = proof("verify", at="2026-11-25", outcome=Outcome.OPEN, reason="verify_open")
    assert judged(book, old, failed)["acceptance"].standing is Standing.FAILED
    assert judged(book, failed, new, old)["acceptance"].standing is Standing.PROVEN
    assert judged(book, new, undecided)["acceptance"].standing is Standing.PROVEN
    undated = proof("verify", at="some day", outcome=Outcome.FAILED, reason="verify_failed")
    assert judged(book, undated, old)["acceptance"].standing is Standing.PROVEN


def test_a_smoke_run_is_no_acceptance(book: GoLiveBook) -> None:
    """A proof of the kind with another facet is not looked at."""
    found = judged(book, proof("verify", facets=frozenset({"smoke"})))["acceptance"]
    assert (found.standing, found.reason) == (Standing.MISSING, judge.NOTHING)


def test_it_loads_is_not_production(book: GoLiveBook) -> None:
    """A benchmark of one request at a time says how many were promised; one of all proves it, also
    when a smaller one came after it.
    """
    one = proof("bench", reach={"concurrency": 1}, at="2026-11-29")
    all_of_them = proof("bench", reach={"concurrency": 8}, at="2026-11-28")
    found = judged(book, one)["load_test"]
    assert (found.standing, found.reason) == (Standing.MISSING, "short")
    assert found.params == {"figure": "concurrency", "promised": 8, "proven": 1}
    assert judged(book, one, all_of_them)["load_test"].standing is Standing.PROVEN
    reached = {each.figure: each for each in judge.reached(book, SUBJECT, (one,), NOW)}
    assert (reached["concurrency"].promised, reached["concurrency"].proven) == (8, 1)
    assert reached["context_tokens"].proven is None


def test_a_promise_that_nobody_knows_is_not_kept(book: GoLiveBook) -> None:
    """Without a plan no load test reaches far enough."""
    bare = replace(SUBJECT, promised={})
    found = {each.id: each for each in judge.points(book, bare, (proof("bench"),), (), NOW)}
    assert (found["load_test"].standing, found["load_test"].reason) == (Standing.MISSING, "short")


def test_a_start_with_the_real_weights_covers_its_rehearsal(book: GoLiveBook) -> None:
    """A rehearsal that failed stays failed."""
    assert judged(book, proof("load"))["rehearsal"].reason == judge.COVERED
    failed = proof("rehearsal", outcome=Outcome.FAILED, reason="rehearsal_failed")
    assert judged(book, proof("load"), failed)["rehearsal"].standing is Standing.FAILED


# --- waivers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("until", "at", "standing"),
    [
        ("2026-11-30", "2026-11-01T00:00:00+00:00", Standing.WAIVED),
        ("2026-11-29", "2026-11-01T00:00:00+00:00", Standing.MISSING),
        ("2027-11-30", "2026-12-24T00:00:00+00:00", Standing.MISSING),
        ("someday", "2026-11-01T00:00:00+00:00", Standing.MISSING),
    ],
)
def test_a_waiver_holds_to_the_end_of_its_day(
    book: GoLiveBook, until: str, at: str, standing: Standing
) -> None:
    """One that has ended, or was given after now, waives nothing, and is still told of."""
    found = judged(book, waivers=(waiver("quality", until, at),))["quality"]
    assert found.standing is standing
    assert found.waiver is not None
    assert found.command is not None


def test_a_failure_may_be_waived_and_is_still_shown(book: GoLiveBook) -> None:
    """The numbers stay; the newest waiver of a point counts."""
    failed = proof("bench", outcome=Outcome.FAILED, reason="bench_slo_failed")
    old = waiver("bench", "2026-11-02", "2026-11-01T00:00:00+00:00")
    new = waiver("bench", "2026-12-02", "2026-11-20T00:00:00+00:00")
    found = judged(book, failed, waivers=(new, old))["bench"]
    assert (found.standing, found.reason) == (Standing.WAIVED, "bench_slo_failed")


def test_required_points_decide_alone(book: GoLiveBook) -> None:
    """A pipeline asks for two: the others may be open, these may be waived."""
    found = tuple(judged(book, proof("verify"), waivers=(waiver("bench"),)).values())
    assert judge.passes(found, ("acceptance", "bench"))
    assert not judge.passes(found, ("acceptance", "quality"))
    assert not judge.passes(found, ())


# --- commands ------------------------------------------------------------------------------------


def test_a_command_is_the_first_whose_words_are_known() -> None:
    """Values with spaces are quoted; no word is a line of shell."""
    templates = ("verify {live} --profile acceptance", "up {folder}")
    assert (
        commands.first(templates, {"live": "chat"}) == "heavylift verify chat --profile acceptance"
    )
    assert commands.first(templates, {"folder": "/a b; rm"}) == "heavylift up '/a b; rm'"
    assert commands.first(templates, {}) is None


@pytest.mark.parametrize("words", ["", "tomorrow", "2026-13-01", "9999-12-31T23:59:59-12:00"])
def test_what_is_no_time_is_none(words: str) -> None:
    """Whatever a stranger's file says."""
    assert moment(words) is None


def test_every_reason_text_takes_the_parameters_of_its_code() -> None:
    """Names in a text are words, so that a missing one is found here and not on a screen."""
    for key in keys():
        if key.startswith(("golive.reason.", "golive.data.")):
            names = {name for _, name, _, _ in string.Formatter().parse(text(key)) if name}
            assert all(name.isidentifier() for name in names), key
