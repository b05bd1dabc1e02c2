"""The README of a recipe: what it is, what to do in which order, and why each flag is there."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Final

from heavylift.cli.text import keys, text
from heavylift.recipe.targets.records import Rendering, Stage, Step
from heavylift.recipe.targets.words import SECRETS_FILE
from heavylift.records.finding import Finding
from heavylift.records.launch import LaunchSpec, Setting

FILE: Final = "README.md"

_STAGES: Final = (Stage.PREPARE, Stage.CHECK, Stage.START, Stage.WATCH, Stage.STOP)
_HAND_OVER: Final = (
    *("verify", "long_context", "load", "restart", "kill", "drain"),
    *("secrets", "digests", "owner"),
)
_SPLIT: Final = "prefill_decode"


def render(spec: LaunchSpec, rendering: Rendering, *, notes: Iterable[str] = ()) -> str:
    """The README in Markdown. `notes` are the texts of the launch's notes."""
    parts = (
        _head(spec, rendering),
        _list(text("recipe.readme.findings"), map(finding_line, rendering.findings)),
        _list(text("recipe.readme.notes"), notes),
        _first(),
        _steps(rendering.steps),
        _deadline(spec, rendering),
        _flags(spec.settings),
        _keys(spec),
        _hand_over(spec),
    )
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def finding_line(finding: Finding) -> str:
    """A finding of a target as a sentence."""
    key = f"recipe.finding.{finding.code}"
    if finding.observed is None and f"{key}.any" in keys():
        key = f"{key}.any"
    return text(key, subject=finding.subject, observed=finding.observed, expected=finding.expected)


def _head(spec: LaunchSpec, rendering: Rendering) -> Iterator[str]:
    title = text(
        "recipe.readme.title",
        model=spec.served_name or spec.model,
        engine=spec.engine,
        version=spec.engine_version,
    )
    yield f"# {title}"
    yield ""
    yield text("recipe.readme.made", target=rendering.target, plan=spec.plan_digest)
    yield ""
    told = spec.support
    if told is None:
        yield text("recipe.readme.support.unknown")
    else:
        yield text(
            "recipe.readme.support", status=str(told.status), source=told.source, as_of=told.as_of
        )
    yield text("recipe.readme.untried")


def _list(title: str, lines: Iterable[str]) -> Iterator[str]:
    items = [f"- {line}" for line in lines]
    if items:
        yield from (f"## {title}", "", *items)


def _first() -> Iterator[str]:
    yield from (f"## {text('recipe.readme.first')}", "")
    yield f"- `heavylift doctor`: {text('recipe.readme.first.doctor')}"
    yield f"- `heavylift lint FILE`: {text('recipe.readme.first.lint')}"


def _steps(steps: tuple[Step, ...]) -> Iterator[str]:
    yield f"## {text('recipe.readme.order')}"
    for stage in _STAGES:
        mine = [step for step in steps if step.stage is stage]
        if not mine:
            continue
        yield from ("", f"### {text(f'recipe.readme.stage.{stage}')}", "", "```")
        said = ""
        for step in mine:
            where = "" if step.rank is None else ", " + text("recipe.readme.on", rank=step.rank)
            comment = f"# {text(f'recipe.step.{step.what}')}{where}"
            if comment != said:
                yield comment
            said = comment
            yield typed(step.argv)
        yield "```"


def typed(argv: Iterable[str]) -> str:
    """A command as it is typed; variables of the recipe's files stay variables."""
    return " ".join(word if "${" in word else shlex.quote(word) for word in argv)


def _deadline(spec: LaunchSpec, rendering: Rendering) -> Iterator[str]:
    yield from (f"## {text('recipe.readme.deadline')}", "")
    yield text("recipe.readme.deadline.text", seconds=spec.deadline_s)
    yield ""
    yield from (f"- `{place}`" for place in rendering.deadline_at)


def _flags(settings: tuple[Setting, ...]) -> Iterator[str]:
    yield from (f"## {text('recipe.readme.flags')}", "")
    if not settings:
        yield text("recipe.readme.flags.none")
        return
    headers = text("recipe.readme.flags.headers").split("|")
    yield _row(headers)
    yield _row("---" for _ in headers)
    for each in settings:
        source = each.source if each.as_of is None else f"{each.source}, {each.as_of}"
        value = f"`{each.value}`" if each.value else ""
        role = each.role or text("recipe.readme.role.all")
        yield _row((f"`{each.name}`", value, _why(each, role), each.origin, source))


def _why(setting: Setting, role: str) -> str:
    """What a flag is for, in words where the catalogue has them."""
    key = f"recipe.why.{setting.why}"
    reason = text(key) if key in keys() else setting.why
    return f"{reason} ({role})" if reason else role


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _keys(spec: LaunchSpec) -> Iterator[str]:
    if any(rank.secrets for rank in spec.ranks):
        yield from (f"## {text('recipe.readme.secrets')}", "")
        yield text("recipe.readme.secrets.text", file=SECRETS_FILE)


def _hand_over(spec: LaunchSpec) -> Iterator[str]:
    yield from (f"## {text('recipe.readme.hand_over')}", "")
    items = (*_HAND_OVER, "split") if spec.topology == _SPLIT else _HAND_OVER
    for item in items:
        yield f"- [ ] {text(f'recipe.readme.hand_over.{item}')}"
