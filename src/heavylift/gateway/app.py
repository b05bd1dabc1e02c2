"""The gateway as an HTTP application: who may ask, what is admitted, and what comes back.

Texts for people are not made here: errors are codes, and `say` turns one into a sentence.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import ClientConnectionError, HttpVersion11, web

from heavylift.errors import HeavyliftError
from heavylift.gateway import keys, openapi, quota, relay
from heavylift.gateway.admin import Admin
from heavylift.gateway.audit import Audit, Line
from heavylift.gateway.batches import Batches, is_batch_path
from heavylift.gateway.carrier import Answer, Carrier, ClientGone, Failed, Job, status_of
from heavylift.gateway.config import Settings
from heavylift.gateway.connection import Connection
from heavylift.gateway.keys import Denial, Key, Scope
from heavylift.gateway.ledger import Ledger, Lost, Reservation
from heavylift.gateway.quota import Refusal
from heavylift.gateway.request import ROUTES, Asked, Route, Style, read
from heavylift.gateway.routing import Fleet
from heavylift.wire.failures import Failure

Say = Callable[[HeavyliftError], str]

_MODELS: Final = "/v1/models"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_PASSED_ON: Final = ("Accept", "anthropic-version", "anthropic-beta")
_RETRY_S: Final = 2
"""What a client is told to wait when no worker takes requests: a probe comes every second."""

# code -> status, error type in the OpenAI words, error type in the Anthropic words
_INVALID: Final = ("invalid_request_error", "invalid_request_error")
_STATUS: Final[Mapping[str, tuple[HTTPStatus, str, str]]] = {
    "GW012": (HTTPStatus.NOT_FOUND, "invalid_request_error", "not_found_error"),
    "STA004": (HTTPStatus.SERVICE_UNAVAILABLE, "server_error", "overloaded_error"),
    "GW020": (HTTPStatus.SERVICE_UNAVAILABLE, "server_error", "overloaded_error"),
    "GW015": (HTTPStatus.CONFLICT, *_INVALID),
    "GW025": (HTTPStatus.BAD_GATEWAY, "upstream_error", "api_error"),
    "GW024": (HTTPStatus.SERVICE_UNAVAILABLE, "server_error", "overloaded_error"),
    "GW030": (HTTPStatus.BAD_REQUEST, *_INVALID),
    "GW031": (HTTPStatus.BAD_REQUEST, *_INVALID),
    "GW032": (HTTPStatus.BAD_REQUEST, *_INVALID),
    "GW033": (
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "invalid_request_error",
        "request_too_large",
    ),
    "GW034": (HTTPStatus.REQUEST_TIMEOUT, *_INVALID),
    "GW035": (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, *_INVALID),
    "GW036": (HTTPStatus.BAD_REQUEST, *_INVALID),
    "GW040": (HTTPStatus.UNAUTHORIZED, "invalid_request_error", "authentication_error"),
    "GW041": (HTTPStatus.FORBIDDEN, "invalid_request_error", "permission_error"),
    "GW042": (HTTPStatus.FORBIDDEN, "invalid_request_error", "permission_error"),
    "GW043": (HTTPStatus.FORBIDDEN, "invalid_request_error", "permission_error"),
    "GW047": (HTTPStatus.FORBIDDEN, "invalid_request_error", "permission_error"),
    "GW044": (HTTPStatus.NOT_FOUND, "invalid_request_error", "not_found_error"),
    "GW045": (HTTPStatus.NOT_FOUND, "invalid_request_error", "not_found_error"),
    "GW046": (HTTPStatus.METHOD_NOT_ALLOWED, *_INVALID),
    "GW050": (HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_error", "rate_limit_error"),
    "GW060": (HTTPStatus.SERVICE_UNAVAILABLE, "server_error", "overloaded_error"),
    "GW061": (HTTPStatus.BAD_GATEWAY, "upstream_error", "api_error"),
}

_CODES: Final = {
    "GW040": "invalid_api_key",
    "GW043": "model_not_allowed",
    "GW044": "model_not_found",
    "GW050": "rate_limit_exceeded",
    "GW032": "url_fetch_denied",
}
"""Codes that clients know by another name."""

_BY_DENIAL: Final = {Denial.NETWORK: "GW041", Denial.SCOPE: "GW042"}


@dataclass(kw_only=True, slots=True)
class Visit:
    """One request of a client from its first header to its last byte, for the audit."""

    request_id: str
    began_at: float
    at: str
    address: str | None
    path: str
    style: Style
    key: Key | None = None
    job: Job | None = None
    model: str | None = None
    stream: bool = False
    status: int | None = None
    outcome: str | None = None
    bytes_in: int = 0
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def audited(self) -> bool:
        """True for everything but a look at the list of models."""
        return self.outcome is not None or not self.path.startswith(_MODELS)


class Gateway:
    """Answers every request. `handle` is the handler of an aiohttp server."""

    def __init__(
        self,
        settings: Settings,
        *,
        ledger: Ledger,
        fleet: Fleet,
        carrier: Carrier,
        audit: Audit,
        say: Say,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._fleet = fleet
        self._carrier = carrier
        self._audit = audit
        self._say = say
        self._admin = Admin(fleet)
        self._batches = (
            None
            if settings.batches is None
            else Batches(settings.batches, settings.batch_key, settings.times)
        )
        self.draining = False
        self.visits = 0
        """Requests being answered."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to one request."""
        connection = request.protocol
        if isinstance(connection, Connection):
            connection.began()
        if request.path in ("/healthz", "/readyz"):
            response: web.StreamResponse = self._health(request.path)
        else:
            response = await self._visited(request)
        if self.draining:
            response.force_close()
        if isinstance(connection, Connection):
            connection.ended()
        return response

    def _health(self, path: str) -> web.Response:
        workers = {worker.upstream.name: worker for worker in self._fleet.workers.values()}
        taking = sum(worker.takes for worker in workers.values())
        ready = taking > 0 and not self.draining
        document = {
            "ready": ready,
            "draining": self.draining,
            "workers": len(workers),
            "workers_ready": taking,
            "open_requests": self.visits,
            "audit_lines_lost": self._audit.lost,
        }
        alive = ready or path == "/healthz"
        return _json(document, HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE)

    async def _visited(self, request: web.BaseRequest) -> web.StreamResponse:
        visit = _visit(request)
        self.visits += 1
        try:
            response = await self._answer(request, visit)
        except HeavyliftError as error:
            response = self._error(visit, error)
        except ClientGone:
            visit.outcome = "client_gone"
            raise ConnectionResetError from None
        except asyncio.CancelledError:
            visit.outcome = "client_gone"
            raise
        except Failed as failed:
            response = self._failed(visit, failed)
        except Exception:
            visit.outcome = "internal_error"
            raise
        else:
            if isinstance(response, web.Response):
                response.headers.update(visit.headers)
        finally:
            self.visits -= 1
            if visit.audited:
                self._audit.write(self._line(visit))
        return response

    async def _answer(self, request: web.BaseRequest, visit: Visit) -> web.StreamResponse:
        path = request.path
        route = ROUTES.get(path)
        if route is not None:
            _expect_method(request, "POST")
            return await self._infer(request, route, visit)
        if path == _MODELS or path.startswith(f"{_MODELS}/"):
            _expect_method(request, "GET")
            key = await self._authenticate(request, visit, Scope.INFER)
            return self._models(key, path.removeprefix(_MODELS).strip("/"))
        if self._batches is not None and is_batch_path(path):
            return await self._batch(request, self._batches, visit)
        if path.startswith("/admin/"):
            await self._authenticate(request, visit, Scope.ADMIN)
            if path == openapi.PATH and request.method == "GET":
                return _json(openapi.document())
            body = await self._body(request, visit)
            document, status = await self._ledger.manage(
                lambda store: self._admin.answer(store, request.method, path, request.query, body)
            )
            return _json(document, status)
        raise HeavyliftError("GW045", {"path": path[:200]})

    # --- who -------------------------------------------------------------------------------------

    async def _authenticate(self, request: web.BaseRequest, visit: Visit, scope: Scope) -> Key:
        presented = _presented(request.headers)
        key_id = None if presented is None else keys.id_of(presented)
        kept = None if key_id is None else await self._ledger.key(key_id)
        denial = keys.judge(
            presented or "", kept, scope=scope, address=visit.address, now_epoch_s=time.time()
        )
        if denial is not Denial.UNKNOWN:
            visit.key = kept
        if presented is None:
            denial = Denial.MISSING
        if denial is not None:
            raise HeavyliftError(_BY_DENIAL.get(denial, "GW040"), {"reason": str(denial)})
        if kept is None:
            raise HeavyliftError("GW040", {"reason": str(Denial.UNKNOWN)})
        return kept

    def _models(self, key: Key, name: str) -> web.Response:
        names = [model for model in self._fleet.models() if key.allows_model(model)]
        cards = [_card(model, self._fleet.context_tokens(model)) for model in names]
        if not name:
            return _json({"object": "list", "data": cards})
        if name not in names:
            raise HeavyliftError("GW044", {"model": name[:200]})
        return _json(cards[names.index(name)])

    # --- inference -------------------------------------------------------------------------------

    async def _infer(
        self, request: web.BaseRequest, route: Route, visit: Visit
    ) -> web.StreamResponse:
        key = await self._authenticate(request, visit, Scope.INFER)
        body = await self._body(request, visit)
        if self._audit.keeps_bodies:
            visit.body = self._audit.body(body)
        asked = read(
            route,
            body,
            max_output_tokens=key.max_output_tokens,
            policy=self._settings.policy,
        )
        visit.model, visit.stream = asked.model, asked.stream
        model = self._model(key, asked)
        reservation = await self._admitted(key, asked.model, asked.bound, visit)
        job = Job(asked=asked, model=model, bound=reservation.bound, began_at=visit.began_at)
        visit.job = job
        try:
            return await self._carry(request, visit, job)
        finally:
            self._ledger.settle(reservation.id, job.cost())

    async def _batch(
        self, request: web.BaseRequest, batches: Batches, visit: Visit
    ) -> web.StreamResponse:
        """A request for the batch server. It takes no tokens here: its rows are asked elsewhere."""
        key = await self._authenticate(request, visit, Scope.INFER)
        if not key.batches:
            raise HeavyliftError("GW047")
        visit.bytes_in = request.content_length or 0
        given = await self._admitted(key, "", quota.Bound(prompt_tokens=0, output_tokens=0), visit)
        try:
            response = await batches.pass_on(self._carrier.session, request, visit.headers)
        finally:
            self._ledger.settle(given.id, quota.NOTHING)
        visit.status = response.status
        return response

    def _model(self, key: Key, asked: Asked) -> str:
        if not key.allows_model(asked.model):
            raise HeavyliftError("GW043", {"model": asked.model[:200]})
        model = self._fleet.model_of(asked.model)
        if not self._fleet.knows(model):
            # While nothing is known of any worker, nothing can be said about models.
            known = any(worker.models for worker in self._fleet.workers.values())
            raise HeavyliftError("GW044" if known else "GW060", {"model": asked.model[:200]})
        return model

    async def _admitted(
        self, key: Key, model: str, bound: quota.Bound, visit: Visit
    ) -> Reservation:
        given = await self._ledger.reserve(key, model, bound)
        if isinstance(given, Refusal):
            visit.headers |= _refusal_headers(given)
            raise HeavyliftError(
                "GW050",
                {
                    "limit": str(given.limit),
                    "allowed": given.allowed,
                    "left": given.left,
                    "wanted": given.wanted,
                },
            )
        visit.headers |= _left_headers(key, given)
        return given

    async def _carry(self, request: web.BaseRequest, visit: Visit, job: Job) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers |= {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "x-request-id": visit.request_id,
        }
        client = _StreamClient(request, visit, job, self._say)
        answer = await self._carrier.carry(job, headers, client)
        if answer is not None:
            job.bytes_out = len(answer.body)
            visit.status = answer.status
            return _response(answer)
        visit.status = HTTPStatus.OK
        await client.finish()
        return client.response

    async def _body(self, request: web.BaseRequest, visit: Visit) -> bytes:
        """The body of a request. Raises GW033, GW034, GW035 for its size, time and encoding."""
        limit = self._settings.body_bytes
        if request.content_length is not None and request.content_length > limit:
            raise HeavyliftError("GW033", {"limit_bytes": limit})
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise HeavyliftError("GW035")
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if request.content.is_eof():
            # A body that is here already, as most are, needs no clock.
            content = request.content.read_nowait()
            visit.bytes_in = len(content)
            if len(content) > limit:
                raise HeavyliftError("GW033", {"limit_bytes": limit})
            return content
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(self._settings.times.body_s):
                while chunk := await request.content.readany():
                    chunks.append(chunk)
                    visit.bytes_in += len(chunk)
                    if visit.bytes_in > limit:
                        raise HeavyliftError("GW033", {"limit_bytes": limit})
        except TimeoutError as problem:
            raise HeavyliftError("GW034") from problem
        except web.RequestPayloadError as problem:
            raise HeavyliftError("GW036") from problem
        return b"".join(chunks)

    # --- errors ----------------------------------------------------------------------------------

    def _error(
        self, visit: Visit, error: HeavyliftError, status: HTTPStatus | None = None
    ) -> web.Response:
        if error.code == "GW023":  # where the database is concerns no client
            error = HeavyliftError("GW024")
        usual, openai_type, anthropic_type = _STATUS.get(
            error.code, (HTTPStatus.BAD_REQUEST, *_INVALID)
        )
        status = visit.status = status or usual
        visit.outcome = visit.outcome or _CODES.get(error.code, error.code)
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            visit.headers["Retry-After"] = str(_RETRY_S)
        if status is HTTPStatus.UNAUTHORIZED:
            visit.headers["WWW-Authenticate"] = "Bearer"
        message = self._say(error)
        if visit.style is Style.ANTHROPIC:
            document: dict[str, Any] = {
                "type": "error",
                "error": {"type": anthropic_type, "message": message},
                "request_id": visit.request_id,
            }
        else:
            code = _CODES.get(error.code, error.code)
            document = {
                "error": {"message": message, "type": openai_type, "param": None, "code": code}
            }
        response = _json(document, status)
        response.headers.update(visit.headers)
        return response

    def _failed(self, visit: Visit, failed: Failed) -> web.Response:
        """What the client gets of an attempt that failed: the worker's own words if it had any."""
        visit.outcome = str(failed.failure)
        if failed.answer is not None:
            visit.status = failed.answer.status
            response = _response(failed.answer)
            response.headers.update(visit.headers)
            return response
        error = HeavyliftError("GW061", {"failure": str(failed.failure)})
        return self._error(visit, error, status_of(failed.failure))

    # --- audit -----------------------------------------------------------------------------------

    def _line(self, visit: Visit) -> Line:
        job, key = visit.job, visit.key
        cost = quota.NOTHING if job is None else job.cost()
        outcome = visit.outcome or (str(job.failure) if job and job.failure else "ok")
        began_at = visit.began_at
        first = None if job is None else job.first_token_at
        return Line(
            at=visit.at,
            request_id=visit.request_id,
            outcome=outcome,
            key_id=None if key is None else key.id,
            key_name=None if key is None else key.name,
            team=None if key is None else key.team,
            address=visit.address,
            path=visit.path[:200],
            model=visit.model,
            worker=None if job is None or job.worker is None else job.worker.upstream.name,
            attempts=0 if job is None else job.attempts,
            status=visit.status,
            stream=visit.stream,
            prompt_tokens=None if job is None else cost.prompt_tokens,
            completion_tokens=None if job is None else cost.completion_tokens,
            estimated=cost.estimated,
            ttft_s=None if first is None else round(first - began_at, 6),
            duration_s=round(time.monotonic() - began_at, 6),
            bytes_in=visit.bytes_in,
            bytes_out=0 if job is None else job.bytes_out,
            body=visit.body,
        )

    def note_lost(self, lost: Lost) -> None:
        """Write the audit line of a request whose gateway died."""
        self._audit.write(
            Line(
                at=_rfc3339(lost.began_at),
                request_id="",
                outcome="gateway_died",
                key_id=lost.key_id,
                model=lost.model,
                prompt_tokens=lost.cost.prompt_tokens,
                completion_tokens=lost.cost.completion_tokens,
                estimated=True,
            )
        )


class _StreamClient:
    """The client's side of a stream."""

    def __init__(self, request: web.BaseRequest, visit: Visit, job: Job, say: Say) -> None:
        self._request = request
        self._visit = visit
        self._job = job
        self._say = say
        self.began = False
        self._response: web.StreamResponse | None = None
        self._transport: asyncio.Transport | None = None
        """Where events go without a detour, once the reply has begun in chunks."""

    @property
    def response(self) -> web.StreamResponse:
        """The reply; made when it is first asked for, as most replies are whole ones."""
        if self._response is None:
            self._response = web.StreamResponse()
        return self._response

    async def send(self, events: bytes) -> None:
        """Write events; the first write begins the reply. Raises `ClientGone`."""
        response = self._response or self.response
        try:
            if not self.began:
                response.content_type = "text/event-stream"
                response.headers["Cache-Control"] = "no-cache"
                response.headers["X-Accel-Buffering"] = "no"
                response.headers["Server"] = "heavylift"
                response.headers.update(self._visit.headers)
                in_chunks = self._request.version >= HttpVersion11
                if in_chunks:
                    response.enable_chunked_encoding()
                await response.prepare(self._request)
                await response.write(events)
                self.began = True
                if in_chunks:
                    self._transport = self._request.transport
                self._job.bytes_out += len(events)
                return
            await response.write(events)
        except (ClientConnectionError, ConnectionError) as problem:
            raise ClientGone from problem
        self._job.bytes_out += len(events)

    def push(self, events: bytes) -> bool:
        """Write events at once where nothing waits to be sent; False when `send` has to.

        Two layers less than aiohttp's own writing, 1.2 µs of an event. Where the client is slow,
        its writing waits as it should.
        """
        transport = self._transport
        if transport is None or transport.get_write_buffer_size() or transport.is_closing():
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(events), events))
        self._job.bytes_out += len(events)
        return True

    async def finish(self) -> None:
        """End the reply in good order, whatever its last event said."""
        if self._job.failure is not None:
            self.response.force_close()
        try:
            await self.response.write_eof()
        except (ClientConnectionError, ConnectionError) as problem:
            raise ClientGone from problem

    def error_event(self, failure: Failure) -> bytes:
        """The event that tells of a broken stream."""
        message = self._say(HeavyliftError("GW062", {"failure": str(failure)}))
        return relay.error_event(self._job.asked.route.dialect, message, failure)

    def drop(self) -> None:
        """Cut the client off: it does not read."""
        if self._request.transport is not None:
            self._request.transport.abort()


def _visit(request: web.BaseRequest) -> Visit:
    given = request.headers.get("x-request-id")
    if given is None or not _REQUEST_ID.fullmatch(given):
        given = os.urandom(16).hex()
    request_id = given
    route = ROUTES.get(request.path)
    peer = request.transport and request.transport.get_extra_info("peername")
    return Visit(
        request_id=request_id,
        began_at=time.monotonic(),
        at=_rfc3339(time.time()),
        address=peer[0] if isinstance(peer, tuple) else None,
        path=request.path,
        style=Style.OPENAI if route is None else route.style,
        headers={"x-request-id": request_id},
    )


def _presented(headers: Mapping[str, str]) -> str | None:
    """The key that a client presents, in either protocol's way."""
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key:
        return key.strip()
    return headers.get("x-api-key")


def _expect_method(request: web.BaseRequest, method: str) -> None:
    if request.method != method:
        raise HeavyliftError("GW046", {"method": request.method[:20], "path": request.path[:200]})


def _card(model: str, context_tokens: int | None) -> dict[str, Any]:
    """A model as it is listed; the context in the field in which engines state it."""
    card: dict[str, Any] = {
        "id": model,
        "object": "model",
        "created": 0,
        "owned_by": "heavylift",
    }
    return card if context_tokens is None else card | {"max_model_len": context_tokens}


def _refusal_headers(refusal: Refusal) -> dict[str, str]:
    if refusal.retry_after_s is None:
        # The client library would try again, in vain.
        return {"x-should-retry": "false"}
    return {"Retry-After": str(max(1, -int(-refusal.retry_after_s // 1)))}


def _left_headers(key: Key, given: Reservation) -> dict[str, str]:
    """What is left, in headers that clients know. Tokens: by the tightest limit of key and team."""
    headers = {}
    if given.requests_left is not None:
        headers["x-ratelimit-limit-requests"] = str(key.limits.requests_per_minute)
        headers["x-ratelimit-remaining-requests"] = str(given.requests_left)
    if given.tokens_left is not None:
        headers["x-ratelimit-remaining-tokens"] = str(given.tokens_left)
    limit = key.limits.tokens_per_minute
    if limit is not None:
        headers["x-ratelimit-limit-tokens"] = str(limit)
    return headers


def _response(answer: Answer) -> web.Response:
    headers = {"Content-Type": answer.content_type, "Server": "heavylift"}
    if answer.retry_after is not None:
        headers["Retry-After"] = answer.retry_after
    return web.Response(body=answer.body, status=answer.status, headers=headers)


def _json(document: Any, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(document),
        status=status,
        headers={"Content-Type": "application/json", "Server": "heavylift"},
    )


def _rfc3339(epoch_s: float) -> str:
    whole_s, ms = divmod(int(epoch_s * 1000), 1000)
    return f"{_second(whole_s)}.{ms:03d}Z"


@functools.lru_cache(maxsize=4)
def _second(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
