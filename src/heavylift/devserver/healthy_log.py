"""Healthy engine logs of any length, for tests and benchmarks of what reads logs.

The shapes are those of vLLM 0.32.0 and llama.cpp's server as they print on this project's own
machines; numbers, times and addresses vary by a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

ENGINES: Final = ("vllm", "llamacpp")

_VLLM_START: Final = (
    "(APIServer pid={pid}) INFO {time} [api_utils.py:347] version 0.32.0",
    (
        "(APIServer pid={pid}) WARNING {time} [system_utils.py:255] Found ulimit of 20000 and"
        " failed to"
        " automatically increase with error current limit exceeds maximum limit."
    ),
    (
        "(EngineCore pid={pid}) INFO {time} [core.py:133] Initializing a V1 LLM engine"
        " (v0.32.0) with"
        " config: model='model', max_seq_len=131072, tensor_parallel_size=8,"
        " trust_remote_code=False"
    ),
    (
        "(Worker_TP{rank} pid={pid}) INFO {time} [parallel_state.py:2350] rank {rank} in world"
        " size 8 is"
        " assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank {rank}, EP rank N/A"
    ),
    "(Worker_TP{rank} pid={pid}) INFO {time} [gpu_model_runner.py:68] Starting to load model model",
    "Loading safetensors checkpoint shards: {percent}% Completed | {count}/96 [{count}:00<00:11]",
    (
        "(Worker_TP{rank} pid={pid}) INFO {time} [gpu_model_runner.py:97] Model loading took"
        " 96.{count}"
        " GiB memory and {count}.5 seconds"
    ),
    (
        "(Worker_TP{rank} pid={pid}) INFO {time} [gpu_worker.py:460] Available KV cache memory:"
        " 27.{count} GiB"
    ),
    (
        "(EngineCore pid={pid}) INFO {time} [kv_cache_utils.py:1319] GPU KV cache size:"
        " 1,{count}9,000"
        " tokens, Maximum concurrency for 131,072 tokens per request: 13.67x"
    ),
    (
        "(Worker_TP{rank} pid={pid}) INFO {time} [gpu_model_runner.py:5210] Graph capturing"
        " finished in"
        " {count} secs, took 1.42 GiB"
    ),
    "(APIServer pid={pid}) INFO:     Application startup complete.",
)
_VLLM_SERVING: Final = (
    (
        '(APIServer pid={pid}) INFO:     127.0.0.1:{port} - "POST /v1/chat/completions HTTP/1.1"'
        " 200 OK"
    ),
    (
        "(APIServer pid={pid}) INFO {time} [loggers.py:248] Engine 000: Avg prompt throughput:"
        " {count}.4 tokens/s, Avg generation throughput: {port}.2 tokens/s, Running: {count} reqs,"
        " Waiting: 0 reqs, GPU KV cache usage: {percent}.3%, Prefix cache hit rate: 4.1%"
    ),
    '(APIServer pid={pid}) INFO:     127.0.0.1:{port} - "GET /metrics HTTP/1.1" 200 OK',
    '(APIServer pid={pid}) INFO:     127.0.0.1:{port} - "GET /health HTTP/1.1" 200 OK',
    (
        '(APIServer pid={pid}) INFO:     127.0.0.1:{port} - "POST /v1/chat/completions'
        ' HTTP/1.1" 400'
        " Bad Request"
    ),
)
_LLAMACPP_START: Final = (
    "{clock} I srv    load_model: loading model 'model.gguf'",
    "{clock} I load_tensors: loading model tensors, this can take a while... (mmap = true)",
    "{clock} I load_tensors:        CUDA{rank} model buffer size = 9{port}.31 MiB",
    (
        "{clock} I llama_context: n_ctx_seq (8192) < n_ctx_train (131072) -- the full capacity"
        " of the"
        " model will not be utilized"
    ),
    "{clock} I llama_kv_cache: size = {port}.00 MiB (  8192 cells,  24 layers,  4/4 seqs)",
    "{clock} I sched_reserve: CUDA{rank} compute buffer size = {port}.00 MiB",
    "{clock} I srv  llama_server: server is listening on http://127.0.0.1:8080",
)
_LLAMACPP_SERVING: Final = (
    "{clock} I slot launch_slot_: id  {rank} | task {port} | processing task, is_child = 0",
    (
        "{clock} I slot print_timing: id  {rank} | task {port} | prompt eval time =   "
        " {port}.65 ms /"
        "    {count} tokens (   84.04 ms per token,    11.90 tokens per second)"
    ),
    (
        "{clock} I slot print_timing: id  {rank} | task {port} |        eval time =   "
        " {port}.83 ms /"
        "    48 tokens (   89.02 ms per token,    {count}.23 tokens per second)"
    ),
    (
        "{clock} I slot      release: id  {rank} | task {port} | stop processing: n_tokens ="
        " {count},"
        " truncated = 0"
    ),
    "{clock} I srv  update_slots: all slots are idle",
    "{clock} W srv    operator(): unauthorized: Invalid API Key",
)


def healthy_lines(engine: str, count: int, seed: int = 0) -> Iterator[str]:
    """`count` lines of a start and of serving, as `engine` prints them when all is well."""
    start, serving = {
        "vllm": (_VLLM_START, _VLLM_SERVING),
        "llamacpp": (_LLAMACPP_START, _LLAMACPP_SERVING),
    }[engine]
    chance = random.Random(seed)  # noqa: S311 - sample text, no secret
    for number in range(count):
        template = start[number] if number < len(start) else chance.choice(serving)
        second = number // 4
        yield template.format(
            pid=chance.randrange(1000, 60000),
            time=f"11-30 {second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}",
            clock=f"{second // 60}.{second % 60:02}.{number % 1000:03}.{chance.randrange(1000):03}",
            rank=chance.randrange(8),
            port=chance.randrange(1024, 9999),
            count=chance.randrange(10, 99),
            percent=chance.randrange(1, 100),
        )
