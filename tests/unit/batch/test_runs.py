"""Whole runs against scripted engines: what is sent again, what is recorded, what it costs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from heavylift.batch import job
from heavylift.batch.policy import Budget, Patience, RetryRules
from heavylift.batch.records import Clocks, Ended, Shape
from heavylift.errors import HeavyliftError

ReadLines = Callable[[Path], list[dict[str, Any]]]
WriteInput = Callable[..., Path]
RunBatch = Callable[..., Ended]
Engine = Callable[[str], Any]


def names(rows: list[dict[str, Any]]) -> list[str]:
    """The rows' names, in order."""
    return sorted(row["custom_id"] for row in rows)


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_leaves_the_files_of_the_contract(
    write_input: WriteInput,
    engine: Engine,
    run_batch: RunBatch,
    read_lines: ReadLines,
    tmp_path: Path,
    stream: bool,
) -> None:
    """Every row once in output.jsonl with the server's document, once in the log; sound."""
    with engine("healthy") as server:
        url = server.url
        ended = run_batch(write_input(50), url, stream=stream)
    rows = read_lines(tmp_path / "out" / "output.jsonl")
    assert ended.audit.sound
    assert (ended.audit.ok, ended.stopped) == (50, None)
    assert names(rows) == sorted(f"r{number}" for number in range(50))
    message = rows[0]["response"]["body"]["choices"][0]["message"]
    assert message["content"] == "The answer is 4."
    assert message["reasoning_content"] == "Two and two make four."
    assert rows[0]["error"] is None
    log = read_lines(tmp_path / "out" / "requests.jsonl")
    assert names(log) == names(rows)
    assert all(entry["e2e_s"] > 0 and entry["endpoint"] == url for entry in log)
    assert all(entry["completion_tokens"] > 0 for entry in log)
    assert ("ttft_s" in log[0]) is stream


def test_a_finished_batch_costs_nothing(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch, tmp_path: Path
) -> None:
    """The same command again sends nothing and leaves the files as they are."""
    source = write_input(20)
    with engine("healthy") as server:
        run_batch(source, server.url)
        before = (tmp_path / "out" / "output.jsonl").read_bytes()
        again = run_batch(source, server.url, concurrency=3)
        assert len(server.records) == 20
    assert again.audit.ok == 20
    assert (tmp_path / "out" / "output.jsonl").read_bytes() == before


def test_only_changed_prompts_are_new_work(
    write_input: WriteInput,
    engine: Engine,
    run_batch: RunBatch,
    read_lines: ReadLines,
    tmp_path: Path,
) -> None:
    """A row with another body is sent again and its old answer goes; the others stay."""
    source = write_input(20)
    with engine("healthy") as server:
        run_batch(source, server.url)
        text = source.read_bytes().replace(b"say 7", b"tell 7")
        source.write_bytes(text)
        ended = run_batch(source, server.url)
        assert len(server.records) == 21
    assert ended.audit.sound
    assert len(read_lines(tmp_path / "out" / "output.jsonl")) == 20


def test_answers_are_not_thrown_away_unasked(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch
) -> None:
    """An input without rows that have answers is refused, and taken when that is wanted."""
    with engine("healthy") as server:
        run_batch(write_input(20), server.url)
        fewer = write_input(5, name="fewer.jsonl")
        with pytest.raises(HeavyliftError, match="BAT007"):
            run_batch(fewer, server.url)
        ended = run_batch(fewer, server.url, replace=True)
    assert (ended.audit.input, ended.audit.ok, ended.audit.sound) == (5, 5, True)


def test_passing_failures_are_overcome(
    write_input: WriteInput,
    engine: Engine,
    run_batch: RunBatch,
    read_lines: ReadLines,
    tmp_path: Path,
) -> None:
    """Every third request fails in turn with a 500, a reset and an error object: all rows succeed,
    and the log counts the tries.
    """
    scenario = """
        [[rule]]
        match = { first = 1, every = 9 }
        fault = { kind = "reject", status = 500 }
        [[rule]]
        match = { first = 4, every = 9 }
        fault = { kind = "drop" }
        [[rule]]
        match = { first = 7, every = 9 }
        fault = { kind = "error_event", done = true }
    """
    with engine(scenario) as server:
        ended = run_batch(write_input(60), server.url)
    assert (ended.audit.ok, ended.audit.sound) == (60, True)
    log = read_lines(tmp_path / "out" / "requests.jsonl")
    seen = Counter(failure for entry in log for failure in entry.get("failures", ()))
    assert {"server_error", "disconnected"} <= set(seen)
    assert all(entry["attempts"] == 1 + len(entry.get("failures", ())) for entry in log)


@pytest.mark.parametrize(
    ("scenario", "failure"),
    [
        ("breaks-mid-stream", "stream_broken"),
        ("error-event", "stream_error_event"),
        ("no-finish-reason", "missing_finish_reason"),
        ("garbage", "malformed"),
        ("empty", "empty"),
        ("aborted", "aborted"),
    ],
)
def test_a_row_that_always_fails_is_recorded_with_its_class(
    write_input: WriteInput,
    engine: Engine,
    run_batch: RunBatch,
    read_lines: ReadLines,
    tmp_path: Path,
    scenario: str,
    failure: str,
) -> None:
    """After its tries it is in errors.jsonl and its request in failed.jsonl, ready to go in."""
    with engine(scenario) as server:
        ended = run_batch(
            write_input(2), server.url, stream=True, retry=RetryRules(attempts=3, base_s=0.01)
        )
        assert len(server.records) == 6
    assert ended.audit.sound
    assert ended.reasons == {failure: 2}
    errors = read_lines(tmp_path / "out" / "errors.jsonl")
    assert [row["error"]["code"] for row in errors] == [failure, failure]
    requests = read_lines(tmp_path / "out" / "failed.jsonl")
    assert names(requests) == ["r0", "r1"]
    assert requests[0]["body"]["messages"]


def test_refusals_cost_no_try(write_input: WriteInput, engine: Engine, run_batch: RunBatch) -> None:
    """429 with a Retry-After, many times over: one try a row, and nobody comes early."""
    scenario = """
        [[rule]]
        match = { last = 6 }
        fault = { kind = "reject", status = 429, retry_after_s = 0.2 }
    """
    with engine(scenario) as server:
        ended = run_batch(
            write_input(10), server.url, concurrency=1, pinned=True, retry=RetryRules(attempts=1)
        )
        refused = [record.came_at for record in server.records[:7]]
    assert ended.audit.ok == 10
    gaps = [later - earlier for earlier, later in pairwise(refused)]
    assert min(gaps) >= 0.2


def test_truncated_thinking_is_sent_again_with_more_tokens_once(
    write_input: WriteInput,
    engine: Engine,
    run_batch: RunBatch,
    read_lines: ReadLines,
    tmp_path: Path,
) -> None:
    """Eight tokens end in the thinking, sixteen reach the answer."""
    scenario = """
        [reply]
        reasoning_tokens = 10
        tokens = 4
    """
    with engine(scenario) as server:
        ended = run_batch(write_input(3, max_tokens=8), server.url)
        assert len(server.records) == 6
    assert ended.audit.ok == 3
    log = read_lines(tmp_path / "out" / "requests.jsonl")
    assert {tuple(entry["failures"]) for entry in log} == {("truncated_thinking",)}


def test_a_silent_engine_is_given_up_and_not_asked_again(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch
) -> None:
    """The first-byte clock ends the row; a timed-out generation is not sent again."""
    with engine("silent") as server:
        ended = run_batch(write_input(3), server.url, clocks=Clocks(first_byte_s=0.2))
        assert len(server.records) == 3
        assert all(str(record.ending) == "disconnected" for record in server.records)
    assert ended.reasons == {"timeout_first_byte": 3}


def test_a_hopeless_run_ends_and_keeps_its_rows(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch
) -> None:
    """Nobody there, or a wrong key: no row is failed for it, and all can be sent later."""
    source = write_input(5)
    ended = run_batch(source, "http://127.0.0.1:9", patience=Patience(first_s=0.3))
    assert (ended.stopped, ended.audit.failed, ended.audit.missing) == ("connect", 0, 5)
    keyed = """
        [server]
        key = "right"
    """
    with engine(keyed) as server:
        ended = run_batch(source, server.url)
    assert (ended.stopped, ended.audit.missing) == ("unauthorised", 5)
    with engine("healthy") as server:
        ended = run_batch(source, server.url)
    assert (ended.stopped, ended.audit.ok, ended.audit.sound) == (None, 5, True)


def test_bad_rows_at_the_end_do_not_stall_the_run(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch
) -> None:
    """Thirty rows that the engine always answers with 500 fail by themselves, not by the breaker:
    it says it is well, so the wait is the rows' own.
    """
    scenario = """
        [[rule]]
        match = { prompt_contains = "poison" }
        fault = { kind = "reject", status = 500 }
    """
    source = write_input(10)
    bad = write_input(30, name="bad.jsonl", prompt="poison")
    source.write_bytes(source.read_bytes() + bad.read_bytes().replace(b'"r', b'"bad'))
    began = time.monotonic()
    with engine(scenario) as server:
        ended = run_batch(source, server.url)
    assert (ended.audit.ok, ended.audit.failed) == (10, 30)
    assert time.monotonic() - began < 30


def test_an_engine_that_says_it_is_unwell_gets_no_rows(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch
) -> None:
    """While it loads, rows wait and cost no try; the run ends when patience does."""
    with engine("never-ready") as server:
        ended = run_batch(write_input(5), server.url, patience=Patience(first_s=0.1, later_s=1.0))
        assert len(server.records) < 10
    assert (ended.stopped, ended.audit.failed, ended.audit.missing) == ("overloaded", 0, 5)


def test_several_endpoints_share_the_work_by_their_pace(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch
) -> None:
    """The faster does more, a dead one none, and nothing is lost by it."""
    slow = """
        [pace]
        ttft_s = 0.05
    """
    with engine("healthy") as fast, engine(slow) as other:
        ended = run_batch(
            write_input(150), fast.url, other.url, "http://127.0.0.1:9", concurrency=4
        )
        assert len(fast.records) > 2 * len(other.records) > 0
    assert (ended.audit.ok, ended.audit.sound) == (150, True)


def test_limits_end_a_run_and_the_rest_is_skipped(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch
) -> None:
    """Tokens used up: the rest is skipped for that reason, the sum holds, more budget goes on."""
    source = write_input(40)
    with engine("healthy") as server:
        ended = run_batch(source, server.url, concurrency=2, budget=Budget(tokens=100))
        assert ended.stopped == "limit_tokens"
        assert ended.audit.sound
        assert 0 < ended.audit.ok < 40
        assert ended.audit.skipped == 40 - ended.audit.ok
        ended = run_batch(source, server.url)
    assert (ended.audit.ok, ended.audit.skipped) == (40, 0)


def test_equal_requests_are_sent_once_when_asked(
    engine: Engine, run_batch: RunBatch, write_input: WriteInput, tmp_path: Path
) -> None:
    """With dedupe all get the answer, each under its own name; without, each is sent."""
    source = write_input(10)
    text = source.read_bytes()
    for number in range(1, 10):
        text = text.replace(b"say %d" % number, b"say 0")
    source.write_bytes(text)
    with engine("healthy") as server:
        ended = run_batch(source, server.url, dedupe=True)
        assert len(server.records) == 1
        assert (ended.audit.ok, ended.audit.sound) == (10, True)
        run_batch(source, server.url, out="each")
        assert len(server.records) == 11
    log = (tmp_path / "out" / "requests.jsonl").read_text()
    assert log.count("same_as") == 9


def test_order_can_be_kept(
    write_input: WriteInput,
    engine: Engine,
    run_batch: RunBatch,
    read_lines: ReadLines,
    tmp_path: Path,
) -> None:
    """Answers that come in another order lie in that of the input at the end."""
    scenario = """
        [[rule]]
        match = { every = 2 }
        pace = { ttft_s = 0.05 }
    """
    with engine(scenario) as server:
        ended = run_batch(write_input(30), server.url, keep_order=True)
    rows = read_lines(tmp_path / "out" / "output.jsonl")
    assert [row["custom_id"] for row in rows] == [f"r{number}" for number in range(30)]
    assert ended.audit.sound


def test_failed_rows_are_sent_once_more(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch, tmp_path: Path
) -> None:
    """Their lines leave errors.jsonl, and the next run sends only them."""
    source = write_input(6)
    with engine("server-error") as server:
        run_batch(source, server.url, retry=RetryRules(attempts=1, base_s=0.01))
    assert job.audited(tmp_path / "out").failed == 6
    assert job.retry_failed(tmp_path / "out") == 6
    assert (tmp_path / "out" / "errors.jsonl").read_bytes() == b""
    with engine("healthy") as server:
        ended = run_batch(None, server.url)
        assert len(server.records) == 6
    assert (ended.audit.ok, ended.audit.failed, ended.audit.sound) == (6, 0, True)


def test_answers_must_match_their_schema(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch
) -> None:
    """A wrong answer is given back with its defects; it fails when that is no help."""
    schema: dict[str, object] = {
        "type": "object",
        "required": ["sum"],
        "properties": {"sum": {"type": "integer"}},
    }
    scenario = r"""
        [reply]
        text = '{"sum": "four"}'
        [[rule]]
        match = { prompt_contains = "does not match" }
        reply = { text = '{"sum": 4}' }
    """
    with engine(scenario) as server:
        ended = run_batch(write_input(3), server.url, shape=Shape(schema=schema))
        assert len(server.records) == 6
    assert ended.audit.ok == 3
    with engine("healthy") as server:
        ended = run_batch(write_input(3), server.url, out="bad", shape=Shape(schema=schema))
        assert len(server.records) == 9
    assert ended.reasons == {"schema_invalid": 3}


def test_a_cancelled_batch_frees_the_engine_at_once(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch, tmp_path: Path
) -> None:
    """The sockets are closed while answers are being generated, and the rest is skipped."""
    ended: list[Ended] = []
    with engine("silent") as server:
        thread = threading.Thread(
            target=lambda: ended.append(run_batch(write_input(9), server.url))
        )
        thread.start()
        wait_for(lambda: server.open_chats > 0)
        job.cancel(tmp_path / "out")
        thread.join(5)
        wait_for(lambda: server.open_chats == 0)
    assert ended[0].stopped == "cancelled"
    assert (ended[0].audit.skipped, ended[0].audit.sound) == (9, True)
    assert job.status(tmp_path / "out").cancelled


def test_sigterm_waits_for_what_is_in_flight(
    write_input: WriteInput, engine: Engine, tmp_path: Path
) -> None:
    """Answers under way are recorded, nothing new is sent, nothing is in doubt: status 8."""
    scenario = """
        [pace]
        ttft_s = 0.3
    """
    from heavylift.cli.main import main  # noqa: PLC0415 - only the child needs it

    source, out = write_input(50), tmp_path / "out"
    with engine(scenario) as server:
        child = os.fork()
        if child == 0:
            arguments = ["batch", "run", str(source), "--endpoint", server.url, "--quiet"]
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 1)
            os.dup2(devnull, 2)
            try:
                main([*arguments, "--out", str(out)])
            except SystemExit as exit_:
                os._exit(int(exit_.code or 0))
        wait_for(lambda: server.open_chats > 0)
        time.sleep(0.1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert all(str(record.ending) == "finished" for record in server.records)
        sent = len(server.records)
    assert os.waitstatus_to_exitcode(status) == 8
    audit = job.audited(out)
    assert (audit.ok, audit.missing, audit.resent) == (sent, 50 - sent, 0)
    assert job.status(out).counts.sent == 0


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds; a test that waits thirty seconds fails."""
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
