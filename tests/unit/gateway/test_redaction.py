"""What the audit keeps of a body is what the rules leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.gateway.redaction import Rules, read_rules, redaction


def rules(tmp_path: Path, toml: str) -> Rules:
    """The rules in a file."""
    path = tmp_path / "rules.toml"
    path.write_text(toml, "utf-8")
    return read_rules(path)


def test_without_a_file_secrets_are_taken_out() -> None:
    """Keys and passwords go, the rest stays as it was sent."""
    body = b'{"messages":[{"content":"my api_key=abcdef123 and hf_abcdefghijkl"}]}'
    kept = redaction(read_rules(None))(body)
    assert b"abcdef123" not in kept
    assert b"hf_abcdefghijkl" not in kept
    assert kept.startswith(b'{"messages":[{"content":"my api_key=[secret]')


def test_patterns_and_fields_of_the_file_are_taken_out(tmp_path: Path) -> None:
    """A pattern by what it says, a field at any depth."""
    given = rules(
        tmp_path,
        'fields = ["user", "metadata"]\n'
        "[[replace]]\npattern = '\\b\\d{4}-\\d{4}\\b'\nby = \"[number]\"\n",
    )
    body = {"user": "eve", "messages": [{"metadata": {"a": 1}, "content": "card 1234-5678"}]}
    kept = json.loads(redaction(given)(json.dumps(body).encode()))
    assert kept["user"] == "[redacted]"
    assert kept["messages"] == [{"metadata": "[redacted]", "content": "card [number]"}]


def test_fields_of_what_is_no_json_cannot_be_told_so_nothing_is_kept(tmp_path: Path) -> None:
    """A body that was refused may hold them all the same."""
    given = rules(tmp_path, 'fields = ["user"]')
    assert redaction(given)(b'{"user": "eve"') == b"[redacted]"
    assert redaction(given)(b"[" * 100_000) == b"[redacted]"


def test_a_long_body_is_kept_in_part(tmp_path: Path) -> None:
    """Its beginning."""
    assert redaction(rules(tmp_path, "keep_bytes = 5\nsecrets = false"))(b"abcdefgh") == b"abcde"


@pytest.mark.parametrize(
    "toml",
    [
        "x = 1",
        "[[replace]]\npattern = '('",
        "[[replace]]\npattern = 'a'\nby = '\\9'",
        "keep_bytes = 0",
        "fields = 3",
        "not toml",
    ],
)
def test_rules_that_are_none_are_refused_with_their_place(tmp_path: Path, toml: str) -> None:
    """Before the gateway starts: half a redaction is none."""
    with pytest.raises(HeavyliftError, match="GW009"):
        rules(tmp_path, toml)
