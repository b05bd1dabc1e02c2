"""Secrets and private names taken out of text that leaves a machine. Pure.

What is taken out is replaced by its kind in brackets, so that the line still reads. Hosts and
addresses stay unless asked for: a rank that cannot reach another is told by its address.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

# Names whose values are secrets, as variables, options, JSON keys and headers write them.
_PRIVATE_NAME: Final = (
    r"[\w.-]*(?:api[-_]?key|secret|passw(?:or)?d|passphrase|credential|private[-_]?key"
    r"|access[-_]?key|(?:auth|access|hf)[-_]?token|bearer|(?<![a-z])token|(?<![a-z])pwd)"
    r"(?!s|i[sz]|_id|ids|_count)[\w-]{0,20}"
)

# name=value, name: value, "name": "value", --name value; in prose a word after "token" is none.
_NAMED: Final = (
    rf"(?:\b{_PRIVATE_NAME}[\"']?\s*[:=]\s*|--{_PRIVATE_NAME}\s+"
    r"|\b[\w.-]*(?:api[-_]?key|passw(?:or)?d|passphrase)\s+(?=\S))"
)

_RULES: Final[tuple[tuple[str, re.Pattern[str], str], ...]] = (
    (
        "secret",
        re.compile(
            r"\b(?:hf_|hf_oauth_|api_org_|sk-|sk_|pk_|rk_|ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|glpat-"
            r"|nvapi-|xox[abprs]-|AIza|ya29\.|dop_v1_|npm_|pypi-|r8_|gsk_|wandb_|hvs\.)[A-Za-z0-9_.=-]{8,}"
        ),
        "[secret]",
    ),
    ("secret", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"), "[secret]"),
    ("secret", re.compile(r"\beyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]+){1,2}"), "[secret]"),
    (
        "secret",
        re.compile(r"(?i)\b(authorization[\"']?\s*[:=]\s*[\"']?)(?:\w+\s+)?[^\s\"',}]+"),
        r"\1[secret]",
    ),
    ("secret", re.compile(r"(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}"), r"\1[secret]"),
    ("secret", re.compile(r"(?i)\b((?:set-)?cookie[\"']?\s*[:=]\s*).+"), r"\1[secret]"),
    ("secret", re.compile(r"(://[^\s/:@\"']*:)[^\s/@\"']+(?=@)"), r"\1[secret]"),
    # A quoted value may hold spaces, and keeps its quotes: JSON stays JSON.
    (
        "secret",
        re.compile(rf"(?i)({_NAMED}(?:b|f|r)?)([\"'])(?!\[secret\])(?:\\.|(?!\2).)*\2"),
        r"\1\2[secret]\2",
    ),
    (
        "secret",
        re.compile(
            rf"(?i)({_NAMED})(?!(?:null|none|true|false)\b)"
            r"(?:\[[^\]]*\]|[^\s\"',;)}\]]+)"
        ),
        r"\1[secret]",
    ),
    ("home", re.compile(r"(/(?:home|Users)/)[^/\s\"':]+"), r"\1[user]"),
    ("home", re.compile(r"(?i)\b([a-z]:\\Users\\)[^\\\s\"':]+"), r"\1[user]"),
    ("mail", re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"), "[mail]"),
)
_HOST_RULES: Final[tuple[tuple[str, re.Pattern[str], str], ...]] = (
    ("address", re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]*\d)"), "[address]"),
    (
        "address",
        re.compile(r"(?i)(?<![\w:.])(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}(?![\w:])"),
        "[address]",
    ),
    ("address", re.compile(r"(?i)(?<![\w:])(?:[0-9a-f]{1,4}:)+:(?:[0-9a-f]{1,4}:?)+"), "[address]"),
    (
        "host",
        re.compile(r"(?i)(\b(?:host(?:name)?|node|server)[=:]\s*[\"']?)[a-z][\w.-]+"),
        r"\1[host]",
    ),
    (
        "host",
        re.compile(
            r"(?i)\b(?:[a-z0-9-]+\.)+(?:local|internal|lan|corp|cluster|compute|svc|intra)\b"
        ),
        "[host]",
    ),
)
_PERSONAL: Final = frozenset({"home", "mail"})
_KEY_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")
_KEY_ENDS: Final = re.compile(r"-----END [A-Z ]*PRIVATE KEY")


class Redactor:
    """Takes lines in order; knows when it is inside a private key. `counts` says what was taken."""

    def __init__(
        self, *, persons: bool = True, hosts: bool = False, names: tuple[str, ...] = ()
    ) -> None:
        """`persons`: also homes and mail addresses. `names` are taken out wherever they stand (this
        machine's name, the user's).
        """
        self.counts: Counter[str] = Counter()
        rules = (*_RULES, *(_HOST_RULES if hosts else ()))
        self._rules = tuple(rule for rule in rules if persons or rule[0] not in _PERSONAL)
        self._names = re.compile(
            "|".join(rf"\b{re.escape(name)}\b" for name in names if name) or r"(?!)"
        )
        self._inside_key = False

    def line(self, line: str) -> str:
        """The line without what is private."""
        if self._inside_key:
            self._inside_key = _KEY_ENDS.search(line) is None
            return "[secret]"
        begins = _KEY_BEGINS.search(line)
        if begins:
            self._inside_key = _KEY_ENDS.search(line) is None
            self.counts["secret"] += 1
            return f"{self._by_rules(line[: begins.start()])}[secret]"
        return self._by_rules(line)

    def _by_rules(self, line: str) -> str:
        for kind, pattern, replacement in self._rules:
            line, times = pattern.subn(replacement, line)
            self.counts[kind] += times
        line, times = self._names.subn("[name]", line)
        self.counts["name"] += times
        return line


def without_secrets(text: str) -> str:
    """The text without keys, tokens and passwords; paths and names stay as they are."""
    redactor = Redactor(persons=False)
    return "\n".join(map(redactor.line, text.split("\n")))
