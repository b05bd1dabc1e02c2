"""Keepers: an engine's family, and its end by whatever way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heavylift.launch import keeper, processes
from heavylift.launch.keepers import Kept
from heavylift.records.launch import RankSpec

# An engine with a child in a session of its own and one that ignores every polite request.
FAMILY = """
import os, signal, subprocess, sys, time
stray = "import os, time; os.setsid(); time.sleep(600)"
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
children = [subprocess.Popen([sys.executable, "-c", each]) for each in (stray, stubborn)]
print("up", os.environ["A_SECRET"], *(child.pid for child in children), flush=True)
time.sleep(600)
"""


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[[str], Kept]]:
    """Keeps a Python program; what is left of it is ended with the test."""
    made: list[Kept] = []

    def kept(program: str) -> Kept:
        argv = (sys.executable, "-c", textwrap.dedent(program))
        one = Kept(RankSpec(rank=0, host="127.0.0.1", argv=argv), log=tmp_path / "log", ssh=None)
        made.append(one)
        one.start(run_id=f"run-{os.getpid()}", environment={"A_SECRET": "s3cret"}, grace_s=0.3)
        return one

    yield kept
    for one in made:
        one.ask_to_stop(0.0)
        one.wait(0.0)
        processes.end(processes.of_run(f"run-{os.getpid()}", (one.state,)), grace_s=0.0)


def wait_for(condition: Callable[[], object]) -> None:
    """Until it holds."""
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def is_over(kept: Kept) -> bool:
    """Whether it has ended, as far as is told by now."""
    kept.look()
    return kept.is_over


def family(kept: Kept) -> tuple[int, ...]:
    """What runs of it."""
    return processes.of_run(f"run-{os.getpid()}", (kept.state,))


def up(kept: Kept, tmp_path: Path) -> tuple[int, ...]:
    """The whole family, once it is there: keeper, engine, two children."""

    def is_up() -> bool:
        kept.look()
        return kept.state.pid is not None and (tmp_path / "log").read_text().startswith("up")

    wait_for(is_up)
    return family(kept)


def test_asking_it_to_stop_ends_the_whole_family(
    keep: Callable[[str], Kept], tmp_path: Path
) -> None:
    """Also a child in another session and one that will not listen; the exit is told."""
    kept = keep(FAMILY)
    assert len(up(kept, tmp_path)) == 4
    kept.ask_to_stop(0.3)
    kept.wait(0.3)
    assert kept.state.exit_code == -signal.SIGTERM
    assert family(kept) == ()


def test_an_engine_that_ends_takes_its_children_along(
    keep: Callable[[str], Kept], tmp_path: Path
) -> None:
    """Its workers would hold the cards' memory."""
    kept = keep(FAMILY)
    up(kept, tmp_path)
    os.kill(int(str(kept.state.pid)), signal.SIGKILL)
    wait_for(lambda: is_over(kept))
    assert kept.state.exit_code == -signal.SIGKILL
    wait_for(lambda: family(kept) == ())


def test_a_secret_is_in_the_environment_and_nowhere_else(
    keep: Callable[[str], Kept], tmp_path: Path
) -> None:
    """Not in any argument; the log is its owner's."""
    kept = keep(FAMILY)
    for pid in up(kept, tmp_path):
        assert b"s3cret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With the system's reason."""
    rank = RankSpec(rank=0, host="127.0.0.1", argv=("/no/such/engine",))
    kept = Kept(rank, log=tmp_path / "log", ssh=None)
    kept.start(run_id="none", environment={}, grace_s=0.0)
    wait_for(lambda: is_over(kept))
    assert kept.failed == "No such file or directory"
    kept.wait(0.0)


def test_a_later_process_of_the_same_number_is_another() -> None:
    """A number comes with the time of its start."""
    assert processes.is_running(os.getpid(), None)
    assert not processes.is_running(os.getpid(), 1)
    assert not processes.is_running(None, None)


def test_effort_is_that_of_the_family(keep: Callable[[str], Kept], tmp_path: Path) -> None:
    """Bytes read and CPU of an engine that reads."""
    read = "open('/dev/zero', 'rb').read(3_000_000)"
    code = f"import time; {read}; print('up', flush=True); time.sleep(60)"
    kept = keep(code)
    up(kept, tmp_path)
    done = processes.effort(kept.state.session, kept.state.keeper_pid)
    assert done.read_bytes >= 3_000_000
    assert processes.effort(None, None) == processes.Effort()


def test_a_family_holds_the_dead_of_its_ancestor_alone() -> None:
    """Who died as a child of ours is left until we take its exit; another's dead are its own."""
    mother = """if True:
        import subprocess, sys, time
        print(subprocess.Popen([sys.executable, "-c", ""]).pid, flush=True)
        time.sleep(600)
    """
    with subprocess.Popen([sys.executable, "-c", mother], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        theirs = int(child.stdout.readline())
        wait_for(lambda: is_dead(theirs))
        found = keeper.family(os.getpid(), -1)
        assert child.pid in found
        assert theirs not in found
        child.kill()
        wait_for(lambda: is_dead(child.pid))
        assert child.pid in keeper.family(os.getpid(), -1)


def is_dead(pid: int) -> bool:
    """Whether it has ended and nobody took its exit."""
    return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "Z"
