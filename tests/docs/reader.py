"""Somebody who types what a page says, as it stands there, in a new folder and a new home."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.docs import preloaded, screens
from tests.docs.markdown import ROOT, Block, blocks

PORTS: Final = ("8123", "8080")
"""Ports as the pages have them; each run has others, that are free."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A command that was typed: where, whether it should have ended well, how it did, what it said.
    `output` has the ports of the page.
    """

    block: Block
    session: screens.Session
    expected: int
    status: int
    output: list[str]

    @property
    def where(self) -> str:
        """The place in the page, the command and all that it said."""
        told = "\n".join(self.output)
        return f"{self.block.page}:{self.block.line}: {self.session.command}\n{told}"


class Reader:
    """A reader of one language: a folder, an environment that lasts, two ports.

    `engines` is a home in which the embedded engine is installed; `server`, where there is one,
    runs the commands (`tests.docs.preloaded`).
    """

    def __init__(
        self, folder: Path, engines: Path, language: str, server: Path | None = None
    ) -> None:
        home = folder / "heavylift"
        (home / "data").mkdir(parents=True)
        (home / "data" / "engines").symlink_to(engines / "data" / "engines")
        programs = folder / "bin"
        programs.mkdir()
        program = programs / "heavylift"
        if server is None:
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m heavylift "$@"\n')
            program.chmod(0o755)
        else:
            preloaded.client(program, server)
        self._folder = folder / "work"
        self._folder.mkdir()
        self._kept = folder / "environment"
        self._kept.write_text("")
        self._started = False
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._environment = {
            "HEAVYLIFT_HOME": str(home),
            "HEAVYLIFT_LANG": language,
            "HOME": str(folder),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "LC_ALL": "C.UTF-8",
        }

    def reads(self, page: Path) -> Iterator[Typed]:
        """Type every runnable block of a page, one after the other, and replay what is drawn."""
        for block in blocks(page):
            if not block.is_screen:
                continue
            asked = list(screens.sessions(block))
            for number, session in enumerate(asked, start=1):
                status, output = self.types(session.command)
                expected = block.status if number == len(asked) else 0
                yield Typed(block, session, expected, status, screens.lines(output))

    def types(self, commands: str) -> tuple[int, str]:
        """Run commands in a shell; what they export is there for the next ones."""
        self._started |= "heavylift up" in commands
        for shown, free in self._ports.items():
            commands = re.sub(rf"\b{shown}\b", free, commands)
        script = f". '{self._kept}'\ntrap 'export -p > {self._kept}' EXIT\n{commands}"
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
            check=False,
        )
        told = done.stdout
        for shown, free in self._ports.items():
            told = re.sub(rf"\b{free}\b", shown, told)
        return done.returncode, told

    def leaves(self) -> None:
        """Stop what the page has started and not stopped."""
        if not self._started:
            return
        _, told = self.types("heavylift status --json || true")
        for deployment in json.loads(told)["deployments"]:
            self.types(f"heavylift down {deployment['name']}")


def free_ports(count: int) -> list[str]:
    """Ports that nothing listens on; the kernel chooses."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in taken]
    for each in taken:
        each.close()
    return ports
