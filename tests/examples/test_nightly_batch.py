"""The nightly batch: what systemd makes of its units, and two nights of the command in them."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest
from tests.examples.conftest import EXAMPLES, REAL, Service

from heavylift.batch import job

pytestmark = pytest.mark.e2e

NIGHTLY: Final = EXAMPLES / "nightly-batch"
UNIT: Final = NIGHTLY / "heavylift-nightly.service"
ROWS: Final = 24


def setting(name: str) -> str:
    """A setting of the service."""
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT.read_text("utf-8"))
    return unit["Service"][name]


def argv(command: str, environment: dict[str, str], heavylift: Path) -> list[str]:
    """A command as systemd runs it: words split first, variables put in after."""
    words = command.replace("/usr/local/bin/heavylift", str(heavylift)).split()
    return [re.sub(r"\$\{(\w+)\}", lambda found: environment[found[1]], word) for word in words]


def rows(count: int) -> str:
    """Lines of a batch, each with a short answer."""
    return "".join(
        json.dumps(
            {
                "custom_id": f"row-{number}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {
                    "messages": [{"role": "user", "content": f"Say {number}."}],
                    "max_tokens": 4,
                },
            }
        )
        + "\n"
        for number in range(count)
    )


@pytest.fixture
def night(service: Service, tmp_path: Path, heavylift_command: Path) -> dict[str, str]:
    """The environment that systemd gives the service."""
    state, source = tmp_path / "state", tmp_path / "rows.jsonl"
    state.mkdir()
    source.write_text(rows(ROWS), "utf-8")
    sent = tmp_path / "sendmail"
    sent.write_text(f"#!/bin/sh\ncat >{tmp_path}/mail.txt\n")
    sent.chmod(0o755)
    return {
        **os.environ,
        "ENDPOINT": service.url,
        "MODEL": REAL,
        "ROWS": str(source),
        "STATE_DIRECTORY": str(state),
        "HEAVYLIFT_API_KEY": service.key(),
        "HEAVYLIFT": str(heavylift_command),
        "SENDMAIL": str(sent),
        "MAIL_TO": "ops@example.com",
        "NO_COLOR": "1",
    }


def report(night: dict[str, str], batch_status: int, heavylift: Path) -> tuple[int, str]:
    """Status and text of the report that is made after a night."""
    ended = {"SERVICE_RESULT": "success", "EXIT_STATUS": str(batch_status)}
    command = argv(setting("ExecStopPost"), night, heavylift)
    command[0] = str(NIGHTLY / "report.sh")
    done = subprocess.run(command, env=night | ended, check=False, timeout=60)
    (saved,) = (Path(night["STATE_DIRECTORY"]) / "reports").iterdir()
    return done.returncode, saved.read_text("utf-8")


def test_a_night_that_is_cut_short_goes_on_the_next(
    night: dict[str, str], heavylift_command: Path, tmp_path: Path
) -> None:
    """SIGTERM in the middle ends with the status that the unit calls a success and a report that
    says so; the next night sends the rest, and a row that was added; every row is answered once.
    """
    command = argv(setting("ExecStart"), night, heavylift_command)
    out = Path(night["STATE_DIRECTORY"]) / "batch"
    with subprocess.Popen(command, env=night, stdout=subprocess.DEVNULL) as first:
        until = time.monotonic() + 60
        while not (out / "journal.db").exists() or job.status(out).counts.ok < 2:
            assert first.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        first.send_signal(signal.SIGTERM)
    assert first.returncode == 8 == int(setting("SuccessExitStatus"))
    status, text = report(night, 8, heavylift_command)
    assert status == 0
    assert text.startswith("rows are left, the next night goes on\nbatch ended: success")
    before = job.audited(out)
    assert before.missing > 0

    Path(night["ROWS"]).write_text(rows(ROWS + 1), "utf-8")
    second = subprocess.run(command, env=night, check=False, stdout=subprocess.DEVNULL, timeout=120)
    assert second.returncode == 0
    status, text = report(night, 0, heavylift_command)
    assert status == 0
    assert text.startswith("everything is accounted for\n")
    mail = (tmp_path / "mail.txt").read_text("utf-8")
    assert "To: ops@example.com\nSubject: nightly batch: everything is accounted for\n" in mail
    found = job.audited(out)
    assert (found.input, found.ok, found.failed) == (ROWS + 1, ROWS + 1, 0)
    answered = [json.loads(line) for line in (out / "output.jsonl").read_bytes().splitlines()]
    assert {each["custom_id"] for each in answered} == {f"row-{n}" for n in range(ROWS + 1)}
    assert len(answered) == ROWS + 1


def test_a_night_without_a_batch_has_to_be_looked_at(
    night: dict[str, str], heavylift_command: Path
) -> None:
    """The batch could not even begin: the report says so and ends with 1."""
    status, text = report(night, 3, heavylift_command)
    assert status == 1
    assert text.startswith("LOOK AT IT")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_units(tmp_path: Path, heavylift_command: Path) -> None:
    """Service and timer, with the programs that are here in place of those installed."""
    here = tmp_path / "units"
    here.mkdir()
    text = UNIT.read_text("utf-8")
    text = text.replace("/usr/local/bin/heavylift", str(heavylift_command))
    text = text.replace("/usr/local/lib/heavylift/report.sh", str(NIGHTLY / "report.sh"))
    (here / UNIT.name).write_text(text)
    shutil.copy(NIGHTLY / "heavylift-nightly.timer", here)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(here.iterdir()))],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    ours = [line for line in done.stderr.splitlines() if "heavylift-nightly" in line]
    assert ours == []


def test_the_environment_file_names_what_the_unit_uses() -> None:
    """Every variable that is not systemd's own."""
    named = {
        line.partition("=")[0]
        for line in (NIGHTLY / "nightly.env").read_text("utf-8").splitlines()
        if "=" in line and not line.startswith("#")
    }
    used = set(re.findall(r"\$\{(\w+)\}", UNIT.read_text("utf-8"))) - {"STATE_DIRECTORY"}
    assert used <= named
