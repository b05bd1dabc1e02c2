"""A scripted engine: an HTTP server on loopback that plays a scenario and notes what it sent."""

from __future__ import annotations

import asyncio
import random
import sys
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
from aiohttp import web

from heavylift.devserver.conductor import Conductor, Ending, Player
from heavylift.devserver.fetching import fetch_pictures
from heavylift.devserver.obliging import Refusal
from heavylift.devserver.play import (
    Asked,
    Turn,
    asked,
    choose,
    prompt_tokens,
    script,
    steps,
    turn_of_mind,
    whole_at_s,
)
from heavylift.devserver.render import (
    ChatDialect,
    Dialect,
    MessagesDialect,
    Script,
    error_document,
)
from heavylift.devserver.responses import PATH as RESPONSES_PATH
from heavylift.devserver.responses import ResponsesDialect, as_chat
from heavylift.devserver.scenario import Defect, Fault, FaultKind, Scenario, Then
from heavylift.devserver.tally import Tally
from heavylift.wire.failures import UNDECODABLE

HOST: Final = "127.0.0.1"

_DIALECTS: Final[dict[str, Callable[[Script], Dialect]]] = {
    "/v1/chat/completions": ChatDialect,
    "/v1/messages": MessagesDialect,
    RESPONSES_PATH: ResponsesDialect,
}
_BODY_BYTES: Final = 64 * 2**20
_OVER: Final = 256
"""Tokens over the limit at which an engine that does not see them coming fails."""
_SLOTS: Final = 2
"""Slots that an engine which loses them has."""


@dataclass(slots=True)
class Record:
    """One request as the server saw it. `sends` are the server's clock at each event."""

    number: int
    path: str
    model: str
    prompt_tokens: int
    stream: bool
    came_at: float
    fault: str | None = None
    ending: Ending | None = None
    sends: list[float] = field(default_factory=list)


Emit = Callable[[str, str], None]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def emit_line(stream: str, line: str) -> None:
    """Writes a line of the script to this process's own standard output or error, as an engine's
    log is written: at once.
    """
    print(line, file=sys.stdout if stream == "stdout" else sys.stderr, flush=True)


class ScriptedServer:
    """Plays a scenario. An async context manager: inside it, the start has begun.

    `port` 0 = a free one, known once the port is open. `records` lists every request,
    `connections` counts those ever made, `open_chats` the chats being answered.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        port: int = 0,
        emit: Emit = emit_line,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`clock` makes the stamps; the default can be compared between processes of a machine."""
        self.scenario = scenario
        self.records: list[Record] = []
        self._wanted_port = port
        self._emit = emit
        self._clock = clock
        self._random = random.Random(scenario.pace.seed)  # noqa: S311 - pacing, not secrecy
        self._conductor = Conductor()
        self._ready = False
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._lost_slots = 0
        self._frozen_page: str | None = None
        self._tally = Tally()
        self._steps = 0.0
        self._stepped_at: float | None = None
        self._previous: Asked | None = None
        self.connections = 0
        self.open_chats = 0
        self._start: asyncio.Task[None] | None = None
        self._events: dict[Then, asyncio.Event] = {then: asyncio.Event() for then in Then}
        self.exit_status = 0

    async def __aenter__(self) -> Self:
        application = web.Application(
            client_max_size=_BODY_BYTES, middlewares=[self._note_connection]
        )
        application.router.add_get("/health", self._health)
        application.router.add_get("/v1/models", self._models)
        application.router.add_post("/tokenize", self._tokenize)
        application.router.add_get("/dev/requests", self._requests)
        application.router.add_get("/metrics", self._metrics)
        for path in _DIALECTS:
            application.router.add_post(path, self._chat)
        # Cancelling the handler is how a stream that hangs notices that its client went.
        self._runner = web.AppRunner(
            application, handler_cancellation=True, access_log=None, shutdown_timeout=1.0
        )
        await self._runner.setup()
        self._start = asyncio.create_task(self._run_start())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._start is not None:
            self._start.cancel()
            await asyncio.gather(self._start, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        """The address, once the port is open."""
        return f"http://{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The open port."""
        if self._runner is None or not self._runner.addresses:
            message = "the port is not open"
            raise RuntimeError(message)
        port: int = self._runner.addresses[0][1]
        return port

    @property
    def ended(self) -> asyncio.Event:
        """Set when the scenario has ended the server, with `exit_status` its status."""
        return self._events[Then.EXIT]

    async def until(self, then: Then) -> bool:
        """Wait until the script has come that far; False when it ends without ever doing so.

        Raises what the start raised (a busy port).
        """
        if self._start is None:
            message = "the server has not been entered"
            raise RuntimeError(message)
        reached = asyncio.create_task(self._events[then].wait())
        try:
            await asyncio.wait((reached, self._start), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reached.cancel()
        if self._start.done():
            self._start.result()
        return self._events[then].is_set()

    async def _run_start(self) -> None:
        for step in self.scenario.start:
            await asyncio.sleep(step.after_s)
            if step.line is not None:
                self._emit(step.stream, step.line)
            if step.then is not None:
                await self._bring_about(step.then, step.status)

    async def _bring_about(self, then: Then, status: int) -> None:
        if then is Then.EXIT:
            await self._die(status)
            return
        if then is Then.LISTEN and self._runner is not None:
            self._site = web.TCPSite(self._runner, HOST, self._wanted_port)
            await self._site.start()
        self._ready = self._ready or then is Then.READY
        self._events[then].set()

    async def _die(self, status: int) -> None:
        """Go as a killed process goes: connections reset, port closed."""
        self.exit_status = status
        self._ready = False
        if self._site is not None:
            site, self._site = self._site, None
            await site.stop()
        for transport in list(self._transports):
            transport.abort()
        self._events[Then.EXIT].set()

    @web.middleware
    async def _note_connection(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.transport is not None and request.transport not in self._transports:
            self._transports.add(request.transport)
            self.connections += 1
        return await handler(request)

    # --- routes ----------------------------------------------------------------------------------

    async def _health(self, _request: web.Request) -> web.Response:
        if not self._ready:
            return self._loading()
        return _json({"status": "ok"})

    async def _models(self, request: web.Request) -> web.Response:
        refused = self._refuse_key(request)
        if refused is not None:
            return refused
        limit = self.scenario.server.context_tokens
        listed = [
            {"id": model, "object": "model", "created": 0, "max_model_len": limit}
            for model in self.scenario.server.models
        ]
        return _json({"object": "list", "data": listed})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = _decoded(await request.read())
        text = body.get("content", body.get("prompt", "")) if isinstance(body, dict) else ""
        tokens = list(range(len(str(text).split())))
        return _json({"tokens": tokens, "count": len(tokens)})

    async def _requests(self, _request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(self.records), content_type="application/json")

    async def _metrics(self, _request: web.Request) -> web.Response:
        page = self._frozen_page or self._page()
        return web.Response(text=page, content_type="text/plain")

    def _page(self) -> str:
        self._count_steps()
        lines = [
            "# TYPE scripted_requests_running gauge",
            f"scripted_requests_running {self.open_chats}",
            f"scripted_requests_total {len(self.records)}",
            f"scripted_prompt_tokens_total {self._tally.prompt_tokens}",
            f"scripted_generation_tokens_total {self._tally.events}",
            *self._tally.first_tokens(),
        ]
        if self.scenario.server.kv_use_ratio is not None:
            lines.append(f"scripted_kv_use_ratio {self.scenario.server.kv_use_ratio}")
        if self.scenario.server.steps_per_s is not None:
            lines.append(f"scripted_steps_total {int(self._steps)}")
        return "\n".join(lines) + "\n"

    def _count_steps(self) -> None:
        """Bring the steps up to now: time with work counts."""
        rate, since = self.scenario.server.steps_per_s, self._stepped_at
        now = asyncio.get_running_loop().time()
        if rate is not None and since is not None:
            self._steps += rate * (now - since)
        self._stepped_at = now if self.open_chats else None

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        began_at = asyncio.get_running_loop().time()
        content = as_chat(_decoded(await request.read()))
        reply = self.scenario.reply
        if reply.mind == "obliging" and Defect.PICTURE_INVENTED not in reply.defects:
            with suppress(aiohttp.ClientError, TimeoutError):
                await fetch_pictures(content)
        question = asked(content, len(self.records) + 1)
        if question is None:
            return _error(400, "messages and model are required", "invalid_request_error")
        record = Record(
            number=question.number,
            path=request.path,
            model=question.model,
            prompt_tokens=question.prompt_tokens,
            stream=question.stream,
            came_at=self._clock(),
        )
        self.records.append(record)
        self._count_steps()
        self.open_chats += 1
        self._stepped_at = self._stepped_at or began_at
        try:
            return await self._answer(request, question, record, began_at)
        except (asyncio.CancelledError, ConnectionError):
            record.ending = record.ending or Ending.DISCONNECTED
            self._lose_slot()
            raise
        finally:
            self._count_steps()
            self.open_chats -= 1
            self._tally.add(record.prompt_tokens, record.came_at, record.sends)
            self._stepped_at = self._stepped_at if self.open_chats else None

    async def _answer(
        self, request: web.Request, question: Asked, record: Record, began_at: float
    ) -> web.StreamResponse:
        if self._frozen_page is not None:
            await asyncio.Event().wait()
        refused = self._refuse(request, question)
        if refused is not None:
            record.ending = Ending.REFUSED
            return refused
        chosen = choose(self.scenario, question)
        turn = turn_of_mind(chosen, self._mixed_up(question))
        if isinstance(turn, Refusal):
            record.ending = Ending.REFUSED
            return _error(turn.status, turn.message, "invalid_request_error")
        record.fault = None if turn.fault is None else turn.fault.kind
        early = await self._fail_early(request, turn, record)
        if early is not None:
            return early
        laid_out = script(turn, question)
        dialect = _DIALECTS[request.path](laid_out)
        if not question.stream:
            return await self._whole(request, turn, laid_out, dialect, record)
        response = web.StreamResponse(headers={"Cache-Control": "no-cache"})
        response.content_type = "text/event-stream"
        response.enable_chunked_encoding()
        await response.prepare(request)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        player = Player(
            steps(turn, laid_out, dialect, self._random.random),
            transport,
            began_at=began_at,
            clock=self._clock,
            stamps=turn.reply.stamps,
            sends=record.sends,
        )
        record.ending = await self._conductor.play(player)
        if record.ending is Ending.DISCONNECTED:
            self._lose_slot()
        if record.ending is Ending.FINISHED:
            await response.write_eof()
        return response

    async def _whole(
        self,
        request: web.Request,
        turn: Turn,
        laid_out: Script,
        dialect: Dialect,
        record: Record,
    ) -> web.StreamResponse:
        await asyncio.sleep(whole_at_s(turn, laid_out, self._random.random))
        document = msgspec.json.encode(dialect.whole())
        if turn.has(FaultKind.HANG):
            await asyncio.Event().wait()
        document = _spoilt(turn, dialect, document)
        if turn.has(FaultKind.BREAK_STREAM):
            # Announces more than it sends.
            cut = web.StreamResponse(headers={"Content-Length": str(len(document) + 1)})
            await cut.prepare(request)
            await cut.write(document)
            return self._abort(request, record, cut)
        record.sends.append(self._clock())
        record.ending = Ending.FINISHED
        return web.Response(body=document, content_type="application/json")

    def _lose_slot(self) -> None:
        if Defect.SLOTS_LOST in self.scenario.reply.defects:
            self._lost_slots += 1

    def _mixed_up(self, question: Asked) -> Asked:
        """The request to answer: the one before it, where answers are mixed up."""
        previous, self._previous = self._previous, question
        mixes = Defect.ANSWERS_MIXED in self.scenario.reply.defects
        return previous if mixes and previous is not None else question

    # --- refusals and faults before a reply ------------------------------------------------------

    def _refuse(self, request: web.Request, question: Asked) -> web.Response | None:
        if not self._ready:
            return self._loading()
        refused = self._refuse_key(request)
        if refused is not None:
            return refused
        defects = self.scenario.reply.defects
        if self._lost_slots >= _SLOTS:
            return _error(503, "no slot is free", "unavailable_error")
        if question.model not in self.scenario.server.models and Defect.ANY_MODEL not in defects:
            return _error(404, f"The model `{question.model}` does not exist.", "not_found_error")
        tokens = prompt_tokens(choose(self.scenario, question), question)
        return None if tokens < self.scenario.server.context_tokens else self._over_limit(tokens)

    def _over_limit(self, tokens: int) -> web.Response | None:
        defects = self.scenario.reply.defects
        if Defect.CUT_SILENTLY in defects:
            return None
        if Defect.LIMIT_CRASHES in defects and tokens < self.scenario.server.context_tokens + _OVER:
            return _error(500, "internal server error", "internal_error")
        return self._too_long(tokens)

    def _refuse_key(self, request: web.Request) -> web.Response | None:
        key = self.scenario.server.key
        given = (request.headers.get("Authorization"), request.headers.get("x-api-key"))
        if key is None or given[0] == f"Bearer {key}" or given[1] == key:
            return None
        return _error(401, "Invalid API key", "authentication_error")

    def _loading(self) -> web.Response:
        return _error(503, "Loading model", "unavailable_error")

    def _too_long(self, prompt_tokens: int) -> web.Response:
        limit = self.scenario.server.context_tokens
        if Defect.LIMIT_UNSAID in self.scenario.reply.defects:
            return _error(400, "prompt is too long", "invalid_request_error")
        return _error(
            400,
            f"This model's maximum context length is {limit} tokens, "
            f"the request has {prompt_tokens}.",
            "invalid_request_error",
            "context_length_exceeded",
        )

    async def _fail_early(
        self, request: web.Request, turn: Turn, record: Record
    ) -> web.StreamResponse | None:
        """What is sent in place of a reply, or the wait before one."""
        fault = turn.fault
        if fault is None:
            return None
        if fault.kind is FaultKind.SLOW_HEADERS:
            await asyncio.sleep(fault.delay_s)
        if fault.kind is FaultKind.FREEZE:
            self._frozen_page = self._page()
            await asyncio.Event().wait()
        if fault.kind is FaultKind.HANG and fault.after_tokens == 0:
            await asyncio.Event().wait()
        if fault.kind is FaultKind.DROP:
            return self._abort(request, record, web.Response())
        if fault.kind is FaultKind.DIE:
            await self._die(1)
            return self._abort(request, record, web.Response())
        return self._answer_wrongly(fault, record)

    def _answer_wrongly(self, fault: Fault, record: Record) -> web.Response | None:
        if fault.kind is FaultKind.WRONG_CONTENT_TYPE:
            record.ending = Ending.FINISHED
            return web.Response(text="<html>hello</html>", content_type="text/html")
        if fault.kind is FaultKind.CONTEXT_TOO_LONG:
            record.ending = Ending.REFUSED
            return self._too_long(record.prompt_tokens)
        if fault.kind is not FaultKind.REJECT:
            return None
        record.ending = Ending.REFUSED
        response = _error(fault.status, fault.message, "scripted_error")
        if fault.retry_after_s is not None:
            response.headers["Retry-After"] = f"{fault.retry_after_s:g}"
        return response

    def _abort(
        self, request: web.Request, record: Record, response: web.StreamResponse
    ) -> web.StreamResponse:
        record.ending = Ending.ABORTED
        if request.transport is not None:
            request.transport.abort()
        return response


def _spoilt(turn: Turn, dialect: Dialect, document: bytes) -> bytes:
    if turn.has(FaultKind.GARBAGE):
        return b"\xff\xfe not json"
    if turn.has(FaultKind.TRUNCATED_JSON):
        return document[:-20]
    if turn.has(FaultKind.ERROR_EVENT) and turn.fault is not None:
        return msgspec.json.encode(dialect.error(turn.fault.message).document)
    return document


def _decoded(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except UNDECODABLE:
        return None


def _json(document: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(document), status=status, content_type="application/json"
    )


def _error(status: int, message: str, kind: str, code: str | None = None) -> web.Response:
    return _json(error_document(message, kind, code or status), status)
