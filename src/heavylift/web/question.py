"""What the planner page is asked: the address of the page, and the command line it stands for.

The parameters of the address are the flags of `heavylift plan`, spelt the same, so that a link can
be read and a command can be opened as a page. Pure.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final
from urllib.parse import urlencode

from heavylift.errors import HeavyliftError
from heavylift.records.plan import Layout, PlanRequest, Rack
from heavylift.records.speed import SpeedWorkload
from heavylift.units import format_tokens, parse_tokens

MOST_TOKENS: Final = 2**24
MOST_SEQUENCES: Final = 2**20
DEFAULT_INPUT_TOKENS: Final = 8192
DEFAULT_OUTPUT_TOKENS: Final = 1024
DEFAULT_SLO: Final = "ttft_p99=2s,tpot_p99=50ms"
_LONGEST: Final = 120
_MOST_USD: Final = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The inputs of the page; None = not said. Lengths in tokens, sizes of the layout as flags.

    `isl`, `osl` and `cached_share` are the workload of speed and cost, not of the memory. `rent`
    is the user's own, USD per GPU and hour; `slo` are the objectives of a simulation.
    """

    model: str
    on: str
    engine: str | None = None
    engine_version: str | None = None
    variant: str | None = None
    kv_dtype: str | None = None
    moe_backend: str | None = None
    context: int | None = None
    output: int | None = None
    concurrency: int | None = None
    max_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    gpu_memory_utilization: float | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    dcp: int | None = None
    text_only: bool = False
    isl: int = DEFAULT_INPUT_TOKENS
    osl: int = DEFAULT_OUTPUT_TOKENS
    cached_share: float = 0.0
    rent: float | None = None
    slo: str = DEFAULT_SLO

    @property
    def workload(self) -> SpeedWorkload:
        """The workload of speed and cost."""
        return SpeedWorkload(
            concurrency=self.concurrency or 1,
            input_tokens=self.isl,
            output_tokens=self.osl,
            cached_ratio=self.cached_share,
        )

    def request(self, rack: Rack, engine: str | None) -> PlanRequest:
        """The request on a rack; `engine` is the id of the one named."""
        sizes = {
            "tensor": self.tp,
            "pipeline": self.pp,
            "data": self.dp,
            "expert": self.ep,
            "decode_context": self.dcp,
        }
        return PlanRequest(
            model=self.model,
            rack=rack,
            engine=engine,
            engine_version=self.engine_version,
            variant=self.variant,
            context_tokens=self.context,
            output_tokens=self.output,
            concurrency=self.concurrency,
            kv_cache_dtype=self.kv_dtype,
            layout_constraints={name: size for name, size in sizes.items() if size is not None},
            gpu_memory_utilization=self.gpu_memory_utilization,
            max_num_batched_tokens=self.max_batched_tokens,
            max_num_seqs=self.max_num_seqs,
            moe_backend=self.moe_backend,
            vision=False if self.text_only else None,
        )

    def written(self, flag: str) -> str:
        """The value of a flag as the address has it; empty for what is not said."""
        value = getattr(self, _FLAGS[flag])
        return "" if value is None else _written(flag, value)

    def query(self) -> str:
        """The address's part after the question mark; what is not said is left out."""
        said = [
            (flag, _written(flag, value))
            for flag, name in _FLAGS.items()
            if (value := getattr(self, name)) != _UNSAID[name]
        ]
        return urlencode(said)

    def at_speed(self) -> Question:
        """The same for one sequence of the workload's length: what a speed is forecast of."""
        return replace(self, context=self.isl + self.osl, output=self.osl, concurrency=1)


def of_query(query: Mapping[str, str], model: str, rack: str) -> Question:
    """The question of an address; `model` and `rack` where it names none.

    Parameters that are none of ours are passed over. Raises WEB001 for a value that is none.
    """
    said: dict[str, Any] = {"model": model, "on": rack}
    for flag, name in _FLAGS.items():
        value = query.get(flag, "").strip()
        if not value:
            continue
        try:
            said[name] = _READ.get(name, _word)(value)
        except ValueError:
            raise HeavyliftError("WEB001", {"name": flag, "value": value[:_LONGEST]}) from None
    return Question(**said)


def of_command(command: str) -> Question:
    """The question of a `heavylift plan …` line of ours. Raises WEB001."""
    words = iter(shlex.split(command)[2:])
    query = {"model": next(words)}
    for word in words:
        flag = word.removeprefix("--")
        query[flag] = "1" if flag == "text-only" else next(words)
    return of_query(query, "", "")


def keep_text(engine: str, layout: Layout) -> str:
    """An engine and a layout in one word, for answers that are to stay with them."""
    sizes = (
        layout.tensor_parallel_size,
        layout.pipeline_parallel_size,
        layout.data_parallel_size,
        layout.expert_parallel_size,
        layout.decode_context_parallel_size,
    )
    return "/".join((engine, *map(str, sizes)))


def read_keep(text: str) -> tuple[str, Layout]:
    """The opposite of `keep_text`. Raises WEB001."""
    engine, *sizes = text.split("/")
    try:
        tensor, pipeline, data, expert, context = map(_count(MOST_SEQUENCES), sizes)
    except ValueError:
        raise HeavyliftError("WEB001", {"name": "keep", "value": text[:_LONGEST]}) from None
    layout = Layout(
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        data_parallel_size=data,
        expert_parallel_size=expert,
        decode_context_parallel_size=context,
    )
    return engine, layout


def _word(value: str) -> str:
    if len(value) > _LONGEST or not value.isprintable():
        raise ValueError(value)
    return value


def _tokens(value: str) -> int:
    if len(value) > _LONGEST:
        raise ValueError(value)
    count = parse_tokens(value)
    if count > MOST_TOKENS:
        raise ValueError(value)
    return count


def _count(most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:20]) <= most:
            raise ValueError(value)
        return int(value)

    return read


def _experts(value: str) -> int:
    return 0 if value == "all" else _count(MOST_SEQUENCES)(value)


def _share(value: str, *, from_zero: bool) -> float:
    number = float(value[:_LONGEST])
    if not math.isfinite(number) or not 0 <= number <= 1 or not (number or from_zero):
        raise ValueError(value)
    return number


def _usd(value: str) -> float:
    number = float(value[:_LONGEST])
    if not math.isfinite(number) or not 0 < number <= _MOST_USD:
        raise ValueError(value)
    return number


def _written(flag: str, value: Any) -> str:
    if flag in _TOKEN_FLAGS:
        return format_tokens(value).replace(",", "")
    if value is True:
        return "1"
    return "all" if flag == "ep" and value == 0 else str(value)


_FLAGS: Final = {field.name.replace("_", "-"): field.name for field in fields(Question)}
_UNSAID: Final = {
    field.name: (field.default if field.name not in {"model", "on"} else None)
    for field in fields(Question)
}
_TOKEN_FLAGS: Final = frozenset({"context", "output", "max-batched-tokens", "isl", "osl"})
_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "context": _tokens,
    "output": _tokens,
    "max_batched_tokens": _tokens,
    "isl": _tokens,
    "osl": _tokens,
    "concurrency": _count(MOST_SEQUENCES),
    "max_num_seqs": _count(MOST_SEQUENCES),
    "tp": _count(MOST_SEQUENCES),
    "pp": _count(MOST_SEQUENCES),
    "dp": _count(MOST_SEQUENCES),
    "dcp": _count(MOST_SEQUENCES),
    "ep": _experts,
    "gpu_memory_utilization": lambda value: _share(value, from_zero=False),
    "cached_share": lambda value: _share(value, from_zero=True),
    "rent": _usd,
    "text_only": lambda value: value == "1",
}
