"""Whole files of a hub over plain HTTP: several at once, taken up where they were cut off.

What is not whole yet lies beside under a name of its size and digest, so that no file is continued
with the bytes of another one, and takes its place when the last byte is there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp

from heavylift.checkpoint.hub import HubFiles
from heavylift.checkpoint.listing import ListedFile
from heavylift.errors import HeavyliftError, reason

PARTIAL: Final = Path(".cache/heavylift/download")
"""Where files lie that are not whole yet, below the folder."""

_AT_ONCE: Final = 4
_PIECE_BYTES: Final = 1 << 20
_LOOK_EVERY_S: Final = 1.0
_FRUITLESS: Final = 3
_LIMITS: Final = aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=60)


def fetch(
    files: HubFiles, wanted: Iterable[ListedFile], folder: Path, look: Callable[[], None]
) -> None:
    """Fetch files into a folder; `look` is called every second meanwhile. One that is there with
    its size stays: whether it is the hub's is for the check of digests.

    Raises what asking a hub raises, and ENV041 for a place that cannot be written.
    """
    missing = [file for file in wanted if not _is_there(folder / file.path, file)]
    files.run(_all(files, missing, folder, look))


async def _all(
    files: HubFiles, missing: list[ListedFile], folder: Path, look: Callable[[], None]
) -> None:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(file: ListedFile) -> None:
        async with turn:
            await _file(files, file, folder)

    async def watch() -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            look()

    watching = asyncio.create_task(watch())
    try:
        async with asyncio.TaskGroup() as group:
            for file in missing:
                group.create_task(one(file))
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _file(files: HubFiles, file: ListedFile, folder: Path) -> None:
    """One file, asked for as often as each time brings some of it."""
    partial = folder / PARTIAL / _partial_name(file)
    target = folder / file.path
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()
        fruitless = 0
        while (begin := partial.stat().st_size) < (file.size or 0):
            await _some(files, file, partial, begin)
            fruitless = 0 if partial.stat().st_size > begin else fruitless + 1
            if fruitless == _FRUITLESS:
                raise HeavyliftError(
                    "HUB008", {"id": files.model.id, "url": file.path, "reason": "short"}
                )
        os.replace(partial, target)  # noqa: PTH105 - a rename is what is meant
    except OSError as error:
        raise HeavyliftError("ENV041", {"path": str(target), "reason": reason(error)}) from error


async def _some(files: HubFiles, file: ListedFile, partial: Path, begin: int) -> None:
    """The bytes from `begin` on, as far as one reply brings them."""

    async def read(response: aiohttp.ClientResponse) -> None:
        start = begin
        stated = response.headers.get("Content-Range", "")
        if response.status == HTTPStatus.OK:
            start = 0  # the server goes by no ranges
        elif not (stated.startswith(f"bytes {begin}-") and stated.endswith(f"/{file.size}")):
            raise HeavyliftError(
                "HUB008", {"id": files.model.id, "url": file.path, "reason": stated[:80]}
            )
        with partial.open("r+b") as out:
            out.truncate(start)
            out.seek(start)
            at = start
            try:
                async for piece in response.content.iter_chunked(_PIECE_BYTES):
                    at += len(piece)
                    if at > (file.size or 0):
                        out.truncate(0)
                        raise HeavyliftError(
                            "HUB008",
                            {"id": files.model.id, "url": file.path, "reason": f"> {file.size} B"},
                        )
                    out.write(piece)
            except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, TimeoutError):
                # What came stays, and the rest is asked for.
                return

    headers = {"Range": f"bytes={begin}-"} if begin else {}
    await files.ask_for(file.path, headers, read, limits=_LIMITS)


def _is_there(path: Path, file: ListedFile) -> bool:
    try:
        return path.stat().st_size == file.size
    except OSError:
        return False


def _partial_name(file: ListedFile) -> str:
    of = f"{file.path}\0{file.size}\0{file.sha256 or ''}"
    return f"{hashlib.sha256(of.encode()).hexdigest()[:32]}.incomplete"
