"""Configuration: what a gateway is told when it starts, from options and one TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.gateway.audit import Redact
from heavylift.gateway.request import IMAGE_TOKENS, Policy
from heavylift.gateway.router import RouterPlan
from heavylift.gateway.routing import Lane, Routes, Upstream
from heavylift.wire.client import Endpoint

DATABASE_URL: Final = "HEAVYLIFT_GATEWAY_DATABASE"
"""The environment variable with the address of a Postgres database. Never an option: it may hold a
password, and options are seen."""
BATCH_KEY: Final = "HEAVYLIFT_BATCH_KEY"
"""The environment variable with the key that the batch server asks for."""
UPSTREAM_KEY: Final = "HEAVYLIFT_UPSTREAM_KEY"
"""The environment variable with the key that workers ask for. Never an option: options are seen."""

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Times(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long things may take, in seconds.

    Clients: `header_s` and `body_s` for a request to arrive, `idle_s` for a connection between
    two, `slow_client_s` for a client that does not read. Workers: `connect_s`; `first_byte_s`
    (a long prompt adds to it); `gap_s` inside a stream, long because some parsers send a tool call
    in one piece. Health: after `stall_s` without a byte to anybody a worker with open requests is
    probed; `probe_misses` failed probes in a row, each of at most `probe_timeout_s`, throw it out;
    one that is out is probed every `probe_s`, one that is well every `refresh_s`. End: for
    `drain_notice_s` readiness says no and requests are still taken; then open ones have
    `drain_limit_s`.
    """

    header_s: Seconds = 10.0
    body_s: Seconds = 120.0
    idle_s: Seconds = 75.0
    slow_client_s: Seconds = 60.0
    connect_s: Seconds = 5.0
    first_byte_s: Seconds = 900.0
    gap_s: Seconds = 600.0
    stall_s: Seconds = 30.0
    probe_s: Seconds = 1.0
    probe_timeout_s: Seconds = 10.0
    probe_misses: Positive = 3
    refresh_s: Seconds = 5.0
    drain_notice_s: Annotated[float, msgspec.Meta(ge=0)] = 2.0
    drain_limit_s: Annotated[float, msgspec.Meta(ge=0)] = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything a gateway is told. `worker_key` is sent to workers in place of a client's key,
    `database` is the address of a Postgres database; None = a file in the folder. `router` runs
    beside the gateway; `batches` is where a batch server listens. `redact` decides what is kept of
    bodies; None = they are not kept.
    """

    folder: Path
    routes: Routes
    host: str = "127.0.0.1"
    port: int = 8080
    worker_key: str | None = field(default=None, repr=False)
    policy: Policy = field(default_factory=Policy)
    times: Times = field(default_factory=Times)
    body_bytes: int = 64 * 2**20
    tls: Tls | None = None
    reuse_port: bool = False
    database: str | None = field(default=None, repr=False)
    router: RouterPlan | None = None
    batches: str | None = None
    batch_key: str | None = field(default=None, repr=False)
    redact: Redact | None = None


class _Upstream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    name: str | None = None
    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    lane: Lane = Lane.ALL


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration file: `[[upstream]]`, `[alias]`, `[times]` and a few values."""

    upstream: tuple[_Upstream, ...] = ()
    alias: dict[str, str] = {}
    times: Times = Times()
    long_from_tokens: Positive = 131_072
    image_tokens: Positive = IMAGE_TOKENS
    fetch_hosts: frozenset[str] = frozenset()
    body_bytes: Positive = 64 * 2**20


def read_file(path: Path | None) -> File:
    """The configuration in a file; the defaults where there is none.

    Raises GW002 with the place when it is not as it should be.
    """
    if path is None:
        return File()
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), File)
    except (OSError, ValueError) as problem:  # not TOML, not UTF-8, or the wrong shape
        raise HeavyliftError("GW002", {"path": str(path), "detail": str(problem)}) from problem


def routes(urls: tuple[str, ...], file: File) -> Routes:
    """Routes from the URLs of the options and the file's workers.

    Raises USE021 for a URL that is none, GW005 when there is no worker, GW006 when two are called
    the same.
    """
    upstreams = [
        *(_upstream(_Upstream(url=url)) for url in urls),
        *(_upstream(each) for each in file.upstream),
    ]
    if not upstreams:
        raise HeavyliftError("GW005")
    names = [each.name for each in upstreams]
    for name in names:
        if names.count(name) > 1:
            raise HeavyliftError("GW006", {"name": name})
    return Routes(
        upstreams=tuple(upstreams), aliases=file.alias, long_from_tokens=file.long_from_tokens
    )


def _upstream(given: _Upstream) -> Upstream:
    url = Endpoint.parse(given.url).base_url
    name = given.name or url.partition("://")[2]
    return Upstream(name=name, url=url, weight=given.weight, lane=given.lane)
