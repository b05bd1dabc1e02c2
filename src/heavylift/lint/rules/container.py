"""What the container around the command must offer: the files, and time to load them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from heavylift.lint.case import Case
from heavylift.lint.finding import LintFinding
from heavylift.records.finding import Severity
from heavylift.units import GB

_READ_BYTES_PER_S = 2 * GB
"""What one machine reads from a good local disk: a load slower than this is common, a load much
faster needs several disks."""
_FAST_READ_BYTES_PER_S = 7 * GB


def container(case: Case) -> Iterator[LintFinding]:
    """Every finding on mounts and time limits."""
    yield from _path(case)
    yield from _ready_timeout(case)
    yield from _probe(case)


def _path(case: Case) -> Iterator[LintFinding]:
    """A local path that no mount of the container provides."""
    box, name = case.command.container, case.model_name
    if box is None or box.form == "systemd" or name is None or not name.startswith("/"):
        return
    path = PurePosixPath(name)
    if "$" in name or "<" in name:
        return
    mend: tuple[str, ...] = ()
    for outside, inside in box.mounts:
        if path == PurePosixPath(inside):
            return
        if PurePosixPath(inside) in path.parents:
            if not _named_again(outside, inside, path):
                return
            below = path.relative_to(inside).parts[1:]
            mend = (f"model {name} {PurePosixPath(inside, *below)}",)
        elif path == PurePosixPath(outside):
            # The path outside the container stands where the one inside belongs.
            mend = (f"model {name} {inside}",)
    yield LintFinding(
        rule="model_path_not_in_mount",
        severity=Severity.FAIL,
        subject=name,
        text="model_path_not_in_mount" if box.mounts else "model_path_no_mount",
        params={"mounts": ", ".join(f"{a}:{b}" for a, b in box.mounts)},
        mend=mend,
        source=case.library.tables["docker"].facts.source,
    )


def _named_again(outside: str, inside: str, path: PurePosixPath) -> bool:
    """True when the mounted folder already is the model's, and the path enters it once more:
    `-v /data/name:/models` with `/models/name`.
    """
    return path.relative_to(inside).parts == (PurePosixPath(outside).name,)


def _ready_timeout(case: Case) -> Iterator[LintFinding]:
    """A ready timeout that the load cannot meet."""
    limit, size = case.number_of("ready_timeout"), case.weights_bytes
    if limit is None or size is None:
        return
    nodes = case.number_of("nodes") or 1
    yield from _too_short(case, limit, size // nodes, case.flag_of("ready_timeout").lstrip("$"))


def _probe(case: Case) -> Iterator[LintFinding]:
    """A probe or start limit that restarts the server while it loads."""
    box, size = case.command.container, case.weights_bytes
    if box is None or box.start_budget_s is None or size is None:
        return
    nodes = case.number_of("nodes") or 1
    yield from _too_short(case, box.start_budget_s, size // nodes, box.start_budget_from or "")


def _too_short(case: Case, limit_s: int, size: int, subject: str) -> Iterator[LintFinding]:
    likely_s = size // _READ_BYTES_PER_S
    if limit_s >= likely_s:
        return
    best_s = size // _FAST_READ_BYTES_PER_S
    yield LintFinding(
        rule="timeout_shorter_than_load",
        severity=Severity.WARN if limit_s < best_s * 2 else Severity.INFO,
        subject=subject,
        text="timeout_shorter_than_load",
        params={
            "value": limit_s,
            "size": f"{size / GB:,.0f} GB",
            "best": best_s,
            "other": likely_s,
        },
        mend=(f"env {subject}=3600",) if subject.isupper() else (),
        source=case.model.source if case.model else None,
    )
