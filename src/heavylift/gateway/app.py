"""The gateway as an HTTP application: who may ask, what is admitted, and who answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import web

from heavylift.errors import HeavyliftError
from heavylift.gateway import answers, keys, openapi, quota
from heavylift.gateway.admin import Admin
from heavylift.gateway.answers import Say
from heavylift.gateway.audit import Audit
from heavylift.gateway.batches import Batches, is_batch_path
from heavylift.gateway.carrier import Carrier, ClientGone, Failed, Job
from heavylift.gateway.config import Settings
from heavylift.gateway.connection import Connection
from heavylift.gateway.keys import Denial, Key, Scope
from heavylift.gateway.ledger import Ledger, Lost, Reservation
from heavylift.gateway.quota import Refusal
from heavylift.gateway.request import ROUTES, Asked, Route, read
from heavylift.gateway.routing import Fleet
from heavylift.gateway.stream import StreamClient
from heavylift.gateway.visit import MODELS, Visit, begin, lost_line

_PASSED_ON: Final = ("Accept", "anthropic-version", "anthropic-beta")

_BY_DENIAL: Final = {Denial.NETWORK: "GW041", Denial.SCOPE: "GW042"}


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
        told = {
            "ready": ready,
            "draining": self.draining,
            "workers": len(workers),
            "workers_ready": taking,
            "open_requests": self.visits,
            "audit_lines_lost": self._audit.lost,
        }
        alive = ready or path == "/healthz"
        status = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
        return answers.document(told, status)

    async def _visited(self, request: web.BaseRequest) -> web.StreamResponse:
        visit = begin(request)
        self.visits += 1
        try:
            response = await self._answer(request, visit)
        except HeavyliftError as error:
            response = answers.error(visit, error, self._say)
        except ClientGone:
            visit.outcome = "client_gone"
            raise ConnectionResetError from None
        except asyncio.CancelledError:
            visit.outcome = "client_gone"
            raise
        except Failed as failed:
            response = answers.failure(visit, failed, self._say)
        except Exception:
            visit.outcome = "internal_error"
            raise
        else:
            if isinstance(response, web.Response):
                response.headers.update(visit.headers)
        finally:
            self.visits -= 1
            if visit.audited:
                self._audit.write(visit.line())
        return response

    async def _answer(self, request: web.BaseRequest, visit: Visit) -> web.StreamResponse:
        path = request.path
        route = ROUTES.get(path)
        if route is not None:
            _expect_method(request, "POST")
            return await self._infer(request, route, visit)
        if path == MODELS or path.startswith(f"{MODELS}/"):
            _expect_method(request, "GET")
            key = await self._authenticate(request, visit, Scope.INFER)
            return self._models(key, path.removeprefix(MODELS).strip("/"))
        if self._batches is not None and is_batch_path(path):
            return await self._batch(request, self._batches, visit)
        if path.startswith("/admin/"):
            await self._authenticate(request, visit, Scope.ADMIN)
            if path == openapi.PATH and request.method == "GET":
                return answers.document(openapi.document())
            body = await self._body(request, visit)
            document, status = await self._ledger.manage(
                lambda store: self._admin.answer(store, request.method, path, request.query, body)
            )
            return answers.document(document, status)
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
        cards = [answers.card(model, self._fleet.context_tokens(model)) for model in names]
        if not name:
            return answers.document({"object": "list", "data": cards})
        if name not in names:
            raise HeavyliftError("GW044", {"model": name[:200]})
        return answers.document(cards[names.index(name)])

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
            visit.headers |= answers.refusal_headers(given)
            raise HeavyliftError(
                "GW050",
                {
                    "limit": str(given.limit),
                    "allowed": given.allowed,
                    "left": given.left,
                    "wanted": given.wanted,
                },
            )
        visit.headers |= answers.left_headers(key, given)
        return given

    async def _carry(self, request: web.BaseRequest, visit: Visit, job: Job) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers |= {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "x-request-id": visit.request_id,
        }
        client = StreamClient(request, visit, job, self._say)
        answer = await self._carrier.carry(job, headers, client)
        if answer is not None:
            job.bytes_out = len(answer.body)
            visit.status = answer.status
            return answers.whole(answer)
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

    def note_lost(self, lost: Lost) -> None:
        """Write the audit line of a request whose gateway died."""
        self._audit.write(lost_line(lost))


def _presented(headers: Mapping[str, str]) -> str | None:
    """The key that a client presents, in either protocol's way."""
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key:
        return key.strip()
    return headers.get("x-api-key")


def _expect_method(request: web.BaseRequest, method: str) -> None:
    if request.method != method:
        raise HeavyliftError("GW046", {"method": request.method[:20], "path": request.path[:200]})
