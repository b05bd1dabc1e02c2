"""Writes a tiny random model with a vocabulary of its own, as any engine serves it; with noise on
its weights when asked. Run by the Python that has the engine: `python tiny_model.py FOLDER NOISE`.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

TEXT = (
    "The lighthouse keeper climbs the stairs in the evening and lights the lamp. "
    "What is the capital of France? How many apples are left when two of nine are given away? "
    "The bridge of the northern road has many steps; the archive of the town holds many maps."
)
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{% endfor %}"
    "<|assistant|>"
)


def main(folder: Path, noise: float) -> None:
    """Writes the model; the same weights every time but for the noise."""
    # Only the engine's Python has these.
    torch, tokenizers, transformers = map(
        importlib.import_module, ("torch", "tokenizers", "transformers")
    )
    decoders, pre_tokenizers = tokenizers.decoders, tokenizers.pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    special = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"]
    tokenizer: Any = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=512, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": TEMPLATE,
        "model_max_length": 1024,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.3,
    )
    model: Any = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(noise * weights.std() * torch.randn_like(weights))
    model.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
