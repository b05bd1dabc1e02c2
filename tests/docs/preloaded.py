"""`heavylift` without its start: a process that has it all imported runs each command in a fork.

    python -m tests.docs.preloaded SOCKET LANGUAGE

A command is the real one, in a process of its own, with the folder, environment and streams of who
typed it; only what is the same for all, imports and the reading of facts, was done before. Signals
do not reach it, so pages that start an engine are not read so.
"""

from __future__ import annotations

import array
import marshal
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Final, NoReturn

CLIENT: Final = """\
import array, marshal, os, socket, sys
given = marshal.dumps((os.getcwd(), dict(os.environ), sys.argv[2:]))
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    streams = array.array("i", [0, 1, 2])
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)
    server.sendmsg([len(given).to_bytes(4, "little")], [rights])
    server.sendall(given)
    answer = server.recv(1)
sys.exit(answer[0] if answer else 70)
"""
"""What stands on the path as `heavylift`: it hands a command over and ends as that ends."""
_STREAMS: Final = 3


def serve(path: str, language: str) -> NoReturn:
    """Take commands at a socket until the process is ended."""
    _load(language)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        while True:
            asked, _ = server.accept()
            with asked:
                asked.sendall(bytes([_run(asked, server)]))


def _load(language: str) -> None:
    """Import the command line in a language, and what its plans need."""
    from heavylift.locale import catalogue  # noqa: PLC0415 - the language comes first

    catalogue.use(catalogue.normalised(language) or catalogue.ENGLISH)
    from click.testing import CliRunner  # noqa: PLC0415

    from heavylift.cli.main import cli  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as home:
        os.environ["HEAVYLIFT_HOME"] = home
        for words in (["plan", "kimi-k3", "--on", "8xMI355X"], ["fit", "--on", "1xRTX 4090"]):
            CliRunner().invoke(cli, words)


def _run(asked: socket.socket, server: socket.socket) -> int:
    """The status of one command."""
    head, rights, _, _ = asked.recvmsg(4, socket.CMSG_SPACE(_STREAMS * 4))
    streams = array.array("i")
    streams.frombytes(rights[0][2])
    size = int.from_bytes(head, "little")
    given = b""
    while len(given) < size:
        given += asked.recv(size - len(given))
    folder, environment, words = marshal.loads(given)  # noqa: S302 - from CLIENT
    child = os.fork()
    if child == 0:
        server.close()
        asked.close()
        _become(folder, environment, words, streams)
    for stream in streams:
        os.close(stream)
    _, status = os.waitpid(child, 0)
    return abs(os.waitstatus_to_exitcode(status))


def _become(
    folder: str, environment: dict[str, str], words: list[str], streams: array.array[int]
) -> NoReturn:
    """Be the command that somebody typed."""
    from heavylift.__main__ import run  # noqa: PLC0415 - the server has it already

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # Those of the server remember what it wrote to.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["heavylift", *words]
    status = 1
    try:
        run()
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def client(program: Path, server: Path) -> None:
    """Write a `heavylift` that asks a server."""
    script = program.with_suffix(".py")
    script.write_text(CLIENT)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{script}" "{server}" "$@"\n')
    program.chmod(0o755)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
