"""Groups of like tensors, and their match with the groups an architecture promises."""

from __future__ import annotations

import pytest

from heavylift.checkpoint.grouping import HeaderGroup, group, lengths_agree, match, tally
from heavylift.checkpoint.inventory import TensorGroup
from heavylift.checkpoint.safetensors import HeaderTable


def table(*names: str, dtype: str = "U8", size: int = 4) -> HeaderTable:
    """Tensors of `size` elements, one after the other."""
    each = size * {"U8": 1, "BF16": 2}[dtype]
    return HeaderTable(
        names=names,
        dtypes=(dtype,) * len(names),
        shapes=((size,),) * len(names),
        begins=tuple(each * place for place in range(len(names))),
        ends=tuple(each * (place + 1) for place in range(len(names))),
    )


def found(pattern: str, layers: tuple[int, ...] | None = None, per_layer: int = 1) -> HeaderGroup:
    """A group of the files."""
    return HeaderGroup(
        pattern=pattern,
        dtype="U8",
        shape=(4,),
        bytes_each=4,
        layers=layers,
        per_layer=per_layer,
    )


def wanted(
    name: str, layers: tuple[int, ...] | None = None, per_layer: int = 1, role: str = "norms"
) -> TensorGroup:
    """A group of an inventory: packed 4-bit weights, two to a byte."""
    return TensorGroup(
        name=name,
        dtype="U8",
        shape=(4,),
        role=role,
        shard="tensor",
        axis=0,
        layers=layers,
        per_layer=per_layer,
        bytes_each=4,
        params_each=8,
    )


def test_layers_and_experts_fold_into_one_group() -> None:
    """Two layers of three experts are one pattern with six tensors."""
    names = [f"m.layers.{layer}.mlp.experts.{e}.w1" for layer in (3, 11) for e in range(3)]
    (only,) = group(tally(table(*names)))
    assert only == found("m.layers.{l}.mlp.experts.{e}.w1", layers=(3, 11), per_layer=3)
    assert (only.count, only.bytes) == (6, 24)


def test_tallies_of_several_files_add_up() -> None:
    """A layer whose experts lie in two files is one group again."""
    first = tally(table("m.layers.0.x.experts.0.w", "m.layers.0.x.experts.1.w"))
    first.update(tally(table("m.layers.0.x.experts.2.w")))
    (only,) = group(first)
    assert (only.layers, only.per_layer) == ((0,), 3)


@pytest.mark.parametrize(
    ("name", "pattern", "layers"),
    [
        ("model.layers.7.q.weight", "model.layers.{l}.q.weight", (7,)),
        ("vision_tower.encoder.blocks.26.wo", "vision_tower.encoder.blocks.{l}.wo", (26,)),
        ("transformer.h.0.attn.w", "transformer.h.{l}.attn.w", (0,)),
        ("blk.5.ffn.w", "blk.{l}.ffn.w", (5,)),
        ("mm_projector.proj.0.weight", "mm_projector.proj.0.weight", None),
        ("model.layers.007.q", "model.layers.007.q", None),
        ("model.layers.7", "model.layers.7", None),
        ("model.q_conv1d.weight", "model.q_conv1d.weight", None),
        ("model.shared_experts.1.w", "model.shared_experts.1.w", None),
    ],
)
def test_only_layer_numbers_become_placeholders(
    name: str, pattern: str, layers: tuple[int, ...] | None
) -> None:
    """A number that is not a layer's stays in the name."""
    (only,) = group(tally(table(name)))
    assert (only.pattern, only.layers) == (pattern, layers)


def test_layers_with_fewer_experts_are_a_group_of_their_own() -> None:
    """A layer that lacks an expert does not pass for a whole one."""
    names = [f"m.layers.0.x.experts.{e}.w" for e in range(3)]
    names += [f"m.layers.1.x.experts.{e}.w" for e in range(2)]
    groups = group(tally(table(*names)))
    assert {(each.layers, each.per_layer) for each in groups} == {((0,), 3), ((1,), 2)}


def test_another_dtype_is_another_group() -> None:
    """One pattern stored in two ways is two groups."""
    counts = tally(table("m.layers.0.w"))
    counts.update(tally(table("m.layers.1.w", dtype="BF16")))
    assert [(each.dtype, each.layers) for each in group(counts)] == [("U8", (0,)), ("BF16", (1,))]


def test_a_name_with_a_line_break_shifts_no_other_name() -> None:
    """The separator used for speed may occur in a name without harm."""
    groups = group(tally(table("a\nb", "m.layers.0.x.experts.4.w")))
    assert {each.pattern for each in groups} == {"a\nb", "m.layers.{l}.x.experts.{e}.w"}


def test_an_empty_table_has_no_groups() -> None:
    """No tensors, no groups."""
    assert group(tally(HeaderTable())) == ()


def test_lengths_agree_only_with_dtype_times_shape() -> None:
    """One key is enough to tell for all tensors that share it."""
    assert lengths_agree([("x", "BF16", (3,), 6)])
    assert not lengths_agree([("x", "BF16", (3,), 6), ("y", "BF16", (3,), 7)])


def test_a_whole_checkpoint_matches_without_remainder() -> None:
    """Every group finds its own; nothing is left and nothing is missing."""
    result = match(
        [found("a"), found("l.{l}", layers=(0, 1), per_layer=3)],
        [wanted("a"), wanted("l.{l}", layers=(0, 1), per_layer=3)],
    )
    assert (result.unmatched, result.missing) == ((), ())
    assert all(each.agrees for each in result.matched)


def test_patterns_that_share_a_name_are_told_apart_by_their_layers() -> None:
    """Kimi K3 has o_proj in both kinds of layer: each kind takes its own."""
    result = match(
        [found("l.{l}.o", layers=(0, 1, 2, 3))],
        [wanted("l.{l}.o", layers=(0, 1, 2), role="kda"), wanted("l.{l}.o", (3,), role="mla")],
    )
    taken = [(each.expected.role, each.found.layers) for each in result.matched]
    assert taken == [("kda", (0, 1, 2)), ("mla", (3,))]
    assert (result.unmatched, result.missing) == ((), ())


def test_what_nobody_claims_is_unmatched() -> None:
    """Other names, and layers outside the set, are handed back."""
    result = match([found("x"), found("l.{l}", (0, 1))], [wanted("l.{l}", (0,))])
    assert result.unmatched == (found("x"), found("l.{l}", (1,)))


def test_a_group_without_layers_does_not_fill_one_with_layers() -> None:
    """A name that happens to be equal is not enough."""
    result = match([found("x")], [wanted("x", layers=(0,))])
    assert result.unmatched == (found("x"),)
    assert [each.layers for each in result.missing] == [(0,)]


def test_missing_tensors_are_counted_by_layer() -> None:
    """A layer without the group and a layer with too few experts are missing different things."""
    result = match(
        [found("l.{l}", (0,), per_layer=4), found("l.{l}", (1,), per_layer=3)],
        [wanted("l.{l}", (0, 1, 2), per_layer=4), wanted("single")],
    )
    gaps = [(each.expected.name, each.layers, each.per_layer) for each in result.missing]
    assert gaps == [("l.{l}", (1,), 1), ("l.{l}", (2,), 4), ("single", None, 1)]


def test_bytes_and_shape_come_from_the_file() -> None:
    """A tensor stored otherwise is matched, marked, and counted as it is stored."""
    stored = HeaderGroup(
        pattern="a", dtype="BF16", shape=(6,), bytes_each=12, layers=None, per_layer=1
    )
    result = match([stored], [wanted("a")])
    (only,) = result.matched
    assert not only.agrees
    inventory = result.inventory("folder")
    assert (inventory.bytes_total, inventory.params_total) == (12, 12)
    assert (inventory.source, inventory.groups[0].dtype) == ("folder", "BF16")
