"""Models for the real vLLM on a CPU: SmolLM2 with its real weights, a tiny MLA, a tiny hybrid.

Runs with the Python of vLLM's environment: `make_models.py SMOLLM2.gguf FOLDER`. What is there is
left as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

MLA = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 4096,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
}
HYBRID = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "max_position_embeddings": 4096,
}


def main(gguf: Path, folder: Path) -> None:
    """Make what is not there yet."""
    import torch
    import transformers

    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)

    def save(model: Any, name: str) -> None:
        building = folder / f".{name}"
        model.to(torch.bfloat16).save_pretrained(building)
        tokenizer.save_pretrained(building)
        building.rename(folder / name)

    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "smollm2").is_dir():
        quantised = transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name
        )
        # A fresh model of the same shape: one that came from GGUF refuses to be saved.
        config = transformers.LlamaConfig(
            **{
                key: value
                for key, value in quantised.config.to_dict().items()
                if key != "quantization_config"
            }
        )
        whole = transformers.LlamaForCausalLM(config)
        whole.load_state_dict(quantised.state_dict())
        save(whole, "smollm2")
    vocabulary = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if not (folder / "mla").is_dir():
        config = transformers.DeepseekV3Config(**MLA, **vocabulary)
        save(transformers.DeepseekV3ForCausalLM(config), "mla")
    if not (folder / "hybrid").is_dir():
        config = transformers.Qwen3NextConfig(**HYBRID, **vocabulary)
        save(transformers.Qwen3NextForCausalLM(config), "hybrid")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
