"""Graded answers of elsewhere: JSON lines of ours, samples of lm-eval, logs of inspect-ai."""

from __future__ import annotations

import re
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.quality.records import Answer
from heavylift.wire.failures import UNDECODABLE

_RIGHT: Final = ("right", "exact_match", "acc", "score")
_ID: Final = ("question", "id", "doc_id")
_HALF: Final = 0.5
"""Half or more of the credit is right."""
_LETTERS: Final = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partly correct, incorrect, no answer: inspect-ai's values of a score."""
_STAMP: Final = re.compile(r"^samples_(.+?)(?:_\d{4}-\d{2}-\d{2}T.*)?$")
_INVALID: Final = "[invalid]"
"""What a filter of lm-eval makes of an answer in which it finds nothing."""
_ATTACHED: Final = "attachment://"
"""Before the name of a long text that inspect-ai keeps beside the sample."""
_KEPT_CHARS: Final = 2000


def read_answers(path: Path) -> tuple[Answer, ...]:
    """The graded answers in a file, or in the sample files of a folder of lm-eval.

    JSON lines: a row has an id (`question`, `id` or `doc_id`) and a grade (`right`, the metrics it
    names itself, `exact_match`, `acc` or `score`; right from 0.5 up). A row graded through several
    filters counts by its first. `.json` and `.eval`: logs of inspect-ai, a row per sample and
    epoch; results of lm-eval, whose samples lie beside them. Raises USE075 for a row without a
    grade, USE077 for one that is no JSON, USE062 for a file that cannot be read, ENV063 for one
    that this Python cannot unpack.
    """
    if path.is_dir():
        return _of_files(path, sorted(path.rglob("samples_*.jsonl")))
    if zipfile.is_zipfile(path):
        return tuple(_archived(path))
    text = _text(path)
    if path.suffix != ".json":
        return tuple(_rows(path, text))
    document = _document(path, text)
    if "samples" in document or "results" not in document:
        return tuple(_logged(path, document))
    # A run of lm-eval: its samples have the same time in their names.
    stamp = path.stem.removeprefix("results_")
    return _of_files(path, sorted(path.parent.glob(f"samples_*_{stamp}.jsonl")))


def named_model(path: Path) -> str | None:
    """The model that a log says it is of; None where it says none."""
    if path.is_dir():
        results = sorted(path.rglob("results_*.json"))
        names = {_named(_document(each, _text(each))) for each in results}
        return names.pop() if len(names) == 1 else None
    if zipfile.is_zipfile(path):
        with _opened(path) as archive:
            return _named(_document(path, _member(path, archive, "header.json")))
    return _named(_document(path, _text(path))) if path.suffix == ".json" else None


def _named(document: dict[str, Any]) -> str | None:
    evaluation = document.get("eval")
    said = evaluation.get("model") if isinstance(evaluation, dict) else document.get("model_name")
    return said if isinstance(said, str) and said else None


def _of_files(path: Path, files: list[Path]) -> tuple[Answer, ...]:
    """The answers of one run's files. A folder of several models' would mix them."""
    folders = sorted({str(file.parent) for file in files})
    if len(folders) != 1:
        raise _unusable(path, ", ".join(folders) or "samples_*.jsonl (--log_samples)")
    return tuple(answer for file in files for answer in _rows(file, _text(file)))


# --- JSON lines ----------------------------------------------------------------------------------


def _rows(path: Path, text: str) -> Iterator[Answer]:
    seen: dict[tuple[str, Any], str] = {}
    match = _STAMP.match(path.stem)
    task = path.stem if match is None else match[1]
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except UNDECODABLE as problem:
            raise HeavyliftError(
                "USE077", {"path": str(path), "line": number, "detail": str(problem)}
            ) from problem
        answer = _row(path, number, row, task)
        chosen = row.get("filter")
        if chosen is None or seen.setdefault((task, answer.question), chosen) == chosen:
            yield answer


def _row(path: Path, number: int, row: dict[str, Any], task: str) -> Answer:
    metrics = row.get("metrics") if isinstance(row.get("metrics"), list) else []
    keys = (*_RIGHT[:1], *map(str, metrics or ()), *_RIGHT[1:])
    name = next((row[key] for key in _ID if key in row), None)
    grade = next((row[key] for key in keys if isinstance(row.get(key), int | float)), None)
    if name is None or grade is None:
        ids, grades = ", ".join(_ID), ", ".join(keys)
        raise HeavyliftError(
            "USE075", {"path": str(path), "line": number, "ids": ids, "grades": grades}
        )
    text = str(row.get("text", _said(row)))
    right = grade >= _HALF
    return Answer(
        question=str(name) if row.get("group") or "question" in row else f"{task}:{name}",
        group=str(row.get("group", task)),
        right=right,
        text=text[:_KEPT_CHARS],
        failure=row.get("failure", None if right else _why_not(row, text)),
    )


def _why_not(row: dict[str, Any], text: str) -> str | None:
    """Why a sample of lm-eval is no answer; None = it is one, and wrong."""
    if "resps" not in row:
        return None
    if not text.strip():
        return "empty"
    return "unparsable" if _first(row.get("filtered_resps")) == _INVALID else None


def _said(row: dict[str, Any]) -> str:
    """What the model said: its first response, or of given choices the likeliest."""
    chosen = _chosen(row)
    said = _first(row.get("resps")) if chosen is None else chosen
    return said if isinstance(said, str) else ""


def _first(nest: Any) -> Any:
    """The first text in lm-eval's nest of lists."""
    while isinstance(nest, list) and nest:
        nest = nest[0]
    return nest


def _chosen(row: dict[str, Any]) -> str | None:
    """The choice with the highest log-likelihood; None where none was offered."""
    asked, told = row.get("arguments"), row.get("filtered_resps")
    if not isinstance(asked, dict) or not isinstance(told, list) or len(asked) != len(told):
        return None
    best: tuple[float, str] | None = None
    for asking, pair in zip(asked.values(), told, strict=True):
        choice = asking.get("arg_1") if isinstance(asking, dict) else None
        if not isinstance(choice, str) or not isinstance(pair, list) or not pair:
            return None
        try:
            likelihood = float(pair[0])
        except (TypeError, ValueError):
            return None
        if best is None or likelihood > best[0]:
            best = (likelihood, choice)
    return None if best is None else best[1].strip()


# --- inspect-ai ----------------------------------------------------------------------------------


def _archived(path: Path) -> Iterator[Answer]:
    with _opened(path) as archive:
        header = _document(path, _member(path, archive, "header.json"))
        task = _task(header, path)
        for name in sorted(archive.namelist()):
            if name.startswith("samples/") and name.endswith(".json"):
                yield _sample(path, _document(path, _member(path, archive, name)), task)


def _opened(path: Path) -> zipfile.ZipFile:
    module = _unpacking()
    try:
        opened: zipfile.ZipFile = module.ZipFile(path)
    except (module.BadZipFile, OSError) as problem:
        raise _unusable(path, str(problem)) from problem
    return opened


def _unpacking() -> ModuleType:
    """Python's own module for archives, or its newer form that also unpacks zstd: logs are packed
    with that.
    """
    if sys.version_info < (3, 14):
        with suppress(ImportError):
            from backports.zstd import zipfile as newer  # noqa: PLC0415 - an extra

            return newer
    return zipfile


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> str:
    try:
        return archive.read(name).decode("utf-8")
    except NotImplementedError as problem:
        raise HeavyliftError(
            "ENV063", {"path": str(path), "package": "backports.zstd"}
        ) from problem
    except (
        ValueError,
        KeyError,
        OSError,
        EOFError,
        zlib.error,
        _unpacking().BadZipFile,
    ) as problem:
        raise _unusable(path, str(problem)) from problem


def _logged(path: Path, document: dict[str, Any]) -> Iterator[Answer]:
    samples = document.get("samples")
    if not isinstance(samples, list):
        raise _unusable(path, "samples")
    task = _task(document, path)
    for sample in samples:
        yield _sample(path, sample, task)


def _task(document: dict[str, Any], path: Path) -> str:
    evaluation = document.get("eval")
    named = evaluation.get("task") if isinstance(evaluation, dict) else None
    return str(named or path.stem)


def _sample(path: Path, sample: Any, task: str) -> Answer:
    scores = sample.get("scores") if isinstance(sample, dict) else None
    first = next(iter(scores.values()), None) if isinstance(scores, dict) else None
    value = first.get("value") if isinstance(first, dict) else None
    grade = _LETTERS.get(value) if isinstance(value, str) else value
    failed = isinstance(sample, dict) and bool(sample.get("error"))
    if not isinstance(sample, dict) or (not isinstance(grade, int | float) and not failed):
        ids, grades = "id", "scores.*.value"
        where = sample.get("id", 0) if isinstance(sample, dict) else 0
        raise HeavyliftError(
            "USE075", {"path": str(path), "line": str(where), "ids": ids, "grades": grades}
        )
    output = sample.get("output")
    said = _attached(sample, output.get("completion", "") if isinstance(output, dict) else "")
    return Answer(
        question=f"{task}:{sample.get('id')}",
        group=task,
        right=isinstance(grade, int | float) and grade >= _HALF,
        text=said[:_KEPT_CHARS],
        failure=_failure(sample, output, failed=failed),
    )


def _attached(sample: dict[str, Any], said: Any) -> str:
    """A text, from beside the sample where it is only named in it."""
    attachments = sample.get("attachments")
    if isinstance(said, str) and said.startswith(_ATTACHED) and isinstance(attachments, dict):
        said = attachments.get(said.removeprefix(_ATTACHED), "")
    return said if isinstance(said, str) else ""


def _failure(sample: dict[str, Any], output: Any, *, failed: bool) -> str | None:
    """Why there was nothing to grade, as far as the log says it."""
    if failed:
        return "error"
    choices = output.get("choices") if isinstance(output, dict) else None
    stop = choices[0].get("stop_reason") if choices and isinstance(choices[0], dict) else None
    if stop == "max_tokens":
        return "truncated"
    limit = sample.get("limit")
    return "truncated" if isinstance(limit, dict) else None


# --- files ---------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise _unusable(path, str(problem)) from problem


def _document(path: Path, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except UNDECODABLE as problem:
        raise HeavyliftError(
            "USE077", {"path": str(path), "line": 1, "detail": str(problem)}
        ) from problem


def _unusable(path: Path, detail: str) -> HeavyliftError:
    return HeavyliftError("USE062", {"path": str(path), "detail": detail})
