"""Parameters, roles and what is quantised, counted from headers of every way of packing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heavylift.checkpoint.census import census, groups_of_inventory, stated_in_config
from heavylift.checkpoint.gguf import Entry, ValueType
from heavylift.checkpoint.gguf_writer import TensorSpec, build, write_gguf
from heavylift.checkpoint.inventory import from_facts
from heavylift.devserver.sparse_checkpoint import (
    SparseTensor,
    safetensors_variant,
    write_checkpoint,
    write_file,
)
from heavylift.facts.catalog import Catalog
from heavylift.inspecting import inspect
from heavylift.records.inspection import Inspection, Stored

CATALOG = Catalog()
OUT, IN = 64, 128
Tensors = dict[str, tuple[str, tuple[int, ...]]]


def inspected(folder: Path, tensors: Tensors, config: dict[str, Any] | None = None) -> Inspection:
    """What a file of these tensors holds, beside this config."""
    write_file(
        folder / "model.safetensors",
        [SparseTensor(name=n, dtype=dtype, shape=shape) for n, (dtype, shape) in tensors.items()],
    )
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return inspect(str(folder), CATALOG, None)


X = "model.layers.0.mlp.up_proj"
PACKED: dict[str, tuple[Tensors, dict[str, Any], float]] = {
    "mxfp4 of compressed-tensors": (
        {
            f"{X}.weight_packed": ("U8", (OUT, IN // 2)),
            f"{X}.weight_scale": ("U8", (OUT, IN // 32)),
        },
        {},
        4,
    ),
    "nvfp4 of modelopt": (
        {
            f"{X}.weight": ("U8", (OUT, IN // 2)),
            f"{X}.weight_scale": ("F8_E4M3", (OUT, IN // 16)),
            f"{X}.weight_scale_2": ("F32", ()),
            f"{X}.input_scale": ("F32", ()),
        },
        {},
        4,
    ),
    "fp4 in bytes that are signed": (
        {
            f"{X}.weight": ("I8", (OUT, IN // 2)),
            f"{X}.scale": ("F8_E8M0", (OUT, IN // 32)),
        },
        {},
        4,
    ),
    "int8 with a scale a row": (
        {f"{X}.weight": ("I8", (OUT, IN)), f"{X}.weight_scale": ("BF16", (OUT, 1))},
        {},
        8,
    ),
    "fp8 in blocks": (
        {f"{X}.weight": ("F8_E4M3", (OUT, IN)), f"{X}.weight_scale_inv": ("F32", (1, 1))},
        {},
        8,
    ),
    "awq of four bits": (
        {
            f"{X}.qweight": ("I32", (IN, OUT // 8)),
            f"{X}.qzeros": ("I32", (IN // 32, OUT // 8)),
            f"{X}.scales": ("F16", (IN // 32, OUT)),
        },
        {},
        4,
    ),
    "gptq of eight bits": (
        {
            f"{X}.qweight": ("I32", (IN // 4, OUT)),
            f"{X}.qzeros": ("I32", (IN // 32, OUT // 4)),
            f"{X}.scales": ("F16", (IN // 32, OUT)),
            f"{X}.g_idx": ("I32", (IN,)),
        },
        {"quantization_config": {"bits": 4}},  # the tensors know better
        8,
    ),
    "int4 of compressed-tensors": (
        {
            f"{X}.weight_packed": ("I32", (OUT, IN // 8)),
            f"{X}.weight_scale": ("BF16", (OUT, IN // 32)),
            f"{X}.weight_shape": ("I64", (2,)),
        },
        {"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": 4}}}}},
        4,
    ),
    "mlx of six bits": (
        {
            f"{X}.weight": ("U32", (OUT, IN * 6 // 32)),
            f"{X}.scales": ("BF16", (OUT, IN // 64)),
            f"{X}.biases": ("BF16", (OUT, IN // 64)),
        },
        {"quantization": {"group_size": 64, "bits": 4}},  # this layer is an exception
        6,
    ),
    "bitsandbytes nf4": (
        {
            f"{X}.weight": ("U8", (OUT * IN // 2, 1)),
            f"{X}.weight.absmax": ("U8", (OUT * IN // 64,)),
            f"{X}.weight.quant_map": ("F32", (16,)),
            f"{X}.weight.nested_absmax": ("F32", (1,)),
            f"{X}.weight.nested_quant_map": ("F32", (256,)),
            f"{X}.weight.quant_state.bitsandbytes__nf4": ("U8", (90,)),
        },
        {},
        4,
    ),
    "blocks of experts": (
        {
            "model.layers.0.mlp.experts.up_proj_blocks": ("U8", (2, OUT // 2, IN // 32, 16)),
            "model.layers.0.mlp.experts.up_proj_scales": ("U8", (2, OUT // 2, IN // 32)),
        },
        {},
        4,
    ),
}


@pytest.mark.parametrize("case", PACKED)
def test_packed_weights_are_counted_by_what_lies_beside_them(tmp_path: Path, case: str) -> None:
    """Parameters are logical, bytes are the file's, scales are no parameters."""
    tensors, config, bits = PACKED[case]
    found = inspected(tmp_path, tensors, config)
    assert found.total_params == OUT * IN
    (row,) = found.stored
    assert (row.bits_per_weight, row.quantised) == (bits, True)
    assert row.bytes == found.tensor_bytes
    assert row.scale_bytes == row.bytes - OUT * IN * bits / 8


@pytest.mark.parametrize(
    ("tensors", "config"),
    [
        ({f"{X}.weight": ("U32", (OUT, IN // 8))}, {}),
        ({f"{X}.weight": ("U8", (OUT, IN // 2))}, {}),
        (
            {
                f"{X}.weight_packed": ("I32", (OUT, IN // 8)),
                f"{X}.weight_scale": ("BF16", (OUT, IN // 32)),
            },
            {"quantization_config": {"bits": [4]}},
        ),
        (
            {f"{X}.qweight": ("I32", (OUT, IN)), f"{X}.scales": ("F16", (0, 4))},
            {"quantization_config": {"bits": -4, "group_size": "x"}},
        ),
    ],
)
def test_a_packing_nobody_states_is_unknown(
    tmp_path: Path, tensors: Tensors, config: dict[str, Any]
) -> None:
    """Four bytes a weight would be a guess: there is no total then, and the tensors are named."""
    found = inspected(tmp_path, tensors, config)
    assert (found.total_params, found.active_params, found.uncounted_tensors) == (None, None, 1)
    assert found.stored[0].parameters is None
    assert found.sound


def test_plain_integers_are_no_parameters(tmp_path: Path) -> None:
    """Positions and masks are stored bytes and nothing else."""
    found = inspected(tmp_path, {"position_ids": ("I64", (1, 4)), "x.weight": ("F16", (3,))})
    assert (found.total_params, found.tensor_bytes) == (3, 38)


@pytest.mark.parametrize("name", ["kimi-k3", "kimi-k2.5", "llama-3.1-70b"])
def test_headers_alone_give_the_parameters_that_the_facts_give(name: str) -> None:
    """Total and active parameters by the general rules equal those by the family's own list."""
    model = CATALOG.model(name)
    inventory = from_facts(model, CATALOG.family(model.family), model.variants[0])
    config = {"num_experts_per_tok": 16 if name == "kimi-k3" else 8}
    if name == "kimi-k2.5":
        config["bits"] = 4
        document = {**config, "quantization_config": {"bits": 4}}
    else:
        document = {**config}
    book = CATALOG.tensor_names()
    found = census(groups_of_inventory(inventory), stated_in_config(document, book), book)
    assert found.total_params == inventory.params_total
    assert found.active_params == inventory.active_params(model)
    assert {each.role for each in found.counted} & {"other"} == set()


def test_k3_is_104_billion_active_of_2780(tmp_path: Path) -> None:
    """Source: the published index and model card, 2,779.93 B in all and 104 B active."""
    known = CATALOG.model("kimi-k3")
    write_checkpoint(known, CATALOG.family("kimi-k3"), safetensors_variant(known), tmp_path / "k3")
    found = inspect(str(tmp_path / "k3"), CATALOG, None)
    assert (found.total_params, found.active_params) == (2_779_931_837_184, 104_189_614_848)
    assert (found.tensors, found.tensor_bytes, len(found.files)) == (497_220, 1_560_860_324_864, 96)
    assert (found.experts, found.experts_per_token, found.sound) == (896, 16, True)
    experts = found.stored[0]
    assert (experts.role, experts.bits_per_weight, experts.quantised) == ("experts", 4, True)
    router = next(row for row in found.stored if row.role == "router" and row.dtype == "BF16")
    assert not router.quantised  # although the config's ignore list does not name it
    assert sum(len(row.layers) for row in found.layers) == 93


def test_draft_layers_are_in_the_total_and_not_active(tmp_path: Path) -> None:
    """A layer after the config's last one drafts tokens; so does what is called mtp."""
    tensors: Tensors = {
        f"model.layers.{layer}.mlp.up_proj.weight": ("BF16", (4, 4)) for layer in range(3)
    }
    tensors["mtp.fc.weight"] = ("BF16", (2, 4))
    tensors["vision_tower.blocks.7.mlp.weight"] = ("BF16", (4, 4))
    found = inspected(tmp_path, tensors, {"num_hidden_layers": 2})
    assert (found.total_params, found.active_params) == (72, 32)
    assert {share.name: share.parameters for share in found.roles} == {
        "mlp": 32,
        "draft": 24,
        "vision": 16,
    }


def test_a_table_that_is_also_the_output_head_is_active(tmp_path: Path) -> None:
    """Tied embeddings: every token touches the table when it becomes a word."""
    tied = inspected(tmp_path, {"model.embed_tokens.weight": ("BF16", (8, 4))})
    assert tied.active_params == 32
    whole = inspected(
        tmp_path,
        {
            "model.embed_tokens.weight": ("BF16", (8, 4)),
            "lm_head.weight": ("BF16", (8, 4)),
        },
    )
    assert (whole.total_params, whole.active_params) == (64, 32)


@pytest.mark.parametrize("chosen", [None, "2", -1, 0, 10**9, 2.0])
def test_an_unstated_choice_of_experts_leaves_active_unknown(
    tmp_path: Path, chosen: object
) -> None:
    """A config that says nothing, or nonsense, gives no number."""
    tensors: Tensors = {
        f"layers.0.mlp.experts.{n}.up_proj.weight": ("BF16", (2, 2)) for n in range(4)
    }
    found = inspected(tmp_path, tensors, {"num_experts_per_tok": chosen})
    assert (found.total_params, found.active_params, found.experts) == (16, None, 4)


def test_experts_of_an_unknown_packing_leave_active_unknown(tmp_path: Path) -> None:
    """How many are chosen is stated; what one holds is not."""
    tensors: Tensors = {
        f"layers.0.mlp.experts.{n}.up_proj.weight": ("U32", (2, 2)) for n in range(4)
    }
    found = inspected(tmp_path, tensors, {"num_experts_per_tok": 2})
    assert (found.active_params, found.experts_per_token) == (None, 2)


@pytest.mark.parametrize("scales", [("U8", (5, 7)), ("U8", (0,)), ("BF16", (4, 1))])
def test_bytes_with_scales_of_another_kind_are_unknown(
    tmp_path: Path, scales: tuple[str, tuple[int, ...]]
) -> None:
    """A number of scales that no known packing has decides nothing."""
    name = "layers.0.mlp.up_proj"
    found = inspected(tmp_path, {f"{name}.weight": ("U8", (4, 8)), f"{name}.weight_scale": scales})
    assert found.total_params is None


def test_words_without_any_scale_go_by_the_configs_bits(tmp_path: Path) -> None:
    """The group's size alone says nothing when there are no scales to count."""
    name = "layers.0.mlp.up_proj"
    found = inspected(
        tmp_path,
        {f"{name}.weight": ("U32", (4, 8)), f"{name}.scales": ("BF16", (0, 4))},
        {"quantization": {"bits": 8, "group_size": 64}},
    )
    assert found.total_params == 4 * 8 * 4


def test_scales_without_their_weight_are_counted_as_they_are(tmp_path: Path) -> None:
    """A norm that happens to be called scale is a parameter."""
    found = inspected(tmp_path, {"layers.0.norm.scale": ("F32", (8,))})
    assert found.total_params == 8


# --- GGUF ----------------------------------------------------------------------------------------


def gguf(path: Path, tensors: list[TensorSpec], **metadata: int | str) -> None:
    """A GGUF file with holes for weights and these metadata."""
    entries = {
        key.replace("__", "."): Entry(
            ValueType.STRING if isinstance(value, str) else ValueType.UINT32, value
        )
        for key, value in metadata.items()
    }
    write_gguf(path, build(entries, tensors), None)


EXPERTS = TensorSpec(name="blk.0.ffn_up_exps.weight", dims=(256, 8, 4), dtype="Q4_K")
NORM = TensorSpec(name="blk.0.attn_norm.weight", dims=(256,), dtype="F32")
HEAD = TensorSpec(name="output.weight", dims=(256, 16), dtype="Q6_K")
TABLE = TensorSpec(name="token_embd.weight", dims=(256, 16), dtype="Q4_K")
SAYS: dict[str, int | str] = {
    "general__architecture": "some",
    "general__name": "Some Model",
    "some__expert_count": 4,
    "some__expert_used_count": 2,
    "some__block_count": 1,
}


def test_a_gguf_file_is_counted_by_its_blocks(tmp_path: Path) -> None:
    """Parameters are elements, bytes are blocks, and the header names the experts."""
    gguf(tmp_path / "a.gguf", [EXPERTS, NORM, HEAD, TABLE], **SAYS)
    found = inspect(str(tmp_path / "a.gguf"), CATALOG, None)
    assert (found.title, found.model_type, found.file_format) == ("Some Model", "some", "gguf")
    assert found.total_params == 256 * (32 + 1 + 16 + 16)
    assert found.active_params == 256 * (32 * 2 // 4 + 1 + 16)
    assert (found.experts, found.experts_per_token) == (4, 2)
    rows: dict[str, Stored] = {row.role: row for row in found.stored}
    assert (rows["experts"].bits_per_weight, rows["experts"].quantised) == (4.5, True)
    assert (rows["norms"].bits_per_weight, rows["norms"].quantised) == (32, False)
    assert inspect(str(tmp_path), CATALOG, None).stored == found.stored


def split(folder: Path, **changes: int) -> list[Path]:
    """A model in two parts."""
    paths = [folder / f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    for number, (path, tensors) in enumerate(zip(paths, ([EXPERTS, NORM], [HEAD]), strict=True)):
        says: dict[str, int | str] = {
            "split__no": number,
            "split__count": 2,
            "split__tensors__count": 3,
            **changes,
        }
        gguf(path, tensors, **(SAYS | says))
    return paths


def test_parts_of_a_gguf_are_one_model(tmp_path: Path) -> None:
    """The folder, the first part and the last part all name the whole."""
    paths = split(tmp_path)
    (tmp_path / "mmproj-m-F16.gguf").write_bytes(b"")
    for target in (tmp_path, *paths):
        found = inspect(str(target), CATALOG, None)
        assert (found.tensors, len(found.files), found.sound) == (3, 2, True)
        assert found.ignored == ("mmproj-m-F16.gguf",)


def missing(paths: list[Path]) -> None:
    """The second part is not there."""
    paths[1].unlink()


def cut(paths: list[Path]) -> None:
    """The second part lost its last bytes."""
    with paths[1].open("r+b") as file:
        file.truncate(paths[1].stat().st_size - 64)


def beheaded(paths: list[Path]) -> None:
    """The second part ends inside its header."""
    paths[1].write_bytes(paths[1].read_bytes()[:50])


def pointer(paths: list[Path]) -> None:
    """A Git LFS pointer lies in place of the second part."""
    paths[1].write_text("version https://git-lfs.github.com/spec/v1\n")


def swapped(paths: list[Path]) -> None:
    """Each part lies under the other's name."""
    first, second = paths
    third = first.with_name("x")
    first.rename(third)
    second.rename(first)
    third.rename(second)


def doubled(paths: list[Path]) -> None:
    """The second part is a copy of the first."""
    paths[1].write_bytes(paths[0].read_bytes())


@pytest.mark.parametrize(
    ("spoil", "problems"),
    [
        (missing, {"file_missing"}),
        (cut, {"file_truncated"}),
        (beheaded, {"header_beyond_file"}),
        (pointer, {"lfs_pointer"}),
        (swapped, {"split_part"}),
        (doubled, {"split_part", "tensor_repeated", "split_tensors"}),
    ],
)
def test_a_spoiled_part_is_named(
    tmp_path: Path, spoil: Callable[[list[Path]], None], problems: set[str]
) -> None:
    """What is wrong with a part is collected; the others are still counted."""
    spoil(split(tmp_path))
    found = inspect(str(tmp_path), CATALOG, None)
    assert {each.problem for each in found.defects} == problems
    assert not found.sound


# --- configs that say nothing --------------------------------------------------------------------


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000, "NaN", "\x00"])
def test_a_config_that_is_none_is_a_remark(tmp_path: Path, content: str) -> None:
    """The tensors are what they are."""
    (tmp_path / "config.json").write_text(content)
    found = inspected(tmp_path, {"x.weight": ("F16", (3,))})
    assert [(each.problem, each.remark) for each in found.defects] == [("config_unreadable", True)]
    assert (found.sound, found.total_params) == (True, 3)


def test_a_config_that_leads_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    """It is a defect that says where it leads."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.json").write_text("{}")
    (folder / "config.json").symlink_to(tmp_path / "secret.json")
    found = inspected(folder, {"x.weight": ("F16", (3,))})
    assert [each.problem for each in found.defects] == ["link_outside"]
