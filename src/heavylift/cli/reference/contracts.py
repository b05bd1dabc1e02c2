"""What `--json` writes: every record with its fields, and the JSON Schema of each as a file."""

from __future__ import annotations

import json
from collections.abc import Iterator

from heavylift.cli.reference.markdown import cell, code, table
from heavylift.cli.schemas import REPORTS
from heavylift.cli.text import listed, text
from heavylift.records.json_schema import RECORDS, files


def pages() -> Iterator[tuple[str, str]]:
    """Path -> text: the list with the fields of each record, and the schemas."""
    records = RECORDS | REPORTS
    schemas = {name: content.decode() for name, content in files(records).items()}
    yield "contracts/index.md", "\n".join(_list(records, schemas))
    for name, content in schemas.items():
        yield f"contracts/{name}", content


def _list(records: dict[str, type], schemas: dict[str, str]) -> Iterator[str]:
    yield f"# {text('reference.contracts')}"
    yield ""
    yield text("reference.contracts_intro")
    yield ""
    for name in sorted(records):
        file = f"{name}.schema.json"
        yield f"## {name}"
        yield ""
        yield f"{text(f'contract.{name}')} [{file}]({file})"
        yield ""
        yield from table("reference.fields_columns", _fields(json.loads(schemas[file])))


def _fields(schema: dict[str, object]) -> Iterator[tuple[str, str]]:
    """The fields of a record and the JSON types of each; those of records inside are named."""
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    inner = schema.get("$defs")
    record = inner.get(reference, schema) if isinstance(inner, dict) else schema
    properties = record.get("properties")
    if isinstance(properties, dict):
        for name, told in properties.items():
            yield code(name), cell(_type(told))


def _type(told: dict[str, object]) -> str:
    if "$ref" in told:
        return str(told["$ref"]).rpartition("/")[2]
    choices = told.get("anyOf") or told.get("oneOf")
    if isinstance(choices, list):
        return listed([_type(choice) for choice in choices], "reference.type.either")
    if told.get("type") == "array" and isinstance(told.get("items"), dict):
        return text("reference.type.array", inner=_type(told["items"]))  # type: ignore[arg-type]
    if "enum" in told:
        return ", ".join(map(str, told["enum"]))  # type: ignore[call-overload]
    return str(told.get("type", "any"))
