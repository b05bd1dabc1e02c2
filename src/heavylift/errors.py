"""The one exception of the project and the exit statuses.

An error names a code and its parameters and holds no prose: text is made at the edge, from the
catalogue, in the reader's language. Codes are grouped by stage: `USE` usage, `INT` our own, `FACT`
facts, `CKPT` checkpoints, `HUB` hubs of models, `PLAN`, `REC` recipes, `LINT` commands found
elsewhere, `PRE` preflight, `RUN` launch, `OPS` deployments, `VER` verification, `BAT` batches, `GW`
the gateway, `OBS` watching, `ENV` this machine, `WIRE` the protocol and its servers, `STA` stored
state, `DEV` scripted engines, `DIA` diagnosis, `WEB` pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

Scalar = str | int | float | bool | None
Params = Mapping[str, Scalar]


class Exit(IntEnum):
    """Process exit statuses, the same for every command."""

    OK = 0
    NEGATIVE = 1
    """A verdict: does not fit, a check failed."""
    USAGE = 2
    INPUT = 3
    """Bad input or bad facts."""
    ENVIRONMENT = 4
    ENGINE = 5
    """The engine or a remote side failed."""
    PENDING = 8
    INTERNAL = 70
    """A mistake of heavylift's own, so that no script takes it for a verdict."""
    INTERRUPTED = 130


_EXIT_BY_STAGE: Final = {
    "USE": Exit.USAGE,
    "INT": Exit.INTERNAL,
    "FACT": Exit.INPUT,
    "CKPT": Exit.INPUT,
    "HUB": Exit.ENGINE,
    "PLAN": Exit.INPUT,
    "REC": Exit.INPUT,
    "LINT": Exit.INPUT,
    "PRE": Exit.ENVIRONMENT,
    "ENV": Exit.ENVIRONMENT,
    "RUN": Exit.ENGINE,
    "OPS": Exit.INPUT,
    "VER": Exit.NEGATIVE,
    "BAT": Exit.INPUT,
    "GW": Exit.ENVIRONMENT,
    "OBS": Exit.INPUT,
    "WIRE": Exit.ENGINE,
    "STA": Exit.ENVIRONMENT,
    "DEV": Exit.INPUT,
    "DIA": Exit.INPUT,
    "WEB": Exit.INPUT,
}


def reason(error: Exception) -> str:
    """What an exception says, without the number and path that Python puts around it."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class HeavyliftError(Exception):
    """A failure a person can act on: code, parameters, next command, docs anchor.

    `code` is a stage and three digits (`PLAN003`). `params` are the numbers and names the text
    needs. `hint_command` is a command to type next. `doc_anchor` names the docs page and defaults
    to the code.
    """

    def __init__(
        self,
        code: str,
        params: Params | None = None,
        *,
        hint_command: str | None = None,
        doc_anchor: str | None = None,
    ) -> None:
        super().__init__(code)
        self.code = code
        self.params: dict[str, Scalar] = dict(params or {})
        self.hint_command = hint_command
        self.doc_anchor = doc_anchor or code

    def __str__(self) -> str:
        listed = ", ".join(f"{key}={value!r}" for key, value in self.params.items())
        return f"{self.code}({listed})"

    @property
    def exit_status(self) -> Exit:
        """The exit status of the error's stage."""
        return _EXIT_BY_STAGE[self.code.rstrip("0123456789")]
