"""Kimi K3 without its weights: a tiny random one that serves, and the header of the whole one.

The tiny model has the real architecture (3 KDA layers : 1 MLA, latent MXFP4 experts, attention
residuals) in a thousandth of the width, so that an engine's own memory lines can be held against
the planner's formulas on any machine. The header is that of all 2.78 T parameters over a hole: an
engine that plans before it loads can be asked what it would take.
"""

from __future__ import annotations

import dataclasses
import math
import random
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from heavylift.checkpoint.gguf import Entry, GgufFile, GgufTensor, Scalar, ValueType
from heavylift.checkpoint.gguf_file import read_gguf
from heavylift.checkpoint.gguf_writer import TensorSpec, build, write_gguf
from heavylift.checkpoint.inventory import Inventory, from_facts
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import Fact, FactKind, ModelFacts

MODEL_ID: Final = "kimi-k3"
TINY_ID: Final = "kimi-k3-tiny-random"
VARIANT: Final = "mxfp4-gguf"
SEED: Final = 0

# The head of the latent (512 + 64) and of the KDA state (128) keep their real size: kernels are
# written for them. Everything else is as small as the block sizes allow.
_TINY_DIMS: Final = {
    "layers": 9,
    "hidden_size": 256,
    "intermediate_size": 512,
    "vocab_size": 49152,
    "heads": 4,
    "q_lora_rank": 96,
    "linear_heads": 4,
    "experts": 8,
    "experts_per_token": 2,
    "moe_intermediate_size": 64,
    "expert_latent_size": 128,
    "attn_res_block_size": 4,
}
_TINY_LAYERS: Final = {
    "all": tuple(range(9)),
    "kda": (0, 1, 2, 4, 5, 6),
    "mla": (3, 7, 8),
    "dense": (0,),
    "moe": tuple(range(1, 9)),
    "vision": (),
}
_TINY_CONTEXT: Final = 8192

# Scalars of the released config.json that decide arithmetic, not memory.
_RMS_NORM_EPSILON: Final = 1e-5
_GATE_LOWER_BOUND: Final = -5.0
_ROUTED_SCALING: Final = 1.0
_SITU_BETA: Final = 4.0
_SITU_LINEAR_BETA: Final = 25.0
# Numbers of llama.cpp's own enumerations: file type "MXFP4 MoE", gating function "sigmoid".
_FILE_TYPE_MXFP4_MOE: Final = 38
_GATING_SIGMOID: Final = 2

_TOKENIZER: Final = "tokenizer."
_CHAT_TEMPLATE_KEY: Final = "tokenizer.chat_template"
_CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

RandomBytes = Callable[[int], bytes]


def tiny_model(model: ModelFacts) -> ModelFacts:
    """The facts of the tiny K3: `model` (Kimi K3) with small dimensions and nine layers."""

    def small(value: int, like: Fact[int]) -> Fact[int]:
        return dataclasses.replace(like, value=value, kind=FactKind.ASSUMED, note=None)

    dims = {
        name: small(_TINY_DIMS.get(name, fact.value), fact) for name, fact in model.dims.items()
    }
    layers = {
        name: dataclasses.replace(fact, value=_TINY_LAYERS[name], kind=FactKind.ASSUMED)
        for name, fact in model.layers.items()
    }
    return dataclasses.replace(
        model,
        id=TINY_ID,
        title=TINY_ID,
        names=(),
        dims=dims,
        layers=layers,
        variants=tuple(entry for entry in model.variants if entry.id == VARIANT),
        totals=None,
        max_context=small(_TINY_CONTEXT, model.max_context),
        published_total_gb=None,
    )


def write_tiny_k3(path: Path, *, tokenizer_from: Path, seed: int = SEED) -> Path:
    """Write a tiny K3 of random weights (70 MB) to `path`, the same bytes for the same seed.

    The vocabulary is copied from the GGUF file `tokenizer_from`, which must hold 49,152 tokens.
    Raises what `read_gguf` and `write_gguf` raise.
    """
    catalog = Catalog()
    model = tiny_model(catalog.model(MODEL_ID))
    metadata = gguf_metadata(model, copied_tokenizer(read_gguf(tokenizer_from)))
    layout = build(metadata, tensor_specs(_inventory(model, catalog)))
    # Not for secrets: the same seed must give the same file.
    randbytes = random.Random(seed).randbytes  # noqa: S311
    write_gguf(path, layout, lambda tensor: random_tensor(tensor, randbytes))
    return path


def write_k3_header(path: Path) -> Path:
    """Write the header of the whole K3 over a hole: 1.56 TB to read, 3 MB on disk.

    Raises ENV030 when the file system does not do sparse files of that size.
    """
    catalog = Catalog()
    model = catalog.model(MODEL_ID)
    metadata = gguf_metadata(model, numbered_tokenizer(model.dim("vocab_size")))
    layout = build(metadata, tensor_specs(_inventory(model, catalog)))
    write_gguf(path, layout, None)
    return path


def _inventory(model: ModelFacts, catalog: Catalog) -> Inventory:
    (variant,) = (entry for entry in model.variants if entry.id == VARIANT)
    return from_facts(model, catalog.family(model.family), variant)


def tensor_specs(inventory: Inventory) -> tuple[TensorSpec, ...]:
    """Every tensor of an inventory whose groups are GGUF patterns, group by group."""
    return tuple(
        TensorSpec(name=group.name.format(l=layer), dims=group.shape, dtype=group.dtype)
        for group in inventory.groups
        for layer in group.layers or (0,)
    )


def gguf_metadata(model: ModelFacts, tokenizer: Mapping[str, Entry]) -> dict[str, Entry]:
    """The metadata llama.cpp's kimi-k3 graph reads, from the model's dimensions."""
    dim = model.dim
    architecture = MODEL_ID
    latent = dim("kv_lora_rank")
    rope = dim("qk_rope_head_dim")
    mla = set(model.layer_set("mla"))
    whole = {
        "context_length": model.max_context.value,
        "embedding_length": dim("hidden_size"),
        "block_count": dim("layers"),
        "feed_forward_length": dim("intermediate_size"),
        "vocab_size": dim("vocab_size"),
        "attention.head_count": dim("heads"),
        "attention.key_length": latent + rope,
        "attention.value_length": latent,
        "attention.key_length_mla": dim("qk_nope_head_dim") + rope,
        "attention.value_length_mla": dim("v_head_dim"),
        "attention.q_lora_rank": dim("q_lora_rank"),
        "attention.kv_lora_rank": latent,
        "rope.dimension_count": rope,
        "ssm.conv_kernel": dim("conv_kernel"),
        "kda.head_dim": dim("linear_head_dim"),
        "expert_count": dim("experts"),
        "expert_used_count": dim("experts_per_token"),
        "expert_feed_forward_length": dim("moe_intermediate_size"),
        "expert_shared_count": dim("shared_experts"),
        "expert_latent_length": dim("expert_latent_size"),
        "expert_gating_func": _GATING_SIGMOID,
        "leading_dense_block_count": len(model.layer_set("dense")),
        "attn_res.block_size": dim("attn_res_block_size"),
    }
    real = {
        "attention.layer_norm_rms_epsilon": _RMS_NORM_EPSILON,
        "kda.gate_lower_bound": _GATE_LOWER_BOUND,
        "expert_weights_scale": _ROUTED_SCALING,
        "activation.situ_beta": _SITU_BETA,
        "activation.situ_linear_beta": _SITU_LINEAR_BETA,
    }
    # A layer without KV heads is a KDA layer: that is how the file says which are which.
    kv_heads = tuple(int(layer in mla) for layer in model.layer_set("all"))
    return {
        "general.architecture": Entry(ValueType.STRING, architecture),
        "general.name": Entry(ValueType.STRING, model.title),
        "general.file_type": Entry(ValueType.UINT32, _FILE_TYPE_MXFP4_MOE),
        **{f"{architecture}.{key}": Entry(ValueType.UINT32, value) for key, value in whole.items()},
        **{f"{architecture}.{key}": Entry(ValueType.FLOAT32, value) for key, value in real.items()},
        f"{architecture}.expert_weights_norm": Entry(ValueType.BOOL, True),
        f"{architecture}.attention.head_count_kv": Entry(ValueType.INT32, kv_heads),
        **tokenizer,
    }


def copied_tokenizer(file: GgufFile) -> dict[str, Entry]:
    """The vocabulary of another GGUF file, with a plain ChatML template."""
    entries = {key: entry for key, entry in file.metadata.items() if key.startswith(_TOKENIZER)}
    return entries | {_CHAT_TEMPLATE_KEY: Entry(ValueType.STRING, _CHAT_TEMPLATE)}


def numbered_tokenizer(vocab_size: int) -> dict[str, Entry]:
    """A vocabulary of `t0`, `t1`, …: enough for an engine to size its buffers, not to speak."""
    tokens: tuple[Scalar, ...] = tuple(f"t{number}" for number in range(vocab_size))
    return {
        "tokenizer.ggml.model": Entry(ValueType.STRING, "gpt2"),
        "tokenizer.ggml.pre": Entry(ValueType.STRING, "kimi-k2"),
        "tokenizer.ggml.tokens": Entry(ValueType.STRING, tokens),
        "tokenizer.ggml.token_type": Entry(ValueType.INT32, (1,) * vocab_size),
        "tokenizer.ggml.merges": Entry(ValueType.STRING, ("t 0",)),
        "tokenizer.ggml.bos_token_id": Entry(ValueType.UINT32, 1),
        "tokenizer.ggml.eos_token_id": Entry(ValueType.UINT32, 2),
        _CHAT_TEMPLATE_KEY: Entry(ValueType.STRING, _CHAT_TEMPLATE),
    }


# --- random weights ------------------------------------------------------------------------------


def random_tensor(tensor: GgufTensor, randbytes: RandomBytes) -> bytes:
    """Bytes of one tensor, scaled so that activations neither vanish nor overflow.

    Norms are ones, KDA decay rates lie in (-e, -1), the rest is spread around row**-0.5.
    """
    if tensor.name.endswith("norm.weight"):
        return struct.pack("<f", 1.0) * tensor.elements
    if tensor.name.endswith("ssm_a"):
        rates = [-math.exp(byte / 256) for byte in randbytes(tensor.elements)]
        return struct.pack(f"<{tensor.elements}f", *rates)
    if tensor.dtype == "MXFP4":
        return _random_mxfp4(tensor.bytes, randbytes)
    halves = _random_bf16(tensor.elements, tensor.dims[0], randbytes)
    return halves if tensor.dtype == "BF16" else _widened(halves)


def _random_bf16(count: int, row: int, randbytes: RandomBytes) -> bytes:
    """`count` bf16 numbers of random sign with magnitudes over two octaves about row**-0.5.

    A bf16 is two bytes: sign and the upper seven bits of the exponent, then the exponent's last bit
    and the mantissa. With the upper byte fixed but for its sign and the lower one random, the
    numbers spread over [2**e, 2**(e+2)): as good as a bell curve here, and fast without numpy.
    """
    upper = (127 + round(-0.5 * math.log2(row)) - 1) >> 1
    signed = bytes(upper | (byte & 0x80) for byte in range(256))
    out = bytearray(2 * count)
    out[0::2] = randbytes(count)
    out[1::2] = randbytes(count).translate(signed)
    return bytes(out)


def _widened(halves: bytes) -> bytes:
    """bf16 numbers as f32: the same bits above sixteen zeros."""
    out = bytearray(2 * len(halves))
    out[2::4] = halves[0::2]
    out[3::4] = halves[1::2]
    return bytes(out)


def _random_mxfp4(size: int, randbytes: RandomBytes) -> bytes:
    """MXFP4 blocks of random weights: 17 bytes, of which the first is the shared exponent."""
    block, exponent = 17, 123  # 2**(123 - 127): weights up to 6/16
    out = bytearray(randbytes(size))
    out[0::block] = bytes([exponent]) * (size // block)
    return bytes(out)
