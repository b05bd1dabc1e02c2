"""A hub's files, read over HTTP ranges: the list, then the first bytes of what is asked for.

Weights stay where they are. Redirects are followed by us, because the token must not go along to
another host; a server that ignores ranges is read only as far as is wanted; a reply that is shorter
than it says, or of another length than the list says, is an error and not a smaller file.
"""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from http import HTTPStatus
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urljoin, urlsplit

import aiohttp

from heavylift.checkpoint.defects import Defect
from heavylift.checkpoint.hub_settings import HubId, HubSettings
from heavylift.checkpoint.listing import LIST_LIMIT_BYTES, ListedFile, hub_files
from heavylift.errors import HeavyliftError
from heavylift.units import MIB

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

_FIRST_BYTES: Final = MIB
_KEPT_BYTES: Final = 512 * MIB
_PREFIX_LIMIT_BYTES: Final = 256 * MIB
_CHUNK_BYTES: Final = 256 * 1024
_AT_ONCE: Final = 8
_REDIRECTS: Final = 5
_PAGES: Final = 100
_TRIES: Final = 3
_LONGEST_WAIT_S: Final = 30.0
_TIMEOUT: Final = aiohttp.ClientTimeout(total=300, sock_connect=15, sock_read=30)
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_OF_STATUS: Final = {401: "HUB003", 403: "HUB004", 404: "HUB005", 429: "HUB006"}
_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_NEXT: Final = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')


class HubFiles:
    """The files of one folder of a model on a hub; a context that keeps its connections.

    Raises on entry HUB001 when asking is switched off, else what asking for the list raises: HUB002
    to HUB010. `asked` are the addresses that were asked, in order.
    """

    def __init__(self, hub: HubSettings, model: HubId, *, sleep: Sleep = asyncio.sleep) -> None:
        self.hub = hub
        self.model = model
        self.asked: list[str] = []
        self.listed: tuple[ListedFile, ...] = ()
        self._folder = ""
        self._sleep = sleep
        self._starts: dict[str, bytes] = {}
        self._loop = asyncio.new_event_loop()
        self._session: aiohttp.ClientSession | None = None

    @property
    def where(self) -> str:
        """The id, and the folder in it."""
        return f"{self.model.id}/{self._folder}".rstrip("/")

    def __enter__(self) -> Self:
        if self.hub.offline is not None:
            self._end()
            raise self._error("HUB001", variable=self.hub.offline)
        try:
            self.run(self._open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    # --- what a reader of checkpoints asks for ---------------------------------------------------

    def enter_folder(self, folder: str) -> None:
        """From here on the files are those of a folder of the model (`UD-Q4_K_XL`)."""
        self._folder = folder

    def names(self) -> list[str]:
        """Names of the files in the folder."""
        return [
            PurePosixPath(file.path).name
            for file in self.listed
            if str(PurePosixPath(file.path).parent) == (self._folder or ".")
        ]

    def open(self, name: str) -> HubFile | Defect:
        """The file of that name; nothing is transferred before it is read."""
        path = str(PurePosixPath(self._folder, name))
        found = next((file for file in self.listed if file.path == path), None)
        if found is None:
            return Defect(file=name, problem="file_missing")
        return HubFile(self, found)

    def prefetch(self, names: Iterable[str]) -> None:
        """Fetches the first bytes of several files at once: headers are mostly in them."""
        wanted = set(names)
        files = [
            file
            for file in self.listed
            if PurePosixPath(file.path).name in wanted and file.path not in self._starts
        ]
        self.run(self._prefetch(files[: _KEPT_BYTES // _FIRST_BYTES]))

    def start_of(self, file: ListedFile, count: int) -> bytes:
        """The first `count` bytes of a file, fewer only when it ends before."""
        held = self._starts.get(file.path, b"")
        size = file.size if file.size is not None else count
        if len(held) < min(count, size):
            held = self.run(self._fetch_start(file, max(count, _FIRST_BYTES)))
            self._starts[file.path] = held
        return held[:count]

    def forget(self, file: ListedFile) -> None:
        """Gives back the memory of a file's first bytes."""
        self._starts.pop(file.path, None)

    def read_all(self, path: str, limit_bytes: int) -> bytes | None:
        """A small file whole; None when the model has none of that path or it is longer."""
        found = next((file for file in self.listed if file.path == path), None)
        if found is None or (found.size or 0) > limit_bytes:
            return None
        return self.start_of(found, found.size if found.size is not None else limit_bytes)

    def information(self) -> bytes:
        """The hub's description of the model; empty where the hub has none to ask for."""
        if not self.hub.facts.info:
            return b""
        url = self.hub.url(self.hub.facts.info, self.model)
        return self.run(self._whole(url))[0]

    # --- requests --------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of work that asks the hub."""
        return self._loop.run_until_complete(work)

    async def ask_for(
        self,
        path: str,
        headers: dict[str, str],
        read: Callable[[aiohttp.ClientResponse], Awaitable[T]],
        *,
        limits: aiohttp.ClientTimeout,
    ) -> T:
        """What `read` makes of the reply for a file of the model. Raises as the list does."""
        url = self.hub.url(self.hub.facts.file, self.model, path)
        return await self._ask(url, headers, read, limits)

    def _end(self) -> None:
        if self._loop.is_closed():
            return
        self.run(self._close())
        self._loop.close()

    async def _close(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _open(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=_TIMEOUT,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "heavylift"},
        )
        url: str | None = self.hub.url(self.hub.facts.listing, self.model)
        listed: list[ListedFile] = []
        for _ in range(_PAGES):
            body, following = await self._whole(str(url))
            page = hub_files(body)
            if not page or any(file.size is None for file in page):
                raise self._error("HUB009", host=_host(str(url)))
            listed += page
            url = following
            if url is None:
                break
        self.listed = tuple(listed)

    async def _whole(self, url: str) -> tuple[bytes, str | None]:
        """A reply to its end, and the address of the next page."""

        async def read(response: aiohttp.ClientResponse) -> tuple[bytes, str | None]:
            body = await _body(response, LIST_LIMIT_BYTES + 1)
            if len(body) > LIST_LIMIT_BYTES:
                raise self._error("HUB008", url=url, reason=f"> {LIST_LIMIT_BYTES} B")
            found = _NEXT.search(response.headers.get("Link", ""))
            following = urljoin(str(response.url), found[1]) if found else None
            if following is not None and _origin(following) != _origin(self.hub.endpoint):
                raise self._error("HUB010", host=_host(url), reason=_host(following))
            return body, following

        return await self._ask(url, {}, read)

    async def _prefetch(self, files: list[ListedFile]) -> None:
        turn = asyncio.Semaphore(_AT_ONCE)

        async def fetch(file: ListedFile) -> None:
            async with turn:
                self._starts[file.path] = await self._fetch_start(file, _FIRST_BYTES)

        try:
            async with asyncio.TaskGroup() as group:
                for file in files:
                    group.create_task(fetch(file))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _fetch_start(self, file: ListedFile, count: int) -> bytes:
        """The first `count` bytes of a file, checked against what the server and the list say."""
        if file.size == 0:
            return b""
        if count > _PREFIX_LIMIT_BYTES:
            raise self._error("HUB008", url=file.path, reason=f"> {_PREFIX_LIMIT_BYTES} B")
        url = self.hub.url(self.hub.facts.file, self.model, file.path)

        async def read(response: aiohttp.ClientResponse) -> bytes:
            whole = _whole_length(response)
            if file.size is not None and whole is not None and whole != file.size:
                raise self._error("HUB008", url=url, reason=f"{whole} ≠ {file.size} B")
            if not _starts_at_the_start(response):
                raise self._error("HUB008", url=url, reason=response.headers["Content-Range"][:80])
            body = await _body(response, count)
            known = file.size if file.size is not None else whole
            expected = count if known is None else min(count, known)
            if len(body) < expected:
                raise _ShortError
            return body

        return await self._ask(url, {"Range": f"bytes=0-{count - 1}"}, read)

    async def _ask(
        self,
        url: str,
        headers: dict[str, str],
        read: Callable[[aiohttp.ClientResponse], Awaitable[T]],
        limits: aiohttp.ClientTimeout = _TIMEOUT,
    ) -> T:
        """One request with its redirects, and again where trying again can help."""
        if len(self.asked) < 1000 and url not in self.asked:  # noqa: PLR2004 - a bound on a list
            self.asked.append(url)
        reason = ""
        for attempt in range(_TRIES):
            try:
                return await self._once(url, headers, read, limits)
            except _RetryError as again:
                if attempt + 1 == _TRIES or again.wait_s > _LONGEST_WAIT_S:
                    raise self._status_error(url, again.status, again.wait_s) from None
                await self._sleep(again.wait_s or 2.0**attempt / 2)
            except _ShortError:
                reason = "short"
            except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError):
                reason = "short"
            except TimeoutError as error:
                raise self._error("HUB014", host=_host(url)) from error
            except aiohttp.ClientError as error:
                raise self._error("HUB002", host=_host(url), reason=_reason(error)) from error
        raise self._error("HUB008", url=url, reason=reason)

    async def _once(
        self,
        url: str,
        headers: dict[str, str],
        read: Callable[[aiohttp.ClientResponse], Awaitable[T]],
        limits: aiohttp.ClientTimeout,
    ) -> T:
        session = self._session
        if session is None:
            raise RuntimeError(url)
        at = url
        for _ in range(_REDIRECTS + 1):
            sent = dict(headers)
            if (
                self.hub.token is not None
                and self.hub.may_send_token
                and _origin(at) == _origin(self.hub.endpoint)
            ):
                sent["Authorization"] = f"Bearer {self.hub.token}"
            async with session.get(
                at, headers=sent, allow_redirects=False, proxy=_proxy(at), timeout=limits
            ) as response:
                if response.status in _MOVED and "Location" in response.headers:
                    at = self._next_place(at, response.headers["Location"])
                    continue
                if response.status in _AGAIN:
                    raise _RetryError(response.status, _wait_s(response))
                if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    raise _ShortError
                if response.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
                    raise self._status_error(url, response.status, 0.0)
                return await read(response)
        raise self._error("HUB010", host=_host(url), reason=f"> {_REDIRECTS}")

    def _next_place(self, at: str, location: str) -> str:
        to = urljoin(at, location)
        parts = urlsplit(to)
        encrypted = urlsplit(at).scheme == "https"
        if parts.scheme not in ("http", "https") or (encrypted and parts.scheme == "http"):
            raise self._error("HUB010", host=_host(at), reason=f"{parts.scheme}://{_host(to)}")
        return to

    def _status_error(self, url: str, status: int, wait_s: float) -> HeavyliftError:
        return self._error(
            _OF_STATUS.get(status, "HUB007"),
            host=_host(url),
            status=status,
            token=self.hub.token_from or "",
            wait_s=round(wait_s),
            revision=self.model.revision or self.hub.facts.revision,
        )

    def _error(self, code: str, **params: str | int) -> HeavyliftError:
        return HeavyliftError(code, {"id": self.model.id, **params})


class HubFile:
    """A file on a hub of which only the first bytes are ever read."""

    def __init__(self, files: HubFiles, listed: ListedFile) -> None:
        self._files = files
        self._listed = listed
        if listed.size is None:
            raise HeavyliftError(
                "HUB009", {"id": files.model.id, "host": _host(files.hub.endpoint)}
            )
        self.size = listed.size

    def read(self, count: int, offset: int) -> bytes:
        """`count` bytes from `offset`: everything before them is fetched as well."""
        end = min(offset + count, self.size)
        return self._files.start_of(self._listed, end)[offset:end] if end > offset else b""

    def close(self) -> None:
        """Forget what was fetched."""
        self._files.forget(self._listed)


class _ShortError(Exception):
    """A reply ended before it should."""


class _RetryError(Exception):
    """A status that may be another one in a moment."""

    def __init__(self, status: int, wait_s: float) -> None:
        super().__init__(status)
        self.status = status
        self.wait_s = wait_s


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body up to `limit` bytes. The rest of a longer one is not read: the connection ends."""
    pieces = bytearray()
    while len(pieces) < limit:
        piece = await response.content.read(min(_CHUNK_BYTES, limit - len(pieces)))
        if not piece:
            break
        pieces += piece
    if not response.content.at_eof():
        response.close()
    return bytes(pieces)


def _whole_length(response: aiohttp.ClientResponse) -> int | None:
    """The length of the whole file as the reply states it."""
    if response.status == HTTPStatus.PARTIAL_CONTENT:
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        return int(found[3]) if found else None
    return response.content_length


def _starts_at_the_start(response: aiohttp.ClientResponse) -> bool:
    stated = response.headers.get("Content-Range", "bytes 0-")
    return response.status != HTTPStatus.PARTIAL_CONTENT or stated.startswith("bytes 0-")


def _wait_s(response: aiohttp.ClientResponse) -> float:
    text = response.headers.get("Retry-After", "").strip()
    return float(text) if text.isdecimal() and len(text) < 7 else 0.0  # noqa: PLR2004 - digits


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", parts.port or usual


def _host(url: str) -> str:
    return urlsplit(url).netloc or url


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for an address. Read here, because what reads it for us
    would also take passwords from ~/.netrc.
    """
    parts = urlsplit(url)
    with suppress(OSError, ValueError):
        if urllib.request.proxy_bypass(parts.hostname or ""):
            return None
    return urllib.request.getproxies().get(parts.scheme)


def _reason(error: aiohttp.ClientError) -> str:
    inner = getattr(error, "os_error", None) or error
    return getattr(inner, "strerror", None) or type(inner).__name__
