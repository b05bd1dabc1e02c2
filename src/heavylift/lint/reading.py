"""Reading: any pasted text into commands."""

from __future__ import annotations

import re
from typing import Final

from heavylift.lint.command import Document
from heavylift.lint.commands import CommandReader
from heavylift.lint.files import FileReader, documents, is_unit
from heavylift.lint.typography import straighten
from heavylift.lint.wrappings import unwrap

_ROOT_PROMPT: Final = re.compile(r"^[ \t]*#[ \t]*(?=[\w./])", re.MULTILINE)


def read(text: str, reader: CommandReader) -> Document:
    """The commands of a text: a shell line or script, `docker run`, compose, Kubernetes or recipe
    YAML, a systemd unit, or variables and flags alone. No text raises.
    """
    straight = straighten(text)
    files = FileReader(reader)
    if is_unit(straight.text):
        return Document(form="systemd", commands=tuple(files.unit(straight.text)))
    loaded = documents(straight.text)
    if loaded:
        form, commands = files.yaml(loaded)
        if commands:
            comments = tuple(
                line.split("#", 1)[1].strip() for line in text.splitlines() if "#" in line
            )
            return Document(form=form, commands=tuple(commands), comments=comments)
    plain = unwrapped = unwrap(straight.text, reader.starts)
    found, out = reader.script(plain)
    if not any(each.engine for each in found) and _ROOT_PROMPT.search(plain):
        # `# vllm serve …`: the prompt of root, not a comment.
        bare = _ROOT_PROMPT.sub("", plain)
        again = reader.script(bare)
        if any(each.engine for each in again[0]):
            plain, (found, out) = bare, again
    return Document(
        form="shell",
        commands=tuple(found),
        comments=tuple(out.comments),
        repairs=(*straight.repairs, *out.repairs),
        text=plain if unwrapped == straight.text else None,
        fixes=tuple(out.fixes),
    )
