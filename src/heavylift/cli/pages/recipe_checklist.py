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
_SPLIT: Final = "prefill_decode"


def findings(rendering: Rendering) -> Iterator[str]:
    """What is not right yet with the files; nothing where there is nothing."""
    if rendering.findings:
        yield f"## {text('readme.findings')}"
        yield "\n".join(f"- {finding_line(each)}" for each in rendering.findings)


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
