"""The OpenAPI document of the admin routes, made from the records that they take and give."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heavylift.gateway.admin import KeyList, KeyView, NewKey, Rotate, Usages, Workers, WorkerView
from heavylift.gateway.keys import Created

PATH: Final = "/admin/openapi.json"
_REF: Final = "#/components/schemas/{name}"
_RECORDS: Final = (Created, KeyList, KeyView, NewKey, Rotate, Usages, WorkerView, Workers)

# (method, path) -> summary, body, its obligation, status, reply, other statuses
_ROUTES: Final[dict[tuple[str, str], tuple[str, Any, bool, int, Any, tuple[int, ...]]]] = {
    ("get", "/admin/keys"): ("All keys, without their secrets", None, False, 200, KeyList, ()),
    ("post", "/admin/keys"): ("A new key, shown once", NewKey, True, 201, Created, (400, 409)),
    ("delete", "/admin/keys/{key}"): ("Revoke a key", None, False, 200, KeyView, (400, 404)),
    ("post", "/admin/keys/{key}/rotate"): (
        "A new secret for a key",
        Rotate,
        False,
        200,
        Created,
        (400, 404),
    ),
    ("get", "/admin/usage"): ("What was used", None, False, 200, Usages, (400,)),
    ("get", "/admin/workers"): ("The workers", None, False, 200, Workers, ()),
    ("post", "/admin/workers/{worker}/drain"): (
        "No new requests for a worker",
        None,
        False,
        200,
        WorkerView,
        (404,),
    ),
    ("delete", "/admin/workers/{worker}/drain"): (
        "New requests for a worker again",
        None,
        False,
        200,
        WorkerView,
        (404,),
    ),
    ("get", PATH): ("This document", None, False, 200, dict, ()),
}
_EVERYWHERE: Final = (401, 403, 413, 503)
_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": {"type": "string"},
            },
        }
    },
}


def document() -> dict[str, Any]:
    """The document."""
    _, components = msgspec.json.schema_components(_RECORDS, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), route in _ROUTES.items():
        paths.setdefault(path, {})[method] = _operation(method, path, route)
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "Heavylift gateway: admin routes",
            "version": "1",
            "description": "For keys of the admin scope, which cannot be used for inference.",
        },
        "paths": paths,
        "components": {
            "schemas": components | {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }
    read_back: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return read_back


def _operation(
    method: str, path: str, route: tuple[str, Any, bool, int, Any, tuple[int, ...]]
) -> dict[str, Any]:
    summary, body, needed, status, reply, others = route
    operation: dict[str, Any] = {
        "summary": summary,
        "operationId": f"{method}{path.replace('/', '_').translate({123: None, 125: None})}",
        "responses": {
            str(status): _content("As asked", _schema(reply)),
            **{
                str(other): _content("An error", {"$ref": _REF.format(name="Error")})
                for other in sorted({*others, *_EVERYWHERE})
            },
        },
    }
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("key", "worker")
        if f"{{{name}}}" in path
    ]
    if path == "/admin/usage":
        grouping: dict[str, Any] = {
            "type": "string",
            "enum": ["key", "team", "day"],
            "default": "key",
        }
        parameters.append({"name": "by", "in": "query", "required": False, "schema": grouping})
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {
            "required": needed,
            "content": {"application/json": {"schema": _schema(body)}},
        }
    return operation


def _schema(record: Any) -> dict[str, Any]:
    return {"type": "object"} if record is dict else {"$ref": _REF.format(name=record.__name__)}


def _content(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
