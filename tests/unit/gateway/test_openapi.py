"""The admin routes are described by a document that is true."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema

from heavylift.gateway import openapi

MakeKey = Callable[..., str]
Start = Callable[..., Any]
FILE = Path(__file__).parents[3] / "docs" / "schemas" / "gateway-admin.openapi.json"


def test_the_file_in_the_documentation_is_the_document() -> None:
    """`make schemas` writes it."""
    assert json.loads(FILE.read_text("utf-8")) == openapi.document()


def test_what_is_answered_is_what_is_described(
    start: Start, make_key: MakeKey, admin_key: str
) -> None:
    """Every route once, its reply against its schema; the document itself only with an admin key.

    A second live key of one name is refused, as on the command line.
    """
    document = openapi.document()

    async def work() -> None:
        async with start("http://127.0.0.1:1") as gateway, aiohttp.ClientSession() as session:

            async def ask(method: str, path: str, key: str = admin_key, body: Any = None) -> Any:
                headers = {"Authorization": f"Bearer {key}"}
                async with session.request(
                    method, f"{gateway.url}{path}", headers=headers, json=body
                ) as reply:
                    return reply.status, await reply.json()

            async def check(method: str, path: str, template: str, body: Any = None) -> Any:
                status, answer = await ask(method, path, body=body)
                operation = document["paths"][template][method.lower()]
                schema = operation["responses"][str(status)]["content"]["application/json"][
                    "schema"
                ]
                jsonschema.validate(answer, schema | {"components": document["components"]})
                return status, answer

            assert (await ask("GET", openapi.PATH, make_key()))[0] == 403
            assert (await ask("GET", openapi.PATH))[1] == document
            _, made = await check("POST", "/admin/keys", "/admin/keys", {"name": "new"})
            status, _ = await check("POST", "/admin/keys", "/admin/keys", {"name": "new"})
            assert status == 409
            one, rotate = "/admin/keys/{key}", "/admin/keys/{key}/rotate"
            await check("GET", "/admin/keys", "/admin/keys")
            await check("POST", f"/admin/keys/{made['id']}/rotate", rotate, {"grace_s": 1})
            assert (await check("DELETE", f"/admin/keys/{made['id']}", one))[0] == 200
            assert (await check("DELETE", f"/admin/keys/{made['id']}", one))[0] == 404
            await check("GET", "/admin/usage?by=day", "/admin/usage")
            assert (await check("GET", "/admin/usage?by=x", "/admin/usage"))[0] == 400
            await check("GET", "/admin/workers", "/admin/workers")
            drain = "/admin/workers/{worker}/drain"
            assert (await check("POST", "/admin/workers/w0/drain", drain))[0] == 200
            assert (await check("DELETE", "/admin/workers/none/drain", drain))[0] == 404

    asyncio.run(work())
