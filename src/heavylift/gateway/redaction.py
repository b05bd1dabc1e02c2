"""What the audit keeps of a body: rules that a TOML file states. Nothing of a request is executed.

Without a file, keys, tokens and passwords are taken out. A file adds patterns of its own, or takes
whole fields out, wherever they stand.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.gateway.audit import Redact
from heavylift.redact import without_secrets

TAKEN_OUT: Final = "[redacted]"


class _Replace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    by: str = TAKEN_OUT


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`secrets`: take out what looks like a key, token or password. `fields`: names whose values
    are taken out of JSON at any depth. `replace`: patterns (Python's) and what stands in their
    place. `keep_bytes`: what is kept of a longer body.
    """

    secrets: bool = True
    fields: frozenset[str] = frozenset()
    replace: tuple[_Replace, ...] = ()
    keep_bytes: Annotated[int, msgspec.Meta(ge=1, le=16 * 2**20)] = 65_536


def read_rules(path: Path | None) -> Rules:
    """The rules in a file; the defaults where there is none. Raises GW009 for a file that is none,
    with the place.
    """
    if path is None:
        return Rules()
    try:
        rules = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Rules)
        for each in rules.replace:
            re.compile(each.pattern).sub(each.by, "")
    except (OSError, ValueError, re.error, IndexError) as problem:
        raise HeavyliftError("GW009", {"path": str(path), "detail": str(problem)}) from problem
    return rules


def redaction(rules: Rules) -> Redact:
    """The rules as the audit's hook: body as sent -> what is written."""
    patterns = [(re.compile(each.pattern), each.by) for each in rules.replace]

    def redact(body: bytes) -> bytes:
        if rules.fields:
            body = _without_fields(body, rules.fields)
        text = body[: rules.keep_bytes].decode("utf-8", "replace")
        if rules.secrets:
            text = without_secrets(text)
        for pattern, by in patterns:
            text = pattern.sub(by, text)
        return text.encode()

    return redact


def _without_fields(body: bytes, names: frozenset[str]) -> bytes:
    """The body with some fields taken out; nothing of it where it is no JSON, because then nobody
    knows where the fields are.
    """
    try:
        return msgspec.json.encode(_taken_out(msgspec.json.decode(body), names))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return TAKEN_OUT.encode()


def _taken_out(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: TAKEN_OUT if name in names else _taken_out(item, names)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_taken_out(item, names) for item in value]
    return value
