"""Keys: what is kept of them, how one is made, and how a presented one is judged.

A key is `hl_<id>_<secret>`. The id finds the record; of the secret only a digest is kept. The
secret has 256 bits of chance, so one round of SHA-256 is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.gateway.quota import NO_LIMITS, Limits

PREFIX: Final = "hl_"
DEFAULT_MAX_OUTPUT_TOKENS: Final = 8192
"""The longest answer of a key that states no other cap, in tokens."""

_KEY: Final = re.compile(r"hl_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,120}")


class Scope(StrEnum):
    """What a key is for. One only: a key that manages keys must not be able to spend."""

    INFER = "infer"
    ADMIN = "admin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """A key as it is kept. Times are wall-clock epoch seconds; empty lists allow everything.

    `shown` is the beginning that tells keys apart in a list. `team_limits` are those of `team`,
    `max_output_tokens` caps every answer, `batches` opens the files and batches routes. After a
    rotation the secret before it is good until `previous_until`: one id, so that both share one
    quota.
    """

    id: str
    name: str
    shown: str
    digest: bytes = field(repr=False)
    scope: Scope = Scope.INFER
    team: str | None = None
    models: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS
    team_limits: Limits = NO_LIMITS
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    batches: bool = False
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    previous_digest: bytes | None = field(default=None, repr=False)
    previous_until: float | None = None

    def allows_model(self, model: str) -> bool:
        """True when the key may use the model, by the name the client uses."""
        return not self.models or model in self.models


class Denial(StrEnum):
    """Why a presented key opens nothing."""

    MISSING = "missing"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    REVOKED = "revoked"
    NETWORK = "network"
    SCOPE = "scope"


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """A new key, shown once: the only record in which the secret stands."""

    id: str
    key: str
    name: str
    team: str | None
    scope: Scope
    expires_at: float | None


def make_secret() -> tuple[str, str]:
    """A new id and a new key text."""
    key_id = secrets.token_hex(6)
    return key_id, f"{PREFIX}{key_id}_{secrets.token_urlsafe(32)}"


def digest(key: str) -> bytes:
    """What is kept of a key: 32 bytes that do not lead back to it."""
    return hashlib.sha256(key.encode()).digest()


def shown(key: str) -> str:
    """The beginning of a key that may be shown: its id and four characters."""
    return f"{key[: len(PREFIX) + 17]}…"


def id_of(key: str) -> str | None:
    """The id in a presented key; None when it is not of our making."""
    match = _KEY.fullmatch(key)
    return None if match is None else match[1]


def judge(
    presented: str, kept: Key | None, *, scope: Scope, address: str | None, now_epoch_s: float
) -> Denial | None:
    """Why the presented key is refused; None when it opens the door.

    The comparison takes as long for a wrong key as for a right one, and the secret is judged
    before anything is told of the key's state. `address` None = the peer has no IP address.
    """
    if kept is None or not _opens(presented, kept, now_epoch_s):
        return Denial.UNKNOWN
    if kept.revoked_at is not None:
        return Denial.REVOKED
    if kept.expires_at is not None and now_epoch_s >= kept.expires_at:
        return Denial.EXPIRED
    if kept.networks and not in_networks(address, kept.networks):
        return Denial.NETWORK
    return None if kept.scope is scope else Denial.SCOPE


def _opens(presented: str, kept: Key, now_epoch_s: float) -> bool:
    given = digest(presented)
    current = hmac.compare_digest(given, kept.digest)
    previous = hmac.compare_digest(given, kept.previous_digest or bytes(len(given)))
    return current or (
        previous and kept.previous_until is not None and now_epoch_s < kept.previous_until
    )


def in_networks(address: str | None, networks: tuple[str, ...]) -> bool:
    """True when the address lies in one of the networks. IPv4 inside IPv6 counts as IPv4."""
    if address is None:
        return False
    host = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    return any(host in ipaddress.ip_network(network) for network in networks)


def check_name(name: str) -> str:
    """The name if it can be one. Raises GW010 for an empty or overlong one, or control codes."""
    if not _NAME.fullmatch(name):
        raise HeavyliftError("GW010", {"name": name[:40]})
    return name


def check_network(network: str) -> str:
    """The network in its usual spelling. Raises GW011 when it is none."""
    try:
        return str(ipaddress.ip_network(network, strict=False))
    except ValueError as problem:
        raise HeavyliftError("GW011", {"network": network}) from problem
