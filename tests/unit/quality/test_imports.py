"""Graded answers from logs of other tools."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from heavylift.errors import HeavyliftError
from heavylift.quality.imports import read_answers

# A row as lm-eval writes it to samples_<task>_<time>.jsonl, shortened.
LM_EVAL: dict[str, Any] = {
    "doc_id": 3,
    "doc": {"question": "1 + 1?"},
    "target": "2",
    "resps": [["It is 2."]],
    "filtered_resps": ["2"],
    "filter": "strict-match",
    "metrics": ["exact_match"],
    "exact_match": 1.0,
}


def sample(name: object, value: object, **more: object) -> dict[str, Any]:
    """A sample as inspect-ai writes it, shortened."""
    return {
        "id": name,
        "epoch": 1,
        "output": {"completion": "so it is", "choices": [{"stop_reason": "stop"}]},
        "scores": {"match": {"value": value, "answer": "x"}},
        **more,
    }


SAMPLES = [
    sample(1, "C"),
    sample(2, "I"),
    sample(3, 0.75),
    sample(4, True),
    sample(5, "I", output={"completion": "", "choices": [{"stop_reason": "max_tokens"}]}),
    sample(6, None, error={"message": "broken"}),
]
HEADER = {"version": 2, "eval": {"task": "arithmetic", "model": "m"}}


def test_samples_of_lm_eval_are_read_once_per_document(tmp_path: Path) -> None:
    """Its own metric names count; of several filters the first; the task is in the file's name."""
    path = tmp_path / "samples_gsm8k_2026-11-30T10-00-00.123456.jsonl"
    rows = [
        LM_EVAL,
        {**LM_EVAL, "filter": "flexible-extract", "exact_match": 0.0},
        {**LM_EVAL, "doc_id": 4, "metrics": ["acc_norm"], "acc_norm": 0.0, "exact_match": "n/a"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    first, second = read_answers(path)
    assert (first.question, first.group, first.right) == ("gsm8k:3", "gsm8k", True)
    assert first.text == "It is 2."
    assert (second.question, second.right) == ("gsm8k:4", False)


def test_a_folder_of_lm_eval_is_all_its_tasks(tmp_path: Path) -> None:
    """Equal document numbers of two tasks are two questions."""
    for task in ("arc", "gsm8k"):
        (tmp_path / f"samples_{task}_2026-11-30T10-00-00.1.jsonl").write_text(json.dumps(LM_EVAL))
    assert {answer.question for answer in read_answers(tmp_path)} == {"arc:3", "gsm8k:3"}
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(HeavyliftError, match="USE062"):
        read_answers(empty)


@pytest.mark.parametrize("form", ["json", "eval"])
def test_logs_of_inspect_are_read(tmp_path: Path, form: str) -> None:
    """Letters, numbers and yes or no; truncated and broken samples apart from wrong ones."""
    path = tmp_path / f"log.{form}"
    if form == "json":
        path.write_text(json.dumps({**HEADER, "samples": SAMPLES}))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", json.dumps(HEADER))
            for each in SAMPLES:
                archive.writestr(f"samples/{each['id']}_epoch_1.json", json.dumps(each))
    found = {answer.question: answer for answer in read_answers(path)}
    assert [found[f"arithmetic:{n}"].right for n in range(1, 7)] == [
        True, False, True, True, False, False,
    ]  # fmt: skip
    assert found["arithmetic:5"].failure == "truncated"
    assert found["arithmetic:6"].failure == "error"
    assert found["arithmetic:1"].text == "so it is"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("log.json", '{"eval": {}}', "USE062"),
        ("log.json", "[1]", "USE077"),
        ("log.json", '{"samples": [{"id": 1, "scores": {}}]}', "USE075"),
        ("log.json", '{"samples": [3]}', "USE075"),
        ("rows.jsonl", '{"doc_id": 1, "metrics": ["bleu"], "bleu": "n/a"}', "USE075"),
    ],
)
def test_a_log_without_grades_is_an_error(
    tmp_path: Path, name: str, content: str, code: str
) -> None:
    """Not a log with everything wrong."""
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(HeavyliftError, match=code):
        read_answers(path)


def test_an_archive_that_is_no_log_is_an_error(tmp_path: Path) -> None:
    """A zip file of something else."""
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(HeavyliftError, match="USE062"):
        read_answers(path)
