"""Tensors of files given the place of their module."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from heavylift.checkpoint.adoption import UNSAID, adopt
from heavylift.checkpoint.grouping import HeaderGroup
from heavylift.checkpoint.inventory import TensorGroup, from_facts
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import ModelFacts

CATALOG = Catalog()
WIDTHS = {"BF16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1, "I32": 4}


def header(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    layers: tuple[int, ...] | None = (0, 1),
    per_layer: int = 1,
) -> HeaderGroup:
    """A group of tensors as a file has it."""
    size = math.prod(shape) * WIDTHS[dtype]
    return HeaderGroup(
        pattern=name,
        dtype=dtype,
        shape=shape,
        bytes_each=size,
        layers=layers,
        per_layer=per_layer,
    )


def expected(name: str, shape: tuple[int, ...], **other: object) -> TensorGroup:
    """A group of the family: a BF16 matrix of two layers."""
    group = TensorGroup(
        name=name,
        dtype="BF16",
        shape=shape,
        role="attention",
        shard="tensor",
        axis=0,
        layers=(0, 1),
        per_layer=1,
        bytes_each=math.prod(shape) * 2,
        params_each=math.prod(shape),
    )
    return replace(group, **other)  # type: ignore[arg-type]


QUERY = expected("model.layers.{l}.self_attn.q_proj.weight", (64, 32))
EXPERT = expected(
    "model.layers.{l}.mlp.experts.{e}.up_proj.weight",
    (16, 32),
    shard="expert",
    role="experts",
    per_layer=4,
)


def test_a_quantised_layer_is_its_module() -> None:
    """Packed weights and scales take role and cut of the layer; weights are counted once."""
    found = adopt(
        (
            header("language_model.model.layers.{l}.self_attn.q_proj.weight", "U8", (64, 16)),
            header(
                "language_model.model.layers.{l}.self_attn.q_proj.weight_scale", "F8_E4M3", (64, 2)
            ),
            header("language_model.model.layers.{l}.self_attn.q_proj.input_scale", "F32", ()),
        ),
        (QUERY,),
    )
    assert not found.missing
    assert not found.disagrees
    assert {group.role for group in found.groups} == {"attention"}
    assert [group.shard for group in found.groups] == ["tensor", "tensor", "replicated"]
    assert sum(group.params_total for group in found.groups) == QUERY.params_total
    assert found.inventory("here").bytes_total == 2 * (64 * 16 + 64 * 2 + 4)


def test_a_matrix_stored_the_other_way_round_is_cut_along_its_other_axis() -> None:
    """AWQ keeps inputs first: the outputs are the second axis."""
    found = adopt(
        (header("model.layers.{l}.self_attn.q_proj.qweight", "I32", (40, 12)),),
        (expected("model.layers.{l}.self_attn.q_proj.weight", (96, 40)),),
    )
    assert found.groups[0].axis == 1
    assert found.groups[0].params_each == 96 * 40


def test_experts_in_one_tensor_are_the_experts() -> None:
    """A tensor of all experts of a layer belongs to the module that holds them one by one."""
    found = adopt((header("model.layers.{l}.mlp.experts.up_proj", "BF16", (4, 16, 32)),), (EXPERT,))
    assert not found.missing
    assert found.groups[0].shard == "expert"
    assert found.groups[0].params_total == EXPERT.params_total


def test_a_module_without_any_tensor_is_missing_where_it_is_missing() -> None:
    """The layer that lacks it is named; prediction heads may be left out."""
    head = expected("mtp.layers.{l}.mlp.weight", (8, 8), is_draft=True, layers=(2,))
    found = adopt((header(QUERY.name, "BF16", (64, 32), (1,)),), (QUERY, head))
    assert [(group.name, group.layers) for group in found.missing] == [(QUERY.name, (0,))]


def test_prediction_heads_may_count_their_layers_from_zero() -> None:
    """The family numbers them after the last layer; files need not."""
    head = expected("mtp.layers.{l}.mlp.weight", (8, 8), is_draft=True, layers=(2,))
    found = adopt((header("mtp.layers.{l}.mlp.weight", "BF16", (8, 8), (0,)),), (head,))
    assert not found.unsaid
    assert found.groups[0].is_draft


def test_another_shape_disagrees_only_where_it_is_the_same_tensor() -> None:
    """A plain matrix of another size, or another number of experts, is another network."""
    for wrong in (
        header(QUERY.name, "BF16", (32, 32)),
        header(QUERY.name, "BF16", (64, 32), per_layer=2),
    ):
        found = adopt((wrong,), (QUERY,))
        assert [each.expected.name for each in found.disagrees] == [QUERY.name]


def test_a_tensor_nobody_described_is_unsaid() -> None:
    """Its bytes are exact; how it meets the ranks is not said."""
    found = adopt((header("model.layers.{l}.novel.weight", "BF16", (4, 4)),), (QUERY,))
    assert [group.shard for group in found.unsaid] == [UNSAID]
    assert found.missing[0].name == QUERY.name


def headers_of(model: ModelFacts) -> list[HeaderGroup]:
    """The groups of a model's own files."""
    inventory = from_facts(model, CATALOG.family(model.family), model.variants[0])
    return [
        HeaderGroup(
            pattern=group.name,
            dtype=group.dtype,
            shape=group.shape,
            bytes_each=group.bytes_each,
            layers=group.layers,
            per_layer=group.per_layer,
        )
        for group in inventory.groups
    ]


@pytest.mark.parametrize(
    "identifier",
    [
        name
        for name in CATALOG.ids("models")
        if CATALOG.model(name).variants[0].format == "safetensors"
    ],
)
def test_every_model_of_the_catalogue_is_found_in_its_own_files(identifier: str) -> None:
    """Whatever form the files are in, all tensors find their module, and none are missing."""
    model = CATALOG.model(identifier)
    plain = replace(model.variants[0], quantised=())
    family = CATALOG.family(model.family)
    found = adopt(headers_of(model), from_facts(model, family, plain).groups)
    inventory = from_facts(model, family, model.variants[0])
    assert not found.missing
    assert not found.disagrees
    assert not found.unsaid
    assert found.inventory("x").bytes_total == inventory.bytes_total
    assert found.inventory("x").params_total == inventory.params_total
