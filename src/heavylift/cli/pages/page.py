"""The frame of every HTML report and its tables. Everything put in is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from heavylift.locale.catalogue import current

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
td.words, th.words { text-align: left; overflow-wrap: anywhere; }
td.words { min-width: 6rem; }
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif; background: #fff; fill: #333; }
.ok { color: #2e7d32; } .fail { color: #c62828; font-weight: 600; } .warn { color: #b26a00; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem 1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
@media print {
  body { max-width: none; margin: 0; font-size: 11px; } tr, pre { break-inside: avoid; }
}
"""


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page. `parts` are HTML already."""
    body = "\n".join(part for part in parts if part)
    language = current().replace("_", "-")
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def heading(content: str) -> str:
    """A heading inside the page."""
    return f"<h2>{escape(content)}</h2>"


def paragraph(content: str, style: str = "") -> str:
    """A paragraph; `style` is ok, warn, fail or nothing."""
    return f'<p class="{escape(style)}">{escape(content)}</p>'


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], words: Iterable[int] = ()) -> str:
    """A table; columns in `words` (from 0) hold text and are set to the left."""
    left = frozenset(words)
    head = _row("th", headers, left)
    body = "\n".join(_row("td", row, left) for row in rows)
    return f"<table><thead>{head}</thead><tbody>\n{body}\n</tbody></table>"


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """Terms and what they mean."""
    items = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in pairs)
    return f"<dl>{items}</dl>"


def _row(tag: str, cells: Sequence[str], words: frozenset[int]) -> str:
    inner = "".join(
        f'<{tag} class="words">{escape(cell)}</{tag}>'
        if number in words
        else f"<{tag}>{escape(cell)}</{tag}>"
        for number, cell in enumerate(cells)
    )
    return f"<tr>{inner}</tr>"
