"""The gateway over HTTP: who is let in, what is admitted, what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.servers import answering, playing

from heavylift.gateway.redaction import Rules, redaction
from heavylift.gateway.request import Policy
from heavylift.gateway.serve import Running
from heavylift.wire.client import MESSAGES, Client, Endpoint
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

Start = Callable[..., contextlib.AbstractAsyncContextManager[Running]]
MakeKey = Callable[..., str]

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello there"}]
CHAT = {"model": "scripted", "messages": HELLO, "max_tokens": 8}
ASK = ChatRequest(model="scripted", messages=tuple(HELLO), max_tokens=8)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run it in an event loop of its own."""
    asyncio.run(work)


async def call(
    gateway: Running,
    path: str,
    body: Any = None,
    *,
    key: str | None = None,
    method: str | None = None,
    **headers: str,
) -> tuple[int, Any, dict[str, str]]:
    """Status, document and headers of one request."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        given["Authorization"] = f"Bearer {key}"
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method or ("GET" if body is None else "POST"),
            f"{gateway.url}{path}",
            data=data,
            headers=given,
        ) as response,
    ):
        content = await response.read()
        named = {name.lower(): value for name, value in response.headers.items()}
        return response.status, json.loads(content) if content else None, named


def audit(folder: Path) -> list[dict[str, Any]]:
    """The lines of the audit."""
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text("utf-8").splitlines()]


def usage(gateway: Running) -> tuple[int, int, int]:
    """Requests, prompt and answer tokens of the only key that used any."""
    assert gateway.ledger.flush()
    (row,) = gateway.ledger.store.usage("key")
    return row.requests, row.prompt_tokens, row.completion_tokens


def test_a_chat_passes_through_and_is_counted(
    start: Start, make_key: MakeKey, tmp_path: Path
) -> None:
    """Streamed or whole, in either protocol, with what the engine counted."""
    key = make_key()

    async def work() -> None:
        async with playing() as engine, start(engine.url) as gateway:
            async with Client(Endpoint(base_url=gateway.url, key=key)) as client:
                for request, protocol in (
                    (ASK, None),
                    (
                        ChatRequest(
                            model="scripted", messages=tuple(HELLO), max_tokens=8, stream=False
                        ),
                        None,
                    ),
                    (ASK, MESSAGES),
                ):
                    outcome = await (
                        client.chat(request) if protocol is None else client.chat(request, protocol)
                    )
                    assert outcome.failure is None
                    assert len(outcome.reply.text.split()) == 8
                    assert outcome.request_id
            assert usage(gateway) == (3, 6, 24)
        assert [line["outcome"] for line in audit(tmp_path)] == ["ok"] * 3
        first = audit(tmp_path)[0]
        assert (first["worker"], first["status"], first["completion_tokens"]) == ("w0", 200, 8)
        assert 0 <= first["ttft_s"] <= first["duration_s"]
        assert "body" not in first
        assert key not in (tmp_path / "audit.jsonl").read_text("utf-8")

    run(work())


def test_the_client_s_key_never_reaches_a_worker(start: Start, make_key: MakeKey) -> None:
    """The worker's own key stands in its place, and no other header of the client goes on."""
    key = make_key()
    seen: list[dict[str, str]] = []

    async def engine(request: web.Request) -> web.Response:
        seen.append({name.lower(): value for name, value in request.headers.items()})
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "scripted"}]})
        return web.json_response(
            {
                "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1},
            }
        )

    async def work() -> None:
        async with answering(engine) as url, start(url, worker_key="worker-secret") as gateway:
            seen.clear()
            status, _, _ = await call(
                gateway,
                "/v1/chat/completions",
                CHAT,
                key=key,
                Cookie="a=b",
                X_Forwarded_For="1.2.3.4",
                x_api_key="mine",
            )
            assert status == 200
        mine = next(headers for headers in seen if headers.get("x-request-id"))
        assert mine["authorization"] == "Bearer worker-secret"
        assert not {"cookie", "x-forwarded-for", "x-api-key"} & set(mine)
        assert all(key not in value for headers in seen for value in headers.values())

    run(work())


def test_without_a_good_key_there_is_nothing(
    start: Start, make_key: MakeKey, admin_key: str
) -> None:
    """Not even the list of models; and a body is not read."""
    key = make_key()

    async def work() -> None:
        async with playing() as engine, start(engine.url) as gateway:
            for path, body in (("/v1/models", None), ("/v1/chat/completions", CHAT)):
                for wrong in (None, "sk-1", key[:-1] + "?", key[:-2] + "xx"):
                    status, document, headers = await call(gateway, path, body, key=wrong)
                    assert (status, document["error"]["code"]) == (401, "invalid_api_key")
                    assert headers["www-authenticate"] == "Bearer"
            status, document, _ = await call(gateway, "/v1/chat/completions", CHAT, key=admin_key)
            assert (status, document["error"]["code"]) == (403, "GW042")
            status, _, _ = await call(gateway, "/admin/keys", key=key)
            assert status == 403
            assert engine.records[1:] == []  # the probe's only

    run(work())


def test_a_revoked_key_is_out_at_once(start: Start, make_key: MakeKey) -> None:
    """The next request is refused."""
    key = make_key()

    async def work() -> None:
        async with playing() as engine, start(engine.url) as gateway:
            assert (await call(gateway, "/v1/models", key=key))[0] == 200
            gateway.ledger.store.revoke_key("test", now_epoch_s=0.0)
            assert (await call(gateway, "/v1/models", key=key))[0] == 401

    run(work())


def test_models_are_those_of_the_key(start: Start, make_key: MakeKey) -> None:
    """Aliases are listed and served; others are not to be had."""
    every, one = make_key(), make_key(models=("nick",))

    async def work() -> None:
        async with (
            playing('[server]\nmodels = ["a", "b"]') as engine,
            start(engine.url, aliases={"nick": "a"}) as gateway,
        ):
            _, document, _ = await call(gateway, "/v1/models", key=every)
            assert [model["id"] for model in document["data"]] == ["a", "b", "nick"]
            _, document, _ = await call(gateway, "/v1/models", key=one)
            assert [model["id"] for model in document["data"]] == ["nick"]
            card = (await call(gateway, "/v1/models/nick", key=one))[1]
            assert (card["id"], card["max_model_len"]) == ("nick", 8192)
            assert (await call(gateway, "/v1/models/a", key=one))[0] == 404
            status, _, _ = await call(
                gateway, "/v1/chat/completions", CHAT | {"model": "nick"}, key=one
            )
            assert status == 200
            assert engine.records[-1].model == "a"
            status, document, _ = await call(
                gateway, "/v1/chat/completions", CHAT | {"model": "a"}, key=one
            )
            assert (status, document["error"]["code"]) == (403, "model_not_allowed")
            status, document, _ = await call(
                gateway, "/v1/chat/completions", CHAT | {"model": "zzz"}, key=every
            )
            assert (status, document["error"]["code"]) == (404, "model_not_found")

    run(work())


def test_a_spent_quota_is_a_429_with_a_wait(start: Start, make_key: MakeKey) -> None:
    """In the error and the headers that client libraries know."""
    key = make_key(requests_per_minute=2, tokens_per_minute=100_000)

    async def work() -> None:
        async with playing() as engine, start(engine.url) as gateway:
            _, _, headers = await call(gateway, "/v1/chat/completions", CHAT, key=key)
            assert headers["x-ratelimit-limit-requests"] == "2"
            assert headers["x-ratelimit-remaining-requests"] == "1"
            assert int(headers["x-ratelimit-remaining-tokens"]) < 100_000
            await call(gateway, "/v1/chat/completions", CHAT, key=key)
            status, document, headers = await call(gateway, "/v1/chat/completions", CHAT, key=key)
            assert (status, document["error"]["code"]) == (429, "rate_limit_exceeded")
            assert 55 <= int(headers["retry-after"]) <= 65
            status, document, _ = await call(gateway, "/v1/messages", CHAT, key=key)
            assert (status, document["error"]["type"]) == (429, "rate_limit_error")
            assert engine.records[-1].number == 3  # the probe and the two that were admitted

    run(work())


def test_what_can_never_fit_is_not_to_be_tried_again(start: Start, make_key: MakeKey) -> None:
    """The header stops the client library's own retries."""
    key = make_key(tokens_per_day=10)

    async def work() -> None:
        async with playing() as engine, start(engine.url) as gateway:
            status, _, headers = await call(gateway, "/v1/chat/completions", CHAT, key=key)
            assert status == 429
            assert headers["x-should-retry"] == "false"
            assert "retry-after" not in headers

    run(work())


def test_many_at_once_do_not_overspend(start: Start, make_key: MakeKey) -> None:
    """Forty at once against a day that has room for a few: the engine sees only those."""
    key = make_key(tokens_per_day=1000)

    async def work() -> None:
        async with (
            playing("[pace]\nttft_s = 0.1\n[reply]\ntokens = 8\n") as engine,
            start(engine.url) as gateway,
        ):
            answers = await asyncio.gather(
                *(call(gateway, "/v1/chat/completions", CHAT, key=key) for _ in range(40))
            )
            statuses = [status for status, _, _ in answers]
            assert set(statuses) == {200, 429}
            assert 5 <= statuses.count(200) <= 1000 // 80

    run(work())


def test_an_open_length_is_stated_to_the_engine(start: Start, make_key: MakeKey) -> None:
    """The key's cap, where the client says nothing."""
    key = make_key(max_output_tokens=5)

    async def work() -> None:
        async with playing() as engine, start(engine.url) as gateway:
            body = {"model": "scripted", "messages": HELLO}
            _, document, _ = await call(gateway, "/v1/chat/completions", body, key=key)
            assert document["choices"][0]["finish_reason"] == "length"
            assert document["usage"]["completion_tokens"] == 5

    run(work())


def test_a_client_that_goes_is_charged_for_what_it_saw(
    start: Start, make_key: MakeKey, tmp_path: Path
) -> None:
    """The engine is stopped, the reservation is gone, and it was not for nothing."""
    key = make_key(tokens_per_day=100_000)

    async def work() -> None:
        async with (
            playing("[pace]\ninterval_s = 0.02\n[reply]\ntokens = 500\n") as engine,
            start(engine.url) as gateway,
        ):
            body = CHAT | {"stream": True, "max_tokens": 500}
            async with (
                aiohttp.ClientSession() as session,
                session.post(
                    f"{gateway.url}/v1/chat/completions",
                    json=body,
                    headers={"Authorization": f"Bearer {key}"},
                ) as response,
            ):
                for _ in range(10):
                    await response.content.readuntil(b"\n\n")
            while engine.open_chats or gateway.ledger.open_requests():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            requests, prompt, completion = usage(gateway)
            assert requests == 1
            assert prompt > 0
            assert 8 <= completion < 500
        assert audit(tmp_path)[-1]["outcome"] == "client_gone"
        assert audit(tmp_path)[-1]["estimated"]

    run(work())


def test_usage_that_is_missing_is_counted_here(start: Start, make_key: MakeKey) -> None:
    """From the pieces that passed."""
    key = make_key()

    async def work() -> None:
        async with (
            playing("[reply]\nusage = false\ntokens = 8\n") as engine,
            start(engine.url) as gateway,
        ):
            async with Client(Endpoint(base_url=gateway.url, key=key)) as client:
                assert (await client.chat(ASK)).failure is None
            _, prompt, completion = usage(gateway)
            assert prompt > 0
            assert completion == 8

    run(work())


def test_usage_that_was_not_asked_for_is_not_sent(start: Start, make_key: MakeKey) -> None:
    """The client sees the stream it would see without a gateway."""
    key = make_key()

    async def work() -> None:
        async with playing("[reply]\nstamps = false\n") as engine, start(engine.url) as gateway:
            body = json.dumps(CHAT | {"stream": True}).encode()
            async with aiohttp.ClientSession() as session:
                streams = [
                    await (
                        await session.post(f"{url}/v1/chat/completions", data=body, headers=headers)
                    ).read()
                    for url, headers in (
                        (engine.url, {}),
                        (gateway.url, {"Authorization": f"Bearer {key}"}),
                    )
                ]
            assert b'"usage":{' not in streams[1]
            assert streams[1].endswith(b"data: [DONE]\n\n")
            assert streams[1].count(b"\n\n") == 1 + 8 + 1 + 1
            assert usage(gateway) == (1, 2, 8)

    run(work())


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "GET", 404),
        ("/v1/nothing", "POST", 404),
        ("/v1/chat/completions", "GET", 405),
        ("/v1/chat/completions", "OPTIONS", 405),
        ("/v1/models", "POST", 405),
        ("/admin/../v1/models", "GET", 200),
    ],
)
def test_other_paths_and_methods(
    start: Start, make_key: MakeKey, path: str, method: str, status: int
) -> None:
    """Are refused in the protocol's words, without a word for browsers of other sites."""
    key = make_key()

    async def work() -> None:
        async with playing() as engine, start(engine.url) as gateway:
            found, _, headers = await call(gateway, path, key=key, method=method, Origin="http://x")
            assert found == status
            assert not [name for name in headers if name.startswith("access-control")]

    run(work())


def test_bodies_have_a_size_an_encoding_and_a_time(start: Start, make_key: MakeKey) -> None:
    """Announced or not; what is too large is not read to its end."""
    key = make_key()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(5)
        yield b"}"

    async def work() -> None:
        async with (
            playing() as engine,
            start(engine.url, body_bytes=10_000, times={"body_s": 0.2}) as gateway,
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session,
        ):
            url = f"{gateway.url}/v1/chat/completions"
            for data, status in ((b"x" * 10_001, 413), (pieces(), 413), (slow(), 408)):
                async with session.post(url, data=data) as response:
                    assert response.status == status
            async with session.post(
                url, data=b"x", headers={"Content-Encoding": "gzip"}
            ) as response:
                assert response.status == 415

    run(work())


def test_a_client_may_ask_before_it_sends(start: Start, make_key: MakeKey) -> None:
    """`Expect: 100-continue` is answered once the key is good."""
    key = make_key()

    async def work() -> None:
        async with (
            playing() as engine,
            start(engine.url) as gateway,
            aiohttp.ClientSession() as session,
            session.post(
                f"{gateway.url}/v1/chat/completions",
                json=CHAT,
                headers={"Authorization": f"Bearer {key}"},
                expect100=True,
            ) as response,
        ):
            assert response.status == 200

    run(work())


def test_headers_that_do_not_arrive_end_the_connection(start: Start) -> None:
    """A client that sends a byte now and then holds nothing; garbage is answered, not logged."""

    async def work() -> None:
        async with playing() as engine, start(engine.url, times={"header_s": 0.3}) as gateway:
            port = int(gateway.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n")
            assert await asyncio.wait_for(reader.read(), 30.0) == b""
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x16\x03\x01 nonsense\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), 30.0)).startswith(b"HTTP/1.0 400")
            writer.close()

    run(work())


def test_a_client_that_does_not_read_is_cut_off(start: Start, make_key: MakeKey) -> None:
    """Its stream is ended and its engine freed; others are not held up."""
    key = make_key()
    toml = f"[reply]\ntext = '''{'word ' * 400_000}'''\n"

    async def work() -> None:
        async with (
            playing(toml) as engine,
            start(engine.url, times={"slow_client_s": 0.4}) as gateway,
        ):
            port = int(gateway.url.rpartition(":")[2])
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            body = json.dumps(CHAT | {"stream": True, "max_tokens": 8000}).encode()
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                + key.encode()
                + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body
            )
            for _ in range(600):
                await asyncio.sleep(0.05)
                if gateway.gateway.visits == 0 and engine.records[1:]:
                    break
            assert gateway.gateway.visits == 0
            gateway.ledger.flush()
            assert gateway.ledger.open_requests() == 0
            writer.close()

    run(work())


def test_the_engine_s_own_errors_pass(start: Start, make_key: MakeKey) -> None:
    """A refusal is the client's to read, and costs nothing."""
    key = make_key()

    async def work() -> None:
        async with (
            playing(
                "[[rule]]\nmatch = { first = 2 }\nfault = { kind = 'context_too_long' }"
            ) as engine,
            start(engine.url) as gateway,
        ):
            async with Client(Endpoint(base_url=gateway.url, key=key)) as client:
                assert (await client.chat(ASK)).failure is Failure.CONTEXT_TOO_LONG
            assert usage(gateway) == (1, 0, 0)

    run(work())


def test_an_engine_that_asks_for_a_wait_is_heard(start: Start, make_key: MakeKey) -> None:
    """Its Retry-After goes to the client."""
    key = make_key()
    fault = "{ kind = 'reject', status = 429, retry_after_s = 7 }"
    toml = f"[[rule]]\nmatch = {{ first = 2 }}\nfault = {fault}"

    async def work() -> None:
        async with playing(toml) as engine, start(engine.url) as gateway:
            status, _, headers = await call(gateway, "/v1/chat/completions", CHAT, key=key)
            assert (status, headers["retry-after"]) == (429, "7")

    run(work())


def test_fetching_is_denied_by_default(start: Start, make_key: MakeKey) -> None:
    """And allowed for hosts that are named."""
    key = make_key()
    content = [{"type": "image_url", "image_url": {"url": "https://pics.example.org/a.png"}}]
    body = {
        "model": "scripted",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 2,
    }

    async def work() -> None:
        async with playing() as engine:
            async with start(engine.url) as gateway:
                status, document, _ = await call(gateway, "/v1/chat/completions", body, key=key)
                assert (status, document["error"]["code"]) == (400, "url_fetch_denied")
            policy = Policy(fetch_hosts=frozenset({"pics.example.org"}))
            async with start(engine.url, policy=policy) as gateway:
                assert (await call(gateway, "/v1/chat/completions", body, key=key))[0] == 200

    run(work())


def test_bodies_are_kept_when_asked_for(start: Start, make_key: MakeKey, tmp_path: Path) -> None:
    """In the audit, as sent where nothing in it is secret."""
    key = make_key()

    async def work() -> None:
        async with playing() as engine, start(engine.url, redact=redaction(Rules())) as gateway:
            await call(gateway, "/v1/chat/completions", CHAT, key=key, x_request_id="mine-1")
        line = audit(tmp_path)[-1]
        assert json.loads(line["body"]) == CHAT
        assert line["request_id"] == "mine-1"

    run(work())


def test_a_request_id_is_kept_if_it_is_one(start: Start, make_key: MakeKey) -> None:
    """Anything else would be a way to write into logs."""
    key = make_key()

    async def work() -> None:
        async with playing() as engine, start(engine.url) as gateway:
            for given, kept in (("abc-1.2:3", True), ("a b", False), ("x" * 200, False)):
                _, _, headers = await call(gateway, "/v1/models", key=key, x_request_id=given)
                assert (headers["x-request-id"] == given) is kept

    run(work())


def test_tls(start: Start, make_key: MakeKey, tmp_path: Path) -> None:
    """The gateway speaks https where a certificate is given, and nothing older than TLS 1.2."""
    from heavylift.gateway.config import Tls  # noqa: PLC0415 - beside its only use

    key = make_key()
    certificate, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(private), "-out", str(certificate)],
        check=False, capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("no openssl command to make a certificate with")
    trusting = ssl.create_default_context(cafile=str(certificate))

    async def work() -> None:
        tls = Tls(certificate=certificate, key=private)
        async with playing() as engine, start(engine.url, tls=tls) as gateway:
            assert gateway.url.startswith("https://")
            async with (
                aiohttp.ClientSession() as session,
                session.get(
                    f"{gateway.url}/v1/models",
                    headers={"Authorization": f"Bearer {key}"},
                    ssl=trusting,
                ) as response,
            ):
                assert response.status == 200

    run(work())


def test_the_admin_routes(start: Start, make_key: MakeKey, admin_key: str) -> None:
    """Keys are made, listed, rotated and revoked, usage is summed up, workers are drained."""
    make_key()

    async def work() -> None:
        async with playing() as engine, start(engine.url) as gateway:

            async def admin(
                path: str, body: Any = None, method: str | None = None
            ) -> tuple[int, Any]:
                status, document, _ = await call(
                    gateway, f"/admin/{path}", body, key=admin_key, method=method
                )
                return status, document

            status, made = await admin("keys", {"name": "new", "limits": {"tokens_per_day": 500}})
            assert status == 201
            assert (await call(gateway, "/v1/chat/completions", CHAT, key=made["key"]))[0] == 200
            gateway.ledger.flush()
            _, used = await admin("usage?by=key")
            assert used["rows"] == [
                {
                    "key_id": made["id"],
                    "name": "new",
                    "requests": 1,
                    "prompt_tokens": 2,
                    "completion_tokens": 8,
                    "cached_tokens": 0,
                    "estimated": 0,
                }
            ]
            assert (await admin("usage?by=month"))[0] == 400
            _, listed = await admin("keys")
            assert made["id"] in [key["id"] for key in listed["keys"]]
            assert "digest" not in json.dumps(listed)
            _, rotated = await admin(f"keys/{made['id']}/rotate", {"grace_s": 60})
            assert (await call(gateway, "/v1/models", key=rotated["key"]))[0] == 200
            assert (await admin(f"keys/{made['id']}", method="DELETE"))[0] == 200
            assert (await call(gateway, "/v1/models", key=rotated["key"]))[0] == 401
            assert (await admin(f"keys/{made['id']}", method="DELETE"))[0] == 404
            _, drained = await admin("workers/w0/drain", b"", "POST")
            assert drained["draining"]
            assert (await call(gateway, "/readyz"))[0] == 503
            await admin("workers/w0/drain", method="DELETE")
            _, workers = await admin("workers")
            assert workers["workers"][0]["state"] == "in"
            for path, body, method in (
                ("keys", b"{", "POST"),
                ("keys", {"name": "x", "odd": 1}, "POST"),
                ("keys", {"name": ""}, "POST"),
                ("keys", {"name": "x", "networks": ["no"]}, "POST"),
                ("keys", None, "PUT"),
                ("workers/none/drain", b"", "POST"),
                ("nothing", None, "GET"),
            ):
                assert 400 <= (await admin(path, body, method))[0] < 500

    run(work())
