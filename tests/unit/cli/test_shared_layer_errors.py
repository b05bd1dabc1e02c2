"""Errors of the wire, the state and the scripted servers: each code has a sentence that fills."""

from __future__ import annotations

import pytest

from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError, Scalar


@pytest.mark.parametrize(
    ("code", "params", "status"),
    [
        ("USE021", {"suggestion": None}, Exit.USAGE),
        ("USE022", {"detail": "d"}, Exit.USAGE),
        ("WIRE001", {"limit_bytes": 16}, Exit.ENGINE),
        ("WIRE002", {"detail": "x"}, Exit.ENGINE),
        ("WIRE003", {"url": "u", "status": 500, "failure": "server_error"}, Exit.ENGINE),
        ("STA001", {"path": "p", "found": 2, "known": 1}, Exit.ENVIRONMENT),
        ("STA002", {"path": "p", "fs_type": "nfs4", "mount": "/home"}, Exit.ENVIRONMENT),
        ("STA003", {"path": "p", "detail": "x"}, Exit.ENVIRONMENT),
        ("STA004", {"detail": "locked"}, Exit.ENVIRONMENT),
        ("STA005", {"path": "p", "holder": "7"}, Exit.ENVIRONMENT),
        ("STA006", {"deployment": "d", "number": 1}, Exit.ENVIRONMENT),
        ("DEV001", {"path": "p", "detail": "x"}, Exit.INPUT),
        ("DEV002", {"path": "p", "detail": "x"}, Exit.INPUT),
        ("DEV003", {"name": "n"}, Exit.INPUT),
        ("DEV004", {"port": 1, "detail": "x"}, Exit.INPUT),
    ],
)
def test_an_error_has_a_sentence_and_an_exit_status(
    code: str, params: dict[str, Scalar], status: Exit
) -> None:
    """The parameters that are raised fill the sentence; the stage gives the status."""
    sentence = text(f"error.{code}", **params)
    assert sentence
    assert "{" not in sentence
    assert HeavyliftError(code, params).exit_status is status
