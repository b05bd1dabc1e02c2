"""How long the steps of a replica take: the model of speed, laid out for many steps at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from heavylift.plan.step_time import StepTime, pairs

_NEVER_STEPS: Final = 1e12


@dataclass(frozen=True, slots=True)
class Row:
    """A decode step of one batch size, s: `max(memory + per_token × context, compute) + rest`.

    `per_token` counts each token of context that the batch holds.
    """

    memory: float
    per_token: float
    compute: float
    rest: float

    def step_s(self, held: float) -> float:
        """Seconds of one step while the batch holds `held` tokens of context."""
        return max(self.memory + self.per_token * held, self.compute) + self.rest


@dataclass(slots=True)
class Pace:
    """Step and prefill times of one replica, seconds, decoding at `factor` times the model's.

    `rows` is filled as batch sizes are met. `accepted` tokens come out of a step of `drafted` + 1.
    `lanes` prompts are computed side by side, each by its part of the pipeline.
    `attention_s_per_pair` are seconds for each pair of a prompt's token and one before it, with the
    window in which pairs count (0 = all).
    """

    prefill_floor_s: float
    prefill_s_per_token: float
    attention_s_per_pair: tuple[tuple[float, int], ...] = ()
    lanes: int = 1
    drafted: int = 0
    accepted: float = 1.0
    factor: float = 1.0
    times: StepTime | None = None
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        times: StepTime,
        *,
        factor: float = 1.0,
        prefill_factor: float = 1.0,
        drafted: int = 0,
        accepted: float = 1.0,
    ) -> Pace:
        """The pace of a replica at so many times the model's times."""
        floor = times.prefill_floor_s
        return cls(
            prefill_floor_s=floor * prefill_factor,
            prefill_s_per_token=(times.prefill_s(1.0) - floor - times.attention_s(1.0, 0.0))
            * prefill_factor,
            attention_s_per_pair=tuple(
                (times.pair_s(part) * prefill_factor, part.window)
                for part in times.load.attention
                if times.pair_s(part)
            ),
            lanes=times.load.microbatches,
            drafted=drafted,
            accepted=accepted,
            factor=factor,
            times=times,
        )

    def row(self, batch: int) -> Row:
        """The decode step of `batch` sequences. Without a model the last stands for larger ones."""
        while batch >= len(self.rows):
            if self.times is None:
                return self.rows[-1]
            self.rows.append(self._row(self.times, max(1, len(self.rows))))
        return self.rows[batch]

    def _row(self, times: StepTime, batch: int) -> Row:
        """Formula: the parts of `StepTime.step_s`, with KV linear in the tokens held."""
        scale = self.factor / self.accepted
        memory, compute, rest = times.step_base(batch, 1 + self.drafted)
        per_token = times.kv_s_per_token(batch)
        return Row(memory * scale, per_token * scale, compute * scale, rest * scale)

    def attention_s(self, tokens: int, before: int) -> float:
        """Seconds of the attention of a chunk of a prompt to what came before it."""
        return sum(
            each * pairs(tokens, before, window) for each, window in self.attention_s_per_pair
        )

    def chunk_s(self, tokens: int, prompts: int, attention_s: float = 0.0) -> float:
        """Seconds a step takes longer for `tokens` of prefill of `prompts` prompts."""
        side = min(prompts, self.lanes)
        work = tokens * self.prefill_s_per_token + attention_s
        return (side * self.prefill_floor_s + work) / self.lanes

    def pass_s(self, tokens: int, attention_s: float = 0.0) -> float:
        """Seconds a chunk is on its way beyond its step: the other stages of a pipeline."""
        alone = self.prefill_floor_s + tokens * self.prefill_s_per_token + attention_s
        return alone * (1 - 1 / self.lanes)


def run_s(row: Row, batch: int, held: int, steps: int) -> float:
    """Seconds of `steps` steps in a row, each adding a token to every sequence.

    Formula: sum over i < steps of step_s(held + batch × i); the caller keeps a run on one side of
    the crossing of memory and compute (see `crossing`).
    """
    if row.memory + row.per_token * held < row.compute:
        return steps * (row.compute + row.rest)
    each = row.memory + row.rest + row.per_token * held
    return steps * each + row.per_token * batch * steps * (steps - 1) / 2


def crossing(row: Row, batch: int, held: int) -> int | None:
    """Steps until memory takes longer than compute; None when it does already or never will."""
    short, grows = row.compute - row.memory - row.per_token * held, row.per_token * batch
    # No answer is as long as what is left out here.
    if short <= 0 or short > grows * _NEVER_STEPS:
        return None
    return max(1, math.ceil(short / grows))


def steps_by(row: Row, batch: int, held: int, seconds: float) -> int:
    """The fewest steps that take at least `seconds`, at least 1."""
    if row.memory + row.per_token * held < row.compute:
        return max(1, math.ceil(seconds / (row.compute + row.rest)))
    each = row.memory + row.rest + row.per_token * held
    grow = row.per_token * batch / 2
    if grow <= 0:
        return max(1, math.ceil(seconds / each))
    linear = each - grow
    steps = 2 * seconds / (linear + math.sqrt(linear * linear + 4 * grow * seconds))
    return max(1, math.ceil(steps))
