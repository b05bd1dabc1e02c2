"""The licence of a model, from the hub's description of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from heavylift.checkpoint.defects import shown

_TAG: Final = "license:"


def stated_licence(information: bytes) -> str | None:
    """The licence a hub states, with its name and link where it is one of the maker's own.

    None when it states none, or when the description is none.
    """
    try:
        document = msgspec.json.decode(information)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(document, Mapping):
        return None
    of_modelscope = document.get("Data")
    if isinstance(of_modelscope, Mapping):
        named_there = _text(of_modelscope.get("License"))
        return None if named_there is None else shown(named_there)
    card = document.get("cardData")
    table: Mapping[str, Any] = card if isinstance(card, Mapping) else {}
    parts = [_text(table.get(name)) for name in ("license", "license_name", "license_link")]
    named = [part for part in parts if part is not None]
    if named:
        return shown(" · ".join(dict.fromkeys(named)))
    tags = document.get("tags")
    for tag in tags if isinstance(tags, list) else ():
        if isinstance(tag, str) and tag.startswith(_TAG):
            return shown(tag.removeprefix(_TAG))
    return None


def _text(value: Any) -> str | None:
    """A text, or several in a list."""
    if isinstance(value, list):
        return ", ".join(each for each in value if isinstance(each, str)) or None
    return value if isinstance(value, str) and value else None
