"""What a server of batches keeps: uploads, a folder for each batch, and the records of both."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from heavylift.batch.outputs import ERRORS, OUTPUT, sync_folder
from heavylift.batch.store import JOURNAL, open_journal

WAITING: Final = frozenset({"validating", "in_progress", "finalizing", "cancelling"})
"""Of a batch that is not over."""

_RECORD: Final = "batch.json"
_PART_OF: Final = {"output": OUTPUT, "errors": ERRORS}

R = TypeVar("R", bound=msgspec.Struct)


class FileRecord(msgspec.Struct, kw_only=True):
    """A file as clients see it."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    object: str = "file"
    status: str = "processed"


class RowCounts(msgspec.Struct, kw_only=True):
    """Rows of a batch as clients see them."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class BatchRecord(msgspec.Struct, kw_only=True):
    """A batch as clients see it; times are seconds since 1970."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    expires_at: int
    object: str = "batch"
    status: str = "validating"
    errors: dict[str, Any] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RowCounts = msgspec.field(default_factory=RowCounts)
    metadata: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """The folder of a server, and what lies where in it."""

    path: Path

    def files(self) -> Path:
        """The folder of uploads."""
        return self.path / "files"

    def batch(self, batch_id: str) -> Path:
        """The folder of a batch."""
        return self.path / "batches" / batch_id

    def batches(self) -> list[BatchRecord]:
        """All batches, the newest first."""
        found = [_read(path, BatchRecord) for path in self.path.glob(f"batches/*/{_RECORD}")]
        return sorted(found, key=lambda record: (record.created_at, record.id), reverse=True)

    def uploads(self) -> list[FileRecord]:
        """All uploads, the newest first."""
        found = [_read(path, FileRecord) for path in self.files().glob("*.json")]
        return sorted(found, key=lambda record: (record.created_at, record.id), reverse=True)

    def found(self, file_id: str) -> tuple[FileRecord, Path] | None:
        """An upload, or an output of a batch, and where it lies; None where there is none."""
        for upload in self.uploads():
            if upload.id == file_id:
                return upload, self.files() / f"{file_id}.jsonl"
        for batch in self.batches():
            if file_id in (batch.output_file_id, batch.error_file_id):
                name = _PART_OF[file_id.rpartition("-")[2]]
                path = self.batch(batch.id) / name
                record = FileRecord(
                    id=file_id,
                    bytes=path.stat().st_size,
                    created_at=batch.completed_at or batch.cancelled_at or batch.created_at,
                    filename=f"{batch.id}_{name}",
                    purpose="batch_output",
                )
                return record, path
        return None

    def counted(self, record: BatchRecord) -> BatchRecord:
        """The record with the counts of this moment, from its journal."""
        folder = self.batch(record.id)
        if record.status in WAITING and (folder / JOURNAL).exists():
            with open_journal(folder) as journal:
                counts = journal.counts()
            record.request_counts = RowCounts(
                total=counts.input, completed=counts.ok, failed=counts.failed
            )
        return record

    def keep(self, record: FileRecord | BatchRecord) -> None:
        """Write a record, the old one or the new one for whoever reads meanwhile."""
        if isinstance(record, BatchRecord):
            _write(self.batch(record.id) / _RECORD, record)
        else:
            _write(self.files() / f"{record.id}.json", record)

    def remove(self, file_id: str) -> None:
        """Take an upload away."""
        for suffix in ("json", "jsonl"):
            (self.files() / f"{file_id}.{suffix}").unlink(missing_ok=True)


def _read(path: Path, kind: type[R]) -> R:
    return msgspec.json.decode(path.read_bytes(), type=kind)


def _write(path: Path, record: msgspec.Struct) -> None:
    """Write a record so that a reader, or a power cut, finds the old one or the new one."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)
