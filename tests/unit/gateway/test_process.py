"""The gateway as a process: its commands, its end in order, and its end without warning."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.servers import heavylift, playing, process

from heavylift.devserver.server import ScriptedServer
from heavylift.errors import HeavyliftError
from heavylift.gateway.config import read_file, routes
from heavylift.gateway.routing import Lane
from heavylift.wire.client import Client, Endpoint, Outcome
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

ASK = ChatRequest(
    model="scripted", messages=({"role": "user", "content": "hello"},), max_tokens=400
)
SLOW = "[pace]\ninterval_s = 0.05\n[reply]\ntokens = 60\n"


@contextmanager
def gateway(
    folder: Path, *upstreams: str, notice_s: float = 0.0
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A gateway process in front of workers."""
    config = folder / "gateway.toml"
    config.write_text(
        f"[times]\ndrain_notice_s = {notice_s}\ndrain_limit_s = 5.0\nprobe_s = 0.1\n", "utf-8"
    )
    urls = [part for url in upstreams for part in ("--upstream", url)]
    state = ("--state", str(folder), "--config", str(config))
    with process("gateway", *urls, "--port", "0", *state) as (url, child):
        yield url, child


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it in an event loop of its own."""
    asyncio.run(work)


async def ask(url: str, key: str) -> Outcome:
    """What became of one streamed chat."""
    async with Client(Endpoint(base_url=url, key=key)) as client:
        return await client.chat(ASK)


def argv_of(pid: int) -> str:
    """The arguments of a process as every user of the machine sees them."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()


@contextlib.asynccontextmanager
async def live_streams(
    folder: Path, count: int, **given: Any
) -> AsyncIterator[
    tuple[str, str, subprocess.Popen[str], list[asyncio.Task[Outcome]], ScriptedServer]
]:
    """A gateway process with streams in the middle of their way."""
    key = heavylift("keys", "create", "me", "--state", str(folder))["key"]
    async with playing(SLOW) as engine:
        # The engine lives in this event loop, which must run while the gateway starts.
        opened = gateway(folder, engine.url, **given)
        url, child = await asyncio.to_thread(opened.__enter__)
        try:
            tasks = [asyncio.create_task(ask(url, key)) for _ in range(count)]
            await until(
                lambda: (
                    engine.open_chats == count
                    and min(len(record.sends) for record in engine.records[1:]) >= 5
                )
            )
            yield url, key, child, tasks, engine
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await asyncio.to_thread(opened.__exit__, None, None, None)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, ten seconds at most."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


async def ended(child: subprocess.Popen[str], within_s: float = 30.0) -> int:
    """The exit status."""
    return await asyncio.to_thread(child.wait, within_s)


async def readiness(url: str) -> int:
    """The status of a gateway's readiness."""
    async with Client(Endpoint(base_url=url)) as client:
        exchange = client._exchange("GET", "/readyz")
        await exchange.open()
        exchange.close()
        return exchange.status


async def no_longer_taken(url: str) -> None:
    """Wait until a gateway takes no new connections."""
    port = int(url.rpartition(":")[2])
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        writer.close()
        await asyncio.sleep(0.01)


async def streaming(engine: str) -> int:
    """Streams of a scripted engine that have begun to come, the gateway's probe not counted."""
    async with Client(Endpoint(base_url=engine)) as client:
        records = json.loads(await client.page("/dev/requests") or "[]")
    return sum(len(record["sends"]) > 2 for record in records if record["stream"])


def test_sigterm_lets_live_streams_finish(tmp_path: Path) -> None:
    """All of them, whole; no new connection is taken, and the status is 0."""

    async def work() -> None:
        async with live_streams(tmp_path, 8) as (url, key, child, tasks, _):
            child.send_signal(signal.SIGTERM)
            await no_longer_taken(url)
            assert (await ask(url, key)).failure is Failure.CONNECT
            outcomes = await asyncio.gather(*tasks)
            assert [outcome.failure for outcome in outcomes] == [None] * 8
            assert {len(outcome.reply.text.split()) for outcome in outcomes} == {60}
            assert await ended(child) == 0
        (row,) = heavylift("usage", "--state", str(tmp_path))
        assert (row["requests"], row["completion_tokens"], row["estimated"]) == (8, 480, 0)

    run(work())


def test_sigterm_says_no_first_and_serves_on_for_a_while(tmp_path: Path) -> None:
    """Readiness turns before the door does, so that balancers can look elsewhere."""

    async def work() -> None:
        async with live_streams(tmp_path, 1, notice_s=5.0) as (url, key, child, _, _):
            child.send_signal(signal.SIGTERM)
            while await readiness(url) != 503:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
            assert (await ask(url, key)).failure is None
            assert await ended(child) == 0

    run(work())


def test_a_second_signal_ends_streams_with_an_error(tmp_path: Path) -> None:
    """At once, and so that the client can tell."""

    async def work() -> None:
        async with live_streams(tmp_path, 4) as (url, _, child, tasks, _):
            child.send_signal(signal.SIGTERM)
            await no_longer_taken(url)
            child.send_signal(signal.SIGTERM)
            outcomes = await asyncio.gather(*tasks)
            assert {outcome.failure for outcome in outcomes} == {Failure.STREAM_ERROR_EVENT}
            assert await ended(child) == 0

    run(work())


def test_sigkill_leaves_a_ledger_that_is_right_after_the_restart(tmp_path: Path) -> None:
    """What was finished is counted as it was, what was open at its bound; nothing stays held."""
    folder = str(tmp_path)

    async def work() -> None:
        async with live_streams(tmp_path, 3) as (url, key, child, tasks, engine):
            assert (await ask(url, key)).failure is None
            more = [asyncio.create_task(ask(url, key)) for _ in range(2)]
            await until(lambda: engine.open_chats >= 2 and len(engine.records[-1].sends) >= 5)
            child.kill()
            await asyncio.gather(*tasks, *more)
            await ended(child)
            finished = sum(task.result().failure is None for task in (*tasks, *more)) + 1
            with_error = len(tasks) + len(more) + 1 - finished
            assert with_error >= 2
            opened = gateway(tmp_path, engine.url)
            again, _ = await asyncio.to_thread(opened.__enter__)
            try:
                (row,) = await asyncio.to_thread(heavylift, "usage", "--state", folder)
                assert (row["requests"], row["estimated"]) == (6, with_error)
                assert row["completion_tokens"] == 60 * finished + 400 * with_error
                assert (await ask(again, key)).failure is None
            finally:
                await asyncio.to_thread(opened.__exit__, None, None, None)

    run(work())
    lines = [
        json.loads(line) for line in (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()
    ]
    assert [line["outcome"] for line in lines].count("gateway_died") >= 2


def test_sigkill_of_a_worker_under_live_streams(tmp_path: Path) -> None:
    """Each stream ends with an error; the next request is answered by the other worker."""
    scenario = tmp_path / "slow.toml"
    scenario.write_text(SLOW, "utf-8")
    key = heavylift("keys", "create", "me", "--state", str(tmp_path))["key"]
    with (
        process("dev", "engine", str(scenario)) as (one, first),
        process("dev", "engine", str(scenario)) as (two, _),
        gateway(tmp_path, one, two) as (url, _),
    ):

        async def work() -> None:
            tasks = [asyncio.create_task(ask(url, key)) for _ in range(8)]
            while await streaming(one) < 4 or await streaming(two) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            first.kill()
            outcomes = await asyncio.gather(*tasks)
            failures = [outcome.failure for outcome in outcomes]
            assert failures.count(Failure.STREAM_ERROR_EVENT) == 4
            assert failures.count(None) == 4
            assert not any(outcome.reply.saw_done for outcome in outcomes if outcome.failure)
            after = await asyncio.gather(*(ask(url, key) for _ in range(8)))
            assert [outcome.failure for outcome in after] == [None] * 8

        run(work())


def test_two_gateways_on_one_port(tmp_path: Path) -> None:
    """They share the port, the keys and the quota."""
    made = heavylift("keys", "create", "me", "--concurrent", "3", "--state", str(tmp_path))
    config = tmp_path / "gateway.toml"
    config.write_text("[times]\ndrain_notice_s = 0.0\n", "utf-8")

    async def work() -> None:
        async with playing(SLOW) as engine:
            shared = (
                "--upstream",
                engine.url,
                "--state",
                str(tmp_path),
                "--reuse-port",
                "--config",
                str(config),
            )
            one = process("gateway", "--port", "0", *shared)
            url, _ = await asyncio.to_thread(one.__enter__)
            two = process("gateway", "--port", url.rpartition(":")[2], *shared)
            assert (await asyncio.to_thread(two.__enter__))[0] == url
            outcomes = await asyncio.gather(*(ask(url, made["key"]) for _ in range(24)))
            failures = [outcome.failure for outcome in outcomes]
            assert failures.count(None) == 3
            assert failures.count(Failure.RATE_LIMITED) == 21
            for each in (one, two):
                await asyncio.to_thread(each.__exit__, None, None, None)

    run(work())


def test_the_key_of_the_workers_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never from an option, which every user of the machine could read."""
    monkeypatch.setenv("HEAVYLIFT_UPSTREAM_KEY", "worker-secret")
    key = heavylift("keys", "create", "me", "--state", str(tmp_path))["key"]

    async def work() -> None:
        async with playing(f'{SLOW}[server]\nkey = "worker-secret"\n') as engine:
            opened = gateway(tmp_path, engine.url)
            url, child = await asyncio.to_thread(opened.__enter__)
            try:
                assert (await ask(url, key)).failure is None
                assert "worker-secret" not in argv_of(child.pid)
            finally:
                await asyncio.to_thread(opened.__exit__, None, None, None)

    run(work())


def test_a_port_that_is_taken_is_an_error_with_a_reason(tmp_path: Path) -> None:
    """And the exit status of the environment."""

    async def work() -> None:
        async with playing(SLOW) as engine:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "heavylift", "gateway", "--upstream", engine.url,
                "--port", str(engine.port), "--state", str(tmp_path),
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, said = await child.communicate()
            assert child.returncode == 4
            assert b"error[GW001]" in said

    run(work())


def test_keys_are_made_listed_rotated_and_revoked(tmp_path: Path) -> None:
    """Each command says it in JSON as well."""
    state = ("--state", str(tmp_path))
    made = heavylift("keys", "create", "me", "--tokens-per-day", "500", "--expires", "30d", *state)
    assert made["key"].startswith(f"hl_{made['id']}_")
    assert made["expires_at"] == pytest.approx(time.time() + 30 * 86_400, abs=60)
    (listed,) = heavylift("keys", "list", *state)
    assert listed["limits"]["tokens_per_day"] == 500
    assert made["key"] not in json.dumps(listed)
    rotated = heavylift("keys", "rotate", "me", "--grace", "1h", *state)
    assert (rotated["id"], rotated["key"] != made["key"]) == (made["id"], True)
    (revoked,) = heavylift("keys", "revoke", made["id"], *state)
    assert revoked["revoked_at"] is not None
    assert heavylift("usage", "--by", "team", *state) == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[[upstream]]\nurl = 'http://a'\nodd = 1", "GW002"),
        ("[times]\ngap_s = 0", "GW002"),
        ("not toml", "GW002"),
        ("", "GW005"),
        ("[[upstream]]\nurl = 'http://a'\n[[upstream]]\nurl = 'http://a/v1'", "GW006"),
        ("[[upstream]]\nurl = 'a'", "USE021"),
    ],
)
def test_a_wrong_configuration_is_found_at_the_start(tmp_path: Path, text: str, code: str) -> None:
    """With the place in the file."""
    path = tmp_path / "gateway.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(HeavyliftError, match=code):
        routes((), read_file(path))


def test_workers_come_from_options_and_from_the_file(tmp_path: Path) -> None:
    """Names, weights and lanes only from the file."""
    path = tmp_path / "gateway.toml"
    path.write_text(
        "long_from_tokens = 1000\n[[upstream]]\nurl = 'http://b:2/v1'\nname = 'b'\n"
        "weight = 2.0\nlane = 'long'\n[alias]\nnick = 'm'\n",
        "utf-8",
    )
    made = routes(("http://a:1",), read_file(path))
    assert [each.name for each in made.upstreams] == ["a:1", "b"]
    assert (made.upstreams[1].url, made.upstreams[1].weight) == ("http://b:2", 2.0)
    assert made.upstreams[1].lane is Lane.LONG
    assert (made.aliases, made.long_from_tokens) == ({"nick": "m"}, 1000)
