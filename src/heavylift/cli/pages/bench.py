"""The HTML report of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heavylift.bench.records import Distribution, LoadKind, Report, Sample, Stage
from heavylift.bench.stats import DEFINITIONS, headline
from heavylift.cli.pages import page, svg
from heavylift.cli.screens.bench import load_word, verdict_lines
from heavylift.cli.screens.served import served_line
from heavylift.cli.text import text

_STATISTICS = ("p50", "p90", "p95", "p99", "mean", "max")
_METRICS = ("ttft", "ttfa", "tpot", "itl", "e2e")
_MOST_ROWS = 400
"""Requests on the timeline: more rows than that are thinner than a pixel."""


def render(report: Report, samples: Sequence[Sample]) -> str:
    """The page. The distributions and the timeline need `samples`; without, they are left out."""
    return page.document(text("bench.title", model=report.target.model), _parts(report, samples))


def _parts(report: Report, samples: Sequence[Sample]) -> Iterator[str]:
    yield page.paragraph(served_line(report.target))
    yield page.paragraph(text("bench.made", at=report.started_at, version=report.heavylift_version))
    if report.target.is_quantised:
        yield page.paragraph(text("served.warn_quantised"), "warn")
    for line in verdict_lines(report):
        yield page.paragraph(line, "ok" if report.valid else "fail")
    yield page.heading(text("bench.section.stages"))
    yield page.table(text("bench.page_headers").split("|"), map(_stage_row, report.stages))
    yield page.heading(text("bench.section.latency"))
    yield page.table(("", *_STATISTICS), _latency_rows(report))
    yield page.heading(text("bench.plot.curve"))
    yield _curve(report.stages)
    yield from _distributions(samples, report.stages)
    yield from _timeline(samples, headline(report.stages, report.found))
    yield from _server(report.stages)
    yield from _gpus(report.stages)
    yield from _forecasts(report.stages)
    yield page.heading(text("bench.section.settings"))
    yield page.table(
        (text("bench.setting"), text("bench.value")),
        [(name, "" if value is None else str(value)) for name, value in report.settings.items()],
        words=(1,),
    )
    yield page.heading(text("bench.definitions"))
    yield page.definitions((key.upper(), text(f"bench.definition.{key}")) for key in DEFINITIONS)


def _stage_row(stage: Stage) -> tuple[str, ...]:
    return (
        load_word(stage.load),
        str(stage.requests.ok),
        str(stage.requests.failed),
        "" if stage.offered_per_s is None else f"{stage.offered_per_s:.2f}",
        f"{stage.achieved_per_s:.2f}",
        f"{stage.output_tokens_per_s:.1f}",
        "" if stage.goodput_per_s is None else f"{stage.goodput_per_s:.2f}",
        _ms(stage.ttft_s, "p50"),
        _ms(stage.ttft_s, "p99"),
        _ms(stage.tpot_s, "p50"),
        text("bench.yes") if stage.valid else ", ".join(stage.invalid_reasons),
    )


def _latency_rows(report: Report) -> Iterator[tuple[str, ...]]:
    for metric in _METRICS:
        measured: Distribution | None = getattr(report, f"{metric}_s")
        if measured is not None:
            yield (metric.upper(), *(_ms(measured, statistic) for statistic in _STATISTICS))


def _ms(measured: Distribution | None, statistic: str) -> str:
    return "" if measured is None else f"{getattr(measured, statistic) * 1e3:.1f}"


def _curve(stages: Sequence[Stage]) -> str:
    """Latency against throughput: each stage a point, from the lightest load to the heaviest."""
    loads = sorted(stages, key=lambda stage: stage.output_tokens_per_s)
    series = [
        svg.Series(
            name=f"TTFT {statistic}",
            points=[
                (stage.output_tokens_per_s, getattr(stage.ttft_s, statistic) * 1e3)
                for stage in loads
                if stage.ttft_s is not None
            ],
            joined=all(stage.load.kind is LoadKind.CLOSED for stage in stages),
        )
        for statistic in ("p50", "p99")
    ]
    return svg.plot(
        series,
        x_label=text("bench.axis.tokens_per_s"),
        y_label=text("bench.axis.ttft_ms"),
        title=text("bench.plot.curve"),
    )


def _distributions(samples: Sequence[Sample], stages: Sequence[Stage]) -> Iterator[str]:
    """A line for each stage: one line over all loads would be the latency of none."""
    words = {stage.load.label: load_word(stage.load) for stage in stages}
    for metric in ("ttft", "tpot"):
        by_load: dict[str | None, list[float]] = {}
        for sample in samples:
            value = getattr(sample, f"{metric}_s")
            if sample.failure is None and value is not None:
                by_load.setdefault(sample.load, []).append(value * 1e3)
        if by_load:
            yield page.heading(text(f"bench.plot.{metric}"))
            yield svg.plot(
                [
                    svg.cumulative(words.get(load or "", metric.upper()), values)
                    for load, values in by_load.items()
                ],
                x_label=text("bench.axis.ms"),
                y_label=text("bench.axis.share"),
                title=text(f"bench.plot.{metric}"),
            )


def _timeline(samples: Sequence[Sample], stage: Stage) -> Iterator[str]:
    """The requests of the headline stage: every stage has a clock of its own."""
    shown = [sample for sample in samples if sample.load in (None, stage.load.label)]
    spans = [
        svg.Span(
            start=sample.started_s,
            first=None if sample.ttft_s is None else sample.started_s + sample.ttft_s,
            end=sample.ended_s,
            failed=sample.failure is not None,
        )
        for sample in sorted(shown, key=lambda sample: sample.started_s)[:_MOST_ROWS]
    ]
    if spans:
        yield page.heading(f"{text('bench.plot.timeline')} · {load_word(stage.load)}")
        yield svg.timeline(
            spans,
            x_label=text("bench.axis.s"),
            y_label=text("bench.axis.requests"),
            title=text("bench.plot.timeline"),
        )


def _server(stages: Sequence[Stage]) -> Iterator[str]:
    """The engine's own count of requests running and waiting, in the last stage it was read in."""
    watched = [stage for stage in stages if stage.server]
    if not watched:
        return
    points = watched[-1].server
    yield page.heading(text("bench.plot.server"))
    yield svg.plot(
        [
            svg.Series(
                name=text(f"bench.server.{name}"),
                points=[
                    (point.at_s, value)
                    for point in points
                    if (value := getattr(point, name)) is not None
                ],
            )
            for name in ("running", "waiting")
        ],
        x_label=text("bench.axis.s"),
        y_label=text("bench.axis.requests"),
        title=text("bench.plot.server"),
    )


def _gpus(stages: Sequence[Stage]) -> Iterator[str]:
    """Memory and power of each GPU, in the last stage they were read in."""
    watched = [stage for stage in stages if stage.gpus]
    if not watched:
        return
    points = watched[-1].gpus
    gpus = sorted({point.gpu for point in points})
    for name, scale in (("memory_used_bytes", 2.0**-30), ("power_w", 1.0)):
        series = [
            svg.Series(
                name=text("bench.gpu", gpu=gpu),
                points=[
                    (point.at_s, value * scale)
                    for point in points
                    if point.gpu == gpu and (value := getattr(point, name)) is not None
                ],
            )
            for gpu in gpus
        ]
        title = text(f"bench.plot.{name}")
        drawn = svg.plot(series, x_label=text("bench.axis.s"), y_label=title, title=title)
        if drawn:
            yield page.heading(title)
            yield drawn


def _forecasts(stages: Sequence[Stage]) -> Iterator[str]:
    """The measured time per token of each stage beside the memory's bound and the forecast."""
    found = [(stage, stage.forecast) for stage in stages if stage.forecast is not None]
    if not found:
        return
    yield page.heading(text("bench.section.forecast"))
    yield page.table(
        text("bench.forecast_headers").split("|"),
        [
            (
                load_word(stage.load),
                f"{each.measured_tpot_s * 1e3:.2f}",
                f"{each.bound_tpot_s * 1e3:.2f}",
                f"{each.bound_ratio:.0%}",
                f"{each.band_low_s * 1e3:.2f} - {each.band_high_s * 1e3:.2f}",
                each.place,
                "" if each.experts_ratio is None else f"{each.experts_ratio:.0%}",
            )
            for stage, each in found
        ],
    )
