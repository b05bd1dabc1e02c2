"""Batches in shards: each file a batch of its own, published when it adds up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from heavylift.batch import shards
from heavylift.batch.inputs import Format
from heavylift.batch.intake import Source
from heavylift.batch.policy import Patience, RetryRules
from heavylift.batch.records import Ended, Settings, Shape
from heavylift.errors import HeavyliftError

Engine = Callable[[str], Any]


def write_shards(folder: Path, count: int = 3, rows: int = 4) -> Path:
    """A folder of JSON lines without names of their own."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        lines = (json.dumps({"prompt": f"say {number} {row}"}) for row in range(rows))
        (folder / f"part{number}.jsonl").write_text("\n".join(lines))
    return folder


def settings(url: str = "http://127.0.0.1:9", **given: Any) -> Settings:
    """Settings with waits short enough for a test."""
    given.setdefault("patience", Patience(first_s=1.0, later_s=1.0))
    return Settings(endpoints=(url,), retry=RetryRules(base_s=0.01), **given)


def source(path: Path | str, **given: Any) -> Source:
    """The input as rows of one model."""
    return Source(path=str(path), shape=Shape(model="scripted"), **given)


def run_all(asked: Source, url: str, out: Path | str, work: Path, **given: Any) -> dict[str, Ended]:
    """Every shard that is left, one after another, as workers would."""
    manifest = shards.survey(asked, settings(url, **given))
    tasks = shards.tasks(manifest, str(out), str(work), workers=1, needs_key=False)
    return {task.name: shards.run_shard(task, None).ended for task in tasks}


def test_every_file_becomes_a_published_batch_and_the_whole_adds_up(
    tmp_path: Path, engine: Engine
) -> None:
    """After all shards ran, the sum of the published lines is the input, each name once."""
    with engine("healthy") as server:
        run_all(source(write_shards(tmp_path / "in")), server.url, tmp_path / "out", tmp_path / "w")
    audit = shards.audited(str(tmp_path / "out"))
    assert (audit.input, audit.ok, audit.duplicates, audit.sound) == (12, 12, 0, True)
    lines = (tmp_path / "out/shards/part1.jsonl/output.jsonl").read_text().splitlines()
    assert [json.loads(line)["custom_id"] for line in lines].count("part1.jsonl:row-1") == 1


def test_a_published_shard_is_not_run_again(tmp_path: Path, engine: Engine) -> None:
    """A second run of the same input has no tasks; an added file is the only one."""
    folder = write_shards(tmp_path / "in")
    with engine("healthy") as server:
        run_all(source(folder), server.url, tmp_path / "out", tmp_path / "w")
        assert not run_all(source(folder), server.url, tmp_path / "out", tmp_path / "w")
        write_shards(folder, count=1, rows=2).joinpath("part0.jsonl").rename(folder / "new.jsonl")
        (folder / "part0.jsonl").write_text('{"prompt": "changed"}')
        again = source(folder, replace=True)
        ran = run_all(again, server.url, tmp_path / "out", tmp_path / "w")
    assert set(ran) == {"new.jsonl", "part0.jsonl"}
    assert shards.audited(str(tmp_path / "out")).ok == 1 + 4 + 4 + 2


def test_a_changed_model_is_new_work_for_every_shard(tmp_path: Path, engine: Engine) -> None:
    """The shape of the rows is part of a shard's mark."""
    folder = write_shards(tmp_path / "in", count=2)
    with engine("healthy") as server:
        run_all(source(folder), server.url, tmp_path / "out", tmp_path / "w")
        other = replace(source(folder, replace=True), shape=Shape(model="other"))
        assert len(run_all(other, server.url, tmp_path / "out", tmp_path / "w")) == 2


def test_a_shard_that_does_not_add_up_is_not_published(tmp_path: Path) -> None:
    """With nobody answering nothing is published, and the audit says how many shards are left."""
    folder = write_shards(tmp_path / "in", count=2)
    run_all(source(folder), "http://127.0.0.1:9", tmp_path / "out", tmp_path / "w")
    audit = shards.audited(str(tmp_path / "out"))
    assert (audit.input, audit.shards_left, audit.sound) == (0, 2, False)
    assert shards.status(str(tmp_path / "out")).shards_left == 2


def test_a_lost_line_and_a_name_used_by_two_shards_are_found(
    tmp_path: Path, engine: Engine
) -> None:
    """The audit trusts no shard: it reads the lines, and knows the names of all shards."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        lines = (json.dumps({"custom_id": f"r{row}", "prompt": "x"}) for row in range(number + 2))
        (folder / f"part{number}.jsonl").write_text("\n".join(lines))
    asked = replace(source(folder), shape=Shape(model="scripted", id_column="custom_id"))
    asked = replace(asked, format=Format.JSONL)
    with engine("healthy") as server:
        run_all(asked, server.url, tmp_path / "out", tmp_path / "w")
    audit = shards.audited(str(tmp_path / "out"))
    assert (audit.duplicates, audit.sound) == (2, False)
    path = tmp_path / "out/shards/part1.jsonl/output.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert shards.audited(str(tmp_path / "out")).missing == audit.missing + 1


def test_input_and_output_may_lie_in_an_object_store(tmp_path: Path, engine: Engine) -> None:
    """Shards are read from and published to an address; journals stay on the local disk."""
    folder = write_shards(tmp_path / "in", count=2)
    store = fsspec.filesystem("memory")
    store.put(str(folder), "/shards-in", recursive=True)
    with engine("healthy") as server:
        ran = run_all(source("memory://shards-in"), server.url, "memory://out", tmp_path / "w")
    assert set(ran) == {"part0.jsonl", "part1.jsonl"}
    assert shards.audited("memory://out").sound
    assert store.exists("/out/shards/part0.jsonl/audit.json")


def test_limits_are_shared_out_among_the_workers(tmp_path: Path) -> None:
    """Four workers have a quarter of the concurrency and of the rate caps each."""
    given = settings(concurrency=64, requests_per_minute=100.0)
    manifest = shards.survey(source(write_shards(tmp_path / "in")), given)
    task = shards.tasks(manifest, str(tmp_path / "out"), "w", workers=4, needs_key=False)[0]
    assert (task.settings.concurrency, task.settings.requests_per_minute) == (16, 25.0)


def test_a_key_does_not_travel(tmp_path: Path) -> None:
    """A worker without the key refuses the shard and names the variable; no task holds a key."""
    manifest = shards.survey(source(write_shards(tmp_path / "in")), settings())
    task = shards.tasks(manifest, str(tmp_path / "out"), "w", workers=1, needs_key=True)[0]
    with pytest.raises(HeavyliftError) as caught:
        shards.run_shard(task, None)
    assert caught.value.code == "BAT019"


def test_answers_of_shards_that_are_gone_are_kept_unless_told_otherwise(
    tmp_path: Path, engine: Engine
) -> None:
    """A file that vanished from the input, whose answers are published, stops the run."""
    folder = write_shards(tmp_path / "in", count=2)
    with engine("healthy") as server:
        run_all(source(folder), server.url, tmp_path / "out", tmp_path / "w")
        (folder / "part0.jsonl").unlink()
        with pytest.raises(HeavyliftError) as caught:
            run_all(source(folder), server.url, tmp_path / "out", tmp_path / "w")
    assert caught.value.code == "BAT018"


@pytest.mark.parametrize(("path", "code"), [("-", "USE032"), ("empty", "BAT008")])
def test_what_has_no_shards_is_refused(tmp_path: Path, path: str, code: str) -> None:
    """Standard input, and a folder without files of rows."""
    (tmp_path / "empty").mkdir()
    asked = source("-" if path == "-" else tmp_path / path)
    with pytest.raises(HeavyliftError) as caught:
        shards.survey(asked, settings())
    assert caught.value.code == code
