"""How long a start may take: bytes over read bandwidth, and an allowance for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from heavylift.recipe.job import Job

_STEP_S = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadline:
    """Seconds from the first process to the first token, and what they were made from.

    Formula: ceil((bytes / bandwidth + allowance) / 60) × 60. `measured`: the bandwidth was stated.
    """

    seconds: int
    load_bytes: int
    bytes_per_s: int
    allowance_s: int
    measured: bool

    @classmethod
    def of(cls, job: Job) -> Deadline:
        """The deadline of a launch; a machine reads what the plan says, or else every byte."""
        stated = job.start.read_gb_per_s
        per_s = int((stated or job.common.read_bandwidth.value) * 10**9)
        loaded = job.plan.host.load_bytes_per_node or job.plan.host.disk_bytes
        allowance = job.common.start_allowance.value
        seconds = ceil((loaded / per_s + allowance) / _STEP_S) * _STEP_S
        return cls(
            seconds=seconds,
            load_bytes=loaded,
            bytes_per_s=per_s,
            allowance_s=allowance,
            measured=stated is not None,
        )
