"""`heavylift verify`: whether a served model answers as it should, check by check, as rates."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from heavylift.cli.kept import keep
from heavylift.cli.numbers import FiniteRange
from heavylift.cli.output import json_option, sink
from heavylift.cli.served import OutputFile, Served, served_options
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError, reason
from heavylift.units import parse_tokens

if TYPE_CHECKING:  # imported when a verification runs: --help stays fast
    from heavylift.facts.catalog import Catalog
    from heavylift.facts.schema import Golden
    from heavylift.records.plan import Plan
    from heavylift.verify.records import CheckResult
    from heavylift.verify.run import Wish

_FILE: Final = OutputFile()
_RUNNABLE: Final = click.Path(exists=True, dir_okay=False, executable=True, path_type=Path)
_READABLE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_FEATURES: Final = (
    *("tools", "structured", "reasoning", "images", "completions", "messages", "responses"),
    "dynamic_tools",
)
_SOAK_HOURS: Final = 1.0


@click.command(help=text("verify.help"))
@click.argument("url", metavar="URL|NAME")
@click.option(
    "--profile",
    type=click.Choice(["smoke", "acceptance", "soak"]),
    default="smoke",
    show_default=True,
    help=text("verify.profile"),
)
@click.option("--only", multiple=True, metavar="CHECK", help=text("verify.only"))
@click.option("--skip", multiple=True, metavar="CHECK", help=text("verify.skip"))
@click.option("--expect", multiple=True, type=click.Choice(_FEATURES), help=text("verify.expect"))
@click.option(
    "--checks",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=text("verify.checks"),
)
@click.option("--against", metavar="URL", help=text("verify.against"))
@click.option("--same-as", type=_READABLE, metavar="REPORT.json", help=text("verify.same_as"))
@click.option("--context", metavar="TOKENS", help=text("verify.context"))
@click.option(
    "--answer-tokens",
    type=click.IntRange(min=8),
    default=1024,
    show_default=True,
    help=text("verify.answer_tokens"),
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help=text("verify.concurrency"),
)
@click.option(
    "--hours", type=FiniteRange(min=0, min_open=True), metavar="HOURS", help=text("verify.hours")
)
@click.option("--plan", type=_READABLE, help=text("verify.plan"))
@click.option("--log", type=_READABLE, help=text("verify.log"))
@click.option("--gpu-tool", type=_RUNNABLE, help=text("served.gpu_tool"))
@click.option("--extra", metavar="JSON", help=text("bench.extra"))
@click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    default=900.0,
    show_default=True,
    help=text("verify.timeout"),
)
@click.option("--seed", type=int, default=0, show_default=True, help=text("bench.seed"))
@click.option("--junit", type=_FILE, metavar="FILE.xml", help=text("verify.junit"))
@click.option("--html", type=_FILE, help=text("bench.html"))
@served_options
@json_option
def command(url: str, junit: Path | None, html: Path | None, as_json: bool, **given: Any) -> int:
    """Verify, show, write the reports; a failure ends with status 1."""
    from heavylift.cli.pages import junit as junit_file
    from heavylift.cli.pages import verify as page
    from heavylift.cli.screens.verify import check_line
    from heavylift.verify import run
    from heavylift.verify.records import Status

    where = shlex.quote(url)
    url, served = Served.taken_from(given).at(url)
    wish = _wish(url, served, given)
    out = sink(as_json)
    verification = asyncio.run(
        run.run(
            wish,
            lambda check: out.step("verify.step", line=check_line(check)),
            lambda number, seconds: out.step(
                "verify.round", number=number, minutes=f"{seconds / 60:.1f}"
            ),
        )
    )
    out.record("verify", verification)
    keep(out, "verify", verification, url=url)
    for path, render in ((junit, junit_file.render), (html, page.render)):
        if path is not None:
            path.write_text(render(verification), "utf-8")
            out.note("bench.html_written", path=path)
    failed = verification.verdict in (Status.FAIL, Status.UNKNOWN)
    if not failed:
        out.next_command(f"heavylift bench {where} --concurrency 8")
    return Exit.NEGATIVE if failed else Exit.OK


def _wish(url: str, served: Served, given: dict[str, Any]) -> Wish:
    from heavylift.bench.files import shipped_prose
    from heavylift.cli.bench import extra_body
    from heavylift.facts.catalog import Catalog
    from heavylift.telemetry.gpu_watch import tool_for
    from heavylift.verify.records import Profile
    from heavylift.verify.run import Wish
    from heavylift.verify.suites import golden_checks, own, require_known, shipped
    from heavylift.wire.client import Limits

    catalog = Catalog()
    formats = catalog.reply_formats()
    own_checks, own_probes = ((), {}) if given["checks"] is None else own(given["checks"])
    checks = (*shipped(), *golden_checks(_goldens(catalog, served.model)), *own_checks)
    require_known(checks, (*given["only"], *given["skip"]))
    timeout_s = given["timeout"]
    profile = Profile(given["profile"])
    if given["hours"] is not None and profile is not Profile.SOAK:
        raise HeavyliftError("USE078", {"profile": profile})
    hours = given["hours"] or (_SOAK_HOURS if profile is Profile.SOAK else 0.0)
    plan = _plan(given["plan"])
    return Wish(
        endpoint=served.endpoint(url),
        checks=checks,
        profile=profile,
        prose=shipped_prose(),
        markers=tuple(marker for each in formats for marker in each.markers),
        model=served.model,
        only=given["only"],
        skip=given["skip"],
        expected=frozenset(given["expect"]) | _known_features(catalog, served.model),
        other=None if given["against"] is None else served.endpoint(given["against"]),
        limits=Limits(first_byte_s=timeout_s, gap_s=timeout_s),
        concurrency=given["concurrency"],
        answer_tokens=given["answer_tokens"],
        context_tokens=None if given["context"] is None else tokens(given["context"]),
        seed=given["seed"],
        extra=extra_body(given["extra"]),
        variant=served.variant,
        release=served.release,
        is_quantised=served.is_copy(),
        extra_results=_logged_memory(plan, given["log"]),
        probes=own_probes,
        soak_s=3600 * hours,
        gpu_command=tool_for(url, given["gpu_tool"]),
        plan=plan,
        metric_names=catalog.metric_names(),
        earlier=_earlier(given["same_as"]),
    )


def tokens(words: str) -> int:
    """A token count as it was written. Raises click.BadParameter for anything else."""
    try:
        return parse_tokens(words)
    except ValueError:
        raise click.BadParameter(
            text("usage.tokens", value=words), param_hint="'--context'"
        ) from None


def _family(catalog: Catalog, model: str) -> str | None:
    """The family of a model; None for one that is not known."""
    try:
        return catalog.model(model).family
    except HeavyliftError:
        return None


def _known_features(catalog: Catalog, model: str) -> frozenset[str]:
    """What the model is known to do, by the facts; nothing for a model that is not known."""
    family = _family(catalog, model)
    return frozenset(
        feature
        for each in catalog.reply_formats()
        if family in each.families
        for feature in each.features
    )


def _goldens(catalog: Catalog, model: str) -> tuple[Golden, ...]:
    """The requests whose prompt tokens are known of this model."""
    family = _family(catalog, model)
    return tuple(each for each in catalog.goldens() if family in each.families)


def _plan(path: Path | None) -> Plan | None:
    """The plan in a file. Raises PLAN041 for one that is none."""
    if path is None:
        return None
    from heavylift.cli.last import decode_plan

    return decode_plan(path.read_bytes(), str(path))


def _earlier(path: Path | None) -> Mapping[str, str]:
    """The answers in the report of an earlier verification. Raises USE081 for another file."""
    if path is None:
        return {}
    import msgspec

    from heavylift.verify.records import Verification

    try:
        return msgspec.json.decode(path.read_bytes(), type=Verification).answers
    except (msgspec.MsgspecError, OSError) as problem:
        raise HeavyliftError("USE081", {"path": str(path), "detail": reason(problem)}) from problem


def _logged_memory(plan: Plan | None, log: Path | None) -> tuple[CheckResult, ...]:
    """Planned against observed memory by the engine's own log. Raises USE079 for a log alone."""
    if log is None:
        return ()
    if plan is None:
        raise HeavyliftError("USE079", {})
    from heavylift.verify.memory import memory_results

    return memory_results(plan, log.read_text("utf-8", "replace").splitlines())
