"""`heavylift quality`: whether another form of a model gives other answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from heavylift.cli.kept import keep
from heavylift.cli.numbers import FiniteRange
from heavylift.cli.output import json_option, sink
from heavylift.cli.served import KEY_VARIABLE, OutputFile, Served
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError
from heavylift.records.sink import Sink
from heavylift.wire.client import is_address

if TYPE_CHECKING:  # imported when a comparison runs: --help stays fast
    from heavylift.quality.records import Question
    from heavylift.wire.client import Endpoint

_READABLE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_FILE: Final = OutputFile()
_SCORED_PER_GROUP: Final = 6
_GROUPS: Final = ("facts", "logic", "code", "chinese", "summary")


@click.command(help=text("quality.help"))
@click.argument("reference")
@click.argument("candidate")
@click.option("--group", multiple=True, type=click.Choice(_GROUPS), help=text("quality.group"))
@click.option("--questions", type=_READABLE, metavar="FILE.jsonl", help=text("quality.questions"))
@click.option(
    "--per-group",
    type=click.IntRange(min=2),
    default=80,
    show_default=True,
    help=text("quality.per_group"),
)
@click.option(
    "--margin",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help=text("quality.margin"),
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help=text("quality.samples"),
)
@click.option("--run-code", is_flag=True, help=text("quality.run_code"))
@click.option(
    "--divergence/--no-divergence", default=True, show_default=True, help=text("quality.divergence")
)
@click.option("--no-noise-floor", is_flag=True, help=text("quality.no_noise_floor"))
@click.option("--max-tokens", type=click.IntRange(min=1), help=text("quality.max_tokens"))
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help=text("verify.concurrency"),
)
@click.option("--html", type=_FILE, help=text("bench.html"))
@click.option("--reference-model", help=text("served.model"))
@click.option("--candidate-model", help=text("served.model"))
@click.option("--reference-variant", help=text("served.variant"))
@click.option("--candidate-variant", help=text("served.variant"))
@click.option("--reference-release", help=text("served.release"))
@click.option("--candidate-release", help=text("served.release"))
@click.option("--quantised/--original", default=None, help=text("served.quantised"))
@click.option("--key-env", default=KEY_VARIABLE, show_default=True, help=text("served.key_env"))
@click.option("--extra", metavar="JSON", help=text("bench.extra"))
@click.option("--seed", type=int, default=0, show_default=True, help=text("bench.seed"))
@json_option
def command(reference: str, candidate: str, html: Path | None, as_json: bool, **given: Any) -> int:
    """Compare and show; a candidate that is worse ends with status 1, too little data with 8."""
    from dataclasses import replace

    from heavylift.bench.files import shipped_prose
    from heavylift.cli.bench import extra_body
    from heavylift.cli.pages import quality as page
    from heavylift.quality import run
    from heavylift.quality.programs import programs
    from heavylift.quality.questions import questions
    from heavylift.quality.records import Verdict
    from heavylift.quality.sandbox import open_sandbox
    from heavylift.records.served_model import ServedModel

    chance = random.Random(given["seed"]).random  # noqa: S311 - questions, not secrecy
    if given["questions"] is not None:
        asked = run.read_questions(given["questions"])
    else:
        asked = questions(chance, shipped_prose(), given["per_group"])
    sandbox = None
    if given["run_code"]:
        sandbox = asyncio.run(open_sandbox())
        asked = (*asked, *programs(chance, given["per_group"]))
    elif any(question.function is not None for question in asked):
        raise HeavyliftError("USE095", {})
    if given["group"]:
        asked = tuple(question for question in asked if question.group in given["group"])
    if given["max_tokens"] is not None:
        asked = tuple(replace(question, max_tokens=given["max_tokens"]) for question in asked)
    first, second = (_side(each, given["key_env"]) for each in (reference, candidate))
    wish = run.Wish(
        reference=first.source,
        candidate=second.source,
        questions=asked,
        margin=given["margin"],
        reference_side=ServedModel(
            url=first.url,
            model=given["reference_model"],
            variant=given["reference_variant"],
            release=given["reference_release"] or first.release,
        ),
        candidate_side=ServedModel(
            url=second.url,
            model=given["candidate_model"],
            variant=given["candidate_variant"],
            release=given["candidate_release"] or second.release,
            is_quantised=_is_copy(given),
        ),
        samples=given["samples"],
        noise_floor=not given["no_noise_floor"],
        concurrency=given["concurrency"],
        seed=given["seed"],
        extra=extra_body(given["extra"]),
        divergence_prompts=_scored(asked) if given["divergence"] else (),
        sandbox=sandbox,
    )
    out = sink(as_json)
    if not all(isinstance(side, Path) for side in (wish.reference, wish.candidate)):
        _say_beforehand(out, len(asked), given["margin"])
    comparison = asyncio.run(run.run(wish, _progress(out.step)))
    out.record("quality", comparison)
    keep(out, "quality", comparison, url=second.url)
    if html is not None:
        html.write_text(page.render(comparison), "utf-8")
        out.note("bench.html_written", path=html)
    return {
        Verdict.EQUIVALENT: Exit.OK,
        Verdict.BETTER: Exit.OK,
        Verdict.WORSE: Exit.NEGATIVE,
        Verdict.NOT_ENOUGH_DATA: Exit.PENDING,
    }[comparison.verdict]


def _say_beforehand(out: Sink, items: int, margin: float) -> None:
    """What so many questions can show, said before the first is asked."""
    from heavylift.quality import compare, stats

    effect = stats.minimum_detectable_effect(items, compare.PRESUMED_DISCORDANCE)
    out.step("quality.beforehand", margin=f"{margin:.1%}", effect=f"{effect:.1%}")


def _is_copy(given: dict[str, Any]) -> bool | None:
    served = Served(
        model=given["candidate_model"] or "",
        key_env=given["key_env"],
        variant=given["candidate_variant"],
        release=None,
        quantised=given["quantised"],
    )
    return served.is_copy()


def _scored(asked: Sequence[Question]) -> tuple[str, ...]:
    """The prompts whose continuations are scored token by token: a few of each group."""
    by_group: dict[str, list[str]] = {}
    for question in asked:
        by_group.setdefault(question.group, []).append(question.text)
    return tuple(text for texts in by_group.values() for text in texts[:_SCORED_PER_GROUP])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Side:
    """A side of the comparison as it was named: where it is, and its release where it is ours."""

    source: Endpoint | Path
    url: str
    release: str | None = None


def _side(given: str, key_env: str) -> _Side:
    """A file when there is one of that name, else a URL or a deployment. Raises USE069 for none."""
    path = Path(given)
    if path.exists():
        return _Side(source=path, url=given)
    served = Served(model="", key_env=key_env, variant=None, release=None, quantised=None)
    url, served = served.at(given)
    if "://" not in url and not is_address(url):
        raise HeavyliftError("USE069", {"given": given})
    return _Side(source=served.endpoint(url), url=url, release=served.release)


def _progress(step: Any) -> Any:
    def on_answer(name: str, done: int, total: int) -> None:
        if done == total:
            step("quality.step", name=name, total=total)

    return on_answer
