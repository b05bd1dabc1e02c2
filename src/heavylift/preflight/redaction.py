"""Takes out of collected text what could be a secret. A second net: probes do not ask for any."""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = "[redacted]"
_PATTERNS: Final = (
    # A value that belongs to a telling name: API_KEY=…, "token": "…", --password …
    re.compile(
        r"(?i)((?:key|secret|token|passw(?:or)?d|passphrase|credentials?)[\"']?\s*[=:]\s*[\"']?)"
        r"(?![\"'\s])[^\s\"',;]{4,}"
    ),
    re.compile(r"(?i)(--[a-z-]*(?:key|secret|token|passw(?:or)?d)[a-z-]*\s+)\S+"),
    # Keys that are known by their beginning.
    re.compile(r"()\b(?:hf_|sk-|ghp_|glpat-|xox[bap]-|AKIA)[A-Za-z0-9_-]{12,}"),
    # Name and password in an address.
    re.compile(r"(://)[^/\s:@]{1,100}:[^/\s@]{1,200}(?=@)"),
    re.compile(r"(?i)(authorization:\s*(?:bearer|basic)\s+)\S+"),
)


def redacted(text: str) -> str:
    """The text without what looks like a secret."""
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<1>{_MARK}", text)
    return text
