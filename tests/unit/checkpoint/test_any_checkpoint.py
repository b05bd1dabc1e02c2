"""Checkpoints of architectures without a model in the catalogue: what they keep of a text.

The configs hold the fields of the published ones (copies in ai-dynamo/aiconfigurator 095f58a) or
the defaults of transformers 5.24.0; what is expected is counted by hand from the model files of
vLLM 0.32.0 and transformers 5.24.0, layer by layer.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from heavylift.checkpoint.config import ConfigFile, model_from_config, text_part, uncovered
from heavylift.checkpoint.inventory import from_facts
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.expressions import evaluate
from heavylift.facts.schema import FamilyFacts, ModelFacts

CATALOG = Catalog()
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def read(document: dict[str, Any]) -> tuple[ModelFacts, FamilyFacts]:
    """The model of a config, by the first family that covers it."""
    config = ConfigFile(path="config.json", document=document, read_on=date(2026, 11, 30))
    claiming = CATALOG.families_for_hf_type(config.model_type())
    family = next(each for each in claiming if uncovered(config, each) is None)
    formats = ("safetensors",) if family.formats else ()
    return model_from_config(config, family, identifier="x", formats=formats), family


def kept(document: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """What every cache keeps (layers, elements a token, window) and every state (layers, elements);
    those of no layers left out.
    """
    model, family = read(document)
    dims = model.dim_values
    found: dict[str, tuple[int, ...]] = {}
    for cache in family.caches:
        layers = len(model.layer_set(cache.layers))
        window = evaluate(cache.window, dims) if isinstance(cache.window, str) else cache.window
        shared = cache.tokens_per_entry
        tokens = evaluate(shared, dims) if isinstance(shared, str) else shared
        sizes = (layers, evaluate(str(cache.elements), dims), window)
        found[cache.id] = sizes if tokens == 1 else (*sizes, tokens)
    for state in family.states:
        layers = len(model.layer_set(state.layers))
        found[state.id] = (layers, evaluate(str(state.elements), dims))
    return {name: sizes for name, sizes in found.items() if sizes[0]}


def decoder(model_type: str, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    """The fields that nearly every config has."""
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "hidden_size": 4096,
        "intermediate_size": 8192,
        "vocab_size": 131072,
        "max_position_embeddings": 131072,
        **more,
    }


MLA = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
MAMBA2 = {"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128}
SUPER = decoder(
    "nemotron_h",
    88,
    32,
    intermediate_size=2688,
    num_key_value_heads=2,
    head_dim=128,
    hybrid_override_pattern=(
        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
    ),
    mamba_num_heads=128,
    mamba_head_dim=64,
    n_groups=8,
    ssm_state_size=128,
    conv_kernel=4,
    n_routed_experts=512,
    num_experts_per_tok=22,
    moe_intermediate_size=2688,
    moe_latent_size=1024,
    moe_shared_expert_intermediate_size=5376,
    tie_word_embeddings=False,
)
KEPT: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "every layer of a GLM-4.5 keeps 8 heads, the prediction layer apart": (
        decoder(
            "glm4_moe",
            46,
            96,
            num_key_value_heads=8,
            head_dim=128,
            first_k_dense_replace=1,
            n_routed_experts=128,
            n_shared_experts=1,
            num_experts_per_tok=8,
            moe_intermediate_size=1408,
            num_nextn_predict_layers=1,
        ),
        {"gqa": (46, 2 * 8 * 128, 0)},
    ),
    "three of four layers of a Command A see 4,096 tokens": (
        decoder("cohere2", 64, 96, num_key_value_heads=8, head_dim=128, sliding_window=4096),
        {"full": (16, 2048, 0), "sliding": (48, 2048, 4096)},
    ),
    "three of four layers of an OLMo 3 see a window, all heads keep": (
        decoder(
            "olmo3",
            8,
            32,
            sliding_window=4096,
            layer_types=[SLIDING] * 3 + [FULL] + [SLIDING] * 3 + [FULL],
        ),
        {"full": (2, 2 * 32 * 128, 0), "sliding": (6, 2 * 32 * 128, 4096)},
    ),
    "Step 3.7 sees 512 tokens in 33 layers and all in 12": (
        decoder(
            "step3p7",
            45,
            64,
            num_key_value_heads=8,
            head_dim=128,
            sliding_window=512,
            layer_types=([FULL] + [SLIDING] * 3) * 11 + [FULL],
            num_experts=288,
            num_experts_per_tok=8,
            moe_intermediate_size=1280,
            share_expert_dim=1280,
        ),
        {"full": (12, 2048, 0), "sliding": (33, 2048, 512)},
    ),
    "MiniMax-M3 keeps an index key in its 57 sparse layers beside 4 heads in all": (
        decoder(
            "minimax_m3",
            60,
            64,
            num_key_value_heads=4,
            head_dim=128,
            num_local_experts=128,
            num_experts_per_tok=4,
            moe_intermediate_size=3072,
            dense_intermediate_size=12288,
            shared_intermediate_size=3072,
            moe_layer_freq=[0] * 3 + [1] * 57,
            sparse_attention_config={
                "sparse_index_dim": 128,
                "sparse_num_index_heads": 4,
                "sparse_attention_freq": [0] * 3 + [1] * 57,
            },
        ),
        {"gqa": (60, 1024, 0), "index_keys": (57, 128, 0)},
    ),
    "a model made by search keeps what each layer says, or nothing": (
        decoder(
            "nemotron-nas",
            4,
            64,
            hidden_size=8192,
            block_configs=[
                {"attention": {"n_heads_in_group": 8, "no_op": False}},
                {"attention": {"n_heads_in_group": None, "no_op": True}},
                {"attention": {"n_heads_in_group": 16, "no_op": False}},
                {"attention": {"n_heads_in_group": 8, "no_op": False}},
            ],
        ),
        {"by_8": (2, 2 * 8 * 128, 0), "by_16": (1, 2 * 4 * 128, 0)},
    ),
    "Nemotron 3 Super attends in 8 of 88 layers": (
        SUPER,
        {
            "gqa": (8, 512, 0),
            "mamba_recurrent": (40, 128 * 64 * 128),
            "mamba_conv": (40, (128 * 64 + 2 * 8 * 128) * 3),
        },
    ),
    "Ring 2.5 keeps a latent in the last of each ten layers, matrices in the others": (
        decoder(
            "bailing_hybrid",
            80,
            64,
            architectures=["BailingMoeV2_5ForCausalLM"],
            head_dim=128,
            layer_group_size=10,
            num_experts=256,
            num_experts_per_tok=8,
            moe_intermediate_size=2048,
            **MLA,
        ),
        {"mla_latent": (8, 576, 0), "lightning": (72, 64 * 128 * 128)},
    ),
    "Ring mini linear 2.0 keeps 4 heads in the last of each five layers": (
        decoder(
            "bailing_moe_linear",
            20,
            16,
            hidden_size=2048,
            num_key_value_heads=4,
            head_dim=128,
            layer_group_size=5,
            num_experts=256,
            num_experts_per_tok=8,
            moe_intermediate_size=512,
        ),
        {"gqa": (4, 2 * 4 * 128, 0), "lightning": (16, 16 * 128 * 128)},
    ),
    "Ling 3 is KDA but for the last of each six layers": (
        decoder(
            "bailing_hybrid",
            42,
            32,
            architectures=["BailingMoeV3ForCausalLM"],
            head_dim=128,
            layer_group_size=6,
            short_conv_kernel_size=4,
            num_experts=512,
            num_experts_per_tok=8,
            moe_intermediate_size=768,
            **MLA,
        ),
        {
            "mla_latent": (7, 576, 0),
            "kda_recurrent": (35, 32 * 128 * 128),
            "kda_conv": (35, 3 * 32 * 128 * 3),
        },
    ),
    "GLM-5.3's hybrid keeps an index key for sixteen tokens, without a rotary part": (
        {
            "model_type": "glm5_next",
            "text_config": decoder(
                "glm5_next_text",
                45,
                64,
                index_head_dim=128,
                index_kpool=16,
                linear_num_heads=64,
                linear_head_dim=128,
                linear_conv_kernel_dim=4,
                n_routed_experts=288,
                num_experts_per_tok=8,
                moe_intermediate_size=2048,
                layer_types=([LINEAR] * 3 + ["deepseek_sparse_attention"]) * 11 + [LINEAR],
                indexer_types=["full"] * 45,
                **{**MLA, "qk_rope_head_dim": 0},
            ),
        },
        {
            "mla_latent": (11, 512, 0),
            "index_keys": (11, 128, 0, 16),
            "kda_recurrent": (34, 64 * 128 * 128),
            "kda_conv": (34, 3 * 64 * 128 * 3),
        },
    ),
    "Qwen3.8-Flash-Next keeps an index key for four tokens, and inputs of two convolutions": (
        {
            "model_type": "qwen4_exp",
            "text_config": decoder(
                "qwen4_exp_text",
                48,
                24,
                hidden_size=2560,
                num_key_value_heads=2,
                head_dim=256,
                full_attention_interval=4,
                layer_types=([LINEAR] * 3 + [FULL]) * 12,
                linear_num_key_heads=16,
                linear_num_value_heads=48,
                linear_key_head_dim=128,
                linear_value_head_dim=128,
                linear_conv_kernel_dim=4,
                indexer_head_dim=128,
                indexer_compress_ratio=4,
                hc_count=4,
                ngram_size=3,
                ple_conv_kernel_size=4,
                ple_layer_ids=[2, 24],
                num_experts=512,
                num_experts_per_tok=10,
                moe_intermediate_size=640,
            ),
        },
        {
            "gqa": (12, 2 * 2 * 256, 0),
            "index_keys": (12, 128, 0, 4),
            "gdn_recurrent": (36, 48 * 128 * 128),
            "gdn_conv": (36, (2 * 16 * 128 + 48 * 128) * 3),
            "ngram_conv": (2, 4 * 2560 * 3 * 3),
        },
    ),
    "Inkling's windows have heads of their own, and every layer four short convolutions": (
        {
            "model_type": "inkling",
            "text_config": decoder(
                "inkling_text",
                66,
                64,
                hidden_size=6144,
                num_key_value_heads=8,
                head_dim=128,
                swa_num_attention_heads=64,
                swa_num_key_value_heads=16,
                swa_head_dim=128,
                sliding_window_size=512,
                conv_kernel_size=4,
                n_routed_experts=256,
                num_experts_per_tok=6,
                local_layer_ids=[i for i in range(66) if (i + 1) % 6],
            ),
        },
        {
            "full": (11, 2048, 0),
            "sliding": (55, 4096, 512),
            "short_conv_full": (11, (2048 + 2 * 6144) * 3),
            "short_conv_sliding": (55, (4096 + 2 * 6144) * 3),
        },
    ),
    "the last 15 of 35 layers of a Gemma 3n read the keys of others": (
        {
            "model_type": "gemma3n",
            "text_config": {
                "model_type": "gemma3n_text",
                "num_hidden_layers": 35,
                "hidden_size": 2048,
                "num_attention_heads": 8,
                "num_key_value_heads": 2,
                "head_dim": 256,
                "sliding_window": 512,
                "num_kv_shared_layers": 15,
                "vocab_size": 262400,
                "max_position_embeddings": 32768,
                "layer_types": ([SLIDING] * 4 + [FULL]) * 7,
            },
        },
        {"full": (4, 1024, 0), "sliding": (16, 1024, 512)},
    ),
    "a small Gemma 4 shares as well, with wider heads where it sees all": (
        {
            "model_type": "gemma4",
            "text_config": decoder(
                "gemma4_text",
                35,
                8,
                num_key_value_heads=1,
                head_dim=256,
                global_head_dim=512,
                sliding_window=512,
                num_kv_shared_layers=20,
                hidden_size_per_layer_input=256,
                layer_types=([SLIDING] * 4 + [FULL]) * 7,
            ),
        },
        {"full": (3, 2 * 512, 0), "sliding": (12, 2 * 256, 512)},
    ),
    "Granite 4 attends where its list says so": (
        decoder(
            "granitemoehybrid",
            40,
            32,
            num_key_value_heads=8,
            **MAMBA2,
            layer_types=(["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
        ),
        {
            "gqa": (4, 2 * 8 * 128, 0),
            "mamba_recurrent": (36, 128 * 64 * 128),
            "mamba_conv": (36, (128 * 64 + 2 * 128) * 3),
        },
    ),
    "Falcon-H1 attends and has a state in every layer": (
        decoder(
            "falcon_h1",
            44,
            12,
            hidden_size=3072,
            num_key_value_heads=2,
            head_dim=128,
            mamba_d_ssm=3072,
            mamba_n_heads=24,
            mamba_d_head=128,
            mamba_n_groups=2,
            mamba_d_state=256,
        ),
        {
            "gqa": (44, 512, 0),
            "mamba_recurrent": (44, 24 * 128 * 256),
            "mamba_conv": (44, (3072 + 2 * 2 * 256) * 3),
        },
    ),
    "Jamba attends in the fifth of every eight layers": (
        decoder(
            "jamba",
            32,
            32,
            num_key_value_heads=8,
            mamba_d_state=16,
            mamba_d_conv=4,
            mamba_expand=2,
            attn_layer_period=8,
            attn_layer_offset=4,
            num_experts=16,
            num_experts_per_tok=2,
        ),
        {"gqa": (4, 2048, 0), "mamba_recurrent": (28, 8192 * 16), "mamba_conv": (28, 8192 * 3)},
    ),
    "Mamba-2 keeps nothing for a token": (
        {
            "model_type": "mamba2",
            "num_hidden_layers": 64,
            "hidden_size": 4096,
            "num_heads": 128,
            "head_dim": 64,
            "n_groups": 8,
            "state_size": 128,
            "conv_kernel": 4,
            "vocab_size": 32768,
        },
        {"mamba_recurrent": (64, 128 * 64 * 128), "mamba_conv": (64, (8192 + 2 * 8 * 128) * 3)},
    ),
    "every layer of a LongCat attends twice": (
        decoder(
            "longcat_flash",
            28,
            64,
            n_routed_experts=512,
            moe_topk=12,
            expert_ffn_hidden_size=2048,
            num_layers=28,
            **MLA,
        ),
        {"mla_latent": (28, 2 * 576, 0)},
    ),
    "StarCoder keeps one head, GPT-2 all of them": (
        {
            "model_type": "gpt_bigcode",
            "n_layer": 40,
            "n_embd": 6144,
            "n_head": 48,
            "multi_query": True,
            "n_positions": 8192,
            "vocab_size": 49152,
        },
        {"mqa": (40, 2 * 128, 0)},
    ),
    "a Falcon of the new form keeps as many heads as it says": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 60,
            "hidden_size": 8192,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "new_decoder_architecture": True,
            "multi_query": True,
            "vocab_size": 65024,
        },
        {"gqa": (60, 2 * 8 * 64, 0)},
    ),
    "a Falcon without the new form keeps one head": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 32,
            "hidden_size": 4544,
            "num_attention_heads": 71,
            "multi_query": True,
            "vocab_size": 65024,
        },
        {"mqa": (32, 2 * 64, 0)},
    ),
    "ChatGLM counts its groups and channels in words of its own": (
        {
            "model_type": "chatglm",
            "num_layers": 40,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "kv_channels": 128,
            "padded_vocab_size": 151552,
            "seq_length": 131072,
        },
        {"gqa": (40, 2 * 2 * 128, 0)},
    ),
    "an encoder keeps nothing": (
        {
            "model_type": "modernbert",
            "num_hidden_layers": 22,
            "vocab_size": 50368,
            "max_position_embeddings": 8192,
        },
        {},
    ),
    "Llama 4 without its list sees all in every fourth layer": (
        decoder(
            "llama4_text",
            48,
            40,
            hidden_size=5120,
            num_key_value_heads=8,
            head_dim=128,
            attention_chunk_size=8192,
            intermediate_size_mlp=16384,
            num_local_experts=16,
            num_experts_per_tok=1,
            interleave_moe_layer_step=1,
            no_rope_layers=[],
        ),
        {"full": (12, 2048, 0), "chunked": (36, 2048, 8192)},
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_a_text_leaves_behind_is_counted_layer_by_layer(case: str) -> None:
    """Caches and states of each kind: in how many layers, how many elements, how far back."""
    document, expected = KEPT[case]
    assert kept(document) == expected


def test_experts_behind_a_latent_are_counted_in_the_latent() -> None:
    """Nemotron 3 Super is published as 120B; experts of full width would make it 459."""
    model, family = read(SUPER)
    inventory = from_facts(model, family, model.variants[0])
    assert inventory.params_total == pytest.approx(120.7e9, rel=1e-3)
    assert inventory.active_params(model) == pytest.approx(12e9, rel=0.1)


def test_letters_and_words_describe_the_same_hybrid() -> None:
    """Nemotron 3 writes a text, Nemotron 3 Ultra a list of words, and no count of its layers."""
    words = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
    pattern = SUPER["hybrid_override_pattern"]
    without = {
        k: v for k, v in SUPER.items() if k not in ("hybrid_override_pattern", "num_hidden_layers")
    }
    spelt = {**without, "layers_block_type": [words[letter] for letter in pattern]}
    assert read(spelt)[0].layers == read(SUPER)[0].layers


@pytest.mark.parametrize(
    ("model_type", "field", "value"),
    [
        ("qwen2", "use_sliding_window", True),
        ("qwen3_moe", "decoder_sparse_step", 2),
        ("gemma3_text", "use_bidirectional_attention", True),
        ("hunyuan_v1_dense", "use_cla", True),
        ("glm5_next_text", "index_topk_freq", 4),
        ("qwen3_next", "layer_types", "novel_attention"),
        ("nemotron_h", "hybrid_override_pattern", "?"),
        ("inkling_text", "layer_types", "hybrid_novel"),
    ],
)
def test_what_a_description_does_not_cover_is_told_by_its_field(
    model_type: str, field: str, value: object
) -> None:
    """A network of the same name that works otherwise is not taken for the one described."""
    stated = [FULL, value] if field == "layer_types" else value
    document = {"model_type": model_type, field: stated}
    config = ConfigFile(path="x", document=document, read_on=date(2026, 11, 30))
    family = CATALOG.family_for_hf_type(model_type)
    assert family is not None
    found = uncovered(config, family)
    assert found is not None
    assert field in found.field.split("|")
    assert found.value == repr(value)
    null = ConfigFile(path="x", document={field: None}, read_on=date(2026, 11, 30))
    assert uncovered(null, family) is None


def test_true_is_not_one() -> None:
    """A yes where a number is allowed, or a number where a yes is, is another value."""
    family = CATALOG.family_for_hf_type("qwen3_moe")
    assert family is not None
    config = ConfigFile(
        path="x", document={"decoder_sparse_step": True}, read_on=date(2026, 11, 30)
    )
    assert uncovered(config, family) is not None


def test_the_language_model_inside_is_found_wherever_it_stands() -> None:
    """In a table, or in the table of one; what the whole says is its own where it says nothing."""
    inner = {"model_type": "qwen3", "hidden_size": 7}
    whole = {"quantization_config": {"quant_method": "fp8"}, "tie_word_embeddings": True}
    day = date(2026, 11, 30)
    for document in (
        {"model_type": "some_vl", "llm_config": inner, **whole},
        {
            "model_type": "omni",
            "thinker_config": {"model_type": "t", "text_config": inner},
            **whole,
        },
    ):
        config = ConfigFile(path="x", document=document, read_on=day)
        parts = list(text_part(config, ("text_config", "llm_config", "thinker_config")))
        assert parts[-1].document == {**inner, **whole}
    config = ConfigFile(path="x", document={"text_config": 3, "llm_config": {}}, read_on=day)
    assert list(text_part(config, ("text_config", "llm_config"))) == []


def test_layers_that_only_draft_are_no_layers_of_a_hybrid() -> None:
    """Entries of a list beyond the layers speak of prediction heads."""
    document, expected = KEPT["Step 3.7 sees 512 tokens in 33 layers and all in 12"]
    longer = {**document, "layer_types": [*document["layer_types"], SLIDING, SLIDING, SLIDING]}
    assert kept(longer) == expected


def test_layers_named_in_a_text_are_numbers() -> None:
    """Step 3.5 writes the layers that have experts with commas between them."""
    document, _ = KEPT["Step 3.7 sees 512 tokens in 33 layers and all in 12"]
    listed = {**document, "moe_layers_enum": ",".join(map(str, range(3, 45)))}
    assert read(listed)[0].layer_set("dense") == (0, 1, 2)
    for wrong in ("3,four", "3," + "4" * 5000, "٣"):
        with pytest.raises(HeavyliftError) as caught:
            read({**document, "moe_layers_enum": wrong})
        assert caught.value.code == "PLAN053"
