"""Whether our alert rules are loaded where they are to be judged: a Prometheus is asked."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Final
from urllib.parse import urlsplit

import msgspec

from heavylift.errors import HeavyliftError, reason
from heavylift.observe.alerts import RULES

_ROUTE: Final = "/api/v1/rules"
_WAIT_S: Final = 10.0
_MOST_BYTES: Final = 16 << 20


class AlertsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The alert rules of ours that a server has loaded, and those that it has not."""

    server: str
    loaded: tuple[str, ...]
    missing: tuple[str, ...]


class _Rule(msgspec.Struct, frozen=True):
    name: str = ""


class _Group(msgspec.Struct, frozen=True):
    rules: tuple[_Rule, ...] = ()


class _Data(msgspec.Struct, frozen=True):
    groups: tuple[_Group, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    data: _Data


def ask(server: str) -> AlertsSeen:
    """The rules of a Prometheus. Raises USE021 for an address that is none, WIRE071 when it does
    not answer as one.
    """
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise HeavyliftError("USE021", {"suggestion": None})
    try:
        address = f"{server.rstrip('/')}{_ROUTE}"
        with urllib.request.urlopen(address, timeout=_WAIT_S) as reply:  # noqa: S310 - http(s) only
            answer = msgspec.json.decode(reply.read(_MOST_BYTES), type=_Answer)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        told = error.reason if isinstance(error, urllib.error.URLError) else reason(error)
        raise HeavyliftError("WIRE071", {"url": server, "reason": str(told)}) from error
    there = {rule.name for group in answer.data.groups for rule in group.rules}
    names = [rule.name for rule in RULES]
    return AlertsSeen(
        server=server,
        loaded=tuple(name for name in names if name in there),
        missing=tuple(name for name in names if name not in there),
    )
