"""Structured output: whether an answer is the JSON its schema asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError

_SHOWN: Final = 5

Check = Callable[[str], str | None]


def checker(schema: dict[str, Any]) -> Check:
    """A function from an answer to its defects, a line each; None = it matches.

    Raises BAT005 when the schema is not one.
    """
    import jsonschema  # noqa: PLC0415 - 100 ms that only batches with a schema pay

    validator_class = jsonschema.validators.validator_for(schema)
    try:
        validator_class.check_schema(schema)
    except jsonschema.SchemaError as problem:
        raise HeavyliftError("BAT005", {"detail": problem.message}) from problem
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
