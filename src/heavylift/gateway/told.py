"""What a gateway was told when it last started here, without its secrets: for go-live reports."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from heavylift import __version__
from heavylift.gateway.config import Settings

FILE: Final = "settings.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToldSettings:
    """The settings of a gateway's last start. `own_rules`: somebody stated what is taken out of
    bodies; else secrets are. Nothing here opens anything.
    """

    url: str
    host: str
    tls: bool
    upstreams: tuple[str, ...]
    keeps_bodies: bool
    own_rules: bool
    shares_database: bool
    started_at: str
    pid: int
    heavylift_version: str


def keep(settings: Settings, url: str, *, own_rules: bool) -> None:
    """Write down what a gateway that now listens at `url` was told. Raises `OSError`."""
    told = ToldSettings(
        url=url,
        host=settings.host,
        tls=settings.tls is not None,
        upstreams=tuple(each.url for each in settings.routes.upstreams),
        keeps_bodies=settings.redact is not None,
        own_rules=own_rules,
        shares_database=settings.database is not None,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        pid=os.getpid(),
        heavylift_version=__version__,
    )
    settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = settings.folder / FILE
    scratch = path.with_suffix(f".{os.getpid()}.new")
    scratch.write_bytes(msgspec.json.encode(told))
    scratch.replace(path)


def kept(folder: Path) -> ToldSettings | None:
    """What the gateway of a folder was told; None when none was started, or it cannot be read."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=ToldSettings)
    except (OSError, msgspec.MsgspecError):
        return None
