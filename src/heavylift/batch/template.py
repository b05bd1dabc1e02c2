"""Prompt templates: jinja2 in its sandbox, strict about names it does not know."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from heavylift.errors import HeavyliftError

_PLACES: Final = re.compile(r"{{|{%")
_BRACED: Final = re.compile(r"{\s*(\w+)\s*}")


def refuse_single_braces(source: str, columns: Mapping[str, Any]) -> None:
    """Raises BAT014 for a template without a place in which a column stands in single braces:
    every row would be sent the braces.
    """
    if _PLACES.search(source):
        return
    for name in _BRACED.findall(source):
        if name in columns:
            raise HeavyliftError("BAT014", {"name": name})


def compiled(source: str) -> Callable[[Mapping[str, Any]], str]:
    """A function from a row to its prompt. Raises BAT004 when the template is not one.

    The function raises ValueError, with the template's complaint, for a row it cannot be filled
    from: a column that is not there is a defect of the row, never an empty place in a prompt.
    """
    import jinja2  # noqa: PLC0415 - only batches with a template pay for it
    import jinja2.sandbox  # noqa: PLC0415 - the same

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # prompts are text, not pages
        keep_trailing_newline=False,
    )
    try:
        template = environment.from_string(source)
    except jinja2.TemplateSyntaxError as problem:
        params = {"line": problem.lineno, "detail": problem.message}
        raise HeavyliftError("BAT004", params) from problem

    def render(row: Mapping[str, Any]) -> str:
        try:
            return template.render(row)
        except (jinja2.TemplateError, TypeError, ArithmeticError, LookupError) as problem:
            raise ValueError(str(problem)) from problem

    return render


def version(*sources: str | None) -> str:
    """A name for these templates that changes with any of them; empty when there are none."""
    if not any(sources):
        return ""
    joined = "\0".join(source or "" for source in sources)
    return hashlib.sha256(joined.encode()).hexdigest()[:16]
