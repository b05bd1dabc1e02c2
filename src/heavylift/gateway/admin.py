"""The admin routes: keys, usage and workers, for keys of the admin scope.

GET    /admin/keys                  all keys, without secrets
POST   /admin/keys                  a new key
DELETE /admin/keys/ID               revoke
POST   /admin/keys/ID/rotate        a new secret
GET    /admin/usage?by=key|team|day
GET    /admin/workers
POST   /admin/workers/NAME/drain    no new requests; DELETE ends it
GET    /admin/openapi.json          these routes, described
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.gateway.keys import DEFAULT_MAX_OUTPUT_TOKENS, Key, Scope
from heavylift.gateway.quota import Limits
from heavylift.gateway.routing import Fleet, Worker
from heavylift.gateway.store import Grouping, Store, Usage

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]{1,120}$")
]
Network = Annotated[
    str,
    msgspec.Meta(
        description="An address, or a network such as 10.0.0.0/8.",
        extra_json_schema={"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
    ),
]
Reply = tuple[Any, HTTPStatus]


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is listed: everything but its secret."""

    id: str
    name: str
    shown: str
    scope: Scope
    team: str | None
    models: tuple[str, ...]
    networks: tuple[str, ...]
    limits: Limits
    max_output_tokens: int
    batches: bool
    created_at: float
    expires_at: float | None
    revoked_at: float | None


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it is listed."""

    name: str
    url: str
    state: str
    reason: str | None
    draining: bool
    models: tuple[str, ...]
    open_requests: int
    outstanding_tokens: int


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """All keys."""

    keys: tuple[KeyView, ...]


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """All workers."""

    workers: tuple[WorkerView, ...]


class Usages(msgspec.Struct, frozen=True, kw_only=True):
    """What was used, and how many requests are open."""

    by: Grouping
    rows: tuple[Usage, ...]
    open_requests: int


class NewLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a new key."""

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    tokens_per_day: Count | None = None
    concurrent: Count | None = None


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that is wanted."""

    name: Name
    scope: Scope = Scope.INFER
    team: Name | None = None
    models: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    limits: NewLimits = NewLimits()
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31)] = DEFAULT_MAX_OUTPUT_TOKENS
    batches: bool = False
    expires_at: Annotated[float, msgspec.Meta(ge=0, le=10**11)] | None = None


class Rotate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the secret before is good for, in seconds."""

    grace_s: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 0.0


class Admin:
    """Answers the admin routes. Who asks has been settled before."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def answer(
        self, store: Store, method: str, path: str, query: Mapping[str, str], body: bytes
    ) -> Reply:
        """The document and the status. Raises GW012, GW030, GW031, GW045, GW046; as the store."""
        match path.split("/")[2:]:
            case ["keys"]:
                return self._keys(store, method, path, body)
            case ["keys", key_id]:
                _expect(method, path, "DELETE")
                key = store.revoke_key(key_id, now_epoch_s=time.time())
                return view(key), HTTPStatus.OK
            case ["keys", key_id, "rotate"]:
                _expect(method, path, "POST")
                wish = _decoded(body or b"{}", Rotate)
                created = store.rotate_key(key_id, now_epoch_s=time.time(), grace_s=wish.grace_s)
                return created, HTTPStatus.OK
            case ["usage"]:
                _expect(method, path, "GET")
                return self._usage(store, query), HTTPStatus.OK
            case ["workers"]:
                _expect(method, path, "GET")
                views = tuple(map(_worker, self._fleet.workers.values()))
                return Workers(workers=views), HTTPStatus.OK
            case ["workers", name, "drain"]:
                _expect(method, path, "POST", "DELETE")
                if not self._fleet.drain(name, draining=method == "POST"):
                    raise HeavyliftError("GW045", {"path": path[:200]})
                return _worker(self._fleet.workers[name]), HTTPStatus.OK
        raise HeavyliftError("GW045", {"path": path[:200]})

    def _keys(self, store: Store, method: str, path: str, body: bytes) -> Reply:
        _expect(method, path, "GET", "POST")
        if method == "GET":
            return KeyList(keys=tuple(map(view, store.keys()))), HTTPStatus.OK
        wish = _decoded(body, NewKey)
        created = store.create_key(
            wish.name,
            now_epoch_s=time.time(),
            scope=wish.scope,
            team=wish.team,
            models=wish.models,
            networks=wish.networks,
            limits=msgspec.convert(wish.limits, Limits, from_attributes=True),
            max_output_tokens=wish.max_output_tokens,
            batches=wish.batches,
            expires_at=wish.expires_at,
            unique=True,
        )
        return created, HTTPStatus.CREATED

    def _usage(self, store: Store, query: Mapping[str, str]) -> Any:
        by = query.get("by", "key")
        try:
            grouping: Grouping = msgspec.convert(by, Grouping)
        except msgspec.ValidationError as problem:
            raise HeavyliftError("GW031", {"field": "by"}) from problem
        rows = store.usage(grouping)
        return Usages(by=grouping, rows=rows, open_requests=store.open_requests())


def view(key: Key) -> KeyView:
    """A key as it may be shown."""
    return KeyView(
        id=key.id,
        name=key.name,
        shown=key.shown,
        scope=key.scope,
        team=key.team,
        models=key.models,
        networks=key.networks,
        limits=key.limits,
        max_output_tokens=key.max_output_tokens,
        batches=key.batches,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
    )


def _worker(worker: Worker) -> WorkerView:
    return WorkerView(
        name=worker.upstream.name,
        url=worker.upstream.url,
        state=str(worker.state),
        reason=worker.reason,
        draining=worker.draining,
        models=worker.models,
        open_requests=worker.open_requests,
        outstanding_tokens=worker.outstanding_tokens,
    )


def _expect(method: str, path: str, *methods: str) -> None:
    if method not in methods:
        raise HeavyliftError("GW046", {"method": method[:20], "path": path[:200]})


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise HeavyliftError("GW030", {"detail": str(problem)}) from problem
