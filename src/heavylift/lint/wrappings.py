"""What programs that are no shell wrap a command in, undone: lists of arguments, image files,
process managers. What remains is shell text with the same words.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Final

StartsEngine = Callable[[Sequence[str]], bool]
"""Whether words start an engine."""

_STRING: Final = r"""(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
_LIST: Final = re.compile(rf"\[\s*{_STRING}(?:\s*,\s*{_STRING})*\s*,?\s*\]")
_TRIPLE: Final = re.compile(r"(?:\b[rfRF]{1,2})?(?:\"\"\"|''')")
_IMAGE_FILE: Final = re.compile(r"^FROM[ \t]+\S", re.MULTILINE)
_INSTRUCTION: Final = re.compile(
    r"^(ENV|ENTRYPOINT|CMD)[ \t]+((?:[^\n\\]|\\[ \t]*\n|\\.)+)", re.MULTILINE
)
_OLD_ENV: Final = re.compile(r"(\w+)[ \t]+(\S.*)", re.DOTALL)
_MANAGED: Final = re.compile(r"^\[program:", re.MULTILINE)
_SECTION: Final = re.compile(r"^(?=\[)", re.MULTILINE)
_MANAGED_COMMAND: Final = re.compile(r"^command[ \t]*=[ \t]*", re.MULTILINE)
_MANAGED_ENV: Final = re.compile(r"^environment[ \t]*=[ \t]*(.+)$", re.MULTILINE)
_MANAGED_PAIR: Final = re.compile(r"""(\w+)=("[^"]*"|'[^']*'|[^,\s]*)""")


def unwrap(text: str, starts: StartsEngine) -> str:
    """The text with wrapped commands written for a shell; others stay as they are."""
    if _IMAGE_FILE.search(text):
        built = _image_file(text)
        if built is not None:
            return built
    if _MANAGED.search(text):
        text = "".join(map(_managed, _SECTION.split(text)))
    if text.count('"""') == 2 or text.count("'''") == 2:  # noqa: PLR2004 - one opens, one closes
        text = _TRIPLE.sub("\n", text)

    def shell(found: re.Match[str]) -> str:
        words = _items(found[0])
        return f"\n{shlex.join(words)}\n" if words and starts(words) else found[0]

    return _LIST.sub(shell, text)


def _items(text: str) -> list[str]:
    """The strings of a list; empty where it cannot be read."""
    try:
        return [str(each) for each in ast.literal_eval(text)]
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []


def _image_file(text: str) -> str | None:
    """The start that an image file describes; None where it describes none."""
    assigned: list[str] = []
    parts: dict[str, str] = {}
    for instruction, raw in _INSTRUCTION.findall(text):
        value = re.sub(r"\\[ \t]*\n", " ", raw).strip()
        if instruction == "ENV":
            old = _OLD_ENV.fullmatch(value) if "=" not in value.split()[0] else None
            assigned.append(f"export {old[1]}={shlex.quote(old[2])}" if old else f"export {value}")
        else:
            listed = value.startswith("[")
            parts[instruction] = shlex.join(_items(value)) if listed else value
    start = " ".join(parts[each] for each in ("ENTRYPOINT", "CMD") if parts.get(each))
    return "\n".join([*assigned, start]) if start else None


def _managed(section: str) -> str:
    """A program's section with its variables above its command, wherever they stand."""
    header, _, body = section.partition("\n")
    variables = [_managed_env(found) for found in _MANAGED_ENV.finditer(body)]
    body = _MANAGED_COMMAND.sub("", _MANAGED_ENV.sub("", body))
    return "\n".join([header, *variables, body])


def _managed_env(found: re.Match[str]) -> str:
    pairs = _MANAGED_PAIR.findall(found[1])
    return "\n".join(f"export {name}={value}" for name, value in pairs)
