"""A checkpoint with true names, dtypes, shapes and offsets, and holes in place of weights.

It is written from the facts of a model and takes the disk its headers take (Kimi K3: 1.56 TB in
130 MB), so that readers and planners can be tried on the whole thing anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.checkpoint.formats import SAFETENSORS_TYPES, bytes_of
from heavylift.checkpoint.inventory import TensorGroup, from_facts
from heavylift.checkpoint.safetensors import LENGTH_BYTES
from heavylift.errors import HeavyliftError
from heavylift.facts.schema import ConfigLayers, FamilyFacts, ModelFacts, VariantFacts

_ALIGNMENT_BYTES: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class SparseTensor:
    """A tensor to be written: its bytes are a hole."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the tensor. Raises ValueError when its bits do not fill whole bytes."""
        return bytes_of(self.dtype, self.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class SparseCheckpoint:
    """What was written: `file_bytes` is the apparent size, `disk_bytes` what the disk gave."""

    folder: Path
    files: int
    tensors: int
    tensor_bytes: int
    file_bytes: int
    disk_bytes: int


def write_checkpoint(
    model: ModelFacts, family: FamilyFacts, variant: VariantFacts, folder: Path
) -> SparseCheckpoint:
    """Write a safetensors variant of `model` into `folder`, which must be new or empty.

    Raises CKPT026 when the folder holds something, and what `from_facts` and `config` raise.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HeavyliftError("CKPT026", {"path": str(folder)})
    inventory = from_facts(model, family, variant)
    described = config(model, family)
    folder.mkdir(parents=True, exist_ok=True)
    shards = _shards(inventory.groups)
    paths = [
        folder / f"model-{number:05d}-of-{len(shards):06d}.safetensors"
        for number in range(1, len(shards) + 1)
    ]
    for path, tensors in zip(paths, shards, strict=True):
        write_file(path, tensors)
    tensor_bytes = sum(each.bytes for shard in shards for each in shard)
    _write_json(
        folder / "model.safetensors.index.json",
        {
            "metadata": {"total_size": tensor_bytes},
            "weight_map": {
                each.name: path.name
                for path, shard in zip(paths, shards, strict=True)
                for each in shard
            },
        },
    )
    _write_json(folder / "config.json", described)
    sizes = [path.stat() for path in folder.iterdir()]
    return SparseCheckpoint(
        folder=folder,
        files=len(paths),
        tensors=sum(len(shard) for shard in shards),
        tensor_bytes=tensor_bytes,
        file_bytes=sum(size.st_size for size in sizes),
        # st_blocks counts units of 512 bytes on every system, whatever the file system's block.
        disk_bytes=sum(size.st_blocks * 512 for size in sizes),
    )


def safetensors_variant(model: ModelFacts) -> VariantFacts:
    """The first variant of `model` in the safetensors format. Raises CKPT027 when there is none."""
    for variant in model.variants:
        if variant.format == "safetensors":
            return variant
    raise HeavyliftError("CKPT027", {"model": model.id})


def _shards(groups: Iterable[TensorGroup]) -> list[list[SparseTensor]]:
    """Every tensor of `groups`, dealt to shards.

    A shard holds one layer, or what shares the first word of its name where there is no layer, or
    only one of the vision tower: so the published checkpoint of Kimi K3 is cut, file for file.
    """
    shards: dict[str, list[SparseTensor]] = {}
    for group in groups:
        for layer in (0,) if group.layers is None else group.layers:
            own_shard = group.layers is not None and not group.is_vision
            # Digits sort before letters: the layers come first, as in the published index.
            key = f"{layer:06d}" if own_shard else group.name.partition(".")[0]
            name = group.name.replace("{l}", str(layer))
            shards.setdefault(key, []).extend(
                SparseTensor(
                    name=name.replace("{e}", str(expert)), dtype=group.dtype, shape=group.shape
                )
                for expert in range(group.per_layer)
            )
    return [shards[key] for key in sorted(shards)]


def encode_header(tensors: Iterable[SparseTensor]) -> tuple[bytes, int]:
    """The first bytes of a file up to its data, and how many bytes of data follow.

    Order and padding are those of the safetensors library: widest dtype first, then by name, and
    the header filled with spaces to a multiple of 8.
    """
    position = 0
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for tensor in sorted(tensors, key=_file_order):
        end = position + tensor.bytes
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": (position, end),
        }
        position = end
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text, position


def _file_order(tensor: SparseTensor) -> tuple[float, str]:
    kind = SAFETENSORS_TYPES[tensor.dtype]
    return -kind.bytes / kind.elements, tensor.name


def write_file(path: Path, tensors: Iterable[SparseTensor]) -> None:
    """One safetensors file whose data is a hole."""
    start, data_bytes = encode_header(tensors)
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + data_bytes)


def config(model: ModelFacts, family: FamilyFacts) -> dict[str, Any]:
    """The config.json a planner needs: the type, and every dimension and layer set where the
    family reads it.

    A number in a dotted path is a place in a list (`merge_kernel_size.0`). Raises PLAN051 for a
    family whose configs nobody has seen.
    """
    if not family.hf_model_types:
        raise HeavyliftError("PLAN051", {"model_type": family.id})
    values = {**model.dim_values, "max_context": model.max_context.value}
    tree: dict[str, Any] = {"model_type": family.hf_model_types[0]}
    if model.hf_architecture is not None:
        tree["architectures"] = [model.hf_architecture.value]
    for dim, path in family.config_dims.items():
        if dim in values:
            _put(tree, path, values[dim])
    words: dict[str, list[str]] = {}
    for name, rule in family.config_layers.items():
        layers = model.layer_set(name)
        if rule.equals and rule.field is not None:
            other = rule.others[0] if rule.others else "-"
            listed = words.setdefault(rule.field, [other] * model.dim("layers"))
            for layer in layers:
                listed[layer] = rule.equals[0]
        else:
            _put_layers(tree, rule, layers)
    for field, listed in words.items():
        _put(tree, field, listed)
    whole: dict[str, Any] = _with_lists(tree)
    return whole


def _put_layers(tree: dict[str, Any], rule: ConfigLayers, layers: tuple[int, ...]) -> None:
    """A layer set as its rule states it: by number, by its ends, by a count or by a distance."""
    stated: tuple[tuple[str | None, int | list[int] | None], ...] = (
        (rule.field, [layer + rule.counts_from for layer in layers]),
        (rule.start, layers[0] if layers else None),
        (rule.stop, layers[-1] + 1 if layers else 0),
        (rule.beyond, len(layers)),
        (rule.every, layers[0] + 1 if layers else None),
    )
    for field, value in stated:
        if field is not None and value is not None:
            _put(tree, field, value)


def _put(tree: dict[str, Any], field: str, value: int | list[int] | list[str]) -> None:
    *folders, leaf = field.split("|", maxsplit=1)[0].split(".")
    for key in folders:
        tree = tree.setdefault(key, {})
    tree[leaf] = value


def _with_lists(tree: Mapping[str, Any]) -> Any:
    """`tree` with a list wherever the keys of a table count from 0."""
    values = {
        key: _with_lists(value) if isinstance(value, dict) else value for key, value in tree.items()
    }
    places = [str(place) for place in range(len(values))]
    return [values[place] for place in places] if sorted(values) == places else values


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
