"""What the gateway answers: errors in either protocol's words, documents, headers of quotas.

Texts for people are not made here: errors are codes, and `say` turns one into a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from heavylift.errors import HeavyliftError
from heavylift.gateway.carrier import Answer, Failed, status_of
from heavylift.gateway.keys import Key
from heavylift.gateway.ledger import Reservation
from heavylift.gateway.quota import Refusal
from heavylift.gateway.request import Style
from heavylift.gateway.visit import Visit

Say = Callable[[HeavyliftError], str]

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


def error(
    visit: Visit, problem: HeavyliftError, say: Say, status: HTTPStatus | None = None
) -> web.Response:
    """An error in the words of the client's protocol; `status` where it is not the usual one."""
    if problem.code == "GW023":  # where the database is concerns no client
        problem = HeavyliftError("GW024")
    usual, openai_type, anthropic_type = _STATUS.get(
        problem.code, (HTTPStatus.BAD_REQUEST, *_INVALID)
    )
    status = visit.status = status or usual
    visit.outcome = visit.outcome or _CODES.get(problem.code, problem.code)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        visit.headers["Retry-After"] = str(_RETRY_S)
    if status is HTTPStatus.UNAUTHORIZED:
        visit.headers["WWW-Authenticate"] = "Bearer"
    message = say(problem)
    if visit.style is Style.ANTHROPIC:
        body: dict[str, Any] = {
            "type": "error",
            "error": {"type": anthropic_type, "message": message},
            "request_id": visit.request_id,
        }
    else:
        code = _CODES.get(problem.code, problem.code)
        body = {"error": {"message": message, "type": openai_type, "param": None, "code": code}}
    response = document(body, status)
    response.headers.update(visit.headers)
    return response


def failure(visit: Visit, failed: Failed, say: Say) -> web.Response:
    """What the client gets of an attempt that failed: the worker's own words if it had any."""
    visit.outcome = str(failed.failure)
    if failed.answer is not None:
        visit.status = failed.answer.status
        response = whole(failed.answer)
        response.headers.update(visit.headers)
        return response
    problem = HeavyliftError("GW061", {"failure": str(failed.failure)})
    return error(visit, problem, say, status_of(failed.failure))


def whole(answer: Answer) -> web.Response:
    """A worker's whole reply as it came."""
    headers = {"Content-Type": answer.content_type, "Server": "heavylift"}
    if answer.retry_after is not None:
        headers["Retry-After"] = answer.retry_after
    return web.Response(body=answer.body, status=answer.status, headers=headers)


def document(body: Any, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    """A document as JSON."""
    return web.Response(
        body=msgspec.json.encode(body),
        status=status,
        headers={"Content-Type": "application/json", "Server": "heavylift"},
    )


def card(model: str, context_tokens: int | None) -> dict[str, Any]:
    """A model as it is listed; the context in the field in which engines state it."""
    listed = {"id": model, "object": "model", "created": 0, "owned_by": "heavylift"}
    return listed if context_tokens is None else listed | {"max_model_len": context_tokens}


def refusal_headers(refusal: Refusal) -> dict[str, str]:
    """When to try again, where waiting helps."""
    if refusal.retry_after_s is None:
        # The client library would try again, in vain.
        return {"x-should-retry": "false"}
    return {"Retry-After": str(max(1, -int(-refusal.retry_after_s // 1)))}


def left_headers(key: Key, given: Reservation) -> dict[str, str]:
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
