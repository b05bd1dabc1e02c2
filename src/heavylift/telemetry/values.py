"""Values as tools print them: absent, counted, with a unit, in a tree.

What tools of many versions have in common. Every function is total: text that holds no value gives
None, and nothing here raises for odd input but `unreadable`, which callers raise on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError

_ABSENT: Final = frozenset(
    {"", "n/a", "na", "none", "unknown", "not supported", "unknown error", "not available"}
)
_BRACKETS: Final = "[]<>()"
_ABSENT_PHRASES: Final = ("requested functionality has been", "function not found", "not supported")

# Twenty digits hold every 64-bit number; longer runs are no count of anything.
_NUMBER: Final = re.compile(r"[-+]?[0-9]{1,20}(?:\.[0-9]{1,20})?", re.ASCII)
_PRINTED: Final = re.compile(r"[-+]?[0-9]{1,18}(?:\.[0-9]{0,18})?", re.ASCII)
_QUANTITY: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([KMGT]i?B|bytes|B)\b", re.ASCII)
_HEX: Final = re.compile(r"0[xX][0-9a-fA-F]{1,16}", re.ASCII)
_POWER: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}

_INDENT_LIMIT: Final = 64
_PATH_MARK: Final = "### "


def unreadable(what: str, reason: str) -> HeavyliftError:
    """The error for output that is not in a form we know (PRE101)."""
    return HeavyliftError("PRE101", {"what": what, "reason": reason[:200]})


def known(text: str | None) -> str | None:
    """The value, stripped; None for the many ways tools say that there is none."""
    if text is None:
        return None
    value = text.strip()
    bare = value.strip(_BRACKETS).strip().lower()
    if bare in _ABSENT or bare.startswith(_ABSENT_PHRASES):
        return None
    return value


def printed_number(text: str) -> Decimal | None:
    """A number as a log prints it, with or without commas; None for what is none, or longer than
    any that a program prints: a damaged line measures nothing.
    """
    digits = text.replace(",", "")
    return Decimal(digits) if _PRINTED.fullmatch(digits) else None


def number(text: str | None) -> float | None:
    """The first number in a text; None when there is none."""
    value = known(text)
    match = None if value is None else _NUMBER.search(value)
    return None if match is None else float(match[0])


def whole(text: str | None) -> int | None:
    """The whole number a text begins with (decimal or 0x…); None when it begins with none."""
    value = known(text)
    if value is None:
        return None
    hexadecimal = _HEX.match(value)
    if hexadecimal is not None:
        return int(hexadecimal[0], 16)
    match = _NUMBER.match(value)
    return None if match is None or "." in match[0] else int(match[0])


def size_bytes(text: str | None, *, unit: str = "", binary: bool = False) -> int | None:
    """Bytes from `81559 MiB`, `10.1 GB` or a bare number of `unit`; None when there is no size.

    `binary`: the tool means 2**20 by MB (amd-smi and rocm-smi do).
    """
    value = known(text)
    if value is None:
        return None
    match = _QUANTITY.search(value)
    if match is None:
        if not unit or _NUMBER.fullmatch(value) is None:
            return None
        match = _QUANTITY.fullmatch(f"{value} {unit}")
        if match is None:
            return None
    amount, name = match[1], match[2]
    if name == "bytes":
        return round(float(amount))
    power = _POWER[name[:-1].removesuffix("i")]
    base = 1024 if binary or "i" in name else 1000
    # int first: a float cannot hold every 64-bit byte count.
    scale = int(base**power)
    return int(amount) * scale if "." not in amount else round(float(amount) * scale)


def flag(
    text: str | None, *, true: Iterable[str] = ("yes", "enabled", "on", "active")
) -> bool | None:
    """True, False or None for `Yes`, `Enabled`, `Not Active`, `N/A`."""
    value = known(text)
    return None if value is None else value.lower() in tuple(true)


def version(text: str | None) -> tuple[int, ...]:
    """The numbers of a version, to be compared: `580.65.06` -> (580, 65, 6); () when none."""
    if text is None:
        return ()
    match = re.search(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,5}", text, re.ASCII)
    return () if match is None else tuple(int(part) for part in match[0].split("."))


# --- a tree of lines -----------------------------------------------------------------------------


@dataclass(slots=True)
class Entry:
    """A line `key: value` and the lines indented under it. Built once, then only read."""

    key: str
    value: str = ""
    children: list[Entry] = field(default_factory=list)

    def all(self, key: str) -> Iterator[Entry]:
        """The entries of that name right under this one."""
        return (child for child in self.children if child.key == key)

    def get(self, path: str) -> str | None:
        """The value at `A/B/C` under this entry; None when it is not there."""
        found = self.at(path)
        return None if found is None else found.value

    def at(self, path: str) -> Entry | None:
        """The entry at `A/B/C` under this one; None when it is not there."""
        entry: Entry | None = self
        for key in path.split("/"):
            entry = None if entry is None else next(entry.all(key), None)
        return entry

    def walk(self) -> Iterator[Entry]:
        """This entry and all below it."""
        waiting = [self]
        while waiting:
            entry = waiting.pop()
            yield entry
            waiting.extend(entry.children)


def tree(lines: Iterable[str], separator: str = ":") -> Entry:
    """The tree that indentation draws. A line without a separator is a key without a value."""
    root = Entry("")
    stack: list[tuple[int, Entry]] = [(-1, root)]
    for line in lines:
        text = line.expandtabs(8)
        if not text.strip():
            continue
        depth = len(text) - len(text.lstrip())
        key, _, value = text.strip().partition(separator)
        while stack[-1][0] >= depth:
            stack.pop()
        entry = Entry(key.strip(), value.strip())
        stack[-1][1].children.append(entry)
        if len(stack) < _INDENT_LIMIT:
            stack.append((depth, entry))
    return root


def flattened(text: str) -> dict[str, str]:
    """Files of a tree written as `### path` lines, each followed by what the file holds."""
    files: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in text.splitlines():
        if line.startswith(_PATH_MARK):
            lines = files.setdefault(line.removeprefix(_PATH_MARK).strip(), [])
        elif lines is not None:
            lines.append(line)
    return {path: "\n".join(content).strip() for path, content in files.items()}


def pairs(text: str, separator: str | None = None) -> dict[str, str]:
    """Lines of `key value` (or `key<separator>value`); the first of a repeated key counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(separator, 1)
        if len(parts) == 2:  # noqa: PLR2004 - a key and a value
            found.setdefault(parts[0].strip(), parts[1].strip())
    return found


# --- JSON of strangers ---------------------------------------------------------------------------


_ELLIPSIS: Final = re.compile(r"^\s*\.\.\.,?\s*$", re.MULTILINE)
_TRAILING_COMMA: Final = re.compile(r",(\s*[\]}])")


def decode_json(text: str, what: str) -> Any:
    """A JSON document, tolerant of what comes before it and of trailing commas.

    Some releases print warnings before the document, some print commas that JSON does not allow.
    Raises PRE101.
    """
    starts = [place for place in (text.find("{"), text.find("[")) if place >= 0]
    if not starts:
        raise unreadable(what, "no JSON")
    body = text[min(starts) :].strip()
    for candidate in (body, _TRAILING_COMMA.sub(r"\1", _ELLIPSIS.sub("", body))):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError) as error:
            reason = str(error)
    raise unreadable(what, reason)


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """A scalar of a foreign document as text, `{"value": 3, "unit": "MB"}` as `3 MB`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, dict) and "value" in value:
        return f"{value['value']} {value.get('unit', '')}".strip()
    return None


def first_line(text: str) -> str:
    """The first line that is not blank, for an error; `empty` where there is none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "empty")
