"""Graded answers from logs of other tools."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from heavylift.errors import Exit, HeavyliftError
from heavylift.quality import imports
from heavylift.quality.imports import named_model, read_answers

# Rows as lm-eval 0.4.13 wrote them to samples_<task>_<time>.jsonl in a run of ours; of its hashes
# and of the prompts the beginning.
LM_EVAL: dict[str, Any] = {
    "doc_id": 3,
    "doc": {"q": "What is 2 + 3?", "a": "5"},
    "target": "5",
    "arguments": {
        "gen_args_0": {"arg_0": "Q: What is 2 + 3?", "arg_1": {"until": ["\n"], "max_gen_toks": 16}}
    },
    "resps": [["It is 5."]],
    "filtered_resps": ["5"],
    "filter": "strict-match",
    "metrics": ["exact_match"],
    "doc_hash": "e6c4e2e4",
    "prompt_hash": "d01c9778",
    "target_hash": "ef2d127d",
    "exact_match": 1.0,
}
NOTHING_FOUND: dict[str, Any] = {
    **LM_EVAL,
    "doc_id": 5,
    "resps": [["lol"]],
    "filtered_resps": ["[invalid]"],
    "exact_match": 0.0,
}
LM_EVAL_CHOICES: dict[str, Any] = {
    "doc_id": 0,
    "doc": {"q": "What is 4 + 4?", "a": "8"},
    "target": "1",
    "arguments": {
        "gen_args_0": {"arg_0": "Q: What is 4 + 4?", "arg_1": " 5"},
        "gen_args_1": {"arg_0": "Q: What is 4 + 4?", "arg_1": " 8"},
        "gen_args_2": {"arg_0": "Q: What is 4 + 4?", "arg_1": " 15"},
    },
    "resps": [[["-0.54", "False"]], [["-0.81", "False"]], [["-0.53", "False"]]],
    "filtered_resps": [["-0.54", "False"], ["-0.81", "False"], ["-0.53", "False"]],
    "filter": "none",
    "metrics": ["acc", "acc_norm"],
    "acc": 0.0,
    "acc_norm": 0.0,
}
RESULTS: dict[str, Any] = {
    "results": {"gsm8k": {"alias": "gsm8k", "exact_match,strict-match": 0.5}},
    "configs": {"gsm8k": {"task": "gsm8k"}},
    "model_name": "some-model",
}
STAMP = "2026-11-30T15-08-17.082845"


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
    assert first.text == "It is 5."
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


def test_results_of_lm_eval_lead_to_their_samples(tmp_path: Path) -> None:
    """Those of the same run, with the model's name; without samples there is nothing to pair."""
    results = tmp_path / f"results_{STAMP}.json"
    results.write_text(json.dumps(RESULTS))
    with pytest.raises(HeavyliftError, match="log_samples"):
        read_answers(results)
    (tmp_path / f"samples_gsm8k_{STAMP}.jsonl").write_text(json.dumps(LM_EVAL))
    (tmp_path / "samples_gsm8k_2026-12-01T10-00-00.1.jsonl").write_text(json.dumps(NOTHING_FOUND))
    assert [answer.question for answer in read_answers(results)] == ["gsm8k:3"]
    assert named_model(results) == named_model(tmp_path) == "some-model"


def test_runs_of_several_models_are_not_mixed(tmp_path: Path) -> None:
    """lm-eval gives each model a folder: the folder above holds answers of both."""
    for model in ("one", "other"):
        folder = tmp_path / model
        folder.mkdir()
        (folder / f"samples_gsm8k_{STAMP}.jsonl").write_text(json.dumps(LM_EVAL))
    with pytest.raises(HeavyliftError, match="USE062") as caught:
        read_answers(tmp_path)
    assert str(tmp_path / "other") in str(caught.value.params["detail"])
    assert len(read_answers(tmp_path / "one")) == 1


@pytest.mark.parametrize(
    ("row", "text", "failure"),
    [
        (NOTHING_FOUND, "lol", "unparsable"),
        ({**NOTHING_FOUND, "resps": [[""]]}, "", "empty"),
        ({**NOTHING_FOUND, "filtered_resps": ["7"]}, "lol", None),
        (LM_EVAL_CHOICES, "15", None),
        ({**LM_EVAL_CHOICES, "filtered_resps": [["x"], ["y"], ["z"]]}, "-0.54", None),
        ({**LM_EVAL_CHOICES, "arguments": {"gen_args_0": "?"}}, "-0.54", None),
        ({**LM_EVAL_CHOICES, "filtered_resps": [1, 2, 3]}, "-0.54", None),
    ],
)
def test_a_wrong_sample_of_lm_eval_says_why(
    tmp_path: Path, row: dict[str, Any], text: str, failure: str | None
) -> None:
    """Nothing found by the filter, nothing said; of choices the likeliest is what was said."""
    path = tmp_path / f"samples_gsm8k_{STAMP}.jsonl"
    path.write_text(json.dumps(row))
    (answer,) = read_answers(path)
    assert (answer.right, answer.text, answer.failure) == (False, text, failure)


def packed(path: Path, method: str) -> None:
    """An archive as inspect-ai writes it; 0.3.285 packs with zstd."""
    module = imports._unpacking()
    with module.ZipFile(path, "w", getattr(module, method)) as archive:
        archive.writestr("_journal/start.json", json.dumps(HEADER))
        for each in SAMPLES:
            archive.writestr(f"samples/{each['id']}_epoch_1.json", json.dumps(each))
        archive.writestr("summaries.json", "[]")
        archive.writestr("header.json", json.dumps(HEADER))


@pytest.mark.parametrize("form", ["json", "ZIP_DEFLATED", "ZIP_ZSTANDARD"])
def test_logs_of_inspect_are_read(tmp_path: Path, form: str) -> None:
    """Letters, numbers and yes or no; truncated and broken samples apart from wrong ones."""
    path = tmp_path / ("log.json" if form == "json" else "log.eval")
    if form == "json":
        path.write_text(json.dumps({**HEADER, "samples": SAMPLES}))
    else:
        packed(path, form)
    assert named_model(path) == "m"
    found = {answer.question: answer for answer in read_answers(path)}
    assert [found[f"arithmetic:{n}"].right for n in range(1, 7)] == [
        True, False, True, True, False, False,
    ]  # fmt: skip
    assert found["arithmetic:5"].failure == "truncated"
    assert found["arithmetic:6"].failure == "error"
    assert found["arithmetic:1"].text == "so it is"


def test_a_log_that_cannot_be_unpacked_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra that unpacks it, or the other form of the log."""
    path = tmp_path / "log.eval"
    packed(path, "ZIP_ZSTANDARD")
    monkeypatch.setattr(imports, "_unpacking", lambda: zipfile)
    if sys.version_info < (3, 14):
        with pytest.raises(HeavyliftError, match="ENV063") as caught:
            read_answers(path)
        assert caught.value.exit_status is Exit.ENVIRONMENT


def test_a_long_text_of_inspect_is_taken_from_beside_its_sample(tmp_path: Path) -> None:
    """As its logs keep what would stand in them several times."""
    path = tmp_path / "log.json"
    kept = sample(
        1,
        "C",
        output={"completion": "attachment://ab", "choices": []},
        attachments={"ab": "a long text"},
    )
    path.write_text(json.dumps({**HEADER, "samples": [kept]}))
    (answer,) = read_answers(path)
    assert answer.text == "a long text"


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
    path.write_bytes(path.read_bytes()[:-30] + bytes(8) + path.read_bytes()[-22:])
    with pytest.raises(HeavyliftError, match="USE062"):
        read_answers(path)
