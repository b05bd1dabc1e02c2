"""A systemd unit that supervises a deployment: what brings it back after a reboot."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from heavylift.operate.operations import supervise_command

_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_STOP_MORE_S: Final = 30


def unit_name(name: str) -> str:
    """The unit's file name."""
    return f"heavylift-{name}.service"


def unit_text(name: str, *, grace_s: float, home: str | None, folder: Path) -> str:
    """The unit. The supervisor starts engines again itself; systemd starts the supervisor again.

    `home` is HEAVYLIFT_HOME where it is set; the command runs in `folder`, as `up` did.
    """
    environment = [f"PATH={os.environ.get('PATH', '/usr/bin:/bin')}"]
    if home is not None:
        environment.append(f"HEAVYLIFT_HOME={home}")
    lines = [
        "[Unit]",
        f"Description=Heavylift deployment {name}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={' '.join(map(_quoted, supervise_command(name)))}",
        f"WorkingDirectory={folder}",
        *(f"Environment={_quoted(each)}" for each in environment),
        # 1: it gave the engine up and has said why. Starting again would not help.
        "RestartPreventExitStatus=0 1",
        "Restart=always",
        "RestartSec=5",
        # Engine and keepers are the supervisor's to end in order; what is left is systemd's.
        "KillMode=mixed",
        f"TimeoutStopSec={round(grace_s) + _STOP_MORE_S}",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        "UMask=0077",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    return "\n".join(lines)


def _quoted(word: str) -> str:
    """A word as systemd reads it: `%` and `$` stand for themselves when doubled."""
    plain = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(plain):
        return plain
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
