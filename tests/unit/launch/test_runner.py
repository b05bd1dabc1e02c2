"""The runner, with small real programs in place of an engine."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

from heavylift.cli.text import text
from heavylift.errors import HeavyliftError
from heavylift.launch.runner import run_to_end, serve
from heavylift.records.launch import LaunchSpec, RankSpec

KEY = {"api-key": "sk-not-for-logs"}

# An API of the standard library: lists `m`, answers any chat with one token.
API = """
import http.server, json, os, sys
print("0.00 I srv init: initializing ...", flush=True)
class H(http.server.BaseHTTPRequestHandler):
    def send(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.send({"data": [{"id": "m"}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"index": 0, "message": {"content": "Hi"}, "finish_reason": "length"}
        self.send({"choices": [choice], "usage": {"completion_tokens": 1}})
server = http.server.HTTPServer(("127.0.0.1", 0), H)
assert os.environ["HEAVYLIFT_API_KEY"]
print("0.00 I srv init: listening on", flush=True)
print(f"READY http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


def spec(program: str, *, deadline_s: int = 20) -> LaunchSpec:
    """A launch of a Python program."""
    rank = RankSpec(
        rank=0,
        host="127.0.0.1",
        argv=(sys.executable, "-I", "-c", textwrap.dedent(program)),
        secrets={"HEAVYLIFT_API_KEY": "api-key"},
    )
    return LaunchSpec(
        engine="embedded",
        engine_version="0",
        image_digest=None,
        model="m",
        model_revision=None,
        ranks=(rank,),
        expected_phases=(),
        deadline_s=deadline_s,
        plan_digest="sha256:0",
    )


def alive(pid: int) -> bool:
    """True while a process of that id runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int, within_s: float = 30) -> bool:
    """True when the process ends in time."""
    end = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


def test_a_served_api_has_an_address_and_ends_with_the_block(tmp_path: Path) -> None:
    """Leaving the block stops the process; phases were told in order."""
    phases: list[str] = []
    with serve(spec(API), secrets=KEY, log=tmp_path / "log", on_phase=phases.append) as served:
        assert served.address.startswith("http://127.0.0.1:")
        assert served.exit_code is None
        pid = served.pid
    assert not alive(pid)
    assert phases == ["process", "api"]


def test_the_log_is_private_and_holds_no_secret(tmp_path: Path) -> None:
    """Only the owner may read it, and neither it nor the arguments carry the key."""
    log = tmp_path / "logs" / "engine.log"
    with serve(spec(API), secrets=KEY, log=log) as served:
        arguments = Path(f"/proc/{served.pid}/cmdline").read_bytes()
    assert log.stat().st_mode & 0o777 == 0o600
    assert b"sk-not-for-logs" not in log.read_bytes() + arguments


def test_an_early_end_reports_status_and_the_first_errors(tmp_path: Path) -> None:
    """The lines that matter are in the error, so that nobody must open the log."""
    program = "print('all is well')\nraise RuntimeError('no such model')"
    with pytest.raises(HeavyliftError) as caught:
        serve(spec(program), secrets=KEY, log=tmp_path / "log")
    assert caught.value.code == "RUN011"
    assert caught.value.params["exit_code"] == 1
    assert "RuntimeError: no such model" in str(caught.value.params["lines"])
    assert "all is well" not in str(caught.value.params["lines"])
    assert "ended with status 1" in text("error.RUN011", **caught.value.params)


def test_a_missed_deadline_ends_the_process(tmp_path: Path) -> None:
    """One that never listens is given up and gone."""
    program = f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    with pytest.raises(HeavyliftError, match="RUN012"):
        serve(spec(program + "time.sleep(60)", deadline_s=1), secrets=KEY, log=tmp_path / "log")
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_program_that_is_not_there_is_a_coded_error(tmp_path: Path) -> None:
    """An engine environment that was deleted shows here."""
    with pytest.raises(HeavyliftError, match="RUN010"):
        run_to_end((str(tmp_path / "absent"),), log=tmp_path / "log", timeout_s=5)


def test_a_deaf_process_is_killed_with_its_children(tmp_path: Path) -> None:
    """SIGTERM ignored: SIGKILL follows after the grace, for the whole group."""
    program = f"""
        import os, signal, subprocess, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
    """
    with serve(spec(textwrap.dedent(program) + API), secrets=KEY, log=tmp_path / "log") as served:
        leader, child = served.pid, int((tmp_path / "pid").read_text())
        assert alive(child)
        served.stop(grace_s=0.2)
    assert not alive(leader)
    assert gone(child)


def test_ctrl_c_while_waiting_leaves_nothing_running(tmp_path: Path) -> None:
    """An interrupt during the wait ends the engine before it is raised on."""
    pid_file = tmp_path / "pid"

    def interrupt(phase: str) -> None:
        pid_file.write_text(phase)
        os.kill(os.getpid(), signal.SIGINT)

    program = f"import os, time\nopen({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid()))\n"
    program += "print('0.00 I srv init: initializing ...', flush=True)\ntime.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        serve(spec(program), secrets=KEY, log=tmp_path / "log", on_phase=interrupt)
    assert pid_file.read_text() == "process"
    if (tmp_path / "child").exists():
        assert gone(int((tmp_path / "child").read_text()))


def test_output_of_a_program_that_ends_is_returned(tmp_path: Path) -> None:
    """Standard output and error, line by line; a bad status is an error."""
    argv = (sys.executable, "-I", "-c", "import sys; print('out'); print('err', file=sys.stderr)")
    assert sorted(run_to_end(argv, log=tmp_path / "log", timeout_s=20)) == ["err", "out"]
    with pytest.raises(HeavyliftError, match="RUN011"):
        run_to_end((sys.executable, "-c", "exit(3)"), log=tmp_path / "log", timeout_s=20)
    with pytest.raises(HeavyliftError, match="RUN012"):
        run_to_end(("/bin/sleep", "60"), log=tmp_path / "log", timeout_s=0.2)


def test_no_secret_of_the_rank_is_left_to_chance(tmp_path: Path) -> None:
    """A secret that nobody supplies stops the launch before a process exists."""
    with pytest.raises(KeyError):
        serve(spec(API), secrets={}, log=tmp_path / "log")
