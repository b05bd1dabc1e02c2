"""The sparse checkpoint: true to the published one, and nearly free of disk."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from heavylift.checkpoint.grouping import match
from heavylift.checkpoint.inventory import from_facts
from heavylift.checkpoint.read import read_checkpoint
from heavylift.devserver.sparse_checkpoint import (
    SparseCheckpoint,
    SparseTensor,
    config,
    safetensors_variant,
    write_checkpoint,
    write_file,
)
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog

CATALOG = Catalog()


def write(model_id: str, folder: Path) -> SparseCheckpoint:
    """A model's sparse checkpoint in `folder`."""
    model = CATALOG.model(model_id)
    family = CATALOG.family(model.family)
    return write_checkpoint(model, family, safetensors_variant(model), folder)


@pytest.fixture(scope="module")
def k3(tmp_path_factory: pytest.TempPathFactory) -> SparseCheckpoint:
    """The sparse Kimi K3, written once."""
    return write("kimi-k3", tmp_path_factory.mktemp("k3"))


def test_kimi_k3_has_its_published_totals(k3: SparseCheckpoint) -> None:
    """497,220 tensors of 1,560,860,324,864 B in 96 files, as the published index states."""
    assert (k3.tensors, k3.tensor_bytes, k3.files) == (497_220, 1_560_860_324_864, 96)
    assert k3.file_bytes > k3.tensor_bytes


def test_the_weights_take_no_disk(k3: SparseCheckpoint) -> None:
    """1.56 TB of files take less than 200 MB where the file system knows holes."""
    assert k3.disk_bytes < 200_000_000


def test_kimi_k3_reads_back_without_a_defect(k3: SparseCheckpoint) -> None:
    """All headers pass the reader, and every tensor is one the facts promise."""
    read = read_checkpoint(k3.folder)
    assert read.defects == ()
    assert (read.tensors, read.tensor_bytes) == (k3.tensors, k3.tensor_bytes)
    model = CATALOG.model("kimi-k3")
    facts = from_facts(model, CATALOG.family(model.family), safetensors_variant(model))
    found = match(read.groups, facts.groups)
    assert (found.unmatched, found.missing) == ((), ())
    assert all(each.agrees for each in found.matched)
    inventory = found.inventory("folder")
    assert inventory.params_total == facts.params_total
    assert inventory.active_params(model) == facts.active_params(model)


@pytest.mark.parametrize("model_id", ["smollm2-135m-instruct", "llama-3.1-8b"])
def test_other_families_read_back_too(tmp_path: Path, model_id: str) -> None:
    """The writer serves every family with a safetensors format."""
    written = write(model_id, tmp_path / "out")
    read = read_checkpoint(written.folder)
    assert (read.defects, read.tensors) == ((), written.tensors)


def test_config_has_every_dimension_where_the_family_reads_it() -> None:
    """The paths of the family lead back to the model's own numbers, lists included."""
    model = CATALOG.model("kimi-k3")
    family = CATALOG.family(model.family)
    written = config(model, family)
    assert written["model_type"] in family.hf_model_types
    assert written["vision_config"]["merge_kernel_size"] == [2, 2]
    for dim in family.dims:
        value: Any = written
        for key in family.config_dims[dim].split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        assert value == model.dim(dim), dim


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    """Nothing is overwritten: the folder must be new or empty."""
    (tmp_path / "precious").write_text("x")
    for path in (tmp_path, tmp_path / "precious"):
        with pytest.raises(HeavyliftError) as caught:
            write("smollm2-135m-instruct", path)
        assert caught.value.code == "CKPT026"
    assert (tmp_path / "precious").read_text() == "x"


def test_header_order_and_padding_are_those_of_the_library(tmp_path: Path) -> None:
    """Widest dtype first, then by name; the data begins at a multiple of eight."""
    path = tmp_path / "a.safetensors"
    write_file(
        path,
        [
            SparseTensor(name="b", dtype="U8", shape=(3,)),
            SparseTensor(name="z", dtype="F32", shape=(1,)),
            SparseTensor(name="a", dtype="U8", shape=(2,)),
        ],
    )
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert list(header) == ["__metadata__", "z", "a", "b"]
    assert [header[name]["data_offsets"] for name in "zab"] == [[0, 4], [4, 6], [6, 9]]
    assert length % 8 == 0
    assert len(raw) == 8 + length + 9


@pytest.mark.shared
def test_names_and_shards_equal_the_published_index(k3: SparseCheckpoint, shared: Path) -> None:
    """Of the 497,220 published names none is missing, none is extra, each is in its own file."""
    published = shared / "data/models/kimi-k3/model.safetensors.index.json.gz"
    real = json.loads(gzip.decompress(published.read_bytes()))
    ours = json.loads((k3.folder / "model.safetensors.index.json").read_bytes())
    assert ours["weight_map"] == real["weight_map"]
    assert ours["metadata"] == real["metadata"]


@pytest.mark.shared
def test_config_equals_the_published_one_where_it_speaks(shared: Path) -> None:
    """Every field we write has the published value."""
    real = json.loads((shared / "data/models/kimi-k3/config.json").read_bytes())
    model = CATALOG.model("kimi-k3")

    def compare(ours: Any, theirs: Any, path: str) -> None:
        if isinstance(ours, dict):
            for key, value in ours.items():
                compare(value, theirs[key], f"{path}.{key}")
        else:
            assert ours == theirs, path

    compare(config(model, CATALOG.family(model.family)), real, "config")


def test_a_config_that_nobody_has_seen_is_not_made_up(tmp_path: Path) -> None:
    """A family without a `model_type` is refused before a byte of its files is written."""
    with pytest.raises(HeavyliftError) as caught:
        write("kimi-k3.1-pro", tmp_path / "new")
    assert caught.value.code == "PLAN051"
    assert not (tmp_path / "new").exists()
