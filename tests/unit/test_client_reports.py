"""What users of other clients reported wrong: each report has a test of the right answer here.

`client_reports.toml` says which. Those that no other test asks are in this file.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import heavylift
from heavylift.bench.files import shipped_prose
from heavylift.bench.load import Asking, Run
from heavylift.bench.prompts import Conversation, Workload
from heavylift.bench.records import Load, LoadKind, Report
from heavylift.bench.run import Wish, run
from heavylift.bench.validity import Bounds
from heavylift.cli.screens import bench as screen
from heavylift.devserver.scenario import Then, decode
from heavylift.devserver.server import ScriptedServer
from heavylift.quality import run as quality
from heavylift.quality.records import Question
from heavylift.quality.stats import Pairs, mcnemar
from heavylift.records.served_model import ServedModel
from heavylift.verify.suites import shipped
from heavylift.wire.client import Client, Endpoint, Limits

TESTS = Path(__file__).parents[1]
REPORTS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("client_reports.toml").read_text("utf-8")
)["report"]
SHARED_LOOP = Bounds(lag_floor_s=10.0, cpu_ratio=10.0)
"""The server lives in the client's own loop here, which is late and busy by rights."""
CLOSED = Load(kind=LoadKind.CLOSED, requests=8, concurrency=4)


@functools.cache
def defined(path: str) -> frozenset[str]:
    """The names of the functions in a file."""
    tree = ast.parse((TESTS.parent / path).read_text("utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report["source"])
def test_a_report_has_a_test_that_is_there(report: dict[str, Any]) -> None:
    """By file and name."""
    assert report["asks"].endswith(".")
    assert report["tests"]
    for named in report["tests"]:
        path, _, name = named.partition("::")
        assert name in defined(path), named


def test_every_report_of_the_list_is_there(shared: Path) -> None:
    """None of those that were collected is left out."""
    listed = (shared / "data/reports/client_reports.md").read_text("utf-8")
    sources = set(re.findall(r"https://github\.com/(\S+/(?:issues|pull)/\d+) \|", listed))
    assert len(sources) > 50
    assert sources <= {report["source"] for report in REPORTS}


def measured(scenario: str, **given: Any) -> tuple[Report, ScriptedServer]:
    """The report of a benchmark of a scripted server, and the server as it was left."""

    async def once() -> tuple[Report, ScriptedServer]:
        async with ScriptedServer(decode(scenario, "test")) as server:
            assert await server.until(Then.READY)
            wish = Wish(
                endpoint=Endpoint.parse(server.url),
                prose=shipped_prose(),
                **{
                    "loads": (CLOSED,),
                    "workload": Workload(model="scripted", prompt_tokens=64),
                    "bounds": SHARED_LOOP,
                    **given,
                },
            )
            return await run(wish, lambda _key, _params: None), server

    return asyncio.run(once())


def test_no_slow_client_is_in_any_path() -> None:
    """Httpx rechecks every connection of its pool per request; clients built on it do too."""
    line = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
    imported = {
        name
        for path in Path(heavylift.__file__).parent.rglob("*.py")
        for name in line.findall(path.read_text("utf-8"))
    }
    assert "aiohttp" in imported
    assert not imported & {"httpx", "httpx2", "openai", "requests"}


def test_prompts_are_made_as_they_are_sent() -> None:
    """Of a million only those that are under way, and one each that was fetched and not yet sent:
    tools that made all at the start hung, or took minutes.
    """
    made = []

    def conversations() -> Iterator[Conversation]:
        for index in range(10**6):
            made.append(index)
            yield Conversation(index=index, turns=(f"number {index}",), wanted_tokens=4)

    async def some() -> int:
        async with ScriptedServer(decode("[reply]\ntokens = 2\n", "test")) as server:
            assert await server.until(Then.READY)
            async with Client(Endpoint.parse(server.url)) as client:
                load = Run(client, Asking(model="scripted"))
                task = asyncio.create_task(load.closed(conversations(), 4))
                while len(load.samples) < 40:  # noqa: ASYNC110 - a load has no event
                    await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                return len(load.samples)

    done = asyncio.run(some())
    assert done <= len(made) <= done + 4


def test_the_waits_in_force_stand_in_the_report() -> None:
    """With how busy the client was."""
    report, _ = measured("[reply]\ntokens = 2\n", limits=Limits(first_byte_s=7.0, total_s=60.0))
    text = "\n".join(screen.lines(report))
    assert "first byte 7 s" in text
    assert "in all 60 s" in text
    assert "loop lag p99" in text
    report, _ = measured("[reply]\ntokens = 2\n")
    assert "in all no limit" in "\n".join(screen.lines(report))


def test_a_stage_that_stalls_does_not_stop_the_sweep() -> None:
    """The third request hangs for ever; its stage ends, is invalid, and the next one runs."""
    loads = tuple(
        Load(kind=LoadKind.CLOSED, requests=4, concurrency=concurrency) for concurrency in (1, 2)
    )
    report, _ = measured(
        "[reply]\ntokens = 2\n[[rule]]\nmatch = { first = 3, last = 3 }\n"
        "fault = { kind = 'hang' }\n",
        loads=loads,
        warm_up=0,
        limits=Limits(first_byte_s=0.3),
    )
    first, second = report.stages
    assert first.requests.failures == {"timeout_first_byte": 1}
    assert "client_timeouts" in first.invalid_reasons
    assert (second.requests.ok, second.valid) == (4, True)


def test_a_warm_up_opens_the_connections_and_is_in_no_figure() -> None:
    """As many requests as will be under way, by default; then no connection is opened any more."""
    report, server = measured("[pace]\nttft_s = 0.05\n[reply]\ntokens = 2\n")
    assert len(server.records) == CLOSED.requests + (CLOSED.concurrency or 0)
    assert report.requests.ok == CLOSED.requests
    assert server.connections == CLOSED.concurrency


def test_conversations_are_whole_however_many_requests_they_take() -> None:
    """Four of three turns are twelve requests, each turn after the one before it."""
    load = Load(kind=LoadKind.CLOSED, requests=4, concurrency=2)
    workload = Workload(model="scripted", prompt_tokens=32, turns=3)
    report, server = measured("[reply]\ntokens = 2\n", loads=(load,), workload=workload, warm_up=0)
    assert report.requests.ok == len(server.records) == 12


def test_questions_of_quality_go_through_the_chat_template() -> None:
    """A score of a bare completion (0.30 against 0.90 of the same server) is that of a format."""

    async def asked() -> set[str]:
        async with ScriptedServer(decode("[reply]\nmind = 'obliging'\n", "test")) as server:
            assert await server.until(Then.READY)
            side = ServedModel(url=server.url)
            wish = quality.Wish(
                reference=Endpoint.parse(server.url),
                candidate=Endpoint.parse(server.url),
                questions=(Question(id="a", group="g", language="en", text="2 + 2?", number=4),),
                margin=0.05,
                reference_side=side,
                candidate_side=side,
            )
            await quality.run(wish, lambda _name, _done, _total: None)
            return {record.path for record in server.records}

    assert asyncio.run(asked()) == {"/v1/chat/completions"}


def test_pairs_show_what_two_rates_hide() -> None:
    """Of 220 items 17 were lost and 4 won: 5.9 points. Two rates by themselves do not show it
    (z-test, p = 0.16), the pairs do.
    """
    table = Pairs(both=150, only_reference=17, only_candidate=4, neither=49)
    assert mcnemar(table) < 0.01
    rates = [167 / 220, 154 / 220]
    pooled = sum(rates) / 2
    z = (rates[0] - rates[1]) / (pooled * (1 - pooled) * 2 / 220) ** 0.5
    assert z < 1.96


def test_the_responses_route_has_its_six_subjects() -> None:
    """An answer, a stream, a system message, tools, a picture, several turns."""
    of_the_route = {check.id for check in shipped() if check.group == "responses"}
    assert of_the_route == {
        f"responses.{name}" for name in ("answer", "stream", "system", "tools", "images", "turns")
    }
