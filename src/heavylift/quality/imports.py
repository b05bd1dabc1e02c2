"""Graded answers of elsewhere: JSON lines of ours, samples of lm-eval, logs of inspect-ai."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
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
_KEPT_CHARS: Final = 2000


def read_answers(path: Path) -> tuple[Answer, ...]:
    """The graded answers in a file, or in the sample files of a folder of lm-eval.

    JSON lines: a row has an id (`question`, `id` or `doc_id`) and a grade (`right`, the metrics it
    names itself, `exact_match`, `acc` or `score`; right from 0.5 up). A row graded through several
    filters counts by its first. `.json` and `.eval`: logs of inspect-ai, a row per sample and
    epoch. Raises USE075 for a row without a grade, USE077 for one that is no JSON, USE062 for a
    file that cannot be read.
    """
    if path.is_dir():
        files = sorted(path.rglob("samples_*.jsonl"))
        if not files:
            raise _unusable(path, "samples_*.jsonl")
        return tuple(answer for file in files for answer in read_answers(file))
    if zipfile.is_zipfile(path):
        return tuple(_archived(path))
    text = _text(path)
    if path.suffix == ".json":
        return tuple(_logged(path, _document(path, text)))
    return tuple(_rows(path, text))


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
    return Answer(
        question=str(name) if row.get("group") or "question" in row else f"{task}:{name}",
        group=str(row.get("group", task)),
        right=grade >= _HALF,
        text=str(row.get("text", _said(row.get("resps"))))[:_KEPT_CHARS],
        failure=row.get("failure"),
    )


def _said(resps: Any) -> str:
    """The first response in lm-eval's nest of lists."""
    while isinstance(resps, list) and resps:
        resps = resps[0]
    return resps if isinstance(resps, str) else ""


# --- inspect-ai ----------------------------------------------------------------------------------


def _archived(path: Path) -> Iterator[Answer]:
    try:
        with zipfile.ZipFile(path) as archive:
            header = _document(path, archive.read("header.json").decode("utf-8"))
            task = _task(header, path)
            for name in sorted(archive.namelist()):
                if name.startswith("samples/") and name.endswith(".json"):
                    sample = _document(path, archive.read(name).decode("utf-8"))
                    yield _sample(path, sample, task)
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError, OSError) as problem:
        raise _unusable(path, str(problem)) from problem
    except NotImplementedError as problem:
        # Newer logs are packed in a way that this Python cannot unpack.
        detail = f"{problem}; inspect log convert --to json"
        raise _unusable(path, detail) from problem


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
    said = output.get("completion", "") if isinstance(output, dict) else ""
    return Answer(
        question=f"{task}:{sample.get('id')}",
        group=task,
        right=isinstance(grade, int | float) and grade >= _HALF,
        text=str(said)[:_KEPT_CHARS],
        failure=_failure(sample, output, failed=failed),
    )


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
