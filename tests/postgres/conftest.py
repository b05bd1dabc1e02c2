"""A real Postgres server in a temporary folder, reached by its socket only."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A server whose files are in `folder`."""

    programs: Path
    folder: Path
    user: str | None

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of the server's to its end."""
        subprocess.run(
            [str(self.programs / program), *arguments],
            check=True,
            capture_output=True,
            user=self.user,
            cwd=self.folder,
            env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
            timeout=60,
        )

    def start(self) -> None:
        """Start it; it answers when this returns."""
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder}"
        log = str(self.folder / "log")
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        """Stop it at once; what was committed is there."""
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def address(self, database: str) -> str:
        """Where a database is."""
        return f"postgresql://{self.user or ''}@/{database}?host={self.folder}"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that runs; skips where Postgres or its driver is not installed."""
    pytest.importorskip("psycopg")
    programs = _programs()
    if programs is None:
        pytest.skip("no Postgres server is installed")
    # The server refuses to run as root.
    user = _unprivileged() if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="hl-pg-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        server = Server(programs=programs, folder=folder, user=user)
        server.run("initdb", "-D", str(folder / "data"), "-A", "trust", "-E", "UTF8")
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def address(server: Server) -> str:
    """A database with nothing in it."""
    name = f"t{uuid.uuid4().hex[:12]}"
    host = str(server.folder)
    options = ["-h", host, *(() if server.user is None else ("-U", server.user))]
    server.run("createdb", *options, name)
    return server.address(name)


def _programs() -> Path | None:
    """Where `pg_ctl` is: on the path, or where Debian puts it."""
    found = shutil.which("pg_ctl")
    if found is not None:
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


def _unprivileged() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
