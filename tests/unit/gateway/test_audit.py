"""The audit: one line per request, whatever happens to the disk."""

from __future__ import annotations

import json
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heavylift.errors import HeavyliftError
from heavylift.gateway.audit import Line, open_audit

LINE = Line(at="2026-11-30T10:00:00.000Z", request_id="r", outcome="ok")


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines of an audit that are JSON; half a line is left out."""
    found = []
    for line in path.read_bytes().split(b"\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """A disk without room: the kernel refuses to let any file of this process grow further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_line_is_json_without_what_is_not_known(tmp_path: Path) -> None:
    """One object per line; fields that say nothing are left out."""
    path = tmp_path / "audit.jsonl"
    with open_audit(path) as audit:
        audit.write(LINE)
        audit.write(LINE)
    assert lines(path) == [{"at": LINE.at, "request_id": "r", "outcome": "ok"}] * 2


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    """It says who asked what, and when."""
    path = tmp_path / "audit.jsonl"
    with open_audit(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_bodies_are_off_by_default_and_redacted_when_on(tmp_path: Path) -> None:
    """What the hook gives back is what is kept."""
    with open_audit(tmp_path / "a") as audit:
        assert not audit.keeps_bodies
        assert audit.body(b"secret") is None
    with open_audit(tmp_path / "a", redact=lambda body: body.replace(b"secret", b"***")) as audit:
        assert audit.keeps_bodies
        assert audit.body(b"a secret") == "a ***"
    with open_audit(tmp_path / "a", redact=lambda body: body) as audit:
        assert audit.body(b"\xffx") == "\ufffdx"


def test_a_full_disk_loses_lines_and_says_how_many(tmp_path: Path) -> None:
    """The line that did not fit is torn off, later ones are counted; then the count comes first."""
    path = tmp_path / "audit.jsonl"
    with open_audit(path) as audit:
        audit.write(LINE)
        with files_of_at_most(path.stat().st_size + 10):
            for _ in range(3):
                audit.write(LINE)
        assert audit.lost == 3
        audit.write(LINE)
        assert audit.lost == 0
    assert [line["outcome"] for line in lines(path)] == ["ok", "lines_lost", "ok"]
    assert lines(path)[1]["lines"] == 3


def test_a_device_without_room_stops_nothing(tmp_path: Path) -> None:
    """As above, where not one byte can be written."""
    path = tmp_path / "full"
    path.symlink_to("/dev/full")
    with open_audit(path) as audit:
        audit.write(LINE)
        audit.write(LINE)
        assert audit.lost == 2


def test_an_audit_that_cannot_be_opened_is_an_error_at_the_start(tmp_path: Path) -> None:
    """Not at the first request."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(HeavyliftError, match="GW021"),
        open_audit(tmp_path / "file" / "audit.jsonl"),
    ):
        pass


def test_the_file_is_closed(tmp_path: Path) -> None:
    """No descriptor is left behind."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with open_audit(tmp_path / "a"):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
