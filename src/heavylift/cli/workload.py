"""The workload options, and a forecaster from what was typed: for speed, pd and decide."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from heavylift.bench.roofline import anchors
from heavylift.cli import last
from heavylift.cli.request import Tokens, Wish, check_layout_fits_rack, service_options
from heavylift.cli.text import text
from heavylift.errors import HeavyliftError, reason
from heavylift.plan.planner import Knowledge
from heavylift.plan.receipts import mismatch
from heavylift.plan.speed import Forecaster, forecaster, speculation
from heavylift.planning import Planning
from heavylift.records.plan import Capacity, Plan, PlanRequest, Rack
from heavylift.records.receipt import Receipt
from heavylift.records.speed import AnchorPoint, Speculation, SpeedWorkload
from heavylift.state.kept_anchors import AnchorFile, kept

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_INPUT_TOKENS = 8192
DEFAULT_OUTPUT_TOKENS = 1024

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")
_VOLUME = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMbB]?)")
_THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)")


class Share(click.ParamType[float]):
    """A part of a whole: `0.5` or `50%`."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The part, 0 to 1."""
        if isinstance(value, float):
            return value
        match = _SHARE.fullmatch(str(value).strip())
        part = None if match is None else float(match[1]) / (100 if match[2] else 1)
        if part is None or part > 1:
            self.fail(text("usage.share", value=value), param, ctx)
        return part


class Volume(click.ParamType[float]):
    """A count in the decimal habit of bills: `20000000`, `20M`, `1.5B`."""

    name = "count"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The count."""
        if isinstance(value, float):
            return value
        match = _VOLUME.fullmatch(str(value).strip())
        if match is None or not float(match[1]):
            self.fail(text("usage.volume", value=value), param, ctx)
        return float(match[1]) * _THOUSANDS[match[2].lower()]


class Seconds(click.ParamType[float]):
    """A time: `25.2ms` or `2s`."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The time in seconds."""
        if isinstance(value, float):
            return value
        match = _SECONDS.fullmatch(str(value).strip())
        if match is None or not float(match[1]):
            self.fail(text("usage.seconds", value=value), param, ctx)
        return float(match[1]) / (1000 if match[2] == "ms" else 1)


_WORKLOAD = (
    click.option("--isl", type=Tokens(), default=DEFAULT_INPUT_TOKENS, help=text("option.isl")),
    click.option("--osl", type=Tokens(), default=DEFAULT_OUTPUT_TOKENS, help=text("option.osl")),
    click.option("--cached-share", type=Share(), default=0.0, help=text("option.cached_share")),
    click.option("--speculation", "speculation_text", help=text("option.speculation")),
    click.option("--anchor", "anchor_text", help=text("option.anchor")),
    click.option(
        "--anchor-concurrency",
        type=click.IntRange(min=1),
        default=1,
        help=text("option.anchor_concurrency"),
    ),
    click.option(
        "--receipt",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=text("option.receipt"),
    ),
)


def workload_options(function: F) -> F:
    """Adds the options of a workload and of the layout that serves it."""
    for option in reversed(_WORKLOAD):
        function = option(function)
    return service_options(function)


class _Load(msgspec.Struct):
    kind: str
    concurrency: int | None


class _Times(msgspec.Struct):
    p50: float


class _Stage(msgspec.Struct):
    """What an anchor needs of a stage: a report of another version has other fields beside."""

    load: _Load
    tpot_s: _Times | None
    prompt_tokens_mean: float | None
    output_tokens_mean: float | None
    cached_share: float | None
    valid: bool


class _Benchmark(msgspec.Struct):
    """What a benchmark's report says, stage by stage."""

    stages: tuple[_Stage, ...]


@dataclass(frozen=True)
class Asked:
    """What was typed about a model, a rack and a workload."""

    planning: Planning
    model: str
    rack_text: str
    options: dict[str, Any]

    @classmethod
    def of(cls, model: str, rack_text: str, options: dict[str, Any]) -> Asked:
        """The question of a command's parameters."""
        return cls(Planning(), model, rack_text, options)

    @property
    def knowledge(self) -> Knowledge:
        """What is known of the model."""
        return self.planning.knowledge(self.model)

    @property
    def workload(self) -> SpeedWorkload:
        """The workload. Raises PLAN075 for a speculation nobody measured."""
        given = self.options
        return SpeedWorkload(
            concurrency=given["concurrency"] or 1,
            input_tokens=given["isl"],
            output_tokens=given["osl"],
            cached_ratio=given["cached_share"],
            speculation=self._speculation(),
        )

    def plan(self, concurrency: int = 1) -> Plan:
        """The plan of the layout stated, or of the one usually run.

        It is chosen for one sequence: whether more are held is then said of that layout, and not
        hidden by taking another.
        """
        given, knowledge = self.options, self.knowledge
        lengths = {"context": given["isl"] + given["osl"], "output_tokens": given["osl"]}
        wish = Wish.of(self.model, {**given, **lengths, "concurrency": concurrency})
        gpu, rack = self.planning.rack(self.rack_text)
        path = given["receipt"]
        receipt = None if path is None else last.read_receipt(path)

        def build(each: Rack) -> PlanRequest:
            return wish.request(self.planning, each)

        if rack is None:
            return self.planning.plan(build, knowledge, gpu=gpu, receipt=receipt)
        check_layout_fits_rack(wish, rack)
        return self.planning.plan(build(rack), knowledge, receipt=receipt)

    def forecaster(self, plan: Plan) -> Forecaster:
        """The forecaster of a plan, with the anchors given, else those of the receipt, else those
        that were measured here of the same service. Raises PLAN076 for a bad file.
        """
        facts = self.planning.catalog.speed()
        points, found = self._anchors(plan.layout.data_parallel_size), ""
        path = self.options["receipt"]
        if not points and path is not None:
            receipt = last.read_receipt(path)
            if mismatch(receipt, plan) is None:
                points, found = receipt.speeds, "anchor_receipt"
        if not points:
            points, found = kept(plan), "anchor_kept"
        return forecaster(plan, self.knowledge, facts, points, anchors_from=found if points else "")

    def _speculation(self) -> Speculation | None:
        stated = self.options["speculation_text"]
        if stated is None:
            return None
        method, _, rest = stated.partition(":")
        drafted, _, accepted = rest.partition(":")
        if not drafted.isdecimal() or int(drafted) < 1:
            raise click.UsageError(text("usage.speculation", value=stated))
        if not accepted:
            facts = self.planning.catalog.speed()
            model = self.knowledge.model.model.id
            return speculation(facts, model, method, int(drafted))
        try:
            tokens = float(accepted)
        except ValueError:
            raise click.UsageError(text("usage.speculation", value=stated)) from None
        if not 1 <= tokens <= int(drafted) + 1:
            raise click.UsageError(text("usage.speculation", value=stated))
        return Speculation(
            method=method, draft_tokens=int(drafted), accepted_tokens=tokens, source="stated"
        )

    def _anchors(self, replicas: int) -> tuple[AnchorPoint, ...]:
        stated = self.options["anchor_text"]
        if stated is None:
            return ()
        match = _SECONDS.fullmatch(stated.strip())
        if match is not None and float(match[1]):
            return (
                AnchorPoint(
                    concurrency=self.options["anchor_concurrency"],
                    input_tokens=self.options["isl"],
                    output_tokens=self.options["osl"],
                    cached_ratio=self.options["cached_share"],
                    tpot_s=float(match[1]) / (1000 if match[2] == "ms" else 1),
                ),
            )
        path = Path(stated)
        if not path.exists():
            raise click.UsageError(text("usage.anchor", value=stated))
        return read_anchors(path, replicas)


def read_anchors(path: Path, replicas: int = 1) -> tuple[AnchorPoint, ...]:
    """Anchors from an engine's log (one of its `replicas` writes a line), or from a JSON file: a
    benchmark's report, a receipt whose log told of speed, or
    `{"points": [{concurrency, input_tokens, output_tokens, tpot_s}]}`.

    Raises PLAN076 when it cannot be read, holds none, or a time is not positive.
    """
    try:
        if _is_log(path):
            log = last.read_measured(path)
            return _checked(path, tuple(_of_all(point, replicas) for point in log.speeds))
        document = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        if "stages" in document:
            points = anchors(msgspec.convert(document, _Benchmark).stages)
        elif "terms" in document:
            points = msgspec.convert(document, Receipt).speeds
        else:
            points = tuple(msgspec.convert(document, AnchorFile).points)
    except (OSError, msgspec.MsgspecError) as error:
        raise HeavyliftError("PLAN076", {"path": str(path), "reason": reason(error)}) from error
    return _checked(path, points)


def _checked(path: Path, points: tuple[AnchorPoint, ...]) -> tuple[AnchorPoint, ...]:
    if not points or any(point.tpot_s <= 0 for point in points):
        raise HeavyliftError("PLAN076", {"path": str(path), "reason": "tpot_s > 0"})
    return points


def _is_log(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4096).lstrip()[:1] not in (b"{", b"")


def _of_all(point: AnchorPoint, replicas: int) -> AnchorPoint:
    return replace(point, concurrency=point.concurrency * replicas)


def holds_nothing(plan: Plan) -> bool:
    """True when not one sequence fits: there is no speed to speak of."""
    no_room = not plan.capacity.max_sequences.high
    return plan.capacity_verdict is Capacity.DOES_NOT_FIT or no_room
