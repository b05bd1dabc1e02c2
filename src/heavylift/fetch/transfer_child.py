"""Fetches files with huggingface_hub as an order on standard input says: see `transfer`."""

from __future__ import annotations

import sys

import msgspec

from heavylift.fetch.transfer import Order, Outcome
from heavylift.redact import without_secrets

_DETAIL_LETTERS = 300
_CAUSES = 10


def fetch(order: Order) -> Outcome:
    """Fetch the files, in the order given as far as the library goes by it."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - an extra

    try:
        snapshot_download(
            order.id,
            revision=order.revision,
            local_dir=order.folder,
            allow_patterns=[_literal(path) for path in order.files],
            token=order.token if order.token is not None else False,
            endpoint=order.endpoint,
        )
    except Exception as error:  # noqa: BLE001 - another program's errors, told to the parent
        return Outcome(
            problem=type(error).__name__, status=_status(error), detail=_first_line(error)
        )
    return Outcome()


def _literal(path: str) -> str:
    """A pattern that matches this path only."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _status(error: BaseException | None) -> int | None:
    """The HTTP status that an error, or what it was raised for, is about."""
    for _ in range(_CAUSES):
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        if isinstance(status, int):
            return status
        if error is None:
            return None
        error = error.__cause__ or error.__context__
    return None


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return without_secrets(lines[0])[:_DETAIL_LETTERS] if lines else ""


if __name__ == "__main__":
    result = fetch(msgspec.json.decode(sys.stdin.buffer.read(), type=Order))
    sys.stdout.buffer.write(msgspec.json.encode(result))
