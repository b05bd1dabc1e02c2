"""Parts of a recipe's README that its files bring: findings, deadline, keys, hand-over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from heavylift.cli.text import keys, text
from heavylift.recipe.targets.records import Rendering
from heavylift.recipe.targets.words import SECRETS_FILE
from heavylift.records.finding import Finding
from heavylift.records.launch import LaunchSpec

_HAND_OVER: Final = (
    *("verify", "long_context", "load", "restart", "kill", "drain"),
    *("secrets", "digests", "owner"),
)
_EXPOSED: Final = "exposed_without_key"
_ROUTER: Final = "router"
_POOLS: Final = "pool_ports_open"
_NOTE: Final = {"image_by_tag": "image_by_tag", _EXPOSED: "open_without_key"}
"""Finding of a target -> the note of a launch that says the same."""

_SPLIT: Final = "prefill_decode"


def findings(spec: LaunchSpec, rendering: Rendering) -> Iterator[str]:
    """What is not right yet with the files, beside what the launch's notes say already."""
    said = {note.code for note in spec.notes}
    behind = {rank.name for rank in spec.ranks if rank.role != _ROUTER}
    left = [
        each
        for each in rendering.findings
        if _NOTE.get(each.code) not in said
        and not (each.code == _EXPOSED and _POOLS in said and each.subject in behind)
    ]
    if left:
        yield f"## {text('readme.findings')}"
        yield "\n".join(f"- {finding_line(each)}" for each in left)


def finding_line(finding: Finding) -> str:
    """A finding of a target as a sentence."""
    key = f"recipe.finding.{finding.code}"
    if finding.observed is None and f"{key}.any" in keys():
        key = f"{key}.any"
    return text(key, subject=finding.subject, observed=finding.observed, expected=finding.expected)


def deadline(spec: LaunchSpec, rendering: Rendering) -> Iterator[str]:
    """The one number and every place where it stands."""
    if rendering.deadline_at:
        yield f"## {text('readme.deadline')}"
        yield text("readme.deadline.text", seconds=spec.deadline_s)
        yield "\n".join(f"- `{place}`" for place in rendering.deadline_at)


def secrets(spec: LaunchSpec) -> Iterator[str]:
    """Where keys go; nothing where there are none."""
    if any(rank.secrets for rank in spec.ranks):
        yield f"## {text('readme.secrets')}"
        yield text("readme.secrets.text", file=SECRETS_FILE)


def hand_over(spec: LaunchSpec) -> Iterator[str]:
    """What has to be true before others depend on the service."""
    items = (*_HAND_OVER, "split") if spec.topology == _SPLIT else _HAND_OVER
    yield f"## {text('readme.hand_over')}"
    yield "\n".join(f"- [ ] {text(f'readme.hand_over.{item}')}" for item in items)
