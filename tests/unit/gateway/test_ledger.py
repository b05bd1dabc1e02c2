"""The ledger: reservations, settlements, several processes, crashes, clocks and full disks."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from heavylift.errors import HeavyliftError
from heavylift.gateway import ledger as ledger_module
from heavylift.gateway.keys import Key
from heavylift.gateway.ledger import Ledger, Reservation, open_ledger
from heavylift.gateway.quota import DAY_S, NO_LIMITS, NOTHING, Bound, Cost, Limit, Limits, Refusal
from heavylift.gateway.store import DATABASE, open_store

BOUND = Bound(prompt_tokens=10, output_tokens=20)
SPENT = Cost(prompt_tokens=8, completion_tokens=5)


class Clocks:
    """Both clocks of a ledger, set by hand."""

    def __init__(self) -> None:
        self.steady_s = 1000.0
        self.epoch_s = 20_000.0 * DAY_S

    def steady(self) -> float:
        """The clock that never jumps."""
        return self.steady_s

    def epoch(self) -> float:
        """The wall clock."""
        return self.epoch_s


@pytest.fixture
def clocks() -> Clocks:
    """Clocks that stand still until a test moves them."""
    return Clocks()


@pytest.fixture
def opened(tmp_path: Path, clocks: Clocks) -> Iterator[Callable[[], Ledger]]:
    """Opens ledgers of the same folder, each as a gateway process of its own would."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(
            open_ledger(tmp_path, steady=clocks.steady, epoch=clocks.epoch, boot_id="b")
        )


def key(limits: Limits = NO_LIMITS, team_limits: Limits = NO_LIMITS, **fields: Any) -> Key:
    """A key with limits."""
    base: dict[str, Any] = {"id": "k", "name": "n", "shown": "s", "digest": b"", "created_at": 0.0}
    return Key(**(base | fields), limits=limits, team_limits=team_limits)


async def admitted(ledger: Ledger, owner: Key, bound: Bound = BOUND) -> Reservation:
    """A reservation that is expected to be given."""
    given = await ledger.reserve(owner, "m", bound)
    assert isinstance(given, Reservation), given
    return given


async def refused(ledger: Ledger, owner: Key, bound: Bound = BOUND) -> Refusal:
    """A refusal that is expected."""
    given = await ledger.reserve(owner, "m", bound)
    assert isinstance(given, Refusal), given
    return given


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it in an event loop of its own."""
    asyncio.run(work)


def used(ledger: Ledger) -> tuple[int, int, int, int]:
    """Requests, prompt and answer tokens, and how many were estimated, of the only key."""
    (row,) = ledger.store.usage("key")
    return row.requests, row.prompt_tokens, row.completion_tokens, row.estimated


def test_what_is_reserved_is_given_back_as_what_it_cost(opened: Callable[[], Ledger]) -> None:
    """The day of 50 takes 30, then only the 13 that were spent, and then 30 again."""

    async def work() -> None:
        ledger, owner = opened(), key(Limits(tokens_per_day=50))
        first = await admitted(ledger, owner)
        assert first.tokens_left == 20
        assert (await refused(ledger, owner)).limit is Limit.TOKENS_PER_DAY
        ledger.settle(first.id, SPENT)
        assert ledger.flush()
        assert ledger.open_requests() == 0
        await admitted(ledger, owner)
        assert used(ledger) == (1, 8, 5, 0)

    run(work())


def test_settling_twice_charges_once(opened: Callable[[], Ledger]) -> None:
    """The second finds nothing to settle."""

    async def work() -> None:
        ledger = opened()
        given = await admitted(ledger, key())
        ledger.settle(given.id, SPENT)
        ledger.settle(given.id, SPENT)
        ledger.flush()
        assert used(ledger) == (1, 8, 5, 0)

    run(work())


def test_a_settlement_needs_no_flush(opened: Callable[[], Ledger]) -> None:
    """It is written a moment later by itself."""

    async def work() -> None:
        ledger = opened()
        ledger.settle((await admitted(ledger, key())).id, SPENT)
        async with asyncio.timeout(30):
            while ledger.open_requests():  # noqa: ASYNC110 - written by a thread
                await asyncio.sleep(0.005)

    run(work())


def test_several_processes_share_one_quota(opened: Callable[[], Ledger]) -> None:
    """Two ledgers of one folder admit together what one would."""

    async def work() -> None:
        one, two, owner = opened(), opened(), key(Limits(concurrent=3))
        asked = [ledger.reserve(owner, "m", BOUND) for ledger in (one, two) * 5]
        answers = await asyncio.gather(*asked)
        assert sum(isinstance(answer, Reservation) for answer in answers) == 3
        assert one.open_requests() == 3

    run(work())


def test_a_team_shares_its_limits(opened: Callable[[], Ledger]) -> None:
    """Its keys together, each within its own limits as well."""

    async def work() -> None:
        ledger, team = opened(), Limits(tokens_per_minute=70)
        first = key(Limits(), team, id="a", team="lab")
        second = key(Limits(tokens_per_day=35), team, id="b", team="lab")
        await admitted(ledger, first)
        given = await admitted(ledger, second)
        assert given.tokens_left == 5
        assert (await refused(ledger, first)).limit is Limit.TOKENS_PER_MINUTE
        ledger.settle(given.id, SPENT)
        ledger.flush()
        await refused(ledger, second)
        await admitted(ledger, first, Bound(prompt_tokens=1, output_tokens=16))
        assert [(row.team, row.requests) for row in ledger.store.usage("team")] == [("lab", 1)]

    run(work())


def test_an_open_length_takes_what_is_left(opened: Callable[[], Ledger]) -> None:
    """And not more; with too little left it is refused like any other."""

    async def work() -> None:
        ledger, owner = opened(), key(Limits(tokens_per_day=100))
        endless = Bound(prompt_tokens=10, output_tokens=8192, elastic=True)
        given = await admitted(ledger, owner, endless)
        assert given.bound == Bound(prompt_tokens=10, output_tokens=90)
        assert given.tokens_left == 0
        refusal = await refused(ledger, owner, endless)
        assert refusal.retry_after_s == 1.0

    run(work())


def test_a_minute_passes(opened: Callable[[], Ledger], clocks: Clocks) -> None:
    """What was spent counts for 60 to 65 seconds, whatever the wall clock does meanwhile."""

    async def work() -> None:
        ledger, owner = opened(), key(Limits(requests_per_minute=1))
        ledger.settle((await admitted(ledger, owner)).id, NOTHING)
        ledger.flush()
        clocks.epoch_s += 7 * DAY_S
        clocks.steady_s += 59.9
        assert (await refused(ledger, owner)).limit is Limit.REQUESTS_PER_MINUTE
        clocks.steady_s += 5.1
        await admitted(ledger, owner)

    run(work())


def test_setting_the_wall_clock_back_gives_nothing_back(
    opened: Callable[[], Ledger], clocks: Clocks
) -> None:
    """A day that was spent stays spent, however often it comes."""

    async def work() -> None:
        ledger, owner = opened(), key(Limits(tokens_per_day=30))
        ledger.settle(
            (await admitted(ledger, owner)).id, Cost(prompt_tokens=10, completion_tokens=20)
        )
        ledger.flush()
        clocks.epoch_s += DAY_S
        await admitted(ledger, owner)
        clocks.epoch_s -= DAY_S
        await refused(ledger, owner)
        assert [row.day for row in ledger.store.usage("day")] == ["2024-10-04"]

    run(work())


def test_a_request_open_at_midnight_belongs_to_the_day_it_began_in(
    opened: Callable[[], Ledger], clocks: Clocks
) -> None:
    """The new day is whole."""

    async def work() -> None:
        ledger, owner = opened(), key(Limits(tokens_per_day=30))
        open_still = await admitted(ledger, owner)
        clocks.epoch_s += DAY_S
        await admitted(ledger, owner)
        ledger.settle(open_still.id, SPENT)
        ledger.flush()
        await refused(ledger, owner)

    run(work())


def test_a_gateway_that_died_is_charged_for_at_the_bound(
    tmp_path: Path, opened: Callable[[], Ledger], clocks: Clocks
) -> None:
    """By whoever comes next; nothing is left reserved and nothing is given away."""

    async def work() -> None:
        with open_ledger(tmp_path, steady=clocks.steady, epoch=clocks.epoch, boot_id="b") as dying:
            await admitted(dying, key())
        ledger = opened()
        assert ledger.open_requests() == 1
        (lost,) = ledger.recover()
        assert (lost.key_id, lost.model, lost.began_at) == ("k", "m", clocks.epoch_s)
        assert ledger.open_requests() == 0
        assert used(ledger) == (1, 10, 20, 1)
        assert ledger.recover() == ()
        assert len(list((tmp_path / "holders").iterdir())) == 1

    run(work())


def test_a_gateway_that_lives_is_left_alone(opened: Callable[[], Ledger]) -> None:
    """However long its requests take."""

    async def work() -> None:
        living, other = opened(), opened()
        await admitted(living, key())
        assert other.recover() == ()
        assert living.recover() == ()
        assert other.open_requests() == 1

    run(work())


def test_after_a_reboot_the_minute_begins_anew(tmp_path: Path, clocks: Clocks) -> None:
    """Its clock did; the day goes on."""

    async def work() -> None:
        owner = key(Limits(requests_per_minute=1, tokens_per_day=40))

        def opened(boot_id: str) -> contextlib.AbstractContextManager[Ledger]:
            return open_ledger(tmp_path, steady=clocks.steady, epoch=clocks.epoch, boot_id=boot_id)

        with opened("b") as ledger:
            ledger.settle((await admitted(ledger, owner)).id, SPENT)
            ledger.flush()
        with opened("b") as ledger:
            await refused(ledger, owner)
        with opened("c") as ledger:
            assert (await refused(ledger, owner)).limit is Limit.TOKENS_PER_DAY
            await admitted(ledger, owner, Bound(prompt_tokens=1, output_tokens=16))

    run(work())


def test_a_writer_that_holds_the_lock_is_waited_for(
    tmp_path: Path, opened: Callable[[], Ledger]
) -> None:
    """Without standing still: the event loop goes on."""

    async def work() -> None:
        ledger = opened()
        other = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(admitted(ledger, key()))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not waiting.done()
        other.execute("COMMIT")
        other.close()
        await asyncio.wait_for(waiting, 30.0)

    run(work())


def test_a_lock_held_for_ever_is_an_error(
    tmp_path: Path, opened: Callable[[], Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is admitted that cannot be written down."""
    monkeypatch.setattr(ledger_module, "_GIVE_UP_S", 0.05)

    async def work() -> None:
        ledger = opened()
        other = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HeavyliftError, match="GW020"):
            await ledger.reserve(key(), "m", BOUND)
        other.close()

    run(work())


def test_a_full_disk_admits_nothing_and_loses_no_settlement(
    opened: Callable[[], Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settlement waits in memory and is written when there is room."""

    async def work() -> None:
        ledger = opened()
        given = [await admitted(ledger, key()) for _ in range(3)]
        connection = ledger.database
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        monkeypatch.setattr(ledger_module, "_SETTLE_DELAY_S", 0.0)
        code = None
        while code is None:
            try:
                await ledger.reserve(key(), "m", BOUND)
            except HeavyliftError as error:
                code = error.code
        assert code == "GW020"
        for one in given:
            ledger.settle(one.id, SPENT)
        connection.execute("PRAGMA max_page_count = 1000000")
        assert ledger.flush()
        assert used(ledger)[:3] == (3, 24, 15)

    run(work())


def test_a_client_that_goes_while_it_waits_holds_nothing(opened: Callable[[], Ledger]) -> None:
    """Whether the answer was on its way or not."""

    async def work() -> None:
        ledger = opened()
        for turns in range(4):
            waiting = asyncio.create_task(ledger.reserve(key(), "m", BOUND))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0.1)
        held = ledger.open_requests()
        finished = 1 if not waiting.cancelled() else 0
        assert held == finished

    run(work())


def test_a_command_may_read_and_write_beside_it(
    tmp_path: Path, opened: Callable[[], Ledger]
) -> None:
    """Keys are made while gateways run, and known to them at once."""

    async def work() -> None:
        ledger = opened()
        await admitted(ledger, key())
        with open_store(tmp_path) as store:
            created = store.create_key("new", now_epoch_s=0.0)
        assert ledger.store.key(created.id) is not None

    run(work())


def test_slices_that_no_longer_count_are_swept(
    opened: Callable[[], Ledger], clocks: Clocks
) -> None:
    """The table stays as small as a minute."""

    async def work() -> None:
        ledger = opened()
        for _ in range(3):
            ledger.settle((await admitted(ledger, key())).id, SPENT)
            ledger.flush()
            clocks.steady_s += 30
        clocks.steady_s += 20
        ledger.sweep()
        rows = ledger.database.execute("SELECT number FROM slice").fetchall()
        assert rows == [(212,)]

    run(work())


def test_a_checkpoint_carries_everything_into_the_main_file(
    tmp_path: Path, opened: Callable[[], Ledger]
) -> None:
    """From then on a power cut loses none of it."""

    async def work() -> None:
        ledger = opened()
        ledger.settle((await admitted(ledger, key())).id, SPENT)
        ledger.flush()
        ledger.checkpoint()
        copy = tmp_path / "copy.db"
        copy.write_bytes((tmp_path / DATABASE).read_bytes())
        with contextlib.closing(sqlite3.connect(copy)) as alone:
            assert alone.execute("SELECT prompt_tokens FROM usage").fetchall() == [(8,)]

    run(work())
