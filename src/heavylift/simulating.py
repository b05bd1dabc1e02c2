"""Runs of fleets on this machine: processes, files and chance for `simulate`, which is pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.simulate.fleet import Outcome, run
from heavylift.simulate.request import Request, Source
from heavylift.simulate.study import Clients, Job, Recorded, RunAll
from heavylift.simulate.trace import Replay, TraceFigures, figures_of
from heavylift.simulate.trace import requests_of as as_requests
from heavylift.simulate.workload import Closed, Conversations
from heavylift.traffic.read import open_trace

_TRACE_SEED: Final = 1


def requests_of(path: Path) -> Iterator[Request]:
    """The requests of a trace file or of a folder of clients, as they are taken.

    The same path gives the same requests. Raises USE091 when it cannot be read.
    """
    chance = random.Random(_TRACE_SEED).random  # noqa: S311 - a simulation, no secret
    try:
        yield from as_requests(open_trace(path, chance), str(path))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise HeavyliftError("USE091", {"path": str(path), "reason": reason}) from error


def trace_figures(path: Path) -> TraceFigures:
    """What a trace file holds, in one pass over it."""
    return figures_of(requests_of(path))


def _source(job: Job) -> Source:
    traffic = job.traffic
    if isinstance(traffic, Recorded):
        path = Path(traffic.path)
        recorded = traffic.figures.rate_per_s
        times = job.rate_per_s / recorded if recorded else 1.0
        return Replay(lambda: requests_of(path), traffic.figures, times)
    if isinstance(traffic, Clients):
        return Closed(traffic.clients, traffic.input_tokens, traffic.output_tokens)
    return Conversations(traffic, job.rate_per_s, random.Random(job.seed).random)  # noqa: S311


def run_job(job: Job) -> Outcome:
    """One run. Traffic and failures draw from series of their own, so neither moves the other."""
    chance = random.Random(job.seed ^ 0x5EED)  # noqa: S311 - a simulation, no secret
    return run(job.spec, _source(job), job.stop, chance.random)


@contextmanager
def runner(processes: int, *, ray_address: str | None = None) -> Iterator[RunAll]:
    """A way to make several runs at once: here in turn, on processes, or on a Ray cluster.

    Raises ENV079 when Ray is asked for and not installed, ENV080 when the cluster does not answer.
    """
    if ray_address is not None:
        with _cluster(ray_address) as run_all:
            yield run_all
        return
    if processes <= 1:
        yield lambda jobs: [run_job(job) for job in jobs]
        return
    # A fork would copy whatever the caller has running; a new interpreter has nothing of it.
    with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
        yield lambda jobs: _in_pool(pool, jobs)


def _in_pool(pool: ProcessPoolExecutor, jobs: Sequence[Job]) -> list[Outcome]:
    if len(jobs) == 1:
        return [run_job(jobs[0])]
    return list(pool.map(run_job, jobs))


@contextmanager
def _cluster(address: str) -> Iterator[RunAll]:
    """Runs as tasks of a Ray cluster; `local` is one of this machine, for as long as it lasts."""
    try:
        import ray  # noqa: PLC0415 - an extra, 750 MB
    except ImportError as error:
        raise HeavyliftError("ENV079", hint_command='pip install "heavylift[ray]"') from error
    try:
        ray.init(
            address=None if address == "local" else address,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise HeavyliftError("ENV080", {"address": address, "detail": str(error)[:200]}) from error
    remote = ray.remote(run_job)

    def run_all(jobs: Sequence[Job]) -> list[Outcome]:
        found: list[Outcome] = ray.get([remote.remote(job) for job in jobs])
        return found

    try:
        yield run_all
    finally:
        ray.shutdown()
