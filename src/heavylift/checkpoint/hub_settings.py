"""Which hub is asked, under which address and with which token; and what an id says.

Everything comes from the environment and from files whose places are facts. A token is kept out of
every text, and goes only to the hub's own address: over an encrypted connection, or on this very
machine.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from heavylift.errors import HeavyliftError
from heavylift.facts.checkpoint_schema import HubFacts

_ID: Final = re.compile(
    r"(?P<id>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})"
    r"(?:@(?P<revision>[\w.][\w./-]{0,199}))?(?::(?P<part>[\w.+][\w.+/ -]{0,255}))?",
    re.ASCII,
)
_YES: Final = frozenset({"1", "true", "yes", "on"})
_TOKEN_LIMIT_BYTES: Final = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class HubId:
    """A model on a hub: `owner/name`, a revision (None: the hub's usual one), and the part that is
    meant (`Q4_K_M`, a file), None for all.
    """

    id: str
    revision: str | None = None
    part: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubId | None:
        """The id in `owner/name[@revision][:part]`; None for any other text."""
        found = _ID.fullmatch(text)
        if found is None or ".." in text:
            return None
        return cls(id=found["id"], revision=found["revision"], part=found["part"])


@dataclass(frozen=True, kw_only=True, slots=True)
class HubSettings:
    """A hub as it is reached from here. `token_from` names the place the token was found in."""

    facts: HubFacts
    endpoint: str
    token: str | None = field(default=None, repr=False)
    token_from: str | None = None
    offline: str | None = None

    def url(self, path: str, model: HubId, name: str = "") -> str:
        """The address of one of the hub's paths for a model, and a file of it."""
        is_query = "?" in path and path.index("?") < path.find("{path}")
        filled = path.format(
            id=model.id,
            revision=quote(model.revision or self.facts.revision, safe=""),
            path=quote(name, safe="" if is_query else "/"),
        )
        return f"{self.endpoint}{filled}"

    @property
    def may_send_token(self) -> bool:
        """True when the address is encrypted or this machine's own."""
        parts = urlsplit(self.endpoint)
        return parts.scheme == "https" or is_this_machine(parts.hostname or "")


def settings(
    hubs: tuple[HubFacts, ...], environment: Mapping[str, str], *, wanted: str | None = None
) -> HubSettings:
    """The hub of that id, else the one the environment chooses, else the first.

    Raises HUB011 for an address that is none, or that holds a name or password.
    """
    chosen = next((hub for hub in hubs if hub.id == wanted), None)
    if chosen is None:
        chosen = next(
            (hub for hub in hubs if any(_says_yes(environment, name) for name in hub.chosen_by)),
            hubs[0],
        )
    endpoint, variable = chosen.endpoint, ""
    for name in chosen.endpoint_variables:
        if environment.get(name, "").strip():
            endpoint, variable = environment[name].strip(), name
            break
    token, token_from = _token(chosen, environment)
    switches = {name for hub in hubs for name in hub.offline_variables}
    return HubSettings(
        facts=chosen,
        endpoint=_address(endpoint, variable),
        token=token,
        token_from=token_from,
        offline=next((name for name in sorted(switches) if _says_yes(environment, name)), None),
    )


def _address(text: str, variable: str) -> str:
    whole = text if "://" in text else f"https://{text}"
    try:
        parts = urlsplit(whole)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise HeavyliftError("HUB011", {"variable": variable}) from error
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        # The text itself is not repeated: it may hold a password.
        raise HeavyliftError("HUB011", {"variable": variable})
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def _token(hub: HubFacts, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    for name in hub.token_variables:
        token = environment.get(name, "").strip()
        if _is_token(token):
            return token, name
    if _says_yes(environment, "HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return None, None
    for place in hub.token_files:
        path = _place(place, environment)
        if path is None:
            continue
        try:
            with path.open("rb") as file:
                token = file.read(_TOKEN_LIMIT_BYTES).decode("ascii", "replace").strip()
        except OSError:
            continue
        if _is_token(token):
            return token, str(path)
    return None, None


def _is_token(text: str) -> bool:
    """True for what may stand in a header: one word of printable ASCII."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _place(place: str, environment: Mapping[str, str]) -> Path | None:
    if place.startswith("$"):
        name, slash, rest = place[1:].partition("/")
        root = environment.get(name, "")
        return Path(f"{root}{slash}{rest}") if root else None
    if place.startswith("~"):
        home = environment.get("HOME", "")
        return Path(home + place[1:]) if home else None
    return Path(place)


def _says_yes(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").strip().lower() in _YES


def is_this_machine(host: str) -> bool:
    """True for loopback addresses."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def from_environment(hubs: tuple[HubFacts, ...], wanted: str | None = None) -> HubSettings:
    """`settings` with this process's environment."""
    return settings(hubs, os.environ, wanted=wanted)
