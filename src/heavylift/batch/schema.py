"""Structured output: whether an answer is the JSON its schema asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError

_SHOWN: Final = 5

Check = Callable[[str], str | None]


def load(path: Path) -> dict[str, Any]:
    """The schema in a file. Raises BAT012 when it is no text, BAT005 when it is no schema."""
    try:
        found = msgspec.json.decode(text_of(path))
    except msgspec.DecodeError as problem:
        raise HeavyliftError("BAT005", {"name": str(path), "detail": str(problem)}) from problem
    if not isinstance(found, dict):
        raise HeavyliftError("BAT013", {"path": str(path)})
    checker(found, str(path))
    return found


def text_of(path: Path) -> str:
    """The text in a file. Raises BAT001 when it cannot be read, BAT012 when it is none."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as problem:
        raise HeavyliftError("BAT012", {"path": str(path)}) from problem
    except OSError as problem:
        detail = problem.strerror or str(problem)
        raise HeavyliftError("BAT001", {"path": str(path), "detail": detail}) from problem


def checker(schema: dict[str, Any], name: str = "response_format") -> Check:
    """A function from an answer to its defects, a line each; None = it matches.

    Raises BAT005 when the schema, which errors call `name`, is not one.
    """
    import jsonschema  # noqa: PLC0415 - 100 ms that only batches with a schema pay

    validator_class = jsonschema.validators.validator_for(schema)
    try:
        validator_class.check_schema(schema)
    except jsonschema.SchemaError as problem:
        raise HeavyliftError("BAT005", {"name": name, "detail": problem.message}) from problem
    validator = validator_class(schema)

    def check(answer: str) -> str | None:
        try:
            document = msgspec.json.decode(answer)
        except (msgspec.DecodeError, UnicodeEncodeError) as problem:
            return f"not JSON: {problem}"
        errors = [
            f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)
        ]
        return "\n".join(errors[:_SHOWN]) or None

    return check


def asked_by(body: dict[str, Any]) -> dict[str, Any] | None:
    """The schema that a chat body's own `response_format` states; None = none."""
    wanted = body.get("response_format")
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return None
    named = wanted.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    return schema if isinstance(schema, dict) else None
