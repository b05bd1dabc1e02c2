"""Plans of folders and GGUF files of models that the catalogue does not have."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from heavylift.checkpoint.formats import bytes_of
from heavylift.checkpoint.gguf import Entry, Scalar, ValueType
from heavylift.checkpoint.gguf_writer import TensorSpec, build
from heavylift.errors import HeavyliftError
from heavylift.inspecting import inspect
from heavylift.planning import Planning
from heavylift.records.plan import Kind, Layout, Plan, PlanRequest, PlanVerdict

Shapes = Mapping[str, Sequence[int]]
PAIR = Layout(tensor_parallel_size=2)

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
MODELOPT = {
    "producer": {"name": "modelopt", "version": "0.29"},
    "quantization": {
        "quant_algo": "FP8",
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head"],
    },
}


def llama_shapes(front: str = "") -> dict[str, Sequence[int]]:
    """The tensors of `LLAMA`, behind a wrapper's name."""
    shapes: dict[str, Sequence[int]] = {
        "model.embed_tokens.weight": (1024, 512),
        "lm_head.weight": (1024, 512),
        "model.norm.weight": (512,),
    }
    for layer in range(2):
        begin = f"model.layers.{layer}."
        shapes[f"{begin}input_layernorm.weight"] = (512,)
        shapes[f"{begin}post_attention_layernorm.weight"] = (512,)
        for name, rows in (("q_proj", 512), ("k_proj", 128), ("v_proj", 128)):
            shapes[f"{begin}self_attn.{name}.weight"] = (rows, 512)
        shapes[f"{begin}self_attn.o_proj.weight"] = (512, 512)
        shapes[f"{begin}mlp.gate_proj.weight"] = (1024, 512)
        shapes[f"{begin}mlp.up_proj.weight"] = (1024, 512)
        shapes[f"{begin}mlp.down_proj.weight"] = (512, 1024)
    return {front + name: shape for name, shape in shapes.items()}


def write(
    folder: Path, config: Mapping[str, Any], shapes: Shapes, dtypes: Mapping[str, str] | None = None
) -> int:
    """A folder with a config and a file of BF16 tensors without their data; some of another type.
    Returns their bytes.
    """
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header: dict[str, Any] = {}
    begin = 0
    for name, shape in shapes.items():
        dtype = (dtypes or {}).get(name.rpartition("_proj.")[2], "BF16")
        end = begin + bytes_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    raw = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    with path.open("r+b") as file:
        file.truncate(8 + len(raw) + begin)
    return begin


def plan_of(planning: Planning, model: Path, on: str = "1xH100", **given: Any) -> Plan:
    """A plan of a path."""
    _, rack = planning.rack(on)
    assert rack is not None
    request = PlanRequest(model=str(model), rack=rack, **given)
    return planning.plan(request, planning.knowledge(str(model)), with_fixes=False)


@pytest.mark.parametrize(
    ("config", "front"),
    [
        ({"model_type": "llava", "text_config": LLAMA, "vision_config": {}}, "language_model."),
        ({"model_type": "internvl_chat", "llm_config": LLAMA}, "language_model."),
        ({"model_type": "mistral3", "text_config": LLAMA}, "language_model."),
        ({"model_type": "omni", "thinker_config": {"text_config": LLAMA}}, "thinker."),
    ],
)
def test_a_language_model_with_a_tower_keeps_what_the_language_model_keeps(
    planning: Planning, tmp_path: Path, config: dict[str, Any], front: str
) -> None:
    """Its KV is that of its text part; the tower's bytes are between bounds on several ranks."""
    text = llama_shapes(front)
    whole = write(tmp_path, config, {**text, "vision_tower.blocks.0.w": (512, 512)})
    one, two = (
        plan_of(planning, tmp_path),
        plan_of(planning, tmp_path, "2xH100", layout=PAIR),
    )
    assert one.per_gpu.weights_bytes.low == one.per_gpu.weights_bytes.high == whole
    assert one.kv_bytes_per_token == 2 * 2 * 2 * 64 * 2
    tower = 2 * 512 * 512
    weights = two.per_gpu.weights_bytes
    assert (weights.high or 0) - weights.low == tower // 2


def test_what_is_not_covered_is_no_worse_than_what_nobody_described(
    planning: Planning, tmp_path: Path
) -> None:
    """Windows that the family does not know of: exact weights, and the KV is not guessed."""
    config = {**LLAMA, "model_type": "qwen2", "use_sliding_window": True}
    whole = write(tmp_path, config, llama_shapes())
    plan = plan_of(planning, tmp_path)
    assert plan.per_gpu.weights_bytes.high == whole
    assert plan.per_gpu.kv_cache_bytes.high is None
    assert plan.verdict is PlanVerdict.UNKNOWN
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(HeavyliftError) as caught:
        planning.knowledge(str(tmp_path))
    assert caught.value.code == "PLAN068"
    assert caught.value.params["field"] == "use_sliding_window"


def test_a_family_without_a_list_of_tensors_cuts_them_by_their_names(
    planning: Planning, tmp_path: Path
) -> None:
    """Matrices are cut as engines cut those of that name, norms are whole on every rank, and what
    has another name lies between the two. Of a config alone the weights are not known.
    """
    config = {**LLAMA, "model_type": "nemotron"}
    whole = write(tmp_path, config, {**llama_shapes(), "model.extra": (512, 512)})
    one, two = (
        plan_of(planning, tmp_path),
        plan_of(planning, tmp_path, "2xH100", layout=PAIR),
    )
    assert one.terms[0].kind is Kind.EXACT
    assert two.terms[0].kind is Kind.DERIVED
    norms, extra = 2 * 512 * 5, 2 * 512 * 512
    assert two.per_gpu.weights_bytes.low == pytest.approx((whole - norms) / 2 + norms, rel=0.01)
    assert two.per_gpu.weights_bytes.high == two.per_gpu.weights_bytes.low + extra // 2
    assert one.kv_bytes_per_token == 2 * 2 * 2 * 64 * 2
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(HeavyliftError) as caught:
        planning.knowledge(str(tmp_path))
    assert caught.value.code == "PLAN067"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"model_type": "falcon", "multi_query": True, "num_attention_heads": 7}, "PLAN069"),
        (
            {
                "model_type": "nemotron-nas",
                "num_attention_heads": 2,
                "block_configs": [{"attention": {"n_heads_in_group": 4}}] * 2,
            },
            "PLAN069",
        ),
        ({"num_attention_heads": 3}, "PLAN052"),
        ({"quantization_config": {"quant_method": "mxfp8", "quant_algo": 1}}, None),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(
    planning: Planning, tmp_path: Path, changed: dict[str, Any], code: str | None
) -> None:
    """Heads that do not divide the width are named; a form that is none harms no files."""
    write(tmp_path, {**LLAMA, **changed}, llama_shapes())
    if code is None:
        assert plan_of(planning, tmp_path).kv_bytes_per_token
        return
    with pytest.raises(HeavyliftError) as caught:
        planning.knowledge(str(tmp_path))
    assert caught.value.code == code


def test_a_shape_that_is_not_whole_is_refused(planning: Planning, tmp_path: Path) -> None:
    """Four-bit weights of an odd width, of a config alone."""
    stated = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    odd = {**LLAMA, "intermediate_size": 1023, "quantization_config": stated}
    (tmp_path / "config.json").write_text(json.dumps(odd))
    with pytest.raises(HeavyliftError) as caught:
        planning.knowledge(str(tmp_path))
    assert caught.value.code == "PLAN069"


def test_tensors_beyond_the_last_layer_are_loaded_only_to_speculate(
    planning: Planning, tmp_path: Path
) -> None:
    """So are those that are called a prediction head, wherever they lie."""
    more = {"model.layers.2.eh_proj.weight": (512, 1024), "mtp.fc.weight": (512, 512)}
    whole = write(tmp_path, LLAMA, {**llama_shapes(), **more})
    drafts = sum(2 * math.prod(shape) for shape in more.values())
    assert plan_of(planning, tmp_path).per_gpu.weights_bytes.low == whole - drafts


def test_what_a_quantiser_wrote_beside_a_config_is_read(planning: Planning, tmp_path: Path) -> None:
    """A config that says nothing of it would make FP8 weights twice as large."""
    tmp_path.joinpath("config.json").write_text(json.dumps(LLAMA))
    plain = plan_of(planning, tmp_path)
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(MODELOPT))
    packed = plan_of(planning, tmp_path)
    tables = 2 * 2 * 1024 * 512
    ratio = (packed.per_gpu.weights_bytes.low - tables) / (plain.per_gpu.weights_bytes.low - tables)
    assert ratio == pytest.approx(0.5, abs=0.01)
    assert packed.kv_cache_dtype == "fp8"


@pytest.mark.parametrize("beside", ["{", "[]", "[" * 100_000, '{"quantization": 3}'])
def test_a_quantisers_file_that_says_nothing_changes_nothing(
    planning: Planning, tmp_path: Path, beside: str
) -> None:
    """The config is then all there is."""
    tmp_path.joinpath("config.json").write_text(json.dumps(LLAMA))
    plain = plan_of(planning, tmp_path)
    (tmp_path / "hf_quant_config.json").write_text(beside)
    assert plan_of(planning, tmp_path).per_gpu == plain.per_gpu


def test_a_config_with_pythons_infinity_is_read(planning: Planning, tmp_path: Path) -> None:
    """Published configs of hybrids have it in their limits of time steps."""
    text = json.dumps({**LLAMA, "time_step_limit": [0.0, math.inf], "x": math.nan})
    assert "Infinity" in text
    write(tmp_path, LLAMA, llama_shapes())
    (tmp_path / "config.json").write_text(text)
    assert plan_of(planning, tmp_path).kv_bytes_per_token == 2 * 2 * 2 * 64 * 2
    found = inspect(str(tmp_path), planning.catalog, None)
    assert found.defects == ()
    assert found.model_type == "llama"


@pytest.mark.parametrize("name", ["", "  ", "　"])
def test_nothing_is_no_name(
    planning: Planning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Not even in a folder that holds a model."""
    write(tmp_path, LLAMA, llama_shapes())
    monkeypatch.chdir(tmp_path)
    for ask in (planning.knowledge, lambda text: inspect(text, planning.catalog, None)):
        with pytest.raises(HeavyliftError) as caught:
            ask(name)
        assert caught.value.code == "FACT010"


def test_the_config_stands_for_its_folder(planning: Planning, tmp_path: Path) -> None:
    """Plans and inspections take either."""
    whole = write(tmp_path, LLAMA, llama_shapes())
    for path in (tmp_path, tmp_path / "config.json"):
        assert inspect(str(path), planning.catalog, None).tensor_bytes == whole
        assert plan_of(planning, path).per_gpu.weights_bytes.low == whole


def test_a_tower_without_files_is_said_to_be_left_out(tmp_path: Path) -> None:
    """Of a config alone its weights are not known; where the family lists them nothing is said."""
    planning = Planning()
    document = {**LLAMA, "model_type": "mistral3", "vision_config": {"hidden_size": 64}}
    (tmp_path / "config.json").write_text(json.dumps(document))
    planning.knowledge(str(tmp_path))
    found = [(each.problem, each.detail, each.is_remark) for each in planning.remarks]
    assert found == [("tower_not_counted", "vision_config", True)]
    whole = write(tmp_path, document, {**llama_shapes(), "vision_tower.w": (64, 64)})
    planning = Planning()
    assert planning.knowledge(str(tmp_path)).model.inventories["native"].bytes_total == whole
    assert planning.remarks == []


def test_a_form_that_only_the_name_speaks_of_is_not_taken_and_not_passed_over(
    tmp_path: Path,
) -> None:
    """A config without its quantiser's file is planned plain, and the plan says so."""
    folder = tmp_path / "Some-Llama-NVFP4"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    planning = Planning()
    planning.knowledge(str(folder))
    assert [(each.problem, each.is_remark) for each in planning.remarks] == [("form_in_name", True)]
    (folder / "hf_quant_config.json").write_text(json.dumps(MODELOPT))
    planning = Planning()
    planning.knowledge(str(folder))
    assert planning.remarks == []


# --- forms that nobody described -----------------------------------------------------------------


def dressed(pieces: Mapping[str, Callable[[int, int], Sequence[int]]]) -> dict[str, Sequence[int]]:
    """The tensors of `LLAMA` with others in the place of each matrix of a layer."""
    found: dict[str, Sequence[int]] = {}
    for name, shape in llama_shapes().items():
        if "_proj." not in name:
            found[name] = shape
            continue
        rows, columns = shape
        module = name.removesuffix(".weight")
        found.update({f"{module}.{end}": of(rows, columns) for end, of in pieces.items()})
    return found


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "exl3": (
        {"quant_method": "exl3", "bits": 3.0},
        {
            "trellis": lambda rows, columns: (columns // 16, rows // 16, 48),
            "suh": lambda _, columns: (columns,),
            "svh": lambda rows, _: (rows,),
        },
        {"trellis": "I16"},
    ),
    "hqq": (
        {"quant_method": "hqq"},
        {
            "W_q": lambda rows, columns: (rows * columns // 128, 64),
            "scale": lambda rows, columns: (rows * columns // 64, 1),
        },
        {"W_q": "U8"},
    ),
    "torchao": (
        {"quant_method": "torchao", "quant_type": {}},
        {"weight:_packed": lambda rows, columns: (rows, columns // 8)},
        {"weight:_packed": "I32"},
    ),
}


@pytest.mark.parametrize(
    ("form", "status"), [("exl3", "unsupported"), ("hqq", "unsupported"), ("torchao", "unverified")]
)
def test_a_form_nobody_described_has_the_bytes_of_its_files(
    planning: Planning, tmp_path: Path, form: str, status: str
) -> None:
    """Whether an engine reads it is what its lists say of the name; how many weights it packs is
    not known. A config without files has no bytes to go by.
    """
    stated, pieces, dtypes = FORMS[form]
    config = {**LLAMA, "quantization_config": stated}
    whole = write(tmp_path, config, dressed(pieces), dtypes)
    one = plan_of(planning, tmp_path, engine="vllm")
    two = plan_of(planning, tmp_path, "2xH100", engine="vllm", layout=PAIR)
    assert one.per_gpu.weights_bytes.low == one.per_gpu.weights_bytes.high == whole
    assert two.per_gpu.weights_bytes.high == pytest.approx(whole / 2, rel=0.01)
    assert one.kv_bytes_per_token == 2 * 2 * 2 * 64 * 2
    assert one.support.status.value == status
    assert inspect(str(tmp_path), planning.catalog, None).total_params is None
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(HeavyliftError) as caught:
        planning.knowledge(str(tmp_path))
    assert caught.value.code == "PLAN060"


# --- GGUF ----------------------------------------------------------------------------------------


def gguf(path: Path, architecture: str | None, **said: Scalar | tuple[Scalar, ...]) -> Path:
    """A GGUF file of two layers with what its header says (`_` for a dot in front of a part)."""
    metadata = {
        f"{architecture}.{name.replace('__', '.')}": Entry(ValueType.UINT32, value)
        for name, value in said.items()
    }
    if architecture is not None:
        metadata["general.architecture"] = Entry(ValueType.STRING, architecture)
    tensors = [TensorSpec(name="token_embd.weight", dims=(512, 1000), dtype="Q8_0")]
    tensors += [
        TensorSpec(name=f"blk.{layer}.attn_q.weight", dims=(512, 512), dtype="MXFP4")
        for layer in range(4)
    ]
    layout = build(metadata, tensors)
    path.write_bytes(layout.header)
    with path.open("r+b") as file:
        file.truncate(layout.total_bytes)
    return path


PLAIN: dict[str, Scalar | tuple[Scalar, ...]] = {
    "block_count": 4,
    "embedding_length": 512,
    "feed_forward_length": 1024,
    "context_length": 4096,
    "attention__head_count": 8,
    "attention__head_count_kv": 2,
    "attention__key_length": 64,
}
BYTES = 1000 * 512 // 32 * 34 + 4 * 512 * 512 // 32 * 17


@pytest.mark.parametrize(
    ("architecture", "said", "per_token"),
    [
        ("qwen3", PLAIN, 4 * 2 * 2 * 64 * 2),
        ("llama", {**PLAIN, "expert_count": 8, "expert_used_count": 2}, 4 * 2 * 2 * 64 * 2),
        ("qwen3", {**PLAIN, "attention__head_count_kv": (2, 2, 2, 2)}, 4 * 2 * 2 * 64 * 2),
        (
            "lfm2",
            {**PLAIN, "attention__head_count_kv": (0, 2, 0, 2), "shortconv__l_cache": 3},
            2 * 2 * 2 * 64 * 2,
        ),
        (
            "deepseek2",
            {
                **PLAIN,
                "attention__kv_lora_rank": 128,
                "attention__key_length": 160,
                "attention__key_length_mla": 96,
                "attention__value_length_mla": 64,
                "rope__dimension_count": 32,
                "leading_dense_block_count": 1,
                "expert_count": 8,
                "expert_used_count": 2,
                "expert_shared_count": 1,
                "expert_feed_forward_length": 256,
            },
            4 * (128 + 32) * 2,
        ),
    ],
)
def test_a_gguf_of_a_model_nobody_named_is_planned_by_its_header(
    planning: Planning,
    tmp_path: Path,
    architecture: str,
    said: dict[str, Scalar | tuple[Scalar, ...]],
    per_token: int,
) -> None:
    """Its bytes are the file's, its KV what the header says for every layer; the engine's own list
    has the architecture.
    """
    path = gguf(tmp_path / "Some-Model-Q4_K_M.gguf", architecture, **said)
    plan = plan_of(planning, path, "1xRTX 4090", context_tokens=2048)
    assert plan.model == "Some-Model-Q4_K_M"
    assert plan.per_gpu.weights_bytes.low == plan.per_gpu.weights_bytes.high == BYTES
    assert plan.kv_bytes_per_token == per_token
    assert plan.verdict is PlanVerdict.FITS


@pytest.mark.parametrize(
    ("architecture", "said"),
    [
        ("novel", PLAIN),
        ("llama", {"block_count": 4, "embedding_length": 512}),
        ("gpt-oss", {**PLAIN, "attention__head_count": 0}),
    ],
)
def test_a_gguf_that_says_too_little_has_exact_weights_and_unknown_rest(
    planning: Planning,
    tmp_path: Path,
    architecture: str,
    said: dict[str, Scalar | tuple[Scalar, ...]],
) -> None:
    """An architecture nobody described, missing keys, heads of nought: nothing is guessed."""
    plan = plan_of(planning, gguf(tmp_path / "x.gguf", architecture, **said), "1xRTX 4090")
    assert plan.per_gpu.weights_bytes.high == BYTES
    assert plan.per_gpu.kv_cache_bytes.high is None
    assert plan.verdict is PlanVerdict.UNKNOWN


def test_a_gguf_without_an_architecture_is_no_model(planning: Planning, tmp_path: Path) -> None:
    """Its bytes can be inspected, not planned."""
    with pytest.raises(HeavyliftError) as caught:
        planning.knowledge(str(gguf(tmp_path / "x.gguf", None)))
    assert caught.value.code == "PLAN061"
