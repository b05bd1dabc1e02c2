"""The ledger on a real Postgres server keeps what the ledger in a file keeps."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from heavylift.errors import HeavyliftError
from heavylift.gateway.books import Lost, Reservation
from heavylift.gateway.keys import Key
from heavylift.gateway.ledger import Ledger
from heavylift.gateway.postgres import (
    PostgresDatabase,
    PostgresLedger,
    open_remote_ledger,
    open_remote_store,
)
from heavylift.gateway.quota import Bound, Cost, Limit, Limits, Refusal

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif("HEAVYLIFT_POSTGRES" not in os.environ, reason="make test-postgres runs it"),
]

MACHINE: Final = Path(__file__).parents[1] / "property" / "test_gateway_quota.py"


def quota_machine() -> Any:
    """The property test of the quotas, which the file's ledger passes too."""
    spec = importlib.util.spec_from_file_location("gateway_quota_machine", MACHINE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module.QuotaMachine


def key(name: str = "a", **limits: int) -> Key:
    """A key with limits."""
    return Key(id=name, name=name, shown=name, digest=b"", created_at=0.0, limits=Limits(**limits))


def bound(tokens: int) -> Bound:
    """A request of so many tokens."""
    return Bound(prompt_tokens=0, output_tokens=tokens)


def held(address: str) -> set[int]:
    """The locks that gateways hold."""
    database = PostgresDatabase(address)
    with closing(database):
        rows = database.execute("SELECT classid, objid FROM pg_locks WHERE locktype = 'advisory'")
        return {(int(high) << 32) + int(low) for high, low in rows.fetchall()}


async def written(ledger: Ledger) -> None:
    """Wait until nothing waits to be written."""
    while not ledger.flush():  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.002)


@pytest.fixture
def opened(address: str) -> Iterator[Callable[[], PostgresLedger]]:
    """`opened()`: the ledger of one more gateway process; `.close` of its stack is its end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(open_remote_ledger(address))


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it in an event loop of its own."""
    asyncio.run(work)


def test_no_interleaving_overspends_or_leaks(address: str) -> None:
    """Two gateways, clocks that jump, crashes: the same property as of the ledger in a file."""
    machine = quota_machine()

    class Machine(machine):  # type: ignore[misc, valid-type]
        @contextmanager
        def ledger(self) -> Iterator[Ledger]:
            before = held(address)
            with open_remote_ledger(
                address, steady=lambda: self._steady_s, epoch=lambda: self._epoch_s
            ) as ledger:
                name = held(address) - before
                yield ledger
            while name & held(address):  # the server notices a moment later
                time.sleep(0.001)

        async def written(self, ledger: Ledger) -> None:
            await written(ledger)

        def teardown(self) -> None:
            super().teardown()
            database = PostgresDatabase(address)
            database.execute("TRUNCATE open_request, slice, usage")
            database.close()

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=20, stateful_step_count=40, deadline=None)
    )


def test_many_at_once_from_several_gateways_do_not_overspend(
    opened: Callable[[], PostgresLedger],
) -> None:
    """Three gateways ask for 90 × 20 tokens of a day's 1,000: exactly 50 are let in."""

    async def main() -> None:
        ledgers = [opened() for _ in range(3)]
        limited = key(tokens_per_day=1000)
        answers = await asyncio.gather(
            *(ledgers[n % 3].reserve(limited, "m", bound(20)) for n in range(90))
        )
        admitted = [answer for answer in answers if isinstance(answer, Reservation)]
        assert len(admitted) == 50
        assert len({answer.id for answer in admitted}) == 50
        refused = [answer for answer in answers if isinstance(answer, Refusal)]
        assert {answer.limit for answer in refused} == {Limit.TOKENS_PER_DAY}

    run(main())


def test_the_end_of_a_gateway_is_seen_by_the_others(address: str) -> None:
    """Its requests are charged their bound once its session is gone, and not before."""

    async def main() -> None:
        with open_remote_ledger(address) as alive:
            with open_remote_ledger(address) as dying:
                await dying.reserve(key(), "m", bound(70))
                assert alive.recover() == ()
            found: tuple[Lost, ...] = ()
            while not found:  # the server notices a moment later
                found = alive.recover()
            (lost,) = found
            assert lost.cost.tokens == 70
            assert alive.recover() == ()
            assert alive.open_requests() == 0
            assert [row.completion_tokens for row in alive.store.usage("key")] == [70]

    run(main())


def test_a_gateway_that_was_cut_off_takes_its_requests_over(address: str) -> None:
    """It connects again under a new name; what it holds is settled at its cost, nothing leaks."""

    async def main() -> None:
        with open_remote_ledger(address) as ledger, open_remote_ledger(address) as other:
            given = await ledger.reserve(key(), "m", bound(70))
            assert isinstance(given, Reservation)
            _cut_off(address)
            again = await ledger.reserve(key(), "m", bound(30))
            assert isinstance(again, Reservation)
            assert other.recover() == ()
            ledger.settle(given.id, Cost(prompt_tokens=1, completion_tokens=4))
            ledger.settle(again.id, Cost(prompt_tokens=1, completion_tokens=5))
            await written(ledger)
            assert ledger.open_requests() == 0
            assert [row.completion_tokens for row in ledger.store.usage("key")] == [9]

    run(main())


def _cut_off(address: str) -> None:
    """End every other session of this database, as a broken network does."""
    database = PostgresDatabase(address)
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    database.close()


def test_a_client_that_goes_while_it_is_admitted_leaves_nothing(
    opened: Callable[[], PostgresLedger],
) -> None:
    """Its reservation is given back, although the thread had written it."""

    async def main() -> None:
        ledger = opened()
        for _ in range(20):
            asking = asyncio.create_task(ledger.reserve(key(concurrent=1), "m", bound(5)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await written(ledger)
        assert ledger.open_requests() == 0

    run(main())


def test_the_clock_never_goes_back(opened: Callable[[], PostgresLedger], address: str) -> None:
    """A server whose clock was ahead stays there until time has caught up."""

    async def main() -> None:
        ledger = opened()
        ahead = time.time() + 86_400
        database = PostgresDatabase(address)
        database.execute("UPDATE clock SET at = ?", (ahead,))
        database.close()
        await ledger.reserve(key(), "m", bound(1))
        assert ledger.now().epoch_s == ahead

    run(main())


def test_keys_are_the_same_from_every_host(address: str) -> None:
    """Made, listed in order, rotated and revoked; names stay unique among the live."""
    with open_remote_store(address) as one, open_remote_store(address) as other:
        first = one.create_key("first", now_epoch_s=1.0, unique=True)
        other.create_key("second", now_epoch_s=1.0, unique=True)
        made = one.keys()
        assert [each.name for each in made] == ["first", "second"]
        with pytest.raises(HeavyliftError, match="GW015"):
            other.create_key("first", now_epoch_s=2.0, unique=True)
        one.set_team("lab", Limits(concurrent=3))
        other.rotate_key("first", now_epoch_s=3.0, grace_s=0.0)
        kept = one.key(first.id)
        assert kept is not None
        assert kept.previous_until == 3.0
        other.revoke_key("first", now_epoch_s=4.0)
        again = one.key(first.id)
        assert again is not None
        assert again.revoked_at == 4.0


def test_a_database_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    """At the start, with the driver's words."""
    with (
        pytest.raises(HeavyliftError, match="GW023"),
        open_remote_store(f"postgresql:///none?host={tmp_path}"),
    ):
        pass
