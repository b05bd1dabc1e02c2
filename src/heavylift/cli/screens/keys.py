"""Keys: the list of them, or a new one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from heavylift.cli.cells import left
from heavylift.cli.text import text
from heavylift.gateway.admin import KeyView
from heavylift.gateway.keys import Created


def lines(record: Created | Sequence[KeyView]) -> Iterator[str]:
    """A new key in full, or one line per kept key and a line for its limits."""
    if isinstance(record, Created):
        yield text("keys.created", name=record.name, id=record.id)
        yield record.key
        return
    if not record:
        yield text("keys.none")
    for key in record:
        yield text(
            "keys.row",
            id=key.id,
            status=left(_status(key), 8),
            scope=f"{key.scope:<6}",
            name=key.name,
        )
        limits = _limits(key)
        if limits:
            yield f"              {limits}"


def _status(key: KeyView) -> str:
    if key.revoked_at is not None:
        return text("keys.status.revoked")
    expired = key.expires_at is not None and key.expires_at <= time.time()
    return text("keys.status.expired" if expired else "keys.status.live")


def _limits(key: KeyView) -> str:
    stated = {
        "team": key.team,
        "models": ", ".join(key.models) or None,
        "networks": ", ".join(key.networks) or None,
        "requests_per_minute": key.limits.requests_per_minute,
        "tokens_per_minute": key.limits.tokens_per_minute,
        "tokens_per_day": key.limits.tokens_per_day,
        "concurrent": key.limits.concurrent,
    }
    return " · ".join(
        text(f"keys.limit.{name}", value=f"{value:,}" if isinstance(value, int) else value)
        for name, value in stated.items()
        if value is not None
    )
