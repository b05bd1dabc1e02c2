"""The result of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from heavylift.bench.records import Distribution, Load, LoadKind, Report, Stage
from heavylift.bench.stats import DEFINITIONS, headline
from heavylift.cli.cells import left, right, wrap
from heavylift.cli.output import glyphs
from heavylift.cli.screens.served import served_line
from heavylift.cli.text import text

_STAGE_WIDTHS = (11, 11, 9, 10, 10, 10, 10, 9)
_METRICS = ("ttft", "ttfa", "tpot", "itl", "e2e")


def lines(record: Report) -> Iterator[str]:
    """What was measured, the stages, the headline's latencies, whether it holds, definitions."""
    yield served_line(record.target)
    if record.target.is_quantised:
        yield f"{glyphs()['warn']} {text('served.warn_quantised')}"
    yield _columns("bench.stage_headers", _STAGE_WIDTHS)
    for stage in record.stages:
        yield stage_line(stage)
    yield _columns("bench.latency_headers", (14, *[12] * 5))
    for metric in _METRICS:
        measured: Distribution | None = getattr(record, f"{metric}_s")
        if measured is not None:
            yield _latency_line(metric, measured, record)
    yield from _details(record)
    yield from verdict_lines(record)
    yield text("bench.definitions")
    for key in DEFINITIONS:
        yield from wrap(text(f"bench.definition.{key}"), "  ", "    ")


def load_word(load: Load) -> str:
    """The load in one word: `x64`, `8/s poisson`, `trace`."""
    if load.kind is LoadKind.CLOSED:
        return f"x{load.concurrency}"
    if load.rate_per_s is not None:
        return f"{load.rate_per_s:g}/s"
    return text("bench.load.trace")


def stage_line(stage: Stage) -> str:
    """One stage in one line of at most 80 columns."""
    requests = stage.requests
    ok = f"{requests.ok}/{requests.ok + requests.failed}"
    mark = "ok" if stage.valid else "fail"
    goodput = "-" if stage.goodput_per_s is None else f"{stage.goodput_per_s:.2f}"
    return (
        f"{glyphs()[mark]} {left(load_word(stage.load), 9)}{ok:>11}{stage.achieved_per_s:>9.2f}"
        f"{stage.output_tokens_per_s:>10.1f}{_p50(stage.ttft_s):>10}{_p99(stage.ttft_s):>10}"
        f"{_p50(stage.tpot_s):>10}{goodput:>9}"
    )


def verdict_lines(record: Report) -> Iterator[str]:
    """What was found and whether the result is valid, with each reason why not."""
    found = record.found
    if found is not None:
        key = "bench.found" if found.concurrency is not None else "bench.found_none"
        ended = text(f"bench.ended.{found.ended_by}")
        yield text(key, concurrency=found.concurrency, slo=found.slo, ended=ended)
    if record.valid:
        yield f"{glyphs()['ok']} {text('bench.valid')}"
        return
    yield f"{glyphs()['fail']} {text('bench.invalid')}"
    for reason in record.invalid_reasons:
        yield f"    {text(f'bench.reason.{reason}')}"


def _details(record: Report) -> Iterator[str]:
    stage = headline(record.stages, record.found)
    client = stage.client
    yield text(
        "bench.client",
        lag_ms=f"{client.loop_lag_p99_s * 1e3:.1f}",
        cpu=f"{client.cpu_ratio:.0%}",
        delay_ms=f"{client.schedule_delay_p99_s * 1e3:.1f}",
    )
    yield _waits(record)
    for key, value in (
        ("prompt", stage.prompt_tokens_mean),
        ("output", stage.output_tokens_mean),
    ):
        if value is not None:
            yield text(f"bench.mean.{key}", tokens=f"{value:.1f}")
    for key, share in (
        ("cached", stage.cached_share),
        ("reasoning", stage.reasoning_share),
        ("deviation", stage.output_length_deviation),
    ):
        if share is not None:
            yield text(f"bench.share.{key}", share=f"{share:.1%}")
    meanwhile = list(_forecast(stage))
    if stage.server:
        meanwhile.append(_server(stage))
    if stage.gpus:
        meanwhile.append(_gpus(stage))
    for line in meanwhile:
        yield from wrap(line, "", "  ")
    if not stage.counted_by_server:
        yield f"{glyphs()['warn']} {text('bench.counted_chunks')}"
    if stage.requests.failures:
        listed = ", ".join(f"{name} {count}" for name, count in stage.requests.failures.items())
        yield text("bench.failures", listed=listed)


def _waits(record: Report) -> str:
    """How long the client would have waited for each phase before it gave a request up."""

    def shown(name: str) -> str:
        seconds = record.settings.get(f"limit_{name}_s")
        return text("bench.no_limit") if seconds is None else f"{seconds:g} s"

    return text(
        "bench.waits", **{name: shown(name) for name in ("connect", "first_byte", "gap", "total")}
    )


def _forecast(stage: Stage) -> Iterator[str]:
    """How near the measured time comes to the memory's bound, and where in the forecast it lies."""
    found = stage.forecast
    if found is None:
        return
    yield text(
        "bench.bound",
        share=f"{found.bound_ratio:.0%}",
        bound_ms=f"{found.bound_tpot_s * 1e3:.2f}",
        measured_ms=f"{found.measured_tpot_s * 1e3:.2f}",
    )
    if found.experts_ratio is not None:
        yield text("bench.experts", share=f"{found.experts_ratio:.0%}")
    yield text(
        f"bench.place.{found.place}",
        low_ms=f"{found.band_low_s * 1e3:.2f}",
        high_ms=f"{found.band_high_s * 1e3:.2f}",
        evidence=text(f"bench.evidence.{found.evidence}"),
    )


def _server(stage: Stage) -> str:
    """The engine's own figures during the stage: the most of each, where it tells them."""

    def most(values: Iterable[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    unknown = text("served.unknown")
    running = most(point.running for point in stage.server)
    waiting = most(point.waiting for point in stage.server)
    used = most(point.kv_use_ratio for point in stage.server)
    return text(
        "bench.server",
        running=unknown if running is None else f"{running:g}",
        waiting=unknown if waiting is None else f"{waiting:g}",
        used=unknown if used is None else f"{used:.0%}",
    )


def _gpus(stage: Stage) -> str:
    """The GPUs during the stage: how many, the fullest, and their power together."""
    gpus = {point.gpu for point in stage.gpus}
    fullest = max(point.memory_used_bytes or 0 for point in stage.gpus)
    watts = [
        max((p.power_w for p in stage.gpus if p.gpu == gpu and p.power_w is not None), default=None)
        for gpu in gpus
    ]
    known = [each for each in watts if each is not None]
    return text(
        "bench.gpus",
        count=len(gpus),
        gib=f"{fullest / 2**30:.2f}",
        watts=f"{sum(known):.0f}" if len(known) == len(gpus) else text("served.unknown"),
    )


def _latency_line(metric: str, measured: Distribution, record: Report) -> str:
    stage = headline(record.stages, record.found)
    gap = metric == "itl" and stage.itl_is_chunk_gap
    name = text("bench.chunk_gap") if gap else metric.upper()
    values = (measured.p50, measured.p90, measured.p99, measured.mean, measured.max)
    return f"  {left(name, 12)}" + "".join(f"{value * 1e3:>12.1f}" for value in values)


def _columns(key: str, widths: Sequence[int]) -> str:
    """The headers over their columns: the first to the left, the others to the right."""
    first, *others = text(key).split("|")
    aligned = (right(header, width) for header, width in zip(others, widths[1:], strict=True))
    return f"  {left(first, widths[0] - 2)}" + "".join(aligned)


def _p50(measured: Distribution | None) -> str:
    return "-" if measured is None else f"{measured.p50 * 1e3:.1f}"


def _p99(measured: Distribution | None) -> str:
    return "-" if measured is None else f"{measured.p99 * 1e3:.1f}"
