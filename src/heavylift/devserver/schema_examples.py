"""A value that a JSON schema allows. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

_DEEPEST_REFERENCE: Final = 12


def example(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """A value that a JSON schema allows, for the keywords that checks use."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST_REFERENCE:
        return None
    if "$ref" in schema:
        target: Any = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        return example(target, root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return example(schema[key][-1], root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][-1]
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    return _EXAMPLES[kind](schema, root, depth)


def _example_object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    properties = schema.get("properties", {})
    return {
        name: example(properties[name], root, depth + 1)
        for name in schema.get("required", properties)
    }


def _example_array(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    count = max(1, schema.get("minItems", 0))
    return [example(schema.get("items", {"type": "string"}), root, depth + 1)] * count


def _example_string(schema: Mapping[str, Any], _root: Mapping[str, Any], _depth: int) -> Any:
    text = "Zürich 中文" + "x" * schema.get("minLength", 0)
    return text[: schema.get("maxLength", len(text))]


def _example_number(schema: Mapping[str, Any], _root: Mapping[str, Any], _depth: int) -> Any:
    low, high = schema.get("minimum", 0), schema.get("maximum", math.inf)
    value = low if math.isinf(high) else (low + high) / 2
    step = schema.get("multipleOf", 1 if schema.get("type") == "integer" else None)
    if step:
        value = math.ceil(low / step) * step
    return int(value) if schema.get("type") == "integer" else float(value)


_EXAMPLES: Final[dict[str, Callable[[Mapping[str, Any], Mapping[str, Any], int], Any]]] = {
    "object": _example_object,
    "array": _example_array,
    "string": _example_string,
    "integer": _example_number,
    "number": _example_number,
    "boolean": lambda _schema, _root, _depth: True,
    "null": lambda _schema, _root, _depth: None,
}
