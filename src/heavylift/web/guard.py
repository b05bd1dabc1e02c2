"""What stands between a browser and the pages: whose name is used, what may be done, what loads.

The pages change nothing, so only reading methods are let in. A page of somebody else cannot read
them: its name for this machine is refused (DNS rebinding), and what it embeds or fetches from here
is refused by the browser's own word of where a request comes from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from heavylift.errors import HeavyliftError
from heavylift.locale import catalogue
from heavylift.locale.text import sentence

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LANGUAGE_COOKIE: Final = "heavylift_lang"
_YEAR_S: Final = 365 * 86_400
_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_LONGEST_REASON: Final = 200
_READING: Final = frozenset({"GET", "HEAD"})
_OURS: Final = frozenset({"", "none", "same-origin"})

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_ours(host: str | None) -> bool:
    """True for a Host header that names this machine as a loopback address, any port."""
    if host is None:
        return False
    name, colon, port = host.rpartition(":")
    if not colon or name.endswith(":") or host.endswith("]"):
        return host.lower() in _NAMES
    return name.lower() in _NAMES and port.isascii() and port.isdecimal()


def refusal(request: web.Request) -> int | None:
    """The status a request is refused with; None = it may come in."""
    if len(request.headers.getall("Host", [])) != 1 or not is_ours(request.headers.get("Host")):
        return 421
    if request.method not in _READING:
        return 405
    site = request.headers.get("Sec-Fetch-Site", "")
    # A link on another page may lead here; nothing else of another page may.
    if site not in _OURS and request.headers.get("Sec-Fetch-Mode") != "navigate":
        return 403
    return None


def language(request: web.Request) -> str:
    """The language of an answer: the one chosen on the page, else the browser's."""
    chosen = catalogue.normalised(request.cookies.get(LANGUAGE_COOKIE, ""))
    return chosen or catalogue.of_header(request.headers.get("Accept-Language", ""))


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse or answer, in the reader's language, under the headers above."""
    status = refusal(request)
    if status is not None:
        return web.Response(status=status, text="", headers=HEADERS)
    catalogue.use(language(request))
    try:
        response = await handler(request)
    except web.HTTPException as found:
        found.headers.update(HEADERS)
        raise
    except Exception as error:  # noqa: BLE001 - a mistake of ours is said in words, not as a traceback
        told = {
            "kind": type(error).__name__,
            "reason": str(error)[:_LONGEST_REASON],
            "command": "web",
        }
        words = sentence(HeavyliftError("INT001", told))
        response = web.Response(status=500, text=f"INT001: {words}")
    response.headers.update(HEADERS)
    if "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "no-store"
    return response


def language_chosen(request: web.Request) -> web.Response | None:
    """Where a language was chosen: the same page in it, and the choice kept by the browser."""
    chosen = catalogue.normalised(request.query.get("lang", ""))
    if chosen is None:
        return None
    rest = request.rel_url.without_query_params("lang")
    moved = web.Response(status=303, headers={"Location": str(rest)})
    moved.set_cookie(
        LANGUAGE_COOKIE,
        chosen.replace("_", "-"),
        max_age=_YEAR_S,
        samesite="Strict",
        httponly=True,
        path="/",
    )
    return moved
