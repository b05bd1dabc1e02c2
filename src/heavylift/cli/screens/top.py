"""A look at a running service: a row per GPU, the engine, the host, what is not as planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from heavylift.cli.cells import cell_len, right, wrap
from heavylift.cli.output import glyphs
from heavylift.cli.text import printable, text
from heavylift.errors import Scalar
from heavylift.records.finding import Finding
from heavylift.records.watch import (
    EngineNow,
    GpuNow,
    HostNow,
    Quantiles,
    Sight,
    WatchReport,
)
from heavylift.units import GIB, format_gb, format_gib, format_tokens

_BAR: Final = 26
_ROWS: Final = 32
"""GPUs that are shown: those furthest from the plan come first."""
_UNKNOWN: Final = "?"


def lines(report: WatchReport) -> Iterator[Text]:
    """The screen, line by line."""
    yield from _head(report)
    yield Text()
    yield from _gpus(report)
    yield Text()
    yield from _engine(report.engine)
    yield from _host(report.host)
    yield from _terms(report)
    yield from _curve(report)
    for finding in report.findings:
        yield from _wrapped(_said(finding), f"{glyphs()[finding.severity]} ", style="yellow")
    for note in report.notes:
        yield from _wrapped(text(note.code, **_shown(note.params)), f"{glyphs()['info']} ")


def _head(report: WatchReport) -> Iterator[Text]:
    name = report.name or text("top.unnamed")
    line = f"{printable(name)}  {text('top.at', at=report.at)}"
    if report.phase is not None:
        line += "  " + text(f"phase.{report.phase}")
    yield Text(line)
    title = printable(report.title or "")
    url = "" if report.url is None else text("top.url", url=report.url)
    if title or url:
        yield Text("  ".join(filter(None, (title, url))))


# --- GPUs ------------------------------------------------------------------------------------


def _gpus(report: WatchReport) -> Iterator[Text]:
    if not report.gpus:
        yield from _wrapped(text(f"top.sight.{report.sight}"), f"{glyphs()['unknown']} ")
        return
    hosts = {gpu.host for gpu in report.gpus}
    planned = any(gpu.planned_low_bytes is not None for gpu in report.gpus)
    yield _text("top.legend.planned" if planned else "top.legend.bare")
    yield Text(
        f"{'GPU':<5}{'':<{_BAR}} {right(text('top.used'), 8)}{right(text('top.plan'), 14)}"
        f"{right(text('top.use'), 7)}{right(text('top.temperature'), 6)}"
        f"{right(text('top.power'), 8)}"
    )
    for host in sorted(hosts):
        if len(hosts) > 1:
            yield Text(printable(host))
        yield from (_gpu(gpu) for gpu in report.gpus[:_ROWS] if gpu.host == host)
    if len(report.gpus) > _ROWS:
        yield _text("top.more_gpus", count=len(report.gpus) - _ROWS)
    yield _text("top.sources", sources=", ".join(report.sources))


def _gpu(gpu: GpuNow) -> Text:
    used = _UNKNOWN if gpu.memory_used_bytes is None else format_gib(gpu.memory_used_bytes, 1)
    use = _UNKNOWN if gpu.use_ratio is None else f"{gpu.use_ratio:.0%}"
    heat = _UNKNOWN if gpu.temperature_c is None else f"{gpu.temperature_c:.0f}°"
    power = _UNKNOWN if gpu.power_w is None else f"{gpu.power_w:,.0f} W"
    line = Text(f"{gpu.gpu:<5}")
    line.append(bar(gpu))
    line.append(f" {used:>8}{_plan(gpu):>14}{use:>7}{heat:>6}{power:>8}")
    if gpu.drift_bytes:
        line.append(f" {glyphs()['warn']}", style="yellow")
    return line


def _plan(gpu: GpuNow) -> str:
    if gpu.planned_low_bytes is None:
        return "-"
    low = format_gib(gpu.planned_low_bytes, 0)
    high = _UNKNOWN if gpu.planned_high_bytes is None else format_gib(gpu.planned_high_bytes, 0)
    return f"{low} – {high}"


def bar(gpu: GpuNow) -> str:
    """The GPU's memory as cells: used and certain by the plan, used and allowed, used beyond it;
    planned and not used; free. A cell is what its middle is.
    """
    total, used = gpu.memory_total_bytes, gpu.memory_used_bytes
    if not total or used is None:
        return _UNKNOWN + " " * (_BAR - 1)
    low = used if gpu.planned_low_bytes is None else gpu.planned_low_bytes
    high = total if gpu.planned_high_bytes is None else gpu.planned_high_bytes

    def cell(place: float) -> str:
        if place >= used:
            return "▒" if place < low else "·"
        if place < low:
            return "█"
        return "▓" if place < high else "!"

    return "".join(cell((number + 0.5) / _BAR * total) for number in range(_BAR))


# --- engine and host -------------------------------------------------------------------------


def _engine(engine: EngineNow) -> Iterator[Text]:
    if engine.sight is not Sight.SEEN:
        yield from _wrapped(text(f"top.sight.{engine.sight}"), f"{glyphs()['unknown']} ")
        return
    yield _text(
        "top.queue",
        kv=_share(engine.kv_use_ratio),
        running=_count(engine.running),
        waiting=_count(engine.waiting),
        preempted=_count(engine.preemptions),
        hits=_share(engine.prefix_hit_ratio),
    )
    yield _text(
        "top.rates",
        prompt=_rate(engine.prompt_tokens_per_s),
        output=_rate(engine.output_tokens_per_s),
        window=_UNKNOWN if engine.window_s is None else f"{engine.window_s:.0f}",
    )
    for name, times in (("TTFT", engine.ttft), ("TPOT", engine.tpot)):
        yield Text(f"{name}  {_times(times)}")


def _times(times: Quantiles | None) -> str:
    if times is None:
        return text("top.untold")
    return text(
        f"top.times.{times.basis}",
        p50=_seconds(times.p50_s),
        p99=_seconds(times.p99_s),
        count=times.count,
    )


def _seconds(value: float) -> str:
    return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:,.1f} s"


def _share(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.0%}"


def _count(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}"


def _rate(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.1f}"


def _gib(value: int | None) -> str:
    return _UNKNOWN if value is None else format_gib(value, 1)


def _host(host: HostNow) -> Iterator[Text]:
    yield _text(
        "top.host",
        free=_gib(host.memory_available_bytes),
        total=_gib(host.memory_total_bytes),
        swap=_gib(host.swap_used_bytes),
        gtt=_gib(host.gtt_used_bytes),
        load=_UNKNOWN if host.load_1m is None else f"{host.load_1m:.1f}",
        cpus=_UNKNOWN if host.cpus is None else host.cpus,
    )
    for disk in host.disks:
        words = text(
            "top.disk",
            free=format_gb(disk.free_bytes, 0),
            total=format_gb(disk.total_bytes, 0),
            path=disk.path,
        )
        yield from _wrapped(words, "")


# --- terms and curve -------------------------------------------------------------------------


def _terms(report: WatchReport) -> Iterator[Text]:
    told = [term for term in report.terms if term.observed_bytes is not None]
    if not told:
        return
    yield _text("top.terms")
    for term in told:
        planned = "-"
        if term.planned_low_bytes is not None:
            high = term.planned_high_bytes
            most = _UNKNOWN if high is None else format_gib(high)
            planned = f"{format_gib(term.planned_low_bytes)} – {most}"
        glyph = {True: "ok", False: "warn", None: "unknown"}[term.is_inside]
        word = text(f"top.inside.{glyph}")
        yield Text(
            f"  {glyphs()[glyph]} {printable(term.term):<26}"
            f"{format_gib(term.observed_bytes or 0):>9}  {planned:>19}  {word}"
        )


def _curve(report: WatchReport) -> Iterator[Text]:
    if not report.curve:
        return
    yield _text("top.curve_head")
    for point in report.curve:
        held = _UNKNOWN if point.held_bytes is None else format_gib(point.held_bytes)
        need = format_gib(point.need_bytes)
        yield Text(f"  {format_tokens(point.max_model_len):>8}{need:>12}{held:>12}")
    key = "top.curve_reserved" if report.reserves else "top.curve_needed"
    yield from _wrapped(text(key), "  ")


# --- words -----------------------------------------------------------------------------------


def _text(key: str, **params: object) -> Text:
    return Text(text(key, **params))


def _said(finding: Finding) -> str:
    return text(finding.code, **_shown(finding.params))


def _shown(params: dict[str, Scalar]) -> dict[str, object]:
    return {key: _value(key, value) for key, value in params.items()}


def _value(key: str, value: Scalar) -> object:
    if value is None:
        return _UNKNOWN
    if key.endswith("_bytes") and isinstance(value, int):
        return f"{value / GIB:,.1f} GiB"
    if key.endswith("_ratio") and isinstance(value, int | float):
        return f"{value:.0%}"
    return value


def _wrapped(words: str, indent: str, *, style: str = "") -> Iterator[Text]:
    more = " " * cell_len(indent)
    for line in wrap(printable(" ".join(words.split())), indent, more):
        yield Text(line, style=style)
