"""What happens to clients when workers, disks and clocks misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.servers import playing

from heavylift.devserver.server import ScriptedServer
from heavylift.gateway.config import Times
from heavylift.gateway.routing import State
from heavylift.gateway.serve import Running
from heavylift.wire.client import MESSAGES, Client, Endpoint, Outcome, Protocol
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

Start = Callable[..., contextlib.AbstractAsyncContextManager[Running]]
MakeKey = Callable[..., str]

HANGS: dict[str, float] = {"probe_timeout_s": 1.0}
"""For workers that do not answer a probe."""
ASK = ChatRequest(
    model="scripted", messages=({"role": "user", "content": "hello"},), max_tokens=100
)
PACED = "[pace]\ninterval_s = 0.01\n[reply]\ntokens = 30\n"


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it in an event loop of its own."""
    asyncio.run(work)


def faulty(fault: str, match: str = "first = 2", rest: str = PACED) -> str:
    """A scenario with a fault from its second request on: the first is the gateway's probe."""
    return f"{rest}[[rule]]\nmatch = {{ {match} }}\nfault = {{ {fault} }}\n"


async def ask(gateway: Running, key: str, protocol: Protocol | None = None) -> Outcome:
    """What became of one streamed chat."""
    async with Client(Endpoint(base_url=gateway.url, key=key)) as client:
        return await (client.chat(ASK) if protocol is None else client.chat(ASK, protocol))


async def raw(gateway: Running, key: str) -> bytes:
    """The bytes of one streamed chat."""
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session,
        session.post(
            f"{gateway.url}/v1/chat/completions",
            json={"model": "scripted", "messages": list(ASK.messages), "stream": True},
        ) as response,
    ):
        assert response.status == 200
        return await response.read()


async def until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait until the condition holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, "it never came to that"
        await asyncio.sleep(0.01)


def both_used(*engines: ScriptedServer) -> list[int]:
    """Requests that each engine had, the probe not counted."""
    return [len(engine.records) - 1 for engine in engines]


@pytest.mark.parametrize("protocol", [None, MESSAGES], ids=["chat", "messages"])
@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        ("kind = 'break_stream', after_tokens = 5", "stream_broken"),
        ("kind = 'die', after_tokens = 5", None),
        ("kind = 'garbage', after_tokens = 5, done = true", None),
        ("kind = 'truncated_json', after_tokens = 5", "stream_broken"),
        ("kind = 'error_event', after_tokens = 5, done = true", None),
        ("kind = 'no_finish_reason'", "missing_finish_reason"),
    ],
)
def test_a_broken_stream_ends_with_an_error(
    start: Start, make_key: MakeKey, fault: str, failure: str | None, protocol: Protocol | None
) -> None:
    """In good order, with an error event last: never with `[DONE]`, never as a success."""
    key = make_key()
    if protocol is not None and "no_finish_reason" in fault:
        pytest.skip("a scripted reply of this protocol always has a stop reason")

    async def work() -> None:
        async with playing(faulty(fault)) as engine, start(engine.url) as gateway:
            outcome = await ask(gateway, key, protocol)
            assert outcome.failure is not None
            if "die" not in fault:
                assert outcome.reply.text.startswith("lift the load with care ")
                assert outcome.failure is Failure.STREAM_ERROR_EVENT
                assert outcome.reply.error is not None
                if failure is not None and protocol is None:
                    assert outcome.reply.error.code == failure
            assert not outcome.reply.saw_done
            gateway.ledger.flush()
            assert gateway.ledger.open_requests() == 0

    run(work())


def test_the_last_event_of_a_broken_stream(start: Start, make_key: MakeKey) -> None:
    """Whole events, the error last, and nothing after it."""
    key = make_key()

    async def work() -> None:
        fault = "kind = 'break_stream', after_tokens = 5"
        async with playing(faulty(fault)) as engine, start(engine.url) as gateway:
            stream = await raw(gateway, key)
            events = stream.split(b"\n\n")
            assert events[-1] == b""
            assert events[-2].startswith(b'data: {"error":{"message":')
            assert b"[DONE]" not in stream
            _, prompt, completion = usage(gateway)
            assert prompt > 0
            assert completion == 5

    run(work())


def usage(gateway: Running) -> tuple[int, int, int]:
    """Requests, prompt and answer tokens of the only key."""
    assert gateway.ledger.flush()
    (row,) = gateway.ledger.store.usage("key")
    return row.requests, row.prompt_tokens, row.completion_tokens


def test_a_worker_killed_under_its_streams_fails_only_those(
    start: Start, make_key: MakeKey
) -> None:
    """All that come after go to the other worker, none is lost."""
    key = make_key()

    async def work() -> None:
        dying = faulty("kind = 'die'", "first = 6, last = 6")
        async with (
            playing(dying) as bad,
            playing(PACED) as good,
            start(bad.url, good.url) as gateway,
        ):
            outcomes = await asyncio.gather(*(ask(gateway, key) for _ in range(16)))
            assert bad.ended.is_set()
            broken = [outcome for outcome in outcomes if outcome.failure is not None]
            assert len(broken) < 8
            for outcome in broken:
                assert outcome.failure is Failure.STREAM_ERROR_EVENT
            after = await asyncio.gather(*(ask(gateway, key) for _ in range(16)))
            assert [outcome.failure for outcome in after] == [None] * 16
            gateway.ledger.flush()
            assert gateway.ledger.open_requests() == 0
            assert gateway.fleet.workers["w0"].open_requests == 0

    run(work())


def test_a_request_that_nobody_answered_goes_to_another_worker(
    start: Start, make_key: MakeKey
) -> None:
    """The client sees an answer and nothing of the first attempt."""
    key = make_key()

    async def work() -> None:
        dropping = faulty("kind = 'drop'")
        async with (
            playing(dropping) as bad,
            playing(PACED) as good,
            start(bad.url, good.url) as gateway,
        ):
            for _ in range(4):
                assert (await ask(gateway, key)).failure is None
            assert len(good.records) == 5
            assert usage(gateway) == (4, 4, 120)

    run(work())


@pytest.mark.parametrize(("status", "attempts"), [(500, 1), (502, 2), (503, 2), (400, 1), (429, 1)])
def test_only_shut_doors_are_tried_elsewhere(
    start: Start, make_key: MakeKey, status: int, attempts: int
) -> None:
    """A 500 may have been generated, a 4xx is the request's own fault."""
    key = make_key()

    async def work() -> None:
        toml = faulty(f"kind = 'reject', status = {status}")
        async with playing(toml) as one, playing(toml) as two, start(one.url, two.url) as gateway:
            outcome = await ask(gateway, key)
            assert outcome.status == status
            assert sum(both_used(one, two)) == attempts

    run(work())


def test_thirty_bad_requests_and_a_good_one(start: Start, make_key: MakeKey) -> None:
    """The good one is answered: over-long prompts are no reason to shut a worker out."""
    key = make_key()

    async def work() -> None:
        toml = faulty("kind = 'context_too_long'", "first = 2, last = 31")
        async with playing(toml) as engine, start(engine.url) as gateway:
            for _ in range(30):
                assert (await ask(gateway, key)).failure is Failure.CONTEXT_TOO_LONG
            assert (await ask(gateway, key)).failure is None
            assert gateway.fleet.workers["w0"].state is State.IN

    run(work())


def test_a_storm_of_500_shuts_a_worker_out_until_it_is_over(
    start: Start, make_key: MakeKey
) -> None:
    """Clients get a quick 503 with a wait; the probe, which fails too, finds the end of it."""
    key = make_key()

    async def work() -> None:
        toml = faulty("kind = 'reject', status = 500", "first = 2, last = 12")
        async with playing(toml) as engine, start(engine.url) as gateway:
            statuses = [(await ask(gateway, key)).status for _ in range(5)]
            assert statuses == [500] * 5
            assert gateway.fleet.workers["w0"].state is State.OUT
            outcome = await ask(gateway, key)
            assert (outcome.status, outcome.retry_after_s) == (503, 2.0)
            await until(lambda: gateway.fleet.workers["w0"].takes)
            assert (await ask(gateway, key)).failure is None

    run(work())


def test_in_a_storm_of_500_the_other_worker_serves(start: Start, make_key: MakeKey) -> None:
    """After a handful of failures every request is answered."""
    key = make_key()

    async def work() -> None:
        toml = faulty("kind = 'reject', status = 500")
        async with (
            playing(toml) as bad,
            playing(PACED) as good,
            start(bad.url, good.url) as gateway,
        ):
            for _ in range(12):
                await ask(gateway, key)
            assert not gateway.fleet.workers["w0"].takes
            for _ in range(10):
                assert (await ask(gateway, key)).failure is None

    run(work())


def test_a_hung_worker_is_found_by_its_silence(start: Start, make_key: MakeKey) -> None:
    """Its list of models is as good as ever. The stream ends with an error, the next request goes
    elsewhere, and it does not come back.
    """
    key = make_key()

    async def work() -> None:
        hung = faulty("kind = 'hang', after_tokens = 3")
        async with (
            playing(hung) as bad,
            playing(PACED) as good,
            start(bad.url, good.url, times=HANGS) as gateway,
        ):
            outcomes = await asyncio.wait_for(
                asyncio.gather(*(ask(gateway, key) for _ in range(4))), 30.0
            )
            failures = [outcome.failure for outcome in outcomes]
            assert failures.count(Failure.STREAM_ERROR_EVENT) == 2
            assert failures.count(None) == 2
            hung_worker = gateway.fleet.workers["w0"]
            assert (hung_worker.state, hung_worker.reason) == (State.OUT, "no_progress")
            await asyncio.sleep(0.8)
            assert not hung_worker.takes
            assert (await ask(gateway, key)).failure is None

    run(work())


def test_a_worker_that_hangs_before_its_headers(start: Start, make_key: MakeKey) -> None:
    """The client gets a 504 rather than silence."""
    key = make_key()

    async def work() -> None:
        hanging = faulty("kind = 'hang'")
        async with playing(hanging) as engine, start(engine.url, times=HANGS) as gateway:
            outcome = await asyncio.wait_for(ask(gateway, key), 30.0)
            assert outcome.status == 504
            assert usage(gateway) == (1, 0, 0)

    run(work())


def test_a_busy_worker_is_not_taken_for_a_hung_one(start: Start, make_key: MakeKey) -> None:
    """Long silence of one stream, as of a tool call parser, with an engine that still answers."""
    key = make_key()

    async def work() -> None:
        slow = faulty("kind = 'slow_headers', delay_s = 1.5", "first = 2, last = 2")
        async with playing(slow) as engine, start(engine.url) as gateway:
            outcome = await ask(gateway, key)
            assert outcome.failure is None
            assert gateway.fleet.workers["w0"].takes
            assert len(engine.records) > 2  # it was probed meanwhile

    run(work())


def test_a_stream_that_pauses_too_long_is_ended(start: Start, make_key: MakeKey) -> None:
    """Even though its worker is well."""
    key = make_key()

    async def work() -> None:
        hanging = faulty("kind = 'hang', after_tokens = 3", "first = 2, last = 2")
        times = {"gap_s": 2.0, "first_byte_s": 2.0}
        async with playing(hanging) as engine, start(engine.url, times=times) as gateway:
            outcome = await asyncio.wait_for(ask(gateway, key), 30.0)
            assert outcome.failure is Failure.STREAM_ERROR_EVENT
            assert gateway.fleet.workers["w0"].takes

    run(work())


def test_a_worker_that_comes_back_gets_traffic_within_five_seconds(
    start: Start, make_key: MakeKey
) -> None:
    """With the times that a gateway has by default."""
    key = make_key()
    usual = Times()
    times = {"probe_s": usual.probe_s, "probe_timeout_s": usual.probe_timeout_s}

    async def work() -> None:
        async with playing(PACED) as engine:
            port = engine.port
            gateway = await stack.enter_async_context(start(engine.url, times=times))
            assert (await ask(gateway, key)).failure is None
        outcome = await ask(gateway, key)
        assert outcome.status in (502, 503)
        async with playing(PACED, port=port):
            await until(lambda: gateway.fleet.workers["w0"].takes)
            assert (await ask(gateway, key)).failure is None

    async def in_stack() -> None:
        async with stack:
            await work()

    stack = contextlib.AsyncExitStack()
    run(in_stack())


def test_a_gateway_starts_before_its_workers(start: Start, make_key: MakeKey) -> None:
    """It says that it is not ready, and is as soon as one is."""
    key = make_key()

    async def work() -> None:
        async with playing(PACED) as engine:
            port = engine.port
        async with start(f"http://127.0.0.1:{port}") as gateway:
            outcome = await ask(gateway, key)
            assert (outcome.status, outcome.failure) == (503, Failure.OVERLOADED)
            async with aiohttp.ClientSession() as session:
                assert (await session.get(f"{gateway.url}/readyz")).status == 503
                assert (await session.get(f"{gateway.url}/healthz")).status == 200
                async with playing(PACED, port=port):
                    await until(lambda: gateway.fleet.workers["w0"].takes)
                    assert (await session.get(f"{gateway.url}/readyz")).status == 200
                    assert (await ask(gateway, key)).failure is None

    run(work())


def test_a_full_disk_under_the_audit_stops_nobody(
    start: Start, make_key: MakeKey, tmp_path: Path
) -> None:
    """Requests are answered and counted; the health page says how many lines are missing."""
    key = make_key()
    (tmp_path / "audit.jsonl").symlink_to("/dev/full")

    async def work() -> None:
        async with playing(PACED) as engine, start(engine.url) as gateway:
            for _ in range(3):
                assert (await ask(gateway, key)).failure is None
            assert usage(gateway)[0] == 3
            async with aiohttp.ClientSession() as session:
                health = await (await session.get(f"{gateway.url}/healthz")).json()
            assert health["audit_lines_lost"] == 3

    run(work())


def test_a_disk_that_stands_still_holds_no_stream_up(start: Start, make_key: MakeKey) -> None:
    """What runs comes to its end while nothing can be written; who comes new waits, and is then let
    in.
    """
    key = make_key()
    written = threading.Event()

    def stands_still() -> None:
        assert written.wait(60)

    async def work() -> None:
        async with playing(PACED) as engine, start(engine.url) as gateway:
            running = asyncio.create_task(ask(gateway, key))
            await until(lambda: gateway.ledger.open_requests() == 1)
            gateway.ledger.before_write = stands_still
            late = asyncio.create_task(ask(gateway, key))
            assert (await running).failure is None
            assert not late.done()
            written.set()
            assert (await late).failure is None
            assert usage(gateway)[0] == 2

    run(work())


def test_what_was_settled_has_its_line(
    start: Start, make_key: MakeKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines go before the transaction: when it is made they are in the file."""
    key = make_key()
    lines: list[int] = []

    async def work() -> None:
        async with playing(PACED) as engine, start(engine.url) as gateway:
            books = gateway.ledger._books
            true_book = books.book

            def book(settlements: Any, wishes: Any, now: Any) -> Any:
                if settlements:
                    lines.append((tmp_path / "audit.jsonl").read_text().count("\n"))
                return true_book(settlements, wishes, now)

            monkeypatch.setattr(books, "book", book)
            assert (await ask(gateway, key)).failure is None
            await until(lambda: bool(lines))

    run(work())
    assert lines == [1]


@pytest.mark.parametrize("jump_s", [-86_400.0, 3600.0, 86_400.0])
def test_a_clock_that_jumps_under_a_stream(
    start: Start, make_key: MakeKey, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """Streams go on, durations stay true, the minute is not forgotten."""
    key = make_key(requests_per_minute=2)
    true_time = time.time

    async def work() -> None:
        async with playing(PACED) as engine, start(engine.url) as gateway:
            running = asyncio.create_task(ask(gateway, key))
            while not engine.open_chats:  # noqa: ASYNC110 - the engine has no event for it
                await asyncio.sleep(0.005)
            monkeypatch.setattr(time, "time", lambda: true_time() + jump_s)
            assert (await running).failure is None
            assert (await ask(gateway, key)).failure is None
            refused = await ask(gateway, key)
            assert refused.failure is Failure.RATE_LIMITED
            assert refused.retry_after_s is not None
            assert 0 < refused.retry_after_s <= 65
            gateway.ledger.flush()
            assert sum(row.requests for row in gateway.ledger.store.usage("key")) == 2

    run(work())


def test_two_gateways_share_one_quota(start: Start, make_key: MakeKey) -> None:
    """Twenty requests at once over both: no more are admitted than one would admit."""
    key = make_key(concurrent=3)

    async def work() -> None:
        endless = "[pace]\ninterval_s = 600.0\n[reply]\ntokens = 5\n"
        async with (
            playing(endless) as engine,
            start(engine.url) as one,
            start(engine.url) as two,
        ):
            asked = {asyncio.create_task(ask((one, two)[n % 2], key)) for n in range(20)}
            while sum(task.done() for task in asked) < 17:
                await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
            refused = [task.result().failure for task in asked if task.done()]
            assert refused == [Failure.RATE_LIMITED] * 17
            assert one.ledger.open_requests() == 3
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            await until(lambda: one.ledger.open_requests() == 0)

    run(work())
