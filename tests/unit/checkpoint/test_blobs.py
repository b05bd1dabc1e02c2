"""GGUF files in a store of blobs: found by their letters, or by a manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heavylift.checkpoint.blobs import gguf_at
from heavylift.checkpoint.gguf_writer import TensorSpec, build, write_gguf
from heavylift.checkpoint.read import read_checkpoint

MODEL, PROJECTOR = "sha256-aa11", "sha256-bb22"


def gguf(path: Path, rows: int) -> None:
    """A GGUF file of one tensor."""
    layout = build({}, [TensorSpec(name="output.weight", dims=(256, rows), dtype="Q8_0")])
    write_gguf(path, layout, None)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a model, its projector and a template."""
    (tmp_path / "blobs").mkdir()
    gguf(tmp_path / "blobs" / MODEL, 64)
    gguf(tmp_path / "blobs" / PROJECTOR, 4)
    (tmp_path / "blobs" / "sha256-cc33").write_text("{{ .Prompt }}")
    return tmp_path


def manifest(store: Path, document: Any) -> Path:
    """The manifest of a model in the store."""
    path = store / "manifests" / "registry" / "library" / "some" / "latest"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def layers(*digests: object) -> dict[str, Any]:
    """A manifest with these layers."""
    return {"schemaVersion": 2, "layers": [{"digest": digest} for digest in digests]}


def test_a_file_is_known_by_its_letters(store: Path) -> None:
    """A blob has no ending; its tensors are read like those of any GGUF."""
    blob = store / "blobs" / MODEL
    assert gguf_at(blob) == blob
    assert read_checkpoint(blob).tensors == 1
    assert gguf_at(store / "blobs" / "sha256-cc33") is None
    assert gguf_at(store / "blobs") is None


def test_a_manifest_leads_to_the_largest_of_its_models(store: Path) -> None:
    """A projector is a GGUF too, and smaller; what the store lacks is passed over."""
    path = manifest(store, layers("sha256:cc33", "sha256:bb22", "sha256:aa11", "sha256:dd44"))
    assert gguf_at(path) == store / "blobs" / MODEL
    found = read_checkpoint(path)
    assert (found.where, found.files[0].name) == (str(path), MODEL)


@pytest.mark.parametrize(
    "document",
    [
        "{",
        "[]",
        {"layers": 3},
        {"layers": [3, {}, {"digest": 4}]},
        layers("../../etc/passwd", "sha256:../aa11", "", "sha256:cc33"),
    ],
)
def test_a_manifest_that_leads_nowhere_is_no_model(store: Path, document: Any) -> None:
    """Damage, digests that are paths, layers that are no model."""
    assert gguf_at(manifest(store, document)) is None


def test_a_text_outside_of_a_store_is_no_manifest(tmp_path: Path) -> None:
    """There are no blobs beside it."""
    path = tmp_path / "latest"
    path.write_text(json.dumps(layers("sha256:aa11")))
    assert gguf_at(path) is None
