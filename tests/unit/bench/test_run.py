"""Benchmarks of scripted servers: what stops the clock, what counts, what is sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heavylift.bench.files import read_samples, shipped_prose
from heavylift.bench.prompts import Workload, Writer
from heavylift.bench.records import Load, LoadKind, Report
from heavylift.bench.run import OnStep, Wish, run
from heavylift.bench.slo import Slo
from heavylift.bench.validity import Bounds
from heavylift.devserver.scenario import Then, decode
from heavylift.devserver.server import ScriptedServer
from heavylift.errors import HeavyliftError
from heavylift.traffic.trace import Arrival
from heavylift.wire.client import Endpoint, Limits

CLOSED = Load(kind=LoadKind.CLOSED, requests=8, concurrency=4)
SHARED = Bounds(lag_floor_s=10.0, cpu_ratio=10.0)
"""The server lives in the client's own loop here, which is late and busy by rights."""
WORKLOAD = Workload(model="scripted", prompt_tokens=64)

Bench = Callable[..., tuple[Report, ScriptedServer]]


@pytest.fixture(scope="module")
def bench() -> Bench:
    """`bench(scenario text, loads=…, …)`: the report, and the server as it was left."""
    prose = shipped_prose()

    def measured(
        scenario: str, *, on_step: OnStep = lambda _key, _params: None, **given: Any
    ) -> tuple[Report, ScriptedServer]:
        async def once() -> tuple[Report, ScriptedServer]:
            async with ScriptedServer(decode(scenario, "test")) as server:
                assert await server.until(Then.READY)
                wish = Wish(
                    endpoint=Endpoint.parse(server.url),
                    prose=prose,
                    **{"loads": (CLOSED,), "workload": WORKLOAD, "bounds": SHARED, **given},
                )
                return await run(wish, on_step), server

        return asyncio.run(once())

    return measured


def test_every_load_is_named_before_it_is_sent(bench: Bench) -> None:
    """A stage may take an hour: what is under way is told when it begins, not only at its end."""
    steps: list[tuple[str, Load]] = []

    def on_step(key: str, params: Mapping[str, Any]) -> None:
        steps.append((key, params["load"] if key == "begins" else params["stage"].load))

    wider = replace(CLOSED, concurrency=8)
    bench("[reply]\ntokens = 2\n", loads=(CLOSED, wider), on_step=on_step)
    assert steps == [("begins", CLOSED), ("stage", CLOSED), ("begins", wider), ("stage", wider)]


def test_a_role_only_chunk_does_not_stop_the_clock(bench: Bench) -> None:
    """The role comes at once, the first token after 100 ms."""
    report, _ = bench("[pace]\nttft_s = 0.1\ninterval_s = 0.01\n[reply]\ntokens = 8\n")
    assert report.ttft_s is not None
    assert report.ttft_s.p50 >= 0.1
    assert report.tpot_s is not None
    assert report.tpot_s.p50 > 0
    assert report.requests.ok == 8


def test_thinking_counts_as_tokens_and_the_answer_has_a_time_of_its_own(bench: Bench) -> None:
    """First of ten tokens of thinking after 50 ms; the answer 100 ms later."""
    report, _ = bench(
        "[pace]\nttft_s = 0.05\ninterval_s = 0.01\n[reply]\nreasoning_tokens = 10\ntokens = 5\n"
    )
    (stage,) = report.stages
    assert stage.output_tokens_mean == 15
    assert stage.reasoning_share == pytest.approx(10 / 15)
    assert report.ttft_s is not None
    assert report.ttfa_s is not None
    assert report.ttft_s.p50 >= 0.05
    assert report.ttfa_s.p50 >= 0.15
    assert report.ttft_s.p50 <= report.ttfa_s.p50


def test_thinking_that_is_cut_at_the_length_asked_for_is_no_failure(bench: Bench) -> None:
    """The benchmark asked for six tokens and got them."""
    workload = replace(WORKLOAD, wanted_tokens=6)
    report, _ = bench("[reply]\nreasoning_tokens = 50\ntokens = 5\n", workload=workload)
    assert report.requests.failed == 0
    assert report.stages[0].output_length_deviation == 0


def test_chunks_stand_for_tokens_where_the_server_counts_none(bench: Bench) -> None:
    """And the result says so."""
    report, _ = bench("[reply]\ntokens = 7\nusage = false\n")
    (stage,) = report.stages
    assert not stage.counted_by_server
    assert stage.output_tokens_mean == 7
    assert stage.prompt_tokens_mean is None


def test_failures_make_the_result_invalid_and_are_named(bench: Bench) -> None:
    """Every second request answered 500: counted by class, latencies of the others."""
    report, _ = bench(
        "[[rule]]\nmatch = { every = 2 }\nfault = { kind = 'reject', status = 500 }\n"
    )
    assert report.requests.failures == {"server_error": 4}
    assert not report.valid
    assert "error_rate" in report.invalid_reasons


def test_a_server_that_answers_nothing_is_an_error(bench: Bench) -> None:
    """Warm-up says so, before any number could be printed."""
    with pytest.raises(HeavyliftError, match="WIRE060") as caught:
        bench("[[rule]]\nfault = { kind = 'reject', status = 500, message = 'broken' }\n")
    assert caught.value.params["failure"] == "server_error"


def test_a_request_that_the_client_gives_up_makes_the_result_invalid(bench: Bench) -> None:
    """What the server would have done is not known."""
    report, _ = bench(
        "[[rule]]\nmatch = { first = 6, last = 6 }\nfault = { kind = 'hang' }\n",
        limits=Limits(first_byte_s=1.5),
    )
    assert report.requests.failures == {"timeout_first_byte": 1}
    assert "client_timeouts" in report.invalid_reasons


def test_prompts_are_of_the_length_asked_for_and_none_is_sent_twice(bench: Bench) -> None:
    """The scripted engine counts words, and says so to who asks for tokens."""
    workload = replace(WORKLOAD, prompt_tokens=200)
    report, server = bench("[reply]\ntokens = 2\n", workload=workload)
    assert report.stages[0].prompt_tokens_mean == pytest.approx(200, rel=0.25)
    assert "repeated_prompts" not in report.invalid_reasons
    assert len(server.records) == 8 + 4  # warm-up opens as many connections as will be used
    assert server.connections <= 4 + 1


def test_one_prompt_again_and_again_is_what_the_simple_profile_does(bench: Bench) -> None:
    """As articles measure: it is allowed because it was asked for."""
    report, _ = bench("[reply]\ntokens = 2\n", workload=replace(WORKLOAD, simple=True))
    assert "repeated_prompts" not in report.invalid_reasons


def test_a_conversation_gives_the_thinking_back(bench: Bench) -> None:
    """Three turns: each prompt is longer than the one before by question, answer and thinking."""
    workload = replace(WORKLOAD, prompt_tokens=40, turns=3)
    report, server = bench(
        "[reply]\nmind = 'obliging'\nreasoning = 'one two three four'\n",
        workload=workload,
        loads=(Load(kind=LoadKind.CLOSED, requests=1, concurrency=1),),
        warm_up=0,
    )
    assert report.requests.ok == 3
    assert [record.model for record in server.records] == ["scripted"] * 3
    assert report.stages[0].prompt_tokens_mean is not None


def test_arrivals_of_an_open_loop_do_not_wait_for_answers(bench: Bench) -> None:
    """Twenty arrivals in a fifth of a second: the last has come before the first is answered."""
    load = Load(kind=LoadKind.CONSTANT, requests=20, rate_per_s=100.0)
    report, server = bench("[pace]\nttft_s = 2.0\n[reply]\ntokens = 2\n", loads=(load,), warm_up=0)
    assert len(server.records) == 20
    last_came_at = max(record.came_at for record in server.records)
    assert last_came_at < min(record.sends[1] for record in server.records)
    assert report.stages[0].offered_per_s == 100
    assert report.stages[0].achieved_per_s < 100


def test_an_open_loop_that_runs_out_of_room_is_invalid(bench: Bench) -> None:
    """Sending fewer than was asked would be a closed loop in disguise."""
    load = Load(kind=LoadKind.POISSON, requests=50, rate_per_s=500.0, in_flight_limit=4)
    report, _ = bench("[pace]\nttft_s = 0.3\n[reply]\ntokens = 2\n", loads=(load,))
    assert "in_flight_limit" in report.invalid_reasons
    assert report.requests.ok == 4


def test_a_trace_is_replayed_at_its_times_with_its_shared_blocks(bench: Bench) -> None:
    """Two rows with the same block begin with the same text; lengths are the rows'."""
    trace = (
        Arrival(at_s=0.0, input_tokens=600, output_tokens=3, blocks=(7,)),
        Arrival(at_s=0.2, input_tokens=1200, output_tokens=5, blocks=(7,)),
    )
    began_at = time.perf_counter()
    report, server = bench(
        "[reply]\ntokens = 50\n",
        loads=(Load(kind=LoadKind.TRACE, requests=2),),
        trace=trace,
        warm_up=0,
    )
    first, second = server.records
    assert first.came_at < second.came_at
    assert second.came_at - began_at >= 0.2
    assert second.prompt_tokens == pytest.approx(2 * first.prompt_tokens, rel=0.25)
    assert report.stages[0].output_tokens_mean == 4


def test_the_highest_concurrency_under_a_goal_is_searched(bench: Bench) -> None:
    """Every answer keeps the goal: the highest allowed; none does: nothing, and it says so."""
    load = replace(CLOSED, requests=1, concurrency=4)
    scenario = "[pace]\nttft_s = 0.05\n[reply]\ntokens = 2\n"
    easy, _ = bench(scenario, loads=(load,), find=True, slo=Slo.parse("ttft_p99=5s"))
    assert easy.found is not None
    assert (easy.found.concurrency, easy.found.ended_by) == (4, "limit")
    assert [stage.load.concurrency for stage in easy.stages] == [1, 2, 4]
    hard, _ = bench(scenario, loads=(load,), find=True, slo=Slo.parse("ttft_p99=1ms"))
    assert hard.found is not None
    assert (hard.found.concurrency, hard.found.ended_by) == (None, "slo")


def test_samples_are_written_as_they_come_and_read_again(bench: Bench, tmp_path: Path) -> None:
    """One JSON object per line; the stamps of the scripted engine give the client's own error."""
    path = tmp_path / "samples.jsonl"
    report, _ = bench("[pace]\ninterval_s = 0.01\n[reply]\ntokens = 4\n", samples_file=path)
    samples = read_samples(path)
    assert len(samples) == 8
    assert {sample.index for sample in samples} == set(range(8))
    assert all(sample.chunks == 4 for sample in samples)
    error = report.stages[0].stamp_error_s
    assert error is not None
    assert 0 <= error.p50 < 30


def test_equal_seeds_send_equal_prompts(bench: Bench, tmp_path: Path) -> None:
    """So that two runs can be compared request by request; another seed sends others."""
    digests = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        path = tmp_path / name
        bench("[reply]\ntokens = 1\n", seed=seed, samples_file=path)
        digests.append({sample.prompt_digest for sample in read_samples(path)})
    assert digests[0] == digests[1]
    assert not digests[0] & digests[2]


def test_the_engines_own_metrics_are_read_beside_the_load(bench: Bench) -> None:
    """Under whichever of its names the engine offers a figure; others stay unknown."""
    names = {"running": ("no_such_metric", "scripted_requests_running"), "waiting": ("none",)}
    report, _ = bench("[pace]\nttft_s = 0.8\n[reply]\ntokens = 2\n", metric_names=names)
    points = report.stages[0].server
    assert len(points) >= 2
    assert max(point.running or 0 for point in points) == 4
    assert all(point.waiting is None and point.kv_use_ratio is None for point in points)


def test_pictures_go_with_the_text_and_are_new_each_time(bench: Bench) -> None:
    """The obliging engine sees them: it refuses what is no picture."""
    workload = replace(WORKLOAD, images=2, image_size=48)
    report, _ = bench("[reply]\nmind = 'obliging'\n", workload=workload)
    assert report.requests.failed == 0


def test_prompts_that_share_a_beginning_differ_after_it(bench: Bench) -> None:
    """A prefix cache has something to find, and repeated prompts are no reproach."""
    workload = replace(WORKLOAD, prompt_tokens=64, shared_tokens=48)
    report, _ = bench("[reply]\ntokens = 2\n", workload=workload)
    assert "repeated_prompts" not in report.invalid_reasons
    writer = Writer(prose=shipped_prose(), chars_per_token=4.0, seed=1)
    first, second = (writer.conversation(workload, index).turns[0] for index in (1, 2))
    assert first[: 48 * 4] == second[: 48 * 4]
    assert first != second
