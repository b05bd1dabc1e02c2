"""The transfer of whole files: by the hub's library in a process of its own, or over plain HTTP.

A process, because the library's threads cannot be stopped: Ctrl-C ends the process, and what was
there stays for the next time. The token goes to it on standard input, into no argument list.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from heavylift.checkpoint import hub_transfer
from heavylift.checkpoint.hub import HubFiles
from heavylift.checkpoint.hub_settings import HubId, HubSettings
from heavylift.checkpoint.listing import ListedFile
from heavylift.errors import HeavyliftError
from heavylift.redact import without_secrets

_LOOK_EVERY_S: Final = 1.0
_END_WITHIN_S: Final = 10.0
_ERROR_BYTES: Final = 4000
_OF_STATUS: Final = {401: "HUB003", 403: "HUB004", 404: "HUB005", 429: "HUB006"}


class Order(msgspec.Struct, frozen=True):
    """What the process is told. The token is in no text of it."""

    id: str
    revision: str
    folder: str
    files: list[str]
    endpoint: str
    token: str | None

    def __repr__(self) -> str:
        return f"Order({self.id!r})"


class Outcome(msgspec.Struct, frozen=True):
    """How the process ended: `problem` is empty when all files are there."""

    problem: str = ""
    status: int | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Files of a model to be fetched into a folder."""

    hub: HubSettings
    model: HubId
    folder: Path
    files: tuple[ListedFile, ...]

    def run(self, look: Callable[[], None]) -> None:
        """Fetches the files; `look` is called every second meanwhile.

        Raises ENV040 when the library is not installed, HUB003 to HUB007 for a refusal, HUB017 for
        anything else that went wrong with it; over plain HTTP what asking a hub raises.
        """
        library = self.hub.facts.transfer
        if not library:
            with HubFiles(self.hub, self.model) as files:
                hub_transfer.fetch(files, self.files, self.folder, look)
            return
        if importlib.util.find_spec(library) is None:
            raise HeavyliftError("ENV040", {"package": library})
        outcome = self._run(look)
        if not outcome.problem:
            return
        code = "HUB017"
        if outcome.status is not None:
            code = _OF_STATUS.get(outcome.status, "HUB007")
        raise HeavyliftError(
            code,
            {
                "id": self.model.id,
                "host": self.hub.endpoint.partition("://")[2],
                "status": outcome.status,
                "token": self.hub.token_from or "",
                "wait_s": 0,
                "revision": self.model.revision or self.hub.facts.revision,
                "reason": f"{outcome.problem} {outcome.detail}".strip(),
            },
        )

    def _run(self, look: Callable[[], None]) -> Outcome:
        order = Order(
            id=self.model.id,
            revision=self.model.revision or self.hub.facts.revision,
            folder=str(self.folder),
            files=[file.path for file in self.files],
            endpoint=self.hub.endpoint,
            token=self.hub.token if self.hub.may_send_token else None,
        )
        environment = {
            **os.environ,
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_ENDPOINT": self.hub.endpoint,
        }
        with subprocess.Popen(
            [sys.executable, "-m", "heavylift.fetch.transfer_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        ) as child:
            try:
                given: bytes | None = msgspec.json.encode(order)
                while True:
                    try:
                        out, said = child.communicate(given, timeout=_LOOK_EVERY_S)
                        break
                    except subprocess.TimeoutExpired:
                        given = None
                        look()
            except BaseException:
                _end(child)
                raise
        try:
            return msgspec.json.decode(out, type=Outcome)
        except msgspec.MsgspecError:
            lines = said[-_ERROR_BYTES:].decode("utf-8", "replace").strip().splitlines()
            last = without_secrets(lines[-1]) if lines else ""
            return Outcome(problem=f"status {child.returncode}", detail=last[:200])


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the process; what it has written is taken up the next time."""
    child.terminate()
    try:
        child.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
