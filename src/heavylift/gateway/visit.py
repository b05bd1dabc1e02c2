"""A request of a client from its first header to its last byte, and its line of the audit."""

from __future__ import annotations

import functools
import os
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from heavylift.gateway import quota
from heavylift.gateway.audit import Line
from heavylift.gateway.carrier import Job
from heavylift.gateway.keys import Key
from heavylift.gateway.ledger import Lost
from heavylift.gateway.request import ROUTES, Style

MODELS: Final = "/v1/models"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(kw_only=True, slots=True)
class Visit:
    """What becomes known of a request while it is answered."""

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
        return self.outcome is not None or not self.path.startswith(MODELS)

    def line(self) -> Line:
        """The line of the audit; when the request has ended."""
        job, key = self.job, self.key
        cost = quota.NOTHING if job is None else job.cost()
        outcome = self.outcome or (str(job.failure) if job and job.failure else "ok")
        began_at = self.began_at
        first = None if job is None else job.first_token_at
        return Line(
            at=self.at,
            request_id=self.request_id,
            outcome=outcome,
            key_id=None if key is None else key.id,
            key_name=None if key is None else key.name,
            team=None if key is None else key.team,
            address=self.address,
            path=self.path[:200],
            model=self.model,
            worker=None if job is None or job.worker is None else job.worker.upstream.name,
            attempts=0 if job is None else job.attempts,
            status=self.status,
            stream=self.stream,
            prompt_tokens=None if job is None else cost.prompt_tokens,
            completion_tokens=None if job is None else cost.completion_tokens,
            estimated=cost.estimated,
            ttft_s=None if first is None else round(first - began_at, 6),
            duration_s=round(time.monotonic() - began_at, 6),
            bytes_in=self.bytes_in,
            bytes_out=0 if job is None else job.bytes_out,
            body=self.body,
        )


def begin(request: web.BaseRequest) -> Visit:
    """The visit that begins with this request, under the id that the client gave it, if it did."""
    request_id = request.headers.get("x-request-id")
    if request_id is None or not _REQUEST_ID.fullmatch(request_id):
        request_id = os.urandom(16).hex()
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


def lost_line(lost: Lost) -> Line:
    """The line of a request whose gateway died."""
    return Line(
        at=_rfc3339(lost.began_at),
        request_id="",
        outcome="gateway_died",
        key_id=lost.key_id,
        model=lost.model,
        prompt_tokens=lost.cost.prompt_tokens,
        completion_tokens=lost.cost.completion_tokens,
        estimated=True,
    )


def _rfc3339(epoch_s: float) -> str:
    whole_s, ms = divmod(int(epoch_s * 1000), 1000)
    return f"{_second(whole_s)}.{ms:03d}Z"


@functools.lru_cache(maxsize=4)
def _second(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
