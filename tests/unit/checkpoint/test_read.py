"""Reading checkpoints from disk: what belongs to one, and every way it can be broken."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heavylift.checkpoint.defects import CheckpointError
from heavylift.checkpoint.read import (
    INDEX_LIMIT_BYTES,
    KINDS_LIMIT,
    Checkpoint,
    read_checkpoint,
)
from heavylift.cli.text import text
from heavylift.errors import HeavyliftError

Craft = Callable[..., Path]
Entry = Callable[..., dict[str, Any]]

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-1.safetensors", "model-2.safetensors"


def write_index(folder: Path, weight_map: dict[str, str], total: int | None = None) -> None:
    """An index, with a total where one is given."""
    metadata = {} if total is None else {"total_size": total}
    (folder / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}))


def problems(read: Checkpoint) -> list[tuple[str, str, str]]:
    """File, problem and tensor of every defect; each has a text that can be made of it."""
    for defect in read.defects:
        assert text(f"defect.{defect.problem}", detail=defect.detail)
    return [(defect.file, defect.problem, defect.tensor) for defect in read.defects]


@pytest.fixture
def two_shards(tmp_path: Path, craft: Craft, entry: Entry) -> Path:
    """A sound checkpoint of two shards with an index."""
    craft(FIRST, {"x.layers.0.w": entry(), "x.layers.1.w": entry(12)})
    craft(SECOND, {"norm": entry()})
    write_index(tmp_path, {"x.layers.0.w": FIRST, "x.layers.1.w": FIRST, "norm": SECOND}, total=36)
    return tmp_path


def test_a_sound_folder_has_no_defects(two_shards: Path) -> None:
    """Tensors, bytes, files and groups of two shards come out, and nothing is wrong."""
    read = read_checkpoint(two_shards)
    read.require_sound()
    assert (read.tensors, read.tensor_bytes, read.index_total_bytes) == (3, 36, 36)
    assert [(file.name, file.tensors, file.tensor_bytes) for file in read.files] == [
        (FIRST, 2, 24),
        (SECOND, 1, 12),
    ]
    assert read.file_bytes == sum(path.stat().st_size for path in two_shards.glob("*.safetensors"))
    assert {each.pattern for each in read.groups} == {"x.layers.{l}.w", "norm"}


@pytest.mark.parametrize("name", [".", INDEX])
def test_a_folder_and_its_index_are_read_alike(two_shards: Path, name: str) -> None:
    """Naming the index reads the same checkpoint as naming the folder."""
    assert read_checkpoint(two_shards / name).groups == read_checkpoint(two_shards).groups


def test_a_single_file_is_a_checkpoint(craft: Craft, entry: Entry) -> None:
    """One file without an index is read on its own."""
    read = read_checkpoint(craft("model.safetensors", {"x": entry()}))
    assert (problems(read), read.tensors, read.index_total_bytes) == ([], 1, None)


def test_files_the_index_does_not_name_are_ignored_and_said_so(
    two_shards: Path, craft: Craft, entry: Entry
) -> None:
    """A second copy of the weights in the folder does not count twice."""
    craft("consolidated.safetensors", {"x": entry()})
    read = read_checkpoint(two_shards)
    assert (read.ignored, read.tensors, problems(read)) == (("consolidated.safetensors",), 3, [])


def test_a_total_that_is_not_stated_is_not_missed(two_shards: Path) -> None:
    """An index without metadata is sound."""
    weight_map = {"x.layers.0.w": FIRST, "x.layers.1.w": FIRST, "norm": SECOND}
    (two_shards / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert problems(read_checkpoint(two_shards)) == []


def test_the_garbage_collector_runs_again_afterwards(two_shards: Path, tmp_path: Path) -> None:
    """Reading pauses it, also when it fails, and leaves it as it was."""
    read_checkpoint(two_shards)
    assert gc.isenabled()
    with pytest.raises(HeavyliftError):
        read_checkpoint(tmp_path / "nowhere")
    assert gc.isenabled()
    gc.disable()
    try:
        read_checkpoint(two_shards)
        assert not gc.isenabled()
    finally:
        gc.enable()


# --- refusals ------------------------------------------------------------------------------------


def code_of(path: Path) -> str:
    """The code with which a path is refused; its text can be made."""
    with pytest.raises(HeavyliftError) as caught:
        read_checkpoint(path)
    assert text(f"error.{caught.value.code}", **caught.value.params)
    return caught.value.code


def test_what_holds_no_safetensors_is_refused(tmp_path: Path) -> None:
    """No such path, an empty folder, another kind of file, and weights in a pickle, which are never
    opened, each have their code.
    """
    assert code_of(tmp_path / "nowhere") == "CKPT021"
    assert code_of(tmp_path) == "CKPT022"
    (tmp_path / "weights.bin").write_bytes(b"x")
    assert code_of(tmp_path) == "CKPT034"
    assert code_of(tmp_path / "weights.bin") == "CKPT022"


def test_two_indexes_are_a_question_to_the_user(two_shards: Path) -> None:
    """A folder with two indexes is refused; naming one of them is an answer."""
    (two_shards / "other.safetensors.index.json").write_text("{}")
    assert code_of(two_shards) == "CKPT023"
    assert read_checkpoint(two_shards / INDEX).tensors == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"weight_map": ["x"]}',
        b'{"weight_map": {"x": 3}}',
        b'{"weight_map": {"x": NaN}}',
        b'{"weight_map": ' + b'{"x":' * 100_000,
    ],
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    """Broken text, wrong types and endless nesting end in the same code."""
    (tmp_path / INDEX).write_bytes(content)
    assert code_of(tmp_path) == "CKPT024"


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        ("36", []),
        ("36.0", []),
        ("35", ["total_differs"]),
        ("-1", ["bad_total"]),
        ('"36"', ["bad_total"]),
        ("3.5", ["bad_total"]),
        ("null", []),
    ],
)
def test_an_odd_total_is_a_remark(two_shards: Path, total: str, expected: list[str]) -> None:
    """No engine reads the index's own sum: a wrong one is named and stops nothing."""
    path = two_shards / INDEX
    path.write_text(path.read_text().replace('"total_size": 36', f'"total_size": {total}'))
    read = read_checkpoint(two_shards)
    assert [problem for _, problem, _ in problems(read)] == expected
    read.require_sound()


def test_metadata_that_is_no_table_is_no_total(two_shards: Path) -> None:
    """An index may hold anything there."""
    path = two_shards / INDEX
    path.write_text(path.read_text().replace('{"total_size": 36}', "[]"))
    assert read_checkpoint(two_shards).index_total_bytes is None


def test_an_endless_index_is_refused_unread(tmp_path: Path) -> None:
    """A sparse index of more than the limit is not loaded into memory."""
    with (tmp_path / INDEX).open("wb") as file:
        file.truncate(INDEX_LIMIT_BYTES + 1)
    assert code_of(tmp_path) == "CKPT024"


def test_more_kinds_than_any_model_has_are_refused(tmp_path: Path, craft: Craft) -> None:
    """A quarter of a million unlike tensors would fill memory with groups of one."""
    row = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    craft("a.safetensors", dict.fromkeys(map(str, range(KINDS_LIMIT + 1)), row))
    assert code_of(tmp_path) == "CKPT028"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    """The system's reason is handed on."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o000)
    assert code_of(locked) == "CKPT025"


# --- defects -------------------------------------------------------------------------------------


def test_all_defects_are_collected_not_only_the_first(
    tmp_path: Path, craft: Craft, entry: Entry
) -> None:
    """A missing shard, a pointer file, a truncated shard and a wrong sum are reported at once."""
    craft("cut.safetensors", {"x": entry()}, data_bytes=5)
    (tmp_path / "pointer.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    write_index(
        tmp_path,
        {"x": "cut.safetensors", "y": "pointer.safetensors", "z": "gone.safetensors"},
    )
    read = read_checkpoint(tmp_path)
    assert problems(read) == [
        ("cut.safetensors", "file_truncated", ""),
        ("gone.safetensors", "file_missing", ""),
        ("pointer.safetensors", "lfs_pointer", ""),
    ]
    with pytest.raises(CheckpointError) as caught:
        read.require_sound()
    assert caught.value.code == "CKPT020"
    assert caught.value.params["count"] == 3
    assert caught.value.defects == read.defects


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "file_too_short"),
        (b"1234567", "file_too_short"),
        ((2**63).to_bytes(8, "little") + b"{}", "header_too_long"),
        ((1000).to_bytes(8, "little") + b"{}", "header_beyond_file"),
        ((4).to_bytes(8, "little") + b"nope", "header_not_json"),
    ],
)
def test_a_file_without_a_readable_header_is_named(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    """Each way of having no header has its own name."""
    (tmp_path / "a.safetensors").write_bytes(content)
    assert problems(read_checkpoint(tmp_path)) == [("a.safetensors", problem, "")]


def test_a_file_that_goes_on_after_its_data_is_a_defect(craft: Craft, entry: Entry) -> None:
    """Trailing bytes: the engine's own reader refuses them too."""
    path = craft("a.safetensors", {"x": entry()}, data_bytes=13)
    assert problems(read_checkpoint(path)) == [("a.safetensors", "trailing_bytes", "")]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"shape": [2, 2]}, "wrong_length"),
        ({"dtype": "F32"}, "wrong_length"),
        ({"data_offsets": [12, 24]}, "offsets_gap"),
        ({"dtype": "X9"}, "bad_dtype"),
    ],
)
def test_defects_of_a_header_come_with_file_and_tensor(
    craft: Craft, entry: Entry, changes: dict[str, Any], problem: str
) -> None:
    """What the decoder finds reaches the report."""
    path = craft("a.safetensors", {"x": entry(0, **changes)})
    assert problems(read_checkpoint(path)) == [("a.safetensors", problem, "x")]


def test_the_index_must_agree_with_the_headers(two_shards: Path) -> None:
    """A tensor in another shard than promised, one not listed, and one that is nowhere."""
    write_index(two_shards, {"x.layers.0.w": SECOND, "norm": SECOND, "ghost": FIRST})
    assert problems(read_checkpoint(two_shards)) == [
        (FIRST, "tensor_elsewhere", "x.layers.0.w"),
        (FIRST, "tensor_not_listed", "x.layers.1.w"),
        (FIRST, "tensor_missing", "ghost"),
        (SECOND, "tensor_missing", "x.layers.0.w"),
    ]


def test_the_index_total_must_be_the_sum(two_shards: Path) -> None:
    """Both sums are shown."""
    weight_map = {"x.layers.0.w": FIRST, "x.layers.1.w": FIRST, "norm": SECOND}
    write_index(two_shards, weight_map, total=40)
    (defect,) = read_checkpoint(two_shards).defects
    assert (defect.problem, defect.detail) == ("total_differs", "40 ≠ 36")


def test_a_tensor_in_two_files_is_a_defect(tmp_path: Path, craft: Craft, entry: Entry) -> None:
    """Without an index the files themselves are compared."""
    craft(FIRST, {"x": entry()})
    craft(SECOND, {"x": entry()})
    assert problems(read_checkpoint(tmp_path)) == [(SECOND, "tensor_repeated", "x")]


# --- ways out of the folder ----------------------------------------------------------------------


def test_a_link_out_of_the_folder_is_not_followed(
    tmp_path: Path, craft: Craft, entry: Entry
) -> None:
    """The link and its target are named; the target is not opened."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a.safetensors").symlink_to(craft("secret.safetensors", {"x": entry()}))
    read = read_checkpoint(folder)
    assert problems(read) == [("a.safetensors", "link_outside", "")]
    assert read.tensors == 0


def test_a_loop_of_links_is_not_followed(tmp_path: Path) -> None:
    """Two links that name each other end as a defect."""
    (tmp_path / "a.safetensors").symlink_to(tmp_path / "b.safetensors")
    (tmp_path / "b.safetensors").symlink_to(tmp_path / "a.safetensors")
    found = {problem for _, problem, _ in problems(read_checkpoint(tmp_path))}
    assert found <= {"link_outside", "file_unreadable"}
    assert found


def test_links_of_a_hub_cache_are_followed(tmp_path: Path, craft: Craft, entry: Entry) -> None:
    """A snapshot folder links into the blobs beside it: that is how downloads are stored."""
    blobs, snapshot = tmp_path / "models--a--b/blobs", tmp_path / "models--a--b/snapshots/rev"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    craft("file.safetensors", {"x": entry()}).rename(blobs / "abc123")
    (snapshot / "a.safetensors").symlink_to("../../blobs/abc123")
    read = read_checkpoint(snapshot)
    assert (problems(read), read.tensors) == ([], 1)


def test_a_link_inside_the_folder_is_followed(tmp_path: Path, craft: Craft, entry: Entry) -> None:
    """A link that stays at home is a file like any other."""
    (tmp_path / "data").mkdir()
    craft("file.safetensors", {"x": entry()}).rename(tmp_path / "data/file")
    (tmp_path / "a.safetensors").symlink_to("data/file")
    assert problems(read_checkpoint(tmp_path)) == []


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/b", "..", ".", "", "a\0b"]
)
def test_a_path_in_the_index_is_not_opened(tmp_path: Path, name: str) -> None:
    """Shards are files of the folder; anything else the index names is reported."""
    write_index(tmp_path, {"x": name})
    assert problems(read_checkpoint(tmp_path)) == [(INDEX, "path_outside", "")]


def test_an_index_that_is_a_link_out_of_the_folder_is_refused(
    two_shards: Path, tmp_path: Path
) -> None:
    """An index is held to the same rule as a shard."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / INDEX).symlink_to(two_shards / INDEX)
    assert code_of(folder) == "CKPT020"


def test_a_named_pipe_does_not_make_the_reader_wait(tmp_path: Path) -> None:
    """Only regular files are read."""
    os.mkfifo(tmp_path / "a.safetensors")
    assert problems(read_checkpoint(tmp_path)) == [("a.safetensors", "not_a_file", "")]


def test_a_folder_named_like_a_shard_is_a_defect(tmp_path: Path) -> None:
    """A directory cannot be a shard."""
    (tmp_path / "a.safetensors").mkdir()
    assert problems(read_checkpoint(tmp_path)) == [("a.safetensors", "not_a_file", "")]
