"""Looks in a file: written as they come, read to be shown again. JSONL, or Parquet by its name.

A line of JSONL is a report as `--json` prints it. A Parquet file has a column for each figure, for
tables and plots, and the whole report beside them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError, reason
from heavylift.observe.series import figures
from heavylift.records.watch import WatchReport

Write = Callable[[WatchReport], None]

_PARQUET: Final = ".parquet"
_ROWS: Final = 600
"""Looks in one row group: what a crash loses at most of a Parquet file's figures."""
_DECODER: Final = msgspec.json.Decoder(WatchReport)


@contextlib.contextmanager
def recording(path: Path) -> Iterator[Write]:
    """Write looks to a file inside `with`; a file that is there is replaced.

    Raises OBS001 when it cannot be written, OBS003 for Parquet without its package.
    """
    try:
        if path.suffix == _PARQUET:
            with _parquet(path) as write:
                yield write
        else:
            with path.open("wb") as file:

                def write_line(report: WatchReport) -> None:
                    file.write(msgspec.json.encode(report) + b"\n")
                    file.flush()

                yield write_line
    except OSError as problem:
        raise HeavyliftError("OBS001", {"path": str(path), "reason": reason(problem)}) from problem


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    pa, parquet = _arrow()
    rows: list[dict[str, Any]] = []
    schema: Any = None
    table: Any = None

    def flush() -> None:
        nonlocal schema, table
        if not rows:
            return
        if table is None:
            # A figure that comes later than the first group has no column; its report has it.
            names = dict.fromkeys(name for row in rows for name in row["figures"])
            schema = pa.schema(
                [
                    ("at_s", pa.float64()),
                    *((name, pa.float64()) for name in names),
                    ("report", pa.string()),
                ]
            )
            table = parquet.ParquetWriter(path, schema)
        flat = [{"at_s": row["at_s"], **row["figures"], "report": row["report"]} for row in rows]
        table.write_batch(pa.RecordBatch.from_pylist(flat, schema))
        rows.clear()

    def write(report: WatchReport) -> None:
        whole = msgspec.json.encode(report).decode()
        rows.append({"at_s": report.at_s, "figures": figures(report), "report": whole})
        if len(rows) >= _ROWS:
            flush()

    # Can it be written at all? Not found out after an hour.
    path.touch()
    try:
        yield write
    finally:
        flush()
        if table is not None:
            table.close()


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415 - an extra
    except ImportError as problem:
        raise HeavyliftError("OBS003", {"package": "pyarrow", "extra": "parquet"}) from problem
    return pa, parquet


def read(path: Path) -> Iterator[WatchReport]:
    """The looks in a file, in order. A last line that was cut off in writing is left out.

    Raises OBS002 for a file that is none, with the line; OBS003 as `recording`.
    """
    if path.suffix == _PARQUET:
        yield from _read_parquet(path)
        return
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                yield _decoded(line, path, number)
    except OSError as problem:
        raise HeavyliftError(
            "OBS002", {"path": str(path), "line": 0, "reason": reason(problem)}
        ) from problem


def _read_parquet(path: Path) -> Iterator[WatchReport]:
    pa, parquet = _arrow()
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["report"]):
                for line in batch.column(0).to_pylist():
                    number += 1
                    yield _decoded(line.encode(), path, number)
    except (OSError, pa.ArrowException) as problem:
        raise HeavyliftError(
            "OBS002", {"path": str(path), "line": number, "reason": reason(problem)}
        ) from problem


def _decoded(line: bytes, path: Path, number: int) -> WatchReport:
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError as problem:
        raise HeavyliftError(
            "OBS002", {"path": str(path), "line": number, "reason": str(problem)}
        ) from problem


def replay(
    path: Path, *, speed: float, sleep: Callable[[float], None] = time.sleep
) -> Iterator[WatchReport]:
    """The looks in a file with the pauses between them, divided by `speed`; 0 = without pauses.

    Raises as `read`.
    """
    before_s: float | None = None
    for report in read(path):
        if speed > 0 and before_s is not None and report.at_s > before_s:
            sleep((report.at_s - before_s) / speed)
        before_s = report.at_s
        yield report
