"""What survives: kill -9 at any moment, a power cut, a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from heavylift.batch import job, outputs
from heavylift.batch.records import Claim, Ended, Settings, Settled, Shape
from heavylift.errors import HeavyliftError

WriteInput = Callable[..., Path]
RunBatch = Callable[..., Ended]
Engine = Callable[[str], Any]

KILLS = 50
IMAGES = 10
FLAKY = """
[pace]
ttft_s = 0.004
jitter_s = 0.004
[[rule]]
match = { every = 7 }
fault = { kind = "reject", status = 500 }
[[rule]]
match = { every = 11 }
fault = { kind = "drop" }
[[rule]]
match = { prompt_contains = "say 99" }
fault = { kind = "reject", status = 400 }
"""


def test_nothing_is_lost_or_doubled_by_fifty_kills(
    write_input: WriteInput, engine: Engine, tmp_path: Path
) -> None:
    """Runs are killed at random moments, from before the input is in to after the last row. What a
    run had said it recorded is there after every kill; in the end each row is there once, and the
    rows sent again are counted.
    """
    source = write_input(1500)
    seed = random.SystemRandom().randrange(10**6)
    with engine(FLAKY) as server:
        script = Path(__file__).with_name("kills.py")
        arguments = [str(source), server.url, str(tmp_path / "killed"), str(KILLS), str(seed)]
        ran = subprocess.run(
            [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
        )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["kills"] == KILLS
    assert told["problems"] == [], f"seed {seed}"
    assert told["resent"] > 0
    wanted = {f"r{number}" for number in range(1500)}
    for folder in map(Path, told["folders"]):
        # Read without any code of the product.
        done = [*map(json.loads, (folder / "output.jsonl").read_bytes().splitlines())]
        failed = [*map(json.loads, (folder / "errors.jsonl").read_bytes().splitlines())]
        names = [row["custom_id"] for row in (*done, *failed)]
        assert len(names) == len(wanted)
        assert set(names) == wanted
        assert {row["error"]["code"] for row in failed} == {"bad_request"}


class CutLedger(outputs.Ledger):
    """Takes images of the folder as a power cut would leave it, at random moments of a commit."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named, sync=self._synced_file)
        self.synced: dict[str, int] = {}
        self.images: list[tuple[Path, int]] = []
        self.reported = 0
        self.chance = random.Random(7)  # a reproducible choice of moments

    def _synced_file(self, descriptor: int) -> None:
        self._maybe_cut()  # before the sync: what was just written may be lost
        os.fdatasync(descriptor)
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        self.synced[name] = os.fstat(descriptor).st_size
        self._maybe_cut()  # after it: the bytes are safe, the journal does not know them yet

    def record(self, settled: Sequence[Settled], **given: Any) -> list[tuple[Claim, bytes]]:
        """As the ledger does; the journal's log is synced when it returns."""
        claims = super().record(settled, **given)
        self.synced["journal.db-wal"] = (self.folder / "journal.db-wal").stat().st_size
        self.reported = self.counts.ok + self.counts.failed
        self._maybe_cut()
        return claims

    def _maybe_cut(self) -> None:
        if "journal.db-wal" not in self.synced or self.chance.random() > 0.2:
            return
        if len(self.images) >= IMAGES:
            return
        image = self.folder.with_name(f"cut{len(self.images)}")
        shutil.copytree(self.folder, image)
        (image / "journal.db-shm").unlink()  # never synced
        for name, length in self.synced.items():
            self._lose_tail(image / name, length)
        self.images.append((image, self.reported))

    def _lose_tail(self, path: Path, length: int) -> None:
        """What was never synced is gone, or zeros, or half there: the disk may do any of it."""
        tail = path.read_bytes()[length:]
        kept = tail[: self.chance.randrange(len(tail) + 1)] if tail else b""
        what = self.chance.choice([b"", kept, b"\0" * len(tail), kept + b"\0" * 100])
        with path.open("r+b") as file:
            file.truncate(length)
            file.seek(length)
            file.write(what)


def test_a_power_cut_loses_nothing_that_was_recorded(
    write_input: WriteInput,
    engine: Engine,
    run_batch: RunBatch,
) -> None:
    """Folders as they may look after a cut hold every row that was counted, and can be run on.

    Simulated: files end at their last sync, and of what follows an arbitrary part is there, is
    zeros, or is gone; likewise the journal's log after the last commit. Not simulated: a disk that
    loses what it confirmed, and a cut in the middle of SQLite's own checkpoint (the log is kept
    below the size at which one runs).
    """
    made: list[CutLedger] = []

    def ledger(folder: Path, journal: Any) -> CutLedger:
        made.append(CutLedger(folder, journal))
        return made[0]

    source = write_input(300)
    with engine(FLAKY) as server:
        run_batch(source, server.url, concurrency=16, make_ledger=ledger)
    images = made[0].images
    assert len(images) >= IMAGES // 2
    with engine("healthy") as server:
        for image, reported in images:
            found = job.audited(image)
            assert found.duplicates == 0
            assert found.ok + found.failed >= reported
            ended = run_batch(None, server.url, out=image.name)
            assert ended.audit.sound
            assert ended.audit.input == 300


def limited(source: Path, url: str, folder: Path, file_bytes: int) -> str:
    """The error of a run in a process that may not write larger files."""
    code = (
        "import resource, signal, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({file_bytes}, {file_bytes}))\n"
        "from heavylift.cli.main import main\n"
        f"main(['batch', 'run', {str(source)!r}, '--endpoint', {url!r}, '--out', {str(folder)!r},"
        " '--quiet'])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 3, ran.stderr
    return ran.stderr


def test_a_full_disk_stops_the_run_and_costs_nothing_recorded(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch, tmp_path: Path
) -> None:
    """The run says so and ends with 3; what it had recorded is there, and with room it goes on.

    A limit on the size of files stands in for the disk: the failing call and its error are those
    of a write, whichever file meets it first.
    """
    source, out = write_input(300), tmp_path / "out"
    wordy = """
        [reply]
        tokens = 600
    """
    with engine(wordy) as server:
        assert "BAT010" in limited(source, server.url, out, 300 * 1024)
        found = job.audited(out)
        assert found.duplicates == 0
        assert 0 < found.ok < 300
        ended = run_batch(source, server.url)
        assert len(server.records) < 600
    assert (ended.audit.ok, ended.audit.sound) == (300, True)


def test_an_input_that_finds_no_room_leaves_nothing_behind(
    write_input: WriteInput, engine: Engine, tmp_path: Path
) -> None:
    """The disk was full before the first row was sent: no half a batch is left."""
    source, out = write_input(300), tmp_path / "out"
    with engine("healthy") as server:
        assert "BAT010" in limited(source, server.url, out, 48 * 1024)
        assert server.records == []
    assert not out.exists()


def test_lines_lost_from_an_output_are_made_again(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch, tmp_path: Path
) -> None:
    """Someone cut output.jsonl: the audit tells, and the next run asks for those rows again."""
    source, output = write_input(20), tmp_path / "out" / "output.jsonl"
    with engine("healthy") as server:
        run_batch(source, server.url)
        os.truncate(output, output.stat().st_size // 2)
        broken = job.audited(output.parent)
        assert not broken.sound
        assert broken.missing >= 10
        ended = run_batch(source, server.url)
    assert (ended.audit.ok, ended.audit.sound) == (20, True)


def test_lines_added_to_an_output_are_found(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch, tmp_path: Path
) -> None:
    """A line that was copied inside the recorded part is a duplicate or displaces another."""
    source, output = write_input(5), tmp_path / "out" / "output.jsonl"
    with engine("healthy") as server:
        run_batch(source, server.url)
    first, *_, last = output.read_bytes().splitlines(keepends=True)
    text = output.read_bytes()
    output.write_bytes(text[: -len(last)] + first[: len(last) - 1].ljust(len(last) - 1) + b"\n")
    found = job.audited(output.parent)
    assert (found.sound, found.duplicates, found.missing) == (False, 1, 1)


def test_two_runs_cannot_share_a_folder(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch, tmp_path: Path
) -> None:
    """The second is told which process has it; so no row is ever held twice."""
    source = write_input(1)
    with engine("healthy") as server:
        run_batch(source, server.url)
        with job.held(tmp_path / "out"), pytest.raises(HeavyliftError, match="STA005"):
            run_batch(source, server.url)


@pytest.mark.parametrize("moment", ["before the journal", "after the journal"])
def test_a_replacement_broken_off_is_finished(
    write_input: WriteInput,
    engine: Engine,
    run_batch: RunBatch,
    tmp_path: Path,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dying while an output is put into order leaves either the old order or the new one."""
    source, folder = write_input(30), tmp_path / "out"
    target = "heavylift.batch.store.Journal.move" if "before" in moment else "pathlib.Path.replace"

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    scenario = """
        [[rule]]
        match = { every = 2 }
        pace = { ttft_s = 0.05 }
    """
    with engine(scenario) as server:
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(target, die)
            run_batch(source, server.url, keep_order=True)
        with job.held(folder) as journal:
            outputs.step_into_line(folder, journal)
        assert job.audited(folder).sound
        assert run_batch(source, server.url, keep_order=True).audit.sound
        assert len(server.records) == 30


def test_settings_and_shape_survive(
    write_input: WriteInput, engine: Engine, run_batch: RunBatch, tmp_path: Path
) -> None:
    """What a batch was asked is in its journal, without the key."""
    with engine("healthy") as server:
        run_batch(write_input(1), server.url, shape=Shape(model="scripted"), concurrency=7)
        url = server.url
    with job.held(tmp_path / "out") as journal:
        kept = journal.get("settings", Settings)
        shape = journal.get("shape", Shape)
    assert kept is not None
    assert (kept.endpoints, kept.concurrency) == ((url,), 7)
    assert shape == Shape(model="scripted")
