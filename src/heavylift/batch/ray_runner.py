"""Shards spread over a Ray cluster by Ray Data: a shard at a time for each worker."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from heavylift.batch import shards
from heavylift.batch.records import Ended
from heavylift.batch.shards import Manifest, Task
from heavylift.errors import HeavyliftError, Scalar

_TASK: Final = "task"


@contextmanager
def cluster(address: str | None) -> Iterator[int]:
    """A connection to a cluster, or a cluster of this machine; gives how many CPUs it has.

    Raises BAT002 without Ray, BAT020 when the cluster does not answer.
    """
    try:
        import ray  # noqa: PLC0415 - an extra
        import ray.data  # noqa: PLC0415 - an extra
    except ImportError as problem:
        raise HeavyliftError("BAT002", {"package": "ray", "extra": "ray"}) from problem
    try:
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            # The code is the installed package on every machine; nothing else travels.
            runtime_env={},
        )
    except (ConnectionError, ValueError, RuntimeError) as problem:
        params: dict[str, Scalar] = {"address": address or "", "detail": str(problem)[:200]}
        raise HeavyliftError("BAT020", params) from problem
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    for name in ("ray.data", "ray.data._internal"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield int(ray.cluster_resources().get("CPU", 1))
    finally:
        ray.shutdown()


def run(
    manifest: Manifest,
    out: str,
    *,
    work: str,
    address: str | None,
    workers: int | None,
    has_key: bool,
    on_shard: Callable[[str, Ended], None],
) -> Ended:
    """Every shard that is not yet published, and the account of the whole.

    Raises as `cluster` and `shards.tasks`, and, after all the others are done, the error of the
    first shard that could not be run at all.
    """
    began_at = time.monotonic()
    ran: dict[str, Ended] = {}
    if not shards.tasks(manifest, out, work, workers=1, needs_key=has_key):
        # Nothing to do needs no cluster.
        return shards.ended(out, manifest, {}, 0.0)
    problems = []
    with cluster(address) as cpus:
        hands = min(workers or cpus, len(manifest.shards))
        tasks = shards.tasks(manifest, out, work, workers=hands, needs_key=has_key)
        for name, outcome in _spread(tasks, hands):
            if isinstance(outcome, HeavyliftError):
                problems.append(outcome)
                continue
            ran[name] = outcome
            on_shard(name, outcome)
    if problems:
        raise problems[0]
    return shards.ended(out, manifest, ran, time.monotonic() - began_at)


def _spread(tasks: Sequence[Task], workers: int) -> Iterator[tuple[str, Ended | HeavyliftError]]:
    """Every shard's end as it comes in. A worker that dies has its shard run again, from its
    journal where that is still at hand.
    """
    import ray.data  # noqa: PLC0415 - an extra

    if not tasks:
        return
    rows = [{_TASK: msgspec.json.encode(task)} for task in tasks]
    dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        _run, num_cpus=1, compute=ray.data.TaskPoolStrategy(size=workers)
    )
    for row in dataset.iter_rows():
        if row["problem"]:
            code, params = msgspec.json.decode(row["problem"], type=tuple[str, dict[str, Scalar]])
            yield row["name"], HeavyliftError(code, params)
        else:
            yield row["name"], msgspec.json.decode(row["ended"], type=Ended)


def _run(row: dict[str, Any]) -> dict[str, Any]:
    """One shard, in a worker. Errors travel as data: Ray would wrap them in tracebacks."""
    task = msgspec.json.decode(row[_TASK], type=Task)
    key = os.environ.get(task.settings.key_env) or None
    try:
        found = shards.run_shard(task, key)
    except HeavyliftError as error:
        problem = msgspec.json.encode((error.code, dict(error.params)))
        return {"name": task.name, "ended": b"", "problem": problem}
    return {"name": task.name, "ended": msgspec.json.encode(found.ended), "problem": b""}
