"""The OpenAI files and batches routes, served over batch folders.

A home folder holds `files/` (what clients upload) and `batches/` (a batch folder each, with the
record that clients see beside its journal). Batches run one after another, in the order in which
they were made, so that each has the endpoints to itself; after a restart they go on.
Source: https://platform.openai.com/docs/api-reference/batch and /files.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from heavylift.batch import intake, job, routes
from heavylift.batch.home import WAITING, BatchRecord, FileRecord, Home, RowCounts
from heavylift.batch.inputs import Format
from heavylift.batch.outputs import writing
from heavylift.batch.records import Settings, Shape
from heavylift.errors import HeavyliftError

HOST: Final = "127.0.0.1"
_DAY_S: Final = 24 * 3600
_WINDOW: Final = "24h"
_AGAIN_S: Final = 30.0
_PAGE: Final = 20
_PAGE_MOST: Final = 100
_COPY_BYTES: Final = 2**20
_SHOWN_DEFECTS: Final = 1000


class _Wanted(msgspec.Struct):
    """What a client asks for."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None


class Server:
    """The routes, and the one task that runs batches."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        *,
        model: str | None = None,
        key: str | None = None,
        client_key: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`key` goes to the endpoints; `client_key` is asked of clients, None = of nobody."""
        self._home = Home(path=home)
        self._settings = settings
        self._model = model
        self._key = key
        self._client_key = client_key
        self._clock = clock
        self._wake = asyncio.Event()
        self._run: tuple[str, job.Run] | None = None
        self._closing = False

    def application(self) -> web.Application:
        """The web application, with the task that runs batches in its lifetime."""
        application = web.Application(middlewares=[self._guarded], client_max_size=_COPY_BYTES)
        add = application.router
        add.add_post("/v1/files", self._upload)
        add.add_get("/v1/files", self._list_files)
        add.add_get("/v1/files/{id}", self._show_file)
        add.add_get("/v1/files/{id}/content", self._content)
        add.add_delete("/v1/files/{id}", self._delete)
        add.add_post("/v1/batches", self._create)
        add.add_get("/v1/batches", self._list_batches)
        add.add_get("/v1/batches/{id}", self._show_batch)
        add.add_post("/v1/batches/{id}/cancel", self._cancel)
        application.cleanup_ctx.append(self._working)
        return application

    async def _working(self, _application: web.Application) -> AsyncIterator[None]:
        with writing(self._home.path):
            self._home.files().mkdir(parents=True, exist_ok=True, mode=0o700)
        task = asyncio.create_task(self._work())
        yield
        self._closing = True
        if self._run is not None and self._run[1].worker is not None:
            self._run[1].worker.stop("signal")
            async with asyncio.timeout(self._settings.drain_s + 5):
                while self._run is not None:  # noqa: ASYNC110 - the end of a run has no event
                    await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        wanted = f"Bearer {self._client_key}"
        if self._client_key is not None and not hmac.compare_digest(
            given.encode(), wanted.encode()
        ):
            return _refusal(HTTPStatus.UNAUTHORIZED, "invalid_api_key", "Invalid API key")
        try:
            return await handler(request)
        except _Refused as refused:
            return _refusal(refused.status, refused.code, refused.message)

    # --- files -----------------------------------------------------------------------------------

    async def _upload(self, request: web.Request) -> web.Response:
        if not request.content_type.startswith("multipart/"):
            raise _Refused(HTTPStatus.BAD_REQUEST, "invalid_request", "multipart/form-data wanted")
        purpose, record = "", None
        parts = await request.multipart()
        async for part in parts:
            name = getattr(part, "name", None)
            if name == "purpose":
                purpose = (await part.read()).decode()  # type: ignore[union-attr] # not nested
            elif name == "file":
                record = await self._store(part)
        if record is None or purpose != "batch":
            if record is not None:
                self._home.remove(record.id)
            raise _Refused(
                HTTPStatus.BAD_REQUEST, "invalid_request", "file and purpose=batch wanted"
            )
        self._home.keep(record)
        return _json(record)

    async def _store(self, part: Any) -> FileRecord:
        file_id = f"file-{secrets.token_hex(12)}"
        size = 0
        with (self._home.files() / f"{file_id}.jsonl").open("xb") as file:
            while chunk := await part.read_chunk(_COPY_BYTES):
                file.write(chunk)
                size += len(chunk)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return FileRecord(
            id=file_id,
            bytes=size,
            created_at=self._now(),
            filename=part.filename or "upload.jsonl",
            purpose="batch",
        )

    async def _list_files(self, request: web.Request) -> web.Response:
        return _page(request, self._home.uploads())

    async def _show_file(self, request: web.Request) -> web.Response:
        return _json(self._file(request.match_info["id"])[0])

    async def _content(self, request: web.Request) -> web.StreamResponse:
        record, path = self._file(request.match_info["id"])
        response = web.StreamResponse(headers={"Content-Length": str(record.bytes)})
        response.content_type = "application/jsonl"
        await response.prepare(request)
        left = record.bytes
        with path.open("rb") as file:
            while left and (chunk := file.read(min(left, _COPY_BYTES))):
                left -= len(chunk)
                await response.write(chunk)
        return response

    async def _delete(self, request: web.Request) -> web.Response:
        file_id = request.match_info["id"]
        if file_id not in {record.id for record in self._home.uploads()}:
            raise _not_found(file_id)
        self._home.remove(file_id)
        return _json({"id": file_id, "object": "file", "deleted": True})

    def _file(self, file_id: str) -> tuple[FileRecord, Path]:
        found = self._home.found(file_id)
        if found is None:
            raise _not_found(file_id)
        return found

    # --- batches ---------------------------------------------------------------------------------

    async def _create(self, request: web.Request) -> web.Response:
        try:
            wanted = msgspec.json.decode(await request.read(), type=_Wanted)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise _Refused(HTTPStatus.BAD_REQUEST, "invalid_request", str(problem)) from problem
        if wanted.endpoint not in routes.URLS:
            raise _Refused(HTTPStatus.BAD_REQUEST, "invalid_endpoint", wanted.endpoint)
        if wanted.completion_window != _WINDOW:
            message = f"completion_window must be {_WINDOW}"
            raise _Refused(HTTPStatus.BAD_REQUEST, "invalid_completion_window", message)
        self._file(wanted.input_file_id)
        record = BatchRecord(
            id=f"batch_{secrets.token_hex(12)}",
            endpoint=wanted.endpoint,
            input_file_id=wanted.input_file_id,
            completion_window=wanted.completion_window,
            created_at=self._now(),
            expires_at=self._now() + _DAY_S,
            metadata=wanted.metadata,
        )
        self._home.batch(record.id).mkdir(parents=True, mode=0o700)
        self._home.keep(record)
        self._wake.set()
        return _json(record)

    async def _list_batches(self, request: web.Request) -> web.Response:
        return _page(request, [self._home.counted(record) for record in self._home.batches()])

    async def _show_batch(self, request: web.Request) -> web.Response:
        return _json(self._home.counted(self._batch(request.match_info["id"])))

    async def _cancel(self, request: web.Request) -> web.Response:
        record = self._batch(request.match_info["id"])
        if record.status not in WAITING:
            message = f"Cannot cancel a batch with status {record.status}."
            raise _Refused(HTTPStatus.CONFLICT, "invalid_status", message)
        record.status, record.cancelling_at = "cancelling", self._now()
        self._home.keep(record)
        if self._run is not None and self._run[0] == record.id and self._run[1].worker is not None:
            self._run[1].worker.stop("cancelled")
        self._wake.set()
        return _json(self._home.counted(record))

    def _batch(self, batch_id: str) -> BatchRecord:
        for record in self._home.batches():
            if record.id == batch_id:
                return record
        raise _not_found(batch_id)

    def _now(self) -> int:
        return int(self._clock())

    # --- running ---------------------------------------------------------------------------------

    async def _work(self) -> None:
        while not self._closing:
            self._wake.clear()
            waiting = [batch for batch in self._home.batches() if batch.status in WAITING]
            if not waiting:
                await self._wake.wait()
                continue
            await self._run_one(waiting[-1])
            if self._batch(waiting[-1].id).status in WAITING:
                # No endpoint would have it: not to be tried again in the same breath.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN_S):
                        await self._wake.wait()

    async def _run_one(self, record: BatchRecord) -> None:
        folder = self._home.batch(record.id)
        settings = self._settings
        window = replace(settings.budget, seconds=max(0.0, record.expires_at - self._clock()))
        settings = replace(settings, budget=window)
        with job.held(folder, must_exist=False) as journal:
            run = job.Run(folder, journal, settings, key=self._key)
            self._run = (record.id, run)
            try:
                if not await self._take_in(record, run):
                    return
                stopped = "cancelled"
                if self._batch(record.id).status != "cancelling":
                    self._mark(record.id, "in_progress")
                    stopped = (await run.run()).stopped or ""
                else:
                    await asyncio.to_thread(journal.skip_the_rest, stopped)
                self._end(record.id, run, stopped)
            finally:
                self._run = None

    async def _take_in(self, record: BatchRecord, run: job.Run) -> bool:
        """False when the input cannot be sent, which the record then says."""
        shape = Shape(model=self._model, only_url=record.endpoint)
        try:
            path = str(self._file(record.input_file_id)[1])
            source = intake.Source(path=path, format=Format.OPENAI, shape=shape)
            await asyncio.to_thread(intake.take_in, run.folder, run.journal, source)
        except intake.InputError as error:
            defects = [
                {
                    "code": defect.problem,
                    "message": f"{defect.problem}: {defect.detail}",
                    "line": defect.line,
                    "param": None,
                }
                for defect in error.problems[:_SHOWN_DEFECTS]
            ]
            self._fail(record.id, defects)
            return False
        except (HeavyliftError, _Refused) as error:
            code = error.code
            self._fail(
                record.id, [{"code": code, "message": str(error), "line": None, "param": None}]
            )
            return False
        return True

    def _fail(self, batch_id: str, defects: list[dict[str, Any]]) -> None:
        record = self._batch(batch_id)
        record.status, record.failed_at = "failed", self._now()
        record.errors = {"object": "list", "data": defects}
        self._home.keep(record)

    def _mark(self, batch_id: str, status: str) -> None:
        record = self._batch(batch_id)
        record.status = status
        if status == "in_progress":
            record.in_progress_at = record.in_progress_at or self._now()
        self._home.keep(record)

    def _end(self, batch_id: str, run: job.Run, stopped: str) -> None:
        """Write how a batch ended. One stopped by a signal, or for want of an endpoint, is left as
        it is: it goes on later.
        """
        status = {"": "completed", "cancelled": "cancelled", "limit_time": "expired"}.get(stopped)
        if status is None:
            return
        record = self._batch(batch_id)
        counts = run.journal.counts()
        now = self._now()
        record.status = status
        record.finalizing_at = now
        setattr(record, f"{status}_at", now)
        record.request_counts = RowCounts(
            total=counts.input, completed=counts.ok, failed=counts.failed
        )
        # A part without lines has no file, as the protocol has it.
        stem = f"file-{batch_id.removeprefix('batch_')}"
        record.output_file_id = f"{stem}-output" if counts.ok else None
        record.error_file_id = f"{stem}-errors" if counts.failed else None
        self._home.keep(record)


class _Refused(Exception):  # noqa: N818 - an answer, not a fault of ours
    """What a client is answered instead."""

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def _not_found(what: str) -> _Refused:
    return _Refused(HTTPStatus.NOT_FOUND, "not_found", f"No such object: {what}")


def _json(record: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(record), content_type="application/json")


def _refusal(status: HTTPStatus, code: str, message: str) -> web.Response:
    kind = "invalid_request_error"
    error = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return web.Response(
        status=status, body=msgspec.json.encode(error), content_type="application/json"
    )


def _page(request: web.Request, records: list[Any]) -> web.Response:
    """A page of a list, after the record that the client has seen last."""
    limit = request.query.get("limit", str(_PAGE))
    most = min(_PAGE_MOST, max(1, int(limit))) if limit.isdigit() else _PAGE
    names = [record.id for record in records]
    after = request.query.get("after")
    start = names.index(after) + 1 if after in names else 0
    shown = records[start : start + most]
    return _json(
        {
            "object": "list",
            "data": shown,
            "first_id": shown[0].id if shown else None,
            "last_id": shown[-1].id if shown else None,
            "has_more": start + most < len(records),
        }
    )


async def serve(server: Server, port: int, on_listening: Callable[[str], None]) -> None:
    """Serve until cancelled; `on_listening` gets the address. Raises BAT011 when the port is
    taken.
    """
    runner = web.AppRunner(server.application(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        try:
            await site.start()
        except OSError as problem:
            detail = problem.strerror or str(problem)
            raise HeavyliftError("BAT011", {"port": port, "detail": detail}) from problem
        on_listening(f"http://{HOST}:{runner.addresses[0][1]}")
        await asyncio.Event().wait()
    finally:
        with contextlib.suppress(TimeoutError):
            await runner.cleanup()
