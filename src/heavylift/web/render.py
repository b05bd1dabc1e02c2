"""Records to HTML: the templates, and the words and figures they are given."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

import jinja2

from heavylift.errors import HeavyliftError, Scalar
from heavylift.facts.schema import Source
from heavylift.locale import catalogue
from heavylift.locale.notation import formula
from heavylift.locale.text import keys, of_facts, refusal, sentence, text, words
from heavylift.records.deployment import Alive, DeploymentStatus, Failure, Phase
from heavylift.records.finding import Finding
from heavylift.records.plan import Part, Plan, Rejected, Segment, Support, Term
from heavylift.records.ranges import Interval
from heavylift.records.speed import Band
from heavylift.units import GIB, format_bytes, format_gib, format_tokens
from heavylift.web.bars import HEADROOM, Bar, Piece

_PARTS_SHOWN: Final = 40
_THOUSAND_GIB: Final = 1000 * GIB
LANGUAGE_NAMES: Final = {"en": "English", "zh_Hans": "简体中文", "zh_Hant": "繁體中文"}
"""Each in its own words, so that whoever needs it can read it."""
STATE_GLYPHS: Final = {
    "serves": "✓",
    "doubtful": "✕",
    "suspect": "!",
    "stopped": "·",
    "failed": "✕",
    "waits": "!",
    "starts": "●",
}
SEVERITY_GLYPHS: Final = {"ok": "✓", "info": "·", "warn": "!", "fail": "✕", "unknown": "?"}
GLYPHS: Final = {
    "fits": "✓",
    "tight": "!",
    "unknown": "?",
    "unsupported": "✕",
    "does_not_fit": "✕",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TermRow:
    """A term as the page lists it; `source` None = the id stands for itself."""

    term: Term
    name: str
    value: str
    source: Source | None
    parts: tuple[Part, ...]
    parts_left: int


def environment() -> jinja2.Environment:
    """The templates with everything they may call. All that is put in is escaped."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("heavylift.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        t=text,
        words=words,
        facts=of_facts,
        formula=formula,
        has_text=lambda key: key in keys(),
        interval=interval,
        band=band,
        number=number,
        gib=gib,
        gib_short=gib_short,
        thousand_gib=_THOUSAND_GIB,
        tokens=format_tokens,
        byte_text=format_bytes,
        extent=extent,
        status=status,
        why=why,
        rule=rule,
        glyphs=GLYPHS,
        sentence=sentence,
        languages=LANGUAGE_NAMES,
        html_lang=html_lang,
        current=catalogue.current,
        segments=tuple(Segment),
        headroom=HEADROOM,
        percent=percent,
        flag_groups=flag_groups,
        state_of=state_of,
        state_glyphs=STATE_GLYPHS,
        severity_glyphs=SEVERITY_GLYPHS,
        failure_words=failure_words,
        finding_words=finding_words,
    )
    return made


def html_lang(language: str) -> str:
    """The tag of a language in HTML: `zh-Hans`."""
    return language.replace("_", "-")


def percent(part: float) -> str:
    """A part of a whole as the length of an SVG element."""
    return f"{part * 100:.3f}%"


def interval(value: Interval, unit: int = GIB, digits: int = 2) -> str:
    """An interval of bytes in GiB: one number, a range, or an open range."""
    low = f"{value.low / unit:,.{digits}f}"
    if value.is_point:
        return low
    high = "?" if value.high is None else f"{value.high / unit:,.{digits}f}"
    return f"{low} – {high}"


def gib(value_bytes: int, digits: int = 2) -> str:
    """GiB without the unit; what is short has a minus sign, not a hyphen."""
    return format_gib(value_bytes, digits).replace("-", "−")


def gib_short(value_bytes: int) -> str:
    """GiB for a narrow place: a decimal below a thousand."""
    return gib(value_bytes, 1 if abs(value_bytes) < _THOUSAND_GIB else 0)


def extent(value: Interval) -> str:
    """An interval of counts in words: one number, `up to`, or a range."""
    high = f"{value.high or 0:,}"
    if value.is_point:
        return high
    if value.high is None:
        return text("web.range_open", low=f"{value.low:,}")
    if value.low == 0:
        return text("web.up_to", high=high)
    return text("web.range", low=f"{value.low:,}", high=high)


def number(value: float) -> str:
    """Three digits that matter."""
    if value >= 100:  # noqa: PLR2004 - whole numbers from three digits on
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004 - as above


def band(value: Band, factor: float = 1.0) -> str:
    """A band without its unit, times a factor."""
    return f"{number(value.low * factor)} – {number(value.high * factor)}"


def status(support: Support) -> str:
    """Who says it runs, with the date where there is one."""
    return text(f"web.status.{support.status}", as_of=support.as_of)


def why(rejected: Rejected) -> str:
    """Why a layout lost."""
    return refusal(rejected.code, rejected.params)


def rule(part: Part) -> str:
    """How a part meets the ranks."""
    return text(f"rule.{part.rule}", **part.params) if part.rule else ""


def term_rows(plan: Plan, sources: Mapping[str, Source]) -> Iterator[TermRow]:
    """The terms of the worst rank in the order of the bar, without buffers that are not there."""
    for segment in Segment:
        terms = [term for term in plan.terms if term.segment == segment]
        for term in terms:
            if len(terms) > 1 and term.bytes.high == 0:
                continue
            parts = sorted(term.parts, key=lambda part: -part.bytes)
            yield TermRow(
                term=term,
                name=term.id.removeprefix(f"{segment}."),
                value=interval(term.bytes),
                source=sources.get(term.source),
                parts=tuple(parts[:_PARTS_SHOWN]),
                parts_left=max(0, len(parts) - _PARTS_SHOWN),
            )


def tip(plan: Plan, bar: Bar, piece: Piece) -> str:
    """What a stretch of a bar is, in a sentence: where, what, how much, by which formula."""
    where = text("web.bar.gpu", gpu=bar.gpu)
    name = text(f"web.segment.{piece.name}")
    if piece.name == HEADROOM:
        return text("web.bar.headroom", where=where, value=interval(piece.bytes))
    sentences = [text("web.bar.piece", where=where, name=name, value=interval(piece.bytes))]
    if not piece.is_sure:
        sentences.append(text("web.bar.may_be"))
    if bar.stage == plan.worst_stage:
        sentences += [_formula(term) for term in plan.terms if term.segment == piece.name]
    return " ".join(filter(None, sentences))


def _formula(term: Term) -> str:
    if not term.bytes.high and term.bytes.high is not None:
        return ""
    kind = text(f"web.kind.{term.kind}")
    key = "web.bar.formula" if term.formula else "web.bar.no_formula"
    return text(
        key,
        name=term.id.rpartition(".")[2],
        formula=formula(term.formula),
        kind=kind,
        source=term.source,
    )


def flag_groups(command: Sequence[str]) -> list[str]:
    """A command line in pieces that belong together: a flag with what follows it, quoted."""
    groups: list[list[str]] = [[]]
    for word in command:
        if word.startswith("-") and groups[-1]:
            groups.append([])
        groups[-1].append(word)
    return [shlex.join(group) for group in groups]


def state_of(status: DeploymentStatus) -> str:
    """The word for how a deployment stands, by what runs and not by what was wished."""
    if status.ready and status.alive is Alive.ALIVE:
        return "doubtful" if status.verdict == "fail" else "serves"
    if status.ready and status.alive is Alive.SUSPECT:
        return "suspect"
    if status.phase is Phase.STOPPED:
        return "stopped"
    if status.phase.is_over:
        return "failed"
    return "waits" if status.phase is Phase.BACKOFF else "starts"


def failure_words(failure: Failure) -> str:
    """Why a start or a run ended, in a sentence."""
    if f"error.{failure.code}" not in keys():
        return failure.title or failure.code  # written down by another version
    params = {name: _readable(name, value) for name, value in failure.params.items()}
    return sentence(HeavyliftError(failure.code, params))


def finding_words(finding: Finding) -> str:
    """What a finding says; its code where there is no text for it."""
    if finding.code not in keys():
        return f"{finding.code} {finding.subject}"
    params = {name: _readable(name, value) for name, value in finding.params.items()}
    return text(finding.code, **params)


def _readable(name: str, value: Scalar) -> Scalar:
    """Bytes as they are read, reasons in words; an open end of an interval is a question mark."""
    if name.endswith("_bytes"):
        return f"{format_gib(value)} GiB" if isinstance(value, int) else "?"
    if name == "reason" and f"alive.{value}" in keys():
        return text(f"alive.{value}")
    return value


def static(name: str) -> bytes:
    """A file that goes out as it lies here. Raises FileNotFoundError."""
    return resources.files("heavylift.web").joinpath("static", name).read_bytes()
