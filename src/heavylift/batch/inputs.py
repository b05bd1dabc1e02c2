"""Inputs: anything that holds rows, read as a stream into requests, with every defect's line.

A reader yields one item per row, a `Draft` or a `Defect`, and keeps no row: memory does not grow
with the input.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import csv
import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec

from heavylift.batch import routes, template
from heavylift.batch.lines import row_key
from heavylift.batch.records import Defect, Shape
from heavylift.errors import HeavyliftError

STDIN: Final = "-"

_ENCODER: Final = msgspec.json.Encoder()
_BOM: Final = b"\xef\xbb\xbf"
_TEXTS: Final = frozenset({".txt", ".md"})
_IMAGES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
}
_PARQUET_ROWS: Final = 1024
_FIELD_BYTES: Final = 2**31 - 1
"""csv's own limit of 128 KiB a field is less than a document; this is the largest it can be set."""


class Format(StrEnum):
    """How an input is to be read."""

    OPENAI = "openai"
    """JSON lines of the batch API: custom_id, method, url, body."""
    JSONL = "jsonl"
    """JSON lines of any columns."""
    CSV = "csv"
    PARQUET = "parquet"
    DOCUMENTS = "documents"
    """A folder of texts and images, one row a file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A row that can be sent. `line` is its line in the source (from 1), or its number there."""

    line: int
    custom_id: str
    url: str
    body: bytes
    key: bytes


Item = Draft | Defect


def read(source: str, given: Format | None, shape: Shape) -> Iterator[Item]:
    """The rows of a source: a path, or `-` for standard input.

    Raises BAT001 when it cannot be read, BAT002 when a package for its format is missing, BAT004
    and BAT014 for a bad template, BAT012 for lines of JSON that are not even text.
    """
    rows = _Rows(shape)
    try:
        yield from _read(source, given, rows)
    except OSError as problem:
        detail = problem.strerror or str(problem)
        raise HeavyliftError("BAT001", {"path": source, "detail": detail}) from problem


def _read(source: str, given: Format | None, rows: _Rows) -> Iterator[Item]:
    if source == STDIN:
        stdin = cast("BufferedReader", sys.stdin.buffer)
        _refuse_bytes(stdin, source)
        yield from _json_lines(stdin, given, rows)
        return
    path = Path(source)
    kind = given or _by_name(path)
    if kind is Format.DOCUMENTS:
        yield from _documents(path, rows)
    elif kind is Format.PARQUET:
        yield from _parquet(path, rows)
    elif kind is Format.CSV:
        with path.open(encoding="utf-8-sig", newline="") as table:
            yield from _csv(table, rows)
    else:
        with path.open("rb") as file:
            _refuse_bytes(file, source)
            yield from _json_lines(file, kind, rows)


def _by_name(path: Path) -> Format | None:
    if path.is_dir():
        return Format.DOCUMENTS
    return {".csv": Format.CSV, ".parquet": Format.PARQUET}.get(path.suffix.lower())


def fingerprint(source: str) -> str | None:
    """A name for the source as it is now, which changes when it is written to; None for a stream.

    Names, sizes and times of writing, as `make` does it: the content of a million rows is read
    again only when one of them differs.
    """
    if source == STDIN:
        return None
    path = Path(source)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        with contextlib.suppress(OSError):
            found = file.stat()
            digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


class _Rows:
    """Makes drafts in the shape that was asked for."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._version = template.version(shape.template, shape.system)
        self._render = template.compiled(shape.template) if shape.template else None
        self._system = template.compiled(shape.system) if shape.system else None
        self._fields = dict(shape.fields)
        if shape.model is not None:
            self._fields["model"] = shape.model
        if shape.schema is not None:
            schema = {"name": "answer", "schema": shape.schema, "strict": True}
            self._fields["response_format"] = {"type": "json_schema", "json_schema": schema}

    def of_openai(self, line: int, document: Any) -> Item:
        """A row from a line of the batch API."""
        if not isinstance(document, dict):
            return Defect(line=line, problem="not_an_object")
        custom_id, url, body = (document.get(name) for name in ("custom_id", "url", "body"))
        if not isinstance(custom_id, str) or not custom_id:
            return Defect(line=line, problem="no_custom_id")
        if document.get("method", "POST") != "POST":
            return Defect(line=line, problem="method", detail=str(document["method"]))
        if url not in routes.URLS or self._shape.only_url not in (None, url):
            return Defect(line=line, problem="url", detail=str(url))
        if not isinstance(body, dict):
            return Defect(line=line, problem="no_body")
        return self._draft(line, custom_id, url, body)

    def of_columns(self, line: int, columns: Mapping[str, Any], *, number: int) -> Item:
        """A row from columns, through the template where there is one."""
        shape = self._shape
        custom_id = columns.get(shape.id_column or "custom_id", f"{shape.id_prefix}row-{number}")
        if shape.id_column is not None and columns.get(shape.id_column) in (None, ""):
            return Defect(line=line, problem="no_id", detail=shape.id_column)
        missing = next((name for name in shape.columns.values() if name not in columns), None)
        if missing is not None:
            return Defect(line=line, problem="no_column", detail=missing)
        known = {**columns, **{name: columns[source] for name, source in shape.columns.items()}}
        self._refuse_single_braces(known)
        try:
            body = self._body(known)
        except ValueError as problem:
            return Defect(line=line, problem="template", detail=str(problem))
        if body is None:
            return Defect(line=line, problem="no_prompt")
        if "model" in columns:
            body["model"] = columns["model"]
        return self._draft(line, str(custom_id), shape.url, body)

    def of_image(self, line: int, path: Path, columns: Mapping[str, Any]) -> Item:
        """A row that shows a picture, with the template's text before it."""
        data = base64.b64encode(path.read_bytes()).decode()
        url = f"data:{_IMAGES[path.suffix.lower()]};base64,{data}"
        parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}}]
        self._refuse_single_braces(columns)
        try:
            if self._render is not None:
                parts.insert(0, {"type": "text", "text": self._render(columns)})
            messages = [*self._system_turn(columns), {"role": "user", "content": parts}]
        except ValueError as problem:
            return Defect(line=line, problem="template", detail=str(problem))
        if self._shape.url != routes.CHAT:
            return Defect(line=line, problem="image_route", detail=self._shape.url)
        return self._draft(line, columns["name"], routes.CHAT, {"messages": messages})

    def _refuse_single_braces(self, columns: Mapping[str, Any]) -> None:
        for source in (self._shape.template, self._shape.system):
            if source is not None:
                template.refuse_single_braces(source, columns)

    def _body(self, columns: Mapping[str, Any]) -> dict[str, Any] | None:
        """The body of a row of columns; None when nothing in it can be asked."""
        if self._render is not None:
            prompt = self._render(columns)
        elif isinstance(columns.get("messages"), list) and self._shape.url == routes.CHAT:
            return {"messages": columns["messages"]}
        elif isinstance(columns.get("prompt"), str):
            prompt = columns["prompt"]
        else:
            return None
        if self._shape.url == routes.CHAT:
            turn = {"role": "user", "content": prompt}
            return {"messages": [*self._system_turn(columns), turn]}
        return {_ASKED_IN[self._shape.url]: prompt}

    def _system_turn(self, columns: Mapping[str, Any]) -> list[dict[str, Any]]:
        if self._system is None:
            return []
        return [{"role": "system", "content": self._system(columns)}]

    def _draft(self, line: int, custom_id: str, url: str, body: dict[str, Any]) -> Item:
        whole = {**body, **self._fields}
        # How answers travel is the run's business, not the row's.
        whole.pop("stream", None)
        whole.pop("stream_options", None)
        if self._shape.schema is not None and url != routes.CHAT:
            return Defect(line=line, problem="schema_route", detail=url)
        if not isinstance(whole.get("model"), str):
            return Defect(line=line, problem="no_model")
        if not isinstance(whole.get(_ASKED_IN[url]), list | str) or not whole[_ASKED_IN[url]]:
            return Defect(line=line, problem="no_question", detail=_ASKED_IN[url])
        if url == routes.CHAT and not isinstance(whole["messages"], list):
            return Defect(line=line, problem="no_question", detail="messages")
        encoded = _ENCODER.encode(whole)
        key = row_key(url, encoded, self._version)
        return Draft(line=line, custom_id=custom_id, url=url, body=encoded, key=key)


_ASKED_IN: Final = {
    routes.CHAT: "messages",
    routes.COMPLETIONS: "prompt",
    routes.EMBEDDINGS: "input",
    routes.RESPONSES: "input",
}
"""The field of a body that holds the question, by route."""


def _refuse_bytes(file: BufferedReader, source: str) -> None:
    """Raises BAT012 when the file begins as no text does: with a zero byte or no line of UTF-8."""
    sample = file.peek()
    lines = sample.splitlines()
    if lines and (b"\0" in sample or not any(_is_utf8(line) for line in lines)):
        raise HeavyliftError("BAT012", {"path": source})


def _is_utf8(line: bytes) -> bool:
    try:
        # The last line may be cut off inside a character.
        codecs.getincrementaldecoder("utf-8")().decode(line)
    except UnicodeDecodeError:
        return False
    return True


def _json_lines(file: BinaryIO, given: Format | None, rows: _Rows) -> Iterator[Item]:
    kind = given
    number = 0
    for line, text in enumerate(file, start=1):
        content = (text.removeprefix(_BOM) if line == 1 else text).strip()
        if not content:
            continue
        number += 1
        try:
            document = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            yield Defect(line=line, problem="not_json", detail=str(problem))
            continue
        if kind is None and isinstance(document, dict):
            openai = "custom_id" in document and ("body" in document or "url" in document)
            kind = Format.OPENAI if openai else Format.JSONL
        if kind is not Format.JSONL:
            yield rows.of_openai(line, document)
        elif isinstance(document, dict):
            yield rows.of_columns(line, document, number=number)
        else:
            yield Defect(line=line, problem="not_an_object")


def _csv(table: Any, rows: _Rows) -> Iterator[Item]:
    csv.field_size_limit(_FIELD_BYTES)
    reader = csv.DictReader(table, strict=True)
    number = 0
    while True:
        number += 1
        try:
            row = next(reader, None)
        except (csv.Error, UnicodeDecodeError) as problem:
            # After a broken quote or byte nothing can be said of what follows.
            yield Defect(line=reader.reader.line_num, problem="not_csv", detail=str(problem))
            return
        if row is None:
            return
        if None in row or None in row.values():
            yield Defect(line=reader.line_num, problem="columns")
        else:
            yield rows.of_columns(reader.line_num, row, number=number)


def _parquet(path: Path, rows: _Rows) -> Iterator[Item]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415 - an extra
    except ImportError as problem:
        raise HeavyliftError("BAT002", {"package": "pyarrow", "extra": "parquet"}) from problem
    try:
        batches = parquet.ParquetFile(path).iter_batches(batch_size=_PARQUET_ROWS)
        for number, row in enumerate(chain.from_iterable(map(_pylist, batches)), start=1):
            yield rows.of_columns(number, row, number=number)
    except pa.ArrowInvalid as problem:
        raise HeavyliftError("BAT001", {"path": str(path), "detail": str(problem)}) from problem


def _pylist(batch: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def _documents(folder: Path, rows: _Rows) -> Iterator[Item]:
    """One row a file, in the order of their names; files and folders that hide are left out."""
    number = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") for part in name.parts):
            continue
        number += 1
        suffix = path.suffix.lower()
        columns = {"name": str(name), "custom_id": str(name), "text": ""}
        if suffix in _IMAGES:
            yield rows.of_image(number, path, columns)
        elif suffix in _TEXTS:
            try:
                columns["text"] = columns["prompt"] = path.read_text("utf-8")
            except UnicodeDecodeError as problem:
                yield Defect(line=number, problem="not_text", detail=f"{name}: {problem.reason}")
                continue
            yield rows.of_columns(number, columns, number=number)
        else:
            yield Defect(line=number, problem="not_a_document", detail=str(name))
