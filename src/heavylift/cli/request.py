"""The options that describe a plan, shared by every command that makes one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from heavylift.cli.text import text
from heavylift.errors import HeavyliftError
from heavylift.planning import Planning
from heavylift.records.plan import PlanRequest, Rack
from heavylift.units import parse_tokens

F = TypeVar("F", bound=Callable[..., Any])


class Tokens(click.ParamType[int]):
    """A token count: `32768`, `128k`, `1M`."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The count, or a usage error that shows the forms."""
        if isinstance(value, int):
            return value
        try:
            return parse_tokens(str(value))
        except ValueError:
            self.fail(text("usage.tokens", value=value), param, ctx)


class Word(click.ParamType[str]):
    """A name that is not empty."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, or a usage error for nothing."""
        if not str(value).strip():
            self.fail(text("usage.empty"), param, ctx)
        return str(value).strip()


class Share(click.FloatRange):
    """A fraction above 0, at most 1, and a number at all."""

    name = "fraction"

    def __init__(self) -> None:
        super().__init__(0, 1, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The fraction; `nan` compares with nothing and would pass any range."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(text("usage.fraction", value=value), param, ctx)
        return number


class ExpertSize(click.ParamType[int]):
    """An expert parallel size: a number, or `all` for as far as the layout goes (0 inside)."""

    name = "size|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The size, 0 for `all`."""
        if value == "all":
            return 0
        if isinstance(value, int):
            return value
        if not str(value).isdecimal() or int(value) < 1:
            self.fail(text("usage.expert_size", value=value), param, ctx)
        return int(value)


_POSITIVE = click.IntRange(min=1)

_ENGINE = (
    click.option("--engine", type=Word(), help=text("option.engine")),
    click.option("--engine-version", type=Word(), help=text("option.engine_version")),
    click.option("--variant", type=Word(), help=text("option.variant")),
)
_LENGTHS = (
    click.option("--context", type=Tokens(), help=text("option.context")),
    click.option("--output", "output_tokens", type=Tokens(), help=text("option.output")),
)
_SETTINGS = (
    click.option("--concurrency", type=_POSITIVE, help=text("option.concurrency")),
    click.option("--kv-dtype", type=Word(), help=text("option.kv_dtype")),
    click.option("--tp", type=_POSITIVE, help=text("option.tp")),
    click.option("--pp", type=_POSITIVE, help=text("option.pp")),
    click.option("--dp", type=_POSITIVE, help=text("option.dp")),
    click.option(
        "--ep", type=ExpertSize(), is_flag=False, flag_value="all", help=text("option.ep")
    ),
    click.option("--dcp", type=_POSITIVE, help=text("option.dcp")),
    click.option(
        "--gpu-memory-utilization",
        "--mem-fraction-static",
        "gpu_memory_utilization",
        type=Share(),
        help=text("option.gpu_memory_utilization"),
    ),
    click.option("--max-batched-tokens", type=Tokens(), help=text("option.max_batched_tokens")),
    click.option("--max-num-seqs", type=_POSITIVE, help=text("option.max_num_seqs")),
    click.option("--moe-backend", type=Word(), help=text("option.moe_backend")),
    click.option("--state-strategy", type=Word(), help=text("option.state_strategy")),
    click.option("--text-only", is_flag=True, help=text("option.text_only")),
    click.option("--mtp", type=click.IntRange(min=0), default=0, help=text("option.mtp")),
)


def plan_options(function: F) -> F:
    """Adds the options of a plan, except the rack, to a command."""
    return _add((*_ENGINE, *_LENGTHS, *_SETTINGS), function)


def service_options(function: F) -> F:
    """Those of a plan but for the lengths: for commands that ask for a prompt and an answer."""
    return _add((*_ENGINE, *_SETTINGS), function)


def _add(options: tuple[Callable[[F], F], ...], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A plan's options as they were typed, before a rack is known."""

    model: str
    options: dict[str, Any]

    @classmethod
    def of(cls, model: str, options: dict[str, Any]) -> Wish:
        """The wish that a command's parameters make."""
        return cls(model=model, options=options)

    def request(self, planning: Planning, rack: Rack) -> PlanRequest:
        """The request for a rack. Raises FACT012 for an unknown engine."""
        given = self.options
        constraints = {
            name: given[flag]
            for name, flag in (
                ("tensor", "tp"),
                ("pipeline", "pp"),
                ("data", "dp"),
                ("expert", "ep"),
                ("decode_context", "dcp"),
            )
            if given[flag] is not None
        }
        return PlanRequest(
            model=self.model,
            rack=rack,
            engine=planning.engine(given["engine"]),
            engine_version=given["engine_version"],
            variant=given["variant"],
            context_tokens=given["context"],
            output_tokens=given["output_tokens"],
            concurrency=given["concurrency"],
            kv_cache_dtype=given["kv_dtype"],
            layout_constraints=constraints,
            gpu_memory_utilization=given["gpu_memory_utilization"],
            max_num_batched_tokens=given["max_batched_tokens"],
            max_num_seqs=given["max_num_seqs"],
            moe_backend=given["moe_backend"],
            vision=False if given["text_only"] else None,
            draft_tokens=given.get("mtp") or 0,
            state_strategy=given.get("state_strategy"),
            drafter=given.get("drafter"),
        )


def check_layout_fits_rack(wish: Wish, rack: Rack) -> None:
    """Refuses a stated layout that cannot use the rack, before any search. Raises PLAN004."""
    given = wish.options
    product = 1
    sizes = ("tp", "pp", "dp")
    for flag in sizes:
        product *= given[flag] or 1
    stated = [flag for flag in sizes if given[flag] is not None]
    all_stated = len(stated) == len(sizes)
    if rack.gpu_count % product or (all_stated and product != rack.gpu_count):
        raise HeavyliftError(
            "PLAN004",
            {
                "layout": " × ".join(f"{flag} {given[flag]}" for flag in stated),
                "product": product,
                "rack": rack.label,
                "gpus": rack.gpu_count,
            },
        )
