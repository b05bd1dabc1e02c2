"""A scripted engine that takes vLLM's words: `pretend_vllm.py serve MODEL --port N …`.

It logs what vLLM logs, for as many layers as it is told to have, and reads weights unless they are
to be invented: a file `weights` in the model's folder, whose access is noted in `read-weights`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

WHOLE = 12
GIB_PER_LAYER = 0.5


def value(words: list[str], flag: str) -> str | None:
    """The value of a flag of two words."""
    return words[words.index(flag) + 1] if flag in words else None


def main(words: list[str]) -> None:
    """Read or invent weights, then play."""
    model = Path(words[1])
    with (model / "commands.jsonl").open("a") as kept:
        kept.write(json.dumps(words) + "\n")
    config = json.loads((model / "config.json").read_text())
    over = json.loads(value(words, "--hf-overrides") or "{}")
    text = {**config.get("text_config", config), **over.get("text_config", over)}
    each = config.get("gib_per_layer", GIB_PER_LAYER)
    layers = text["num_hidden_layers"]
    if len(text.get("layer_types", range(layers))) != layers:
        sys.exit("ValueError: layer_types and num_hidden_layers disagree")
    if value(words, "--load-format") != "dummy":
        (model / "weights").read_bytes()
        (model / "read-weights").touch()
    lines = [
        "INFO [model.py:1] Resolved architecture: PretendForCausalLM",
        "INFO [loader.py:1] Starting to load model",
        f"INFO [loader.py:2] Model loading took {layers * each:.2f} GiB memory and 1.0 s",
        "INFO [worker.py:1] Available KV cache memory: 8.00 GiB",
        (
            "INFO [worker.py:2] Desired GPU memory utilization is (0.92, 73.30 GiB). Actual usage "
            f"is {layers * each:.2f} GiB for weight, 1.25 GiB for peak activation, 0.50 GiB for "
            "non-torch memory, and 0.75 GiB for CUDAGraph memory."
        ),
        f"INFO [kv.py:1] GPU KV cache size: {120_000 // layers:,} tokens",
    ]
    script = "".join(f"[[start]]\nline = {json.dumps(line)}\n\n" for line in lines)
    script += '[[start]]\nline = "Application startup complete."\nthen = "listen"\n\n'
    script += '[[start]]\nline = "up"\nthen = "ready"\n\n'
    if os.environ.get("PRETEND_EXTRA"):
        script += os.environ["PRETEND_EXTRA"]
    with tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False, dir=model) as file:
        file.write(script)
    port = value(words, "--port")
    os.execv(
        sys.executable,
        [sys.executable, "-m", "heavylift", "dev", "engine", file.name, f"--port={port}"],
    )


if __name__ == "__main__":
    main(sys.argv[1:])
