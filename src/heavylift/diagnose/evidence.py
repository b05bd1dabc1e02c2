"""Where logs come from: files (also compressed), folders of ranks, standard input, the journal.

Logs are read in blocks of whole lines, so that a gigabyte needs no more memory than a megabyte.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Final, cast

from heavylift.diagnose.scan import LogReading, Scanner
from heavylift.diagnose.symptoms import CompiledSymptoms
from heavylift.errors import HeavyliftError, reason

STDIN: Final = "-"
JOURNAL: Final = "journal:"
"""`journal:UNIT` names a systemd unit, `journal:` alone the kernel's messages."""

_BLOCK_BYTES: Final = 1 << 20
# A line longer than this is cut: no log writes such lines, a binary file does.
_LONGEST_LINE_BYTES: Final = 8 << 20
_LOG_NAMES: Final = ("*.log", "*.log.gz", "*.out", "*.err", "*.txt")


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """The logs that names stand for: a folder is the logs in it. Raises DIA001 and DIA002."""
    found: list[str] = []
    for name in names:
        path = Path(name)
        if name == STDIN or name.startswith(JOURNAL):
            found.append(name)
        elif path.is_dir():
            inside = sorted(each for pattern in _LOG_NAMES for each in path.glob(pattern))
            if not inside:
                raise HeavyliftError("DIA002", {"path": name})
            found += map(str, inside)
        elif path.is_file():
            found.append(name)
        else:
            raise HeavyliftError("DIA001", {"path": name, "reason": "no_such_file"})
    return tuple(dict.fromkeys(found))


def latest(folder: Path) -> str:
    """The log under a folder that was written last. Raises DIA003 when there is none."""
    logs = [path for path in folder.rglob("*.log") if path.is_file()]
    if not logs:
        raise HeavyliftError("DIA003", {"path": str(folder)})
    return str(max(logs, key=lambda path: path.stat().st_mtime))


def read(names: Iterable[str], symptoms: CompiledSymptoms) -> tuple[LogReading, ...]:
    """One reading per log. Raises DIA001 for a log that cannot be read."""
    return tuple(_read(name, symptoms) for name in expand(names))


def _read(name: str, symptoms: CompiledSymptoms) -> LogReading:
    scanner = Scanner(symptoms, name)
    with open_log(name) as stream:
        for block in blocks(stream):
            scanner.feed(block)
    return scanner.reading()


@contextlib.contextmanager
def open_log(name: str) -> Iterator[IO[bytes]]:
    """A log as a stream of bytes. DIA001: it cannot be read; DIA004: there is no journal."""
    with _opened(name) as stream:
        try:
            yield stream
        except (OSError, EOFError) as error:
            raise HeavyliftError("DIA001", {"path": name, "reason": reason(error)}) from error


def _opened(name: str) -> AbstractContextManager[IO[bytes]]:
    if name == STDIN:
        return contextlib.nullcontext(sys.stdin.buffer)
    if name.startswith(JOURNAL):
        return _journal(name.removeprefix(JOURNAL))
    try:
        if name.endswith(".gz"):
            return cast("AbstractContextManager[IO[bytes]]", gzip.open(name, "rb"))
        return Path(name).open("rb")
    except OSError as error:
        raise HeavyliftError("DIA001", {"path": name, "reason": reason(error)}) from error


@contextlib.contextmanager
def _journal(unit: str) -> Iterator[IO[bytes]]:
    program = shutil.which("journalctl")
    if program is None:
        raise HeavyliftError("DIA004")
    what = ["--unit", unit] if unit else ["--dmesg"]
    with subprocess.Popen(  # noqa: S603 - a program found on the path, arguments as a list
        [program, "--quiet", "--no-pager", "--output=short-iso", "--boot", *what],
        stdout=subprocess.PIPE,
    ) as process:
        if process.stdout is None:
            raise HeavyliftError("DIA004")
        yield process.stdout


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """The stream in blocks that end with a line's end; the last may lack it."""
    rest = b""
    while block := stream.read(_BLOCK_BYTES):
        cut = block.rfind(b"\n") + 1
        if cut:
            yield rest + block[:cut]
            rest = block[cut:]
        elif len(rest) + len(block) > _LONGEST_LINE_BYTES:
            yield rest + block + b"\n"
            rest = b""
        else:
            rest += block
    if rest:
        yield rest
