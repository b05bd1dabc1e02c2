"""Text for people: `text(key, **params)`, in the language in use; for `cli`, `tui` and `web`."""

from __future__ import annotations

from typing import Any

from heavylift.errors import HeavyliftError
from heavylift.locale.catalogue import keys, template, words

__all__ = ["keys", "printable", "refusal", "sentence", "text", "words"]


def text(key: str, /, **params: Any) -> str:
    """The text of `key` with `params` filled in. An unknown key raises KeyError: a test's job.

    Words in `params` may be a stranger's: what does not print in them is shown as an escape. Where
    the catalogue writes `{name:lines}`, each line of the words begins one of its own, indented.
    """
    found = template(key)
    if not params:
        return found.replace("{{", "{").replace("}}", "}")
    return found.format(**{name: _made_safe(value) for name, value in params.items()})


def printable(words: str) -> str:
    """`words` with everything a terminal would act on or not show as a backslash escape."""
    if words.isprintable():
        return words
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in words
    )


class _Words(str):
    """A text parameter. Only the catalogue decides whether its line breaks are kept."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        if spec == "lines":
            return "".join(f"\n  {printable(line)}" for line in self.splitlines())
        return format(printable(str(self)), spec)


def _made_safe(value: Any) -> Any:
    return _Words(value) if isinstance(value, str) else value


def refusal(code: str, params: dict[str, Any]) -> str:
    """Why a layout was refused or lost. What an engine does not offer is a sentence each."""
    key = f"refusal.{code}"
    return text(f"{key}.{params['what']}" if code == "not_offered" else key, **params)


def sentence(error: HeavyliftError) -> str:
    """The error's text; for a refused layout the reason, for an unknown name the near ones."""
    params = dict(error.params)
    if "refusal" in params:
        params["why"] = refusal(str(params["refusal"]), params)
    reason_key = f"recipe.why.{params.get('why')}"
    if reason_key in keys():
        params["why"] = text(reason_key)
    words = text(f"error.{error.code}", **params)
    if error.params.get("suggestion"):
        return f"{words}; {text('error.suggestion', suggestion=error.params['suggestion'])}"
    if error.params.get("known"):
        return f"{words}; {text('error.known', known=error.params['known'])}"
    return words
