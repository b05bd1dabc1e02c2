"""A hub of models on this machine, for development: folders served as a hub serves them.

It answers the routes of a Hugging Face hub and of a ModelScope one, with byte ranges, pages and
redirects, and can be told to do wrong: to ignore ranges, to cut replies, to refuse. Every request
is kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

_COMMIT: Final = "0123456789abcdef0123456789abcdef01234567"
_LFS: Final = (".safetensors", ".gguf", ".bin")
_HASHED_BYTES: Final = 64 * 2**20
_PAGE: Final = 1000

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    authorization: str | None
    range: str | None


@dataclass(kw_only=True, slots=True)
class Faults:
    """What the hub does wrong. `refuse` is a status for every file, `refuse_times` how often (None:
    always); `send_on` another address that files are redirected to; `cut_bytes` how many bytes of a
    file are sent before the connection ends, `cut_times` how often; `longer_by` what ranges claim
    too much of a file's size.
    """

    token: str | None = None
    ignore_ranges: bool = False
    refuse: int | None = None
    refuse_times: int | None = None
    retry_after: str | None = None
    send_on: str | None = None
    cut_bytes: int | None = None
    cut_times: int | None = None
    longer_by: int = 0
    listing: bytes | None = None
    page: int = _PAGE
    licence: str | None = "other"


@dataclass(kw_only=True)
class HubServer:
    """Serves `root/owner/name/…` on a port of the kernel's choice while the context lasts."""

    root: Path
    faults: Faults = field(default_factory=Faults)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._digests: dict[tuple[str, int, int], str] = {}
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(middlewares=[self._keep])
        model = "/{owner}/{name}"
        app.router.add_get(f"/api/models{model}/tree/{{revision}}", self._tree)
        app.router.add_get(f"/api/models{model}/revision/{{revision}}", self._info)
        app.router.add_get(f"/api/models{model}", self._info)
        app.router.add_get(f"{model}/resolve/{{revision}}/{{path:.+}}", self._file)
        app.router.add_get(f"/api/v1/models{model}/repo/files", self._modelscope_tree)
        app.router.add_get(f"/api/v1/models{model}/repo", self._modelscope_file)
        app.router.add_get(f"/api/v1/models{model}", self._modelscope_info)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"

    async def _stop(self) -> None:
        # Readers that left in the middle of a file hold connections that would never drain.
        server = self._runner.server
        for connection in list(server.connections) if server is not None else []:
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)
        await self._runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        # Transports close their sockets in the turns of the loop that follow.
        await asyncio.sleep(0.05)

    @web.middleware
    async def _keep(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        authorization = request.headers.get("Authorization")
        self.asked.append(
            Asked(
                method=request.method,
                path=request.path_qs,
                authorization=authorization,
                range=request.headers.get("Range"),
            )
        )
        token = self.faults.token
        if token is not None and authorization != f"Bearer {token}":
            return web.Response(status=401 if authorization is None else 403)
        return await handler(request)

    # --- what is there ---------------------------------------------------------------------------

    def _folder(self, request: web.Request) -> Path:
        folder = self.root / request.match_info["owner"] / request.match_info["name"]
        if not folder.is_dir():
            raise web.HTTPNotFound(headers={"X-Error-Code": "RepoNotFound"})
        return folder

    def _files(self, folder: Path) -> list[tuple[str, Path]]:
        found = [path for path in folder.rglob("*") if path.is_file()]
        return sorted((str(path.relative_to(folder)), path) for path in found)

    def _digest(self, path: Path) -> str | None:
        """The SHA-256 of a file of moderate size."""
        status = path.stat()
        if status.st_size > _HASHED_BYTES:
            return None
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in self._digests:
            self._digests[key] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._digests[key]

    def _entry(self, name: str, path: Path) -> dict[str, Any]:
        size = path.stat().st_size
        entry: dict[str, Any] = {"type": "file", "path": name, "size": size, "oid": "0" * 40}
        digest = self._digest(path)
        if name.endswith(_LFS) and digest is not None:
            entry["lfs"] = {"oid": digest, "size": size, "pointerSize": 134}
        return entry

    # --- routes of a Hugging Face hub ------------------------------------------------------------

    async def _tree(self, request: web.Request) -> web.Response:
        if self.faults.listing is not None:
            return web.Response(body=self.faults.listing, content_type="application/json")
        folder = self._folder(request)
        files = self._files(folder)
        start = int(request.query.get("cursor", "0"))
        page = files[start : start + self.faults.page]
        headers = {}
        if start + self.faults.page < len(files):
            following = request.url.update_query(cursor=str(start + self.faults.page))
            headers["Link"] = f'<{following}>; rel="next"'
        return web.json_response([self._entry(*each) for each in page], headers=headers)

    async def _info(self, request: web.Request) -> web.Response:
        folder = self._folder(request)
        owner, name = request.match_info["owner"], request.match_info["name"]
        card = {} if self.faults.licence is None else {"license": self.faults.licence}
        return web.json_response(
            {
                "id": f"{owner}/{name}",
                "modelId": f"{owner}/{name}",
                "sha": _COMMIT,
                "private": False,
                "gated": False,
                "cardData": card,
                "tags": [],
                "siblings": [{"rfilename": each} for each, _ in self._files(folder)],
            }
        )

    async def _file(self, request: web.Request) -> web.StreamResponse:
        path = self._folder(request) / request.match_info["path"]
        return await self._send(request, path, request.match_info["path"])

    # --- routes of ModelScope --------------------------------------------------------------------

    async def _modelscope_tree(self, request: web.Request) -> web.Response:
        files = [
            {
                "Name": path.name,
                "Path": name,
                "Size": path.stat().st_size,
                "Sha256": self._digest(path) or "",
                "Type": "blob",
            }
            for name, path in self._files(self._folder(request))
        ]
        return web.json_response({"Code": 200, "Success": True, "Data": {"Files": files}})

    async def _modelscope_info(self, request: web.Request) -> web.Response:
        self._folder(request)
        data = {} if self.faults.licence is None else {"License": self.faults.licence}
        return web.json_response({"Code": 200, "Success": True, "Data": data})

    async def _modelscope_file(self, request: web.Request) -> web.StreamResponse:
        name = request.query["FilePath"]
        return await self._send(request, self._folder(request) / name, name)

    # --- one file --------------------------------------------------------------------------------

    async def _send(self, request: web.Request, path: Path, name: str) -> web.StreamResponse:
        faults = self.faults
        if not path.is_file():  # noqa: ASYNC240 - a hub for development, on a local disk
            return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound"})
        if faults.refuse is not None and faults.refuse_times != 0:
            if faults.refuse_times is not None:
                faults.refuse_times -= 1
            headers = {} if faults.retry_after is None else {"Retry-After": faults.retry_after}
            return web.Response(status=faults.refuse, headers=headers)
        size = path.stat().st_size  # noqa: ASYNC240
        etag = self._digest(path) or hashlib.sha256(str(path).encode()).hexdigest()
        if not name.endswith(_LFS):
            etag = etag[:40]  # as long as git's, which a hub gives for what is not in LFS
        headers = {"X-Repo-Commit": _COMMIT, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if name.endswith(_LFS):
            headers |= {"X-Linked-Size": str(size), "X-Linked-Etag": f'"{etag}"'}
        if faults.send_on is not None:
            headers["Location"] = f"{faults.send_on}{request.path_qs}"
            return web.Response(status=302, headers=headers)
        begin, end = 0, size
        status = 200
        asked = request.headers.get("Range", "")
        if asked.startswith("bytes=") and not faults.ignore_ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin = int(first or 0)
            end = min(int(last) + 1 if last else size, size)
            if begin >= size:
                return web.Response(status=416, headers={"Content-Range": f"bytes */{size}"})
            status = 206
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size + faults.longer_by}"
        headers["Content-Length"] = str(end - begin)
        response = web.StreamResponse(status=status, headers=headers)
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        await self._write(request, response, path, begin, end)
        return response

    async def _write(
        self, request: web.Request, response: web.StreamResponse, path: Path, begin: int, end: int
    ) -> None:
        faults = self.faults
        cut = (
            faults.cut_bytes is not None
            and faults.cut_times != 0
            and end - begin > faults.cut_bytes
        )
        if cut and faults.cut_times is not None:
            faults.cut_times -= 1
        last = min(end, begin + (faults.cut_bytes or 0)) if cut else end
        with path.open("rb") as file:
            file.seek(begin)
            while begin < last:
                piece = file.read(min(256 * 1024, last - begin))
                begin += len(piece)
                try:
                    await response.write(piece)
                except ConnectionError:  # the reader has what it wanted
                    return
        if cut and request.transport is not None:
            request.transport.close()
