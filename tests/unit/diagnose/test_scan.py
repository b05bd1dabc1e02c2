"""Reading logs: shapes, counts, long lines, flat memory."""

from __future__ import annotations

import io
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from heavylift.devserver.healthy_log import healthy_lines
from heavylift.diagnose.evidence import blocks
from heavylift.diagnose.scan import LogReading, Scanner
from heavylift.diagnose.symptoms import CompiledSymptoms

Scanned = Callable[..., LogReading]


def test_lines_that_differ_in_numbers_are_asked_again(scanned: Scanned) -> None:
    """A hundred ends with status 0 do not hide the one with 137."""
    log = "process exited with code 0\n" * 100 + "process exited with code 137\n"
    (sighting,) = scanned(log).sightings
    assert sighting.evidence.number == 101


def test_repeats_are_counted_not_kept(scanned: Scanned) -> None:
    """Ten thousand lines of one kind leave eight witnesses; the first knows how many there were."""
    log = "OSError: [Errno 98] Address already in use\n" * 10_000
    sightings = scanned(log).sightings
    assert len(sightings) == 8
    assert sightings[0].evidence.count == 10_000 - 8 + 1


def test_a_long_line_is_quoted_around_its_match(scanned: Scanned) -> None:
    """Evidence is at most 300 characters and holds what was found."""
    log = "x" * 2_000 + " OSError: Address already in use " + "y" * 2_000
    line = scanned(log).sightings[0].evidence.line
    assert len(line) <= 300
    assert "Address already in use" in line


def test_progress_bars_are_lines(scanned: Scanned) -> None:
    """A carriage return ends a line: a bar before an error does not swallow it."""
    reading = scanned("Loading 10%\rLoading 20%\rOSError: No space left on device\n")
    assert reading.sightings[0].evidence.number == 3


def test_text_that_is_no_utf8_is_read(symptoms: CompiledSymptoms) -> None:
    """Bytes of no encoding are no reason to stop."""
    scanner = Scanner(symptoms, "log")
    scanner.feed(b"\xff\xfe\x00 No space left on device \xc3\x28\n")
    assert len(scanner.reading().sightings) == 1


def test_blocks_end_with_lines() -> None:
    """However a stream is cut, its blocks joined are the stream and each ends a line."""
    data = b"".join(b"line %d\n" % number for number in range(300_000)) + b"unfinished"
    cut = list(blocks(io.BytesIO(data)))
    assert b"".join(cut) == data
    assert len(cut) > 2
    assert all(block.endswith(b"\n") for block in cut[:-1])


def test_memory_stays_flat(symptoms: CompiledSymptoms) -> None:
    """Twenty times the log takes no more memory: only what is new is kept."""

    def peak(repeats: int) -> int:
        block = "\n".join(healthy_lines("vllm", 5_000)).encode() + b"\n"
        scanner = Scanner(symptoms, "log")
        tracemalloc.start()
        for _ in range(repeats):
            scanner.feed(block)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(20) < 1.2 * peak(1)


def test_distinct_lines_are_forgotten_in_time(symptoms: CompiledSymptoms) -> None:
    """A log whose every line is new does not fill the memory either."""

    def lines() -> Iterator[bytes]:
        for number in range(400):
            word = "".join(chr(97 + (number >> shift) % 26) for shift in (0, 4, 8))
            yield b"%s " % word.encode() * 100_00 + b"\n"

    scanner = Scanner(symptoms, "log")
    for line in lines():
        scanner.feed(line)
    assert scanner._quiet_bytes <= 32_000_000 + 1_000_000


def test_forgetting_loses_no_cause(
    symptoms: CompiledSymptoms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When what was remembered is dropped, lines are looked at anew and found as before."""
    monkeypatch.setattr("heavylift.diagnose.scan._MOST_SEEN_BYTES", 1_000)
    monkeypatch.setattr("heavylift.diagnose.scan._MOST_WORDS", 10)
    scanner = Scanner(symptoms, "log")
    for number in range(20):
        block = [*healthy_lines("vllm", 50, number), "OSError: [Errno 98] Address already in use"]
        scanner.feed("\n".join(block).encode() + b"\n")
    sightings = scanner.reading().sightings
    assert [each.evidence.number for each in sightings[:3]] == [51, 102, 153]


def test_a_line_without_end_is_cut() -> None:
    """A stream that never ends its line is read in pieces, not gathered in memory."""
    pieces = list(blocks(io.BytesIO(b"x" * (20 << 20))))
    assert max(map(len, pieces)) <= 10 << 20
    assert sum(piece.count(b"x") for piece in pieces) == 20 << 20


FRAME = '  File "x.py", line 3, in {}\n'


def test_frames_after_a_line_tell_its_phase_too(scanned: Scanned) -> None:
    """A message above its traceback is as good as one below; a frame far away tells nothing."""
    near = scanned("CUDA out of memory\n" + "x\n" * 5 + FRAME.format("capture_model"))
    far = scanned("CUDA out of memory\n" + "x\n" * 50 + FRAME.format("capture_model"))
    assert near.sightings[0].phase == "capture"
    assert far.sightings[0].phase == "unknown"


def test_a_step_within_another_phase_is_that_phase(scanned: Scanned) -> None:
    """Profiling and capturing execute steps too: their own frames say more, near or far."""
    log = FRAME.format("profile_run") + FRAME.format("execute_model") + "CUDA out of memory\n"
    assert scanned(log).sightings[0].phase == "profile"
    swapped = FRAME.format("execute_model") + FRAME.format("profile_run") + "CUDA out of memory\n"
    assert scanned(swapped).sightings[0].phase == "profile"


def test_what_a_healthy_start_announces_is_no_phase_of_a_failure(scanned: Scanned) -> None:
    """An error hours after the load is none of loading: progress tells the run's state only."""
    reading = scanned("Starting to load model k3\nCUDA out of memory\n")
    assert reading.phase == "load"
    assert reading.sightings[0].phase == "unknown"


@pytest.mark.parametrize("unit", ["1 ", "[1] ", "(a) ", "--a ", "a=b,", ".so ", "shm ", "\\"])
def test_no_line_takes_long(unit: str, scanned: Scanned) -> None:
    """Lines made to drive regexes back and forth cost no more than others of their length."""
    line = f"error {unit * 1_300} no space left on device {unit * 1_300} gfx fp8 aiter nccl"
    begun = time.perf_counter()
    scanned(f"{line}\n" * 3)
    assert time.perf_counter() - begun < 30
