"""Lines: whatever a server sends, a line stays one line of JSON."""

from __future__ import annotations

import json

import pytest

from heavylift.batch import lines


@pytest.mark.parametrize(
    ("body", "document"),
    [
        (b"", None),
        (b'{\n "a": 1\r\n}', {"a": 1}),
        (b"<html>\n</html>", "<html>\n</html>"),
        (b"\xff\n", "�\n"),
    ],
)
def test_a_failed_reply_is_kept_as_it_can_be(body: bytes, document: object) -> None:
    """JSON as JSON, other text as a string, broken bytes marked; never a second line."""
    line = lines.error_line(
        "i", "r", code="malformed", message="m", status=500, request_id="q", body=body
    )
    assert line.count(b"\n") == 1
    assert json.loads(line)["response"]["body"] == document


def test_a_row_without_a_reply_has_no_response() -> None:
    """Nobody answered: there is nothing to show but why."""
    line = lines.error_line(
        "i", "r", code="connect", message="m", status=None, request_id="q", body=b""
    )
    assert json.loads(line) == {
        "id": "i",
        "custom_id": "r",
        "response": None,
        "error": {"code": "connect", "message": "m"},
    }
