"""Text for people: `text(key, **params)`, in the language in use; for `cli`, `tui` and `web`."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, Final

from heavylift.errors import HeavyliftError
from heavylift.locale.catalogue import FACTS, keys, template, words
from heavylift.locale.others import others

__all__ = [
    "keys",
    "labelled",
    "listed",
    "of_facts",
    "printable",
    "refusal",
    "sentence",
    "text",
    "words",
]

_CHINESE: Final = r"[\u3400-\u9fff，。；：、！？（）「」]"
_MARK: Final = "\ue000"
_BESIDE: Final = re.compile(rf"(?<={_CHINESE}) (?=\{{[a-z])|(?<=[a-z}}]\}}) (?={_CHINESE})")
_GAP: Final = re.compile(rf"(?<={_CHINESE}){_MARK}(?={_CHINESE})")


def text(key: str, /, **params: Any) -> str:
    """The text of `key` with `params` filled in. An unknown key raises KeyError: a test's job.

    Words in `params` may be a stranger's: what does not print in them is shown as an escape. Where
    the catalogue writes `{name:lines}`, each line of the words begins one of its own, indented.
    """
    found = template(key)
    if not params:
        return found.replace("{{", "{").replace("}}", "}")
    marked = _marked(found)
    filled = marked.format(**{name: _made_safe(value) for name, value in params.items()})
    return filled if marked is found else _GAP.sub("", filled).replace(_MARK, " ")


@functools.lru_cache(maxsize=4096)
def _marked(template: str) -> str:
    """A Chinese text whose spaces beside a parameter are marked: there is none where what is
    filled in is Chinese as well.
    """
    return template if template.isascii() else _BESIDE.sub(_MARK, template)


def listed(words: Sequence[str], key: str = "list.words") -> str:
    """Words or clauses one after the other, parted as the language parts them."""
    if not words:
        return ""
    return functools.reduce(lambda first, rest: text(key, first=first, rest=rest), words)


def labelled(key: str, words: str) -> str:
    """Words after the name of what they are."""
    return text("label", name=text(key), words=words)


def of_facts(english: str) -> str:
    """A sentence of the facts in the language in use; in English where nobody translated it."""
    return words(FACTS, english)


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
        shown = printable(str(self))
        asked = re.fullmatch(r"([<>]?)(\d+)(?:\.(\d+))?s?", spec)
        if asked is None or shown.isascii():
            return format(shown, spec)
        # Widths in a catalogue are meant in cells.
        from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 - seldom needed

        side, width, most = asked.groups()
        kept = shown if most is None else set_cell_size(shown, int(most))
        space = " " * (int(width) - cell_len(kept))
        return f"{space}{kept}" if side == ">" else f"{kept}{space}"


def _made_safe(value: Any) -> Any:
    return _Words(value) if isinstance(value, str) else value


def refusal(code: str, params: dict[str, Any]) -> str:
    """Why a layout was refused or lost. What an engine does not offer is a sentence each."""
    key = f"refusal.{code}"
    return text(f"{key}.{params['what']}" if code == "not_offered" else key, **params)


def _in_words(value: str) -> str:
    """A parameter of an error: a reason with a key, words of the facts or of another, a name."""
    key = f"reason.{value}"
    return text(key) if key in keys() else others(of_facts(value))


def sentence(error: HeavyliftError) -> str:
    """The error's text; for a refused layout the reason, for an unknown name the near ones."""
    params = {
        name: _in_words(value) if isinstance(value, str) else value
        for name, value in error.params.items()
    }
    if "refusal" in params:
        params["why"] = refusal(str(params["refusal"]), params)
    reason_key = f"recipe.why.{params.get('why')}"
    if reason_key in keys():
        params["why"] = text(reason_key)
    words = text(f"error.{error.code}", **params)
    if error.params.get("suggestion"):
        near = text("error.suggestion", suggestion=error.params["suggestion"])
        return listed((words, near), "list.clauses")
    if error.params.get("known") and "{known" not in template(f"error.{error.code}"):
        return listed((words, text("error.known", known=error.params["known"])), "list.clauses")
    return words
