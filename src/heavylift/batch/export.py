"""Export: a batch's outcomes as a table, a row per row of the input, answer and reasoning apart."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.batch import lines, routes
from heavylift.batch.outputs import FILE_OF, spooled, writing
from heavylift.batch.records import State
from heavylift.batch.store import open_journal
from heavylift.errors import HeavyliftError

COLUMNS: Final = (
    "custom_id",
    "status",
    "answer",
    "reasoning",
    "finish_reason",
    "error_code",
    "error",
    "model",
    "prompt_tokens",
    "completion_tokens",
    "embedding",
)
_NUMBERS: Final = ("prompt_tokens", "completion_tokens")
_PARQUET_ROWS: Final = 1024


def export(folder: Path, target: Path) -> int:
    """How many rows were written to `target`, a `.csv`, `.parquet` or `.jsonl` file.

    Raises USE031 for another kind, BAT002 when a package is missing, BAT003 when there is no batch,
    BAT015 when the system does not let it be written.
    """
    writers = {".csv": _write_csv, ".parquet": _write_parquet, ".jsonl": _write_jsonl}
    if target.suffix not in writers:
        raise HeavyliftError("USE031", {"path": str(target), "known": ", ".join(writers)})
    fresh = target.with_name(f"{target.name}.new")
    with writing(target):
        count = writers[target.suffix](fresh, _rows(folder))
        fresh.replace(target)
    return count


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    with open_journal(folder, must_exist=True) as journal:
        for state, name in FILE_OF.items():
            if not (folder / name).exists():
                continue
            with (folder / name).open("rb") as file:
                for seq_row in journal.in_order(state):
                    _, at, size, out_at, out_size = seq_row
                    file.seek(out_at)
                    asked = lines.INPUT.decode(next(spooled(folder, journal, [(at, size)])))
                    yield _row(state, asked.url, file.read(out_size))


def _row(state: State, url: str, text: bytes) -> dict[str, Any]:
    line = lines.OUTPUT.decode(text)
    body = (line.response or {}).get("body")
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row.update(custom_id=line.custom_id, status=state.name.lower())
    if line.error is not None:
        row.update(error_code=line.error.get("code"), error=line.error.get("message"))
    if isinstance(body, dict) and "error" not in body:
        reading = routes.read(url, msgspec.json.encode(body))
        row.update(
            answer=reading.text or None,
            reasoning=reading.reasoning or None,
            finish_reason=reading.finish_reason,
            model=body.get("model"),
            prompt_tokens=reading.prompt_tokens,
            completion_tokens=reading.completion_tokens,
        )
        if url == routes.EMBEDDINGS and reading.failure is None:
            vectors = [entry.get("embedding") for entry in body["data"]]
            row["embedding"] = msgspec.json.encode(vectors).decode()
    return row


def _write_csv(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for row in rows:
            table.writerow(row)
            count += 1
    return count


def _write_jsonl(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    with path.open("wb") as file:
        for row in rows:
            file.write(msgspec.json.encode(row) + b"\n")
            count += 1
    return count


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415 - an extra
    except ImportError as problem:
        raise HeavyliftError("BAT002", {"package": "pyarrow", "extra": "parquet"}) from problem
    fields = [(name, pa.int64() if name in _NUMBERS else pa.string()) for name in COLUMNS]
    schema = pa.schema(fields)
    count = 0
    with parquet.ParquetWriter(path, schema) as table:
        while chunk := list(islice(rows, _PARQUET_ROWS)):
            table.write_batch(pa.RecordBatch.from_pylist(chunk, schema))
            count += len(chunk)
    return count
