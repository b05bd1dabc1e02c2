"""What stands before the engine: its own door, and a gateway with its keys, quotas and audit."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from heavylift.errors import HeavyliftError, Scalar
from heavylift.facts.golive_schema import PromptLogFlag
from heavylift.gateway import told
from heavylift.gateway.keys import Key, Scope
from heavylift.gateway.store import AUDIT, DATABASE, open_store
from heavylift.gateway.told import ToldSettings
from heavylift.golive.evidence import Outcome, Proof
from heavylift.launch import processes
from heavylift.operate.golive.subject import Found, now_utc, plain_url
from heavylift.recipe.engines import embedded

_LOOK_S: Final = 1.0
_TAIL_BYTES: Final = 1 << 20
_KINDS: Final = ("keys", "audit", "data")


@dataclass(frozen=True, kw_only=True, slots=True)
class Front:
    """The gateway of a state folder. `settings` None = none was ever started there; `serves`: it
    takes connections now; `leads_here`: one of its upstreams is the deployment.
    """

    folder: Path
    settings: ToldSettings | None = None
    serves: bool = False
    leads_here: bool = False


def look(folder: Path, found: Found) -> Front:
    """The gateway of a folder, as it stands now."""
    settings = told.kept(folder)
    if settings is None:
        return Front(folder=folder)
    own = {plain_url(run.url) for run in found.runs if run.url is not None}
    return Front(
        folder=folder,
        settings=settings,
        serves=_listens(settings.url),
        leads_here=any(plain_url(url) in own for url in settings.upstreams),
    )


def proofs(front: Front, found: Found, flags: tuple[PromptLogFlag, ...]) -> Iterator[Proof]:
    """Exposure, keys, audit and what is kept of requests."""
    yield _exposure(front, found)
    settings = front.settings
    if settings is None or not front.leads_here or not front.serves:
        reason = "no_gateway"
        if settings is not None:
            reason = "gateway_elsewhere" if not front.leads_here else "gateway_gone"
        url = None if settings is None else settings.url
        # Where no gateway was ever started there is no folder to look into.
        path = None if settings is None else front.folder
        for kind in _KINDS:
            yield _seen(kind, Outcome.OPEN, reason, path, url=url)
        return
    yield _keys(front, settings)
    yield _audit(front)
    yield _data(front, settings, found, flags)


def notes(
    front: Front, found: Found, flags: tuple[PromptLogFlag, ...]
) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """What is kept of requests before and by the engine, in codes."""
    settings = front.settings
    if settings is not None and front.leads_here:
        yield "audit", {"path": str(front.folder / AUDIT)}
        word = "bodies_left_out"
        if settings.keeps_bodies:
            word = "bodies_by_rules" if settings.own_rules else "bodies_kept"
        yield word, {}
    else:
        yield "no_front", {}
    for flag in _logs_prompts(found, flags):
        yield "engine_logs_prompts", {"flag": flag}


# --- points ------------------------------------------------------------------------------------


def _exposure(front: Front, found: Found) -> Proof:
    spec = found.spec
    url = next((run.url for run in found.runs if run.url is not None), None)
    host = None if url is None else urlsplit(url).hostname
    if spec is not None and spec.bind_host is not None:
        host = spec.bind_host
    if host is None:
        return _seen("exposure", Outcome.OPEN, "bind_unknown", found.folder)
    if host not in processes.LOCAL:
        has_key = spec is not None and any(
            embedded.KEY_SECRET in rank.secrets.values() for rank in spec.ranks
        )
        reason = "engine_plain" if has_key else "engine_open"
        return _seen("exposure", Outcome.FAILED, reason, found.folder, host=host)
    settings = front.settings
    if settings is None or not front.leads_here:
        return _seen("exposure", Outcome.PASSED, "exposure_local", found.folder, host=host)
    if settings.host not in processes.LOCAL and not settings.tls:
        return _seen("exposure", Outcome.FAILED, "gateway_plain", front.folder, host=settings.host)
    word = "exposure_tls" if settings.tls else "exposure_gateway_local"
    return _seen("exposure", Outcome.PASSED, word, front.folder, url=settings.url)


def _keys(front: Front, settings: ToldSettings) -> Proof:
    if settings.shares_database or not (front.folder / DATABASE).is_file():
        return _seen("keys", Outcome.OPEN, "keys_elsewhere", front.folder)
    try:
        with open_store(front.folder, must_exist=True) as store:
            live = list(filter(_is_live, store.keys()))
    except HeavyliftError as error:
        return _seen("keys", Outcome.OPEN, "keys_unreadable", front.folder, code=error.code)
    free = [key for key in live if not (key.limits.any or key.team_limits.any)]
    params = {"keys": len(live), "free": len(free), "name": free[0].name if free else None}
    if not live:
        return _seen("keys", Outcome.OPEN, "no_keys", front.folder)
    if free:
        return _seen("keys", Outcome.FAILED, "keys_without_quota", front.folder, **params)
    return _seen("keys", Outcome.PASSED, "keys_with_quota", front.folder, **params)


def _is_live(key: Key) -> bool:
    expired = key.expires_at is not None and time.time() >= key.expires_at
    return key.scope is Scope.INFER and key.revoked_at is None and not expired


def _audit(front: Front) -> Proof:
    path = front.folder / AUDIT
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        lost, lines = _lost_lines(path)
    except OSError:
        return _seen("audit", Outcome.OPEN, "no_audit", path)
    if mode & 0o077:
        return _seen("audit", Outcome.FAILED, "audit_readable", path, mode=f"{mode:o}")
    if lost:
        return _seen("audit", Outcome.FAILED, "audit_lost", path, lost=lost)
    return _seen("audit", Outcome.PASSED, "audit_whole", path, lines=lines)


def _lost_lines(path: Path) -> tuple[int, int]:
    """Lines that the end of an audit says are missing, and how many are there."""
    with path.open("rb") as file:
        size = path.stat().st_size
        file.seek(max(0, size - _TAIL_BYTES))
        raw = file.read().splitlines()
    lost = 0
    for line in raw:
        # The file is the gateway's, and anybody may have written into it.
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("outcome") == "lines_lost":
                lost += int(entry.get("lines", 0))
    return lost, len(raw)


def _data(
    front: Front, settings: ToldSettings, found: Found, flags: tuple[PromptLogFlag, ...]
) -> Proof:
    logging = _logs_prompts(found, flags)
    if logging:
        return _seen("data", Outcome.FAILED, "engine_logs_prompts", found.folder, flag=logging[0])
    if settings.keeps_bodies and not settings.own_rules:
        return _seen("data", Outcome.FAILED, "bodies_kept", front.folder)
    word = "bodies_by_rules" if settings.keeps_bodies else "bodies_left_out"
    return _seen("data", Outcome.PASSED, word, front.folder)


def _logs_prompts(found: Found, flags: tuple[PromptLogFlag, ...]) -> list[str]:
    spec = found.spec
    if spec is None:
        return []
    mine = {each.flag for each in flags if each.engine == spec.engine}
    return [word for rank in spec.ranks for word in rank.argv if word.partition("=")[0] in mine]


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_LOOK_S):
            return True
    except OSError:
        return False


def _seen(kind: str, outcome: Outcome, reason: str, path: Path | None, **params: Scalar) -> Proof:
    return Proof(
        kind=kind,
        outcome=outcome,
        reason=reason,
        at=now_utc().isoformat(),
        params=params,
        path=None if path is None else str(path),
    )
