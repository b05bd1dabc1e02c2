"""YAML of ours: the same bytes for the same data, as yamllint's own rules want it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from heavylift.recipe.targets.words import comment_lines


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Lists are indented under their key, long texts are blocks, nothing is an alias."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ARG002
        """A list is always indented."""
        return super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Repeat what stands twice: a reader need not look elsewhere."""
        return True


def _string(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if not text.replace("\n", "").isprintable():
        style = '"'  # other line breaks and controls are escaped, or YAML would fold them
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)


def documents(header: Iterable[str], bodies: Iterable[Mapping[str, Any]]) -> str:
    """A file of YAML documents with our head as comments."""
    head = "".join(f"{line}\n" for line in comment_lines(header))
    return head + "".join(
        "---\n" + yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**16)
        for body in bodies
    )


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that say something."""
    return {key: value for key, value in table.items() if value is not None}
