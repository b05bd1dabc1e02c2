"""How a service settles: how many sequences decode at once, what a token takes, who waits.

A closed loop: each client sends its next request when the last is answered. Little's law ties the
batch to the times: sequences decoding = requests per second × time each spends decoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.plan.step_time import StepTime
from heavylift.records.speed import SpeedPart, SpeedWorkload

_HALVINGS: Final = 30


def check_workload(work: SpeedWorkload) -> None:
    """Raises PLAN074 when a figure of a workload is out of range."""
    sound = (
        work.concurrency >= 1
        and work.input_tokens >= 0
        and work.output_tokens >= 1
        and 0 <= work.cached_ratio <= 1
    )
    if not sound:
        raise HeavyliftError(
            "PLAN074",
            {
                "concurrency": work.concurrency,
                "input": work.input_tokens,
                "output": work.output_tokens,
                "cached": work.cached_ratio,
            },
        )


@dataclass(frozen=True)
class Service:
    """A load under a workload: `seats` sequences per replica hold KV and state at once.

    `prefill` is the pool that computes prompts, of `prefill_replicas`; None = the decoding ranks do
    it between their steps.
    """

    decode: StepTime
    workload: SpeedWorkload
    seats: int
    prefill: StepTime | None = None
    prefill_replicas: int = 1

    @property
    def replicas(self) -> int:
        """Replicas that decode."""
        return self.decode.load.layout.data_parallel_size

    @cached_property
    def clients(self) -> float:
        """Clients of a replica. A replica that is used at all has one."""
        return max(1.0, self.workload.concurrency / self.replicas)

    @property
    def is_split(self) -> bool:
        """True when prefill has ranks of its own."""
        return self.prefill is not None

    @cached_property
    def prompt_s(self) -> float:
        """Seconds of one prompt's prefill, alone."""
        new = self.workload.uncached_tokens
        return (self.prefill or self.decode).prefill_s(new, self.workload.input_tokens - new)

    @cached_property
    def _prompts_at_once(self) -> float:
        """Prompts under way at once for one decoding replica: the stages of its pipeline, or its
        part of the prefill pool.
        """
        if self.prefill is None:
            return self.decode.load.microbatches
        pool = self.prefill.load.microbatches * self.prefill.load.layout.data_parallel_size
        return self.prefill_replicas * pool / self.replicas

    def token_parts(self, batch: float) -> dict[SpeedPart, float]:
        """Seconds per output token and sequence when `batch` of a replica decode, by part.

        Formula: step / accepted tokens + (batch − 1) × prompt / (output tokens × stages): while a
        sequence makes its tokens, each of the others is replaced once, prompt and all.
        """
        work = self.workload
        drafted = work.speculation.draft_tokens if work.speculation else 0
        accepted = work.speculation.accepted_tokens if work.speculation else 1.0
        context = work.input_tokens + work.output_tokens / 2
        step = self.decode.step_parts(batch, context, 1 + drafted)
        parts = {name: seconds / accepted for name, seconds in step.items()}
        parts[SpeedPart.PREFILL] = 0.0
        if not self.is_split:
            others = max(0.0, batch - 1)
            parts[SpeedPart.PREFILL] = (
                others * self.prompt_s / (work.output_tokens * self._prompts_at_once)
            )
        return parts

    def tpot_s(self, batch: float) -> float:
        """Seconds per output token and sequence when `batch` of a replica decode."""
        return sum(self.token_parts(batch).values())

    def requests_per_s(self, batch: float) -> float:
        """Requests a replica finishes per second when `batch` decode (Little's law)."""
        return batch / (self.workload.output_tokens * self.tpot_s(batch))

    @cached_property
    def decode_batch(self) -> float:
        """Sequences of a replica that decode at once, when the service has settled.

        The seats that are taken hold sequences in decode and in prefill. Those in prefill wait for
        one another: by the arrival theorem of closed queues a prompt finds those of the other
        clients there. Solved by halving: with more decoding, fewer are left to prefill.
        """
        seated = min(self.clients, float(self.seats)) if not self.is_split else self.clients
        low, high = 0.0, seated
        for _ in range(_HALVINGS):
            batch = (low + high) / 2
            waiting = seated - batch
            met = waiting * (seated - 1) / seated / self._prompts_at_once
            if waiting > self.requests_per_s(batch) * self.prompt_s * (1 + met):
                low = batch
            else:
                high = batch
        return min(high, float(self.seats))

    @property
    def is_short_of_seats(self) -> bool:
        """True when clients wait because no more sequences can be held."""
        return self.clients > self.seats

    @property
    def settled_tpot_s(self) -> float:
        """Seconds per output token and sequence, settled."""
        return self.tpot_s(self.decode_batch)

    @property
    def settled_requests_per_s(self) -> float:
        """Requests per second of all replicas, settled."""
        return self.replicas * self.requests_per_s(self.decode_batch)

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens per second of all replicas, settled."""
        return self.settled_requests_per_s * self.workload.output_tokens

    @property
    def ttft_s(self) -> float:
        """Seconds from a request to its first token: what a client's round takes beside decoding.

        Formula: clients / requests per second − output tokens × time per token (Little's law)
        """
        clients = self.clients * self.replicas
        decoding = self.workload.output_tokens * self.settled_tpot_s
        return max(self.prompt_s, clients / self.settled_requests_per_s - decoding)

    @property
    def burst_ttft_s(self) -> float:
        """Seconds to the first token of the last client when all seated ones send at once, as they
        do when answers are equally long.

        Formula: floor + seated × (prompt − floor) / prompts at once, or the settled time if longer
        """
        times = self.prefill or self.decode
        work = self.prompt_s - min(self.prompt_s, times.prefill_floor_s)
        seated = min(self.clients, float(self.seats))
        return max(self.ttft_s, self.prompt_s + (seated - 1) * work / self._prompts_at_once)
