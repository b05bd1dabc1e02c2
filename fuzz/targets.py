"""What is fed with anything: each target takes bytes and may end in a coded error, in nothing else.

Used by the property tests, which try a few hundred inputs, and by the fuzzer (`make fuzz`), which
is led by coverage and runs for as long as it is let.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from heavylift.checkpoint import gguf
from heavylift.checkpoint.config import ConfigFile, model_from_config, text_part, uncovered
from heavylift.checkpoint.config_text import ConfigTextError, decoded, with_quantisation
from heavylift.checkpoint.defects import Defect
from heavylift.checkpoint.gguf_config import config_of
from heavylift.checkpoint.hub_settings import HubId
from heavylift.checkpoint.listing import parse_list
from heavylift.checkpoint.read import read_files
from heavylift.diagnose.match import diagnose
from heavylift.diagnose.scan import Scanner
from heavylift.diagnose.symptoms import CompiledSymptoms
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.fetch.licence import stated_licence
from heavylift.fetch.selection import select
from heavylift.gateway import keys
from heavylift.gateway.redaction import Rules, redaction
from heavylift.gateway.relay import Relay
from heavylift.gateway.request import ROUTES, Dialect, Policy, read
from heavylift.importing import Importing
from heavylift.inspecting import inspect_files, read_config_file
from heavylift.linting import Linting
from heavylift.records.inspection import Origin
from heavylift.telemetry import llamacpp
from heavylift.telemetry.start_log import read_start
from heavylift.wire import openai, sse

CATALOG: Final = Catalog()
_MOST_LETTERS: Final = 4000
_PLAIN: Final = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}
"""A config that says nothing of a quantisation."""
_EMPTY_LINES: Final = re.compile(rb"\n{2,}")


class MemoryFile:
    """A file in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    def read(self, count: int, offset: int) -> bytes:
        """Bytes from a place, fewer at the end."""
        return self._content[offset : offset + count]

    def close(self) -> None:
        """Nothing to give back."""


class MemoryFiles:
    """A folder in memory."""

    where = "memory"

    def __init__(self, content: Mapping[str, bytes]) -> None:
        self._content = content

    def names(self) -> list[str]:
        """Names of the files."""
        return list(self._content)

    def open(self, name: str) -> MemoryFile | Defect:
        """The file, or that it is not there."""
        if name not in self._content:
            return Defect(file=name, problem="file_missing")
        return MemoryFile(self._content[name])


def _inspect(content: Mapping[str, bytes], start: str = "") -> None:
    files = MemoryFiles(content)
    checkpoint = read_files(files, start)
    found = inspect_files(checkpoint, read_config_file(files), CATALOG.tensor_names(), Origin.FILES)
    if any(not defect.path.isprintable() for defect in found.defects):
        raise AssertionError(found.defects)


def safetensors_header(data: bytes) -> None:
    """The input is a header, with the right length before it."""
    _inspect({"model.safetensors": len(data).to_bytes(8, "little") + data})


def safetensors_file(data: bytes) -> None:
    """The input is a whole file, and also one of two in a folder."""
    _inspect({"model.safetensors": data})
    _inspect({"a.safetensors": data, "b.safetensors": data[::-1]})


def index(data: bytes) -> None:
    """The input is an index beside a sound shard."""
    header = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    shard = len(header).to_bytes(8, "little") + header + b"\0"
    _inspect({"model.safetensors.index.json": data, "a.safetensors": shard})


def gguf_file(data: bytes) -> None:
    """The input is a GGUF file, whole or a part of two."""
    gguf.parse(data, path="fuzz")
    _inspect({"a.gguf": data})


def gguf_parts(data: bytes) -> None:
    """The input is the second part of two."""
    first = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
    _inspect({"a-00001-of-00002.gguf": first, "a-00002-of-00002.gguf": data})


def config(data: bytes) -> None:
    """The input is a config.json, for every family."""
    files = MemoryFiles({"config.json": data, "model.safetensors": bytes([2, *[0] * 7]) + b"{}"})
    read = read_config_file(files)
    _inspect({"config.json": data, "model.safetensors": bytes([2, *[0] * 7]) + b"{}"})
    if read.document is None:
        return
    day = date(2026, 11, 30)
    given = ConfigFile(path="fuzz", document=read.document, read_on=day)
    parts = [given, *text_part(given, CATALOG.tensor_names().words.nests)]
    for part in parts:
        for family in map(CATALOG.family, CATALOG.ids("families")):
            if not family.hf_model_types:
                continue  # no config leads to it
            uncovered(part, family)
            formats = ("safetensors",) if family.formats else ()
            try:
                model_from_config(part, family, identifier="x", formats=formats)
            except HeavyliftError:
                continue


def quantiser(data: bytes) -> None:
    """The input is what a quantiser wrote beside a config.json."""
    try:
        document = with_quantisation(_PLAIN, decoded(data))
    except ConfigTextError:
        return
    given = ConfigFile(path="fuzz", document=document, read_on=date(2026, 11, 30))
    family = CATALOG.family("llama")
    model_from_config(given, family, identifier="x", formats=("safetensors",))


def gguf_words(data: bytes) -> None:
    """The input is what a GGUF header says of its network, as JSON; for every family."""
    try:
        said = decoded(data)
    except ConfigTextError:
        return
    lists = {key: tuple(value) for key, value in said.items() if isinstance(value, list)}
    by_layer = {
        key: value for key, value in lists.items() if all(type(each) is int for each in value)
    }
    document = config_of("llama", said, by_layer, (), CATALOG.gguf_fields())
    given = ConfigFile(path="fuzz", document=document, read_on=date(2026, 11, 30))
    for family in map(CATALOG.family, CATALOG.ids("families")):
        if family.gguf_architectures:
            try:
                model_from_config(given, family, identifier="x", formats=())
            except HeavyliftError:
                continue


def listing(data: bytes) -> None:
    """The input is a list of files, or a hub's description of a model."""
    stated_licence(data)
    HubId.parse(data.decode("utf-8", "replace")[:200])
    select(HubId(id="a/b"), parse_list(data, "fuzz"))


@cache
def _symptoms() -> CompiledSymptoms:
    return CompiledSymptoms(CATALOG.symptoms())


def log(data: bytes) -> None:
    """The input is an engine's log."""
    scanner = Scanner(_symptoms(), "fuzz")
    half = len(data) // 2
    scanner.feed(data[:half])
    scanner.feed(data[half:])
    diagnose((scanner.reading(),), "en")
    lines = data.decode("utf-8", "replace").splitlines()
    llamacpp.parse(lines)


def start_log(data: bytes) -> None:
    """The input is an engine's log, read for what it measured."""
    read_start(data.decode("utf-8", "replace").splitlines(), CATALOG.engine_logs())


def recipe_page(data: bytes) -> None:
    """The input is another planner's page."""
    with NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        Importing().read(Path(file.name))


@cache
def _linting() -> Linting:
    return Linting(CATALOG)


def command(data: bytes) -> None:
    """The input is a pasted command."""
    _linting().lint(data.decode("utf-8", "replace")[:_MOST_LETTERS], rack="8xB300")


def stream(data: bytes) -> None:
    """The input is a stream of server-sent events, cut somewhere."""
    parser = sse.Parser(limit_bytes=1 << 16)
    half = len(data) // 2
    for piece in (data[:half], data[half:]):
        for event in parser.feed(piece):
            openai.decode(event.data)


Target = Callable[[bytes], None]


def gateway_request(data: bytes) -> None:
    """The input is a body for each route; what is read can be sent on, and costs at most its
    bound: no fewer tokens than the bytes of its prompt unless it declares attachments.
    """
    for route in ROUTES.values():
        try:
            asked = read(route, data, max_output_tokens=100, policy=Policy())
        except HeavyliftError:
            continue
        again = json.loads(asked.body("other", asked.bound))
        if again["model"] != "other" or asked.bound.prompt_tokens < 0:
            raise AssertionError(asked)


def gateway_relay(data: bytes) -> None:
    """The input is a stream, in one piece and in two: what passes is the same but for empty lines,
    and a stream that is not whole never ends in `[DONE]`.
    """
    for dialect in (Dialect.CHAT, Dialect.COMPLETIONS, Dialect.MESSAGES, Dialect.RESPONSES):
        whole, parts = (Relay(dialect, wants_usage=True) for _ in range(2))
        passed = whole.feed(data)
        half = len(data) // 2
        in_parts = parts.feed(data[:half]) + parts.feed(data[half:])
        if b"\ndata: [DONE]\n\n" in b"\n" + passed and whole.failed:
            raise AssertionError(dialect, data)
        said, said_in_parts = (
            _EMPTY_LINES.sub(b"\n\n", each.strip()) for each in (passed, in_parts)
        )
        if not whole.malformed and (said, whole.failure()) != (said_in_parts, parts.failure()):
            raise AssertionError(dialect, data)


def gateway_key(data: bytes) -> None:
    """The input is presented as a key; nothing that was not made here opens anything."""
    text = data.decode("utf-8", "replace")
    found = keys.id_of(text)
    kept = keys.Key(id=found or "", name="a", shown="a", digest=bytes(32), created_at=0.0)
    if keys.judge(text, kept, scope=keys.Scope.INFER, address=None, now_epoch_s=0.0) is None:
        raise AssertionError(text)


def gateway_redaction(data: bytes) -> None:
    """The input is a body; a field that is taken out is never kept."""
    redact = redaction(Rules(fields=frozenset({"secret"})))
    if b"h1dd3n" in redact(b'{"secret": "h1dd3n", "x": "' + data + b'"}'):
        raise AssertionError(data)
    redact(data)


TARGETS: Final[dict[str, Target]] = {
    each.__name__: each
    for each in (
        safetensors_header,
        safetensors_file,
        index,
        gguf_file,
        gguf_parts,
        config,
        quantiser,
        gguf_words,
        listing,
        log,
        start_log,
        recipe_page,
        command,
        stream,
        gateway_request,
        gateway_relay,
        gateway_key,
        gateway_redaction,
    )
}


def allowed(target: Target, data: bytes) -> None:
    """Runs a target; a coded error is an answer."""
    try:
        target(data)
    except HeavyliftError:
        return


def seeds() -> dict[str, list[bytes]]:
    """Inputs to begin with: sound ones, and the kinds of broken ones that were reported."""
    tensor = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "model.layers.0.w": tensor}).encode()
    whole = len(header).to_bytes(8, "little") + header + bytes(8)
    row = struct.pack("<Q", 1) + b"w" + struct.pack("<IQIQ", 1, 32, 8, 0)
    entry = struct.pack("<Q", 4) + b"some" + struct.pack("<IIQ", 9, 4, 1) + bytes(4)
    small = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + entry + row
    small += bytes(-len(small) % 32) + bytes(34)
    twice = b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},' * 2
    return {
        "gateway_request": [
            b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"n":2}',
            b'{"model":"m","prompt":["a","b"],"max_tokens":5,"stream_options":{}}',
            b'{"model":"m","messages":[{"content":[{"image_url":{"url":"data:image/png;base64,A"}}]}]}',
        ],
        "gateway_relay": [
            (
                b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
                b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
            ),
            b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"x"}}\n\n',
            b'data: {"error":{"message":"m"}}\n\ndata: [DONE]\n\n',
        ],
        "gateway_key": [b"hl_0123456789ab_" + b"A" * 43, b"sk-1", b"hl_"],
        "gateway_redaction": [b'{"secret":"a","b":[{"secret":1}]}', b"password: x", b"\xff["],
        "safetensors_header": [
            header,
            twice,
            b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,9223372036854775808]}}',
            (
                b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,8]},'
                b'"b":{"dtype":"U8","shape":[1],"data_offsets":[4,8]}}'
            ),
            b"[" * 5000,
        ],
        "safetensors_file": [whole, whole[:-3], (2**63).to_bytes(8, "little") + header],
        "index": [
            b'{"metadata":{"total_size":1},"weight_map":{"w":"a.safetensors"}}',
            b'{"weight_map":{"w":"../../etc/passwd"}}',
            b'{"metadata":{"total_size":NaN},"weight_map":{"w":"a\\u0000"}}',
        ],
        "gguf_file": [small, small[:-1], b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63)],
        "gguf_parts": [small],
        "config": [
            b'{"model_type":"kimi_k3","text_config":{"num_hidden_layers":null}}',
            b'{"model_type":"llama","hidden_size":"4096","num_attention_heads":0}',
            b'{"model_type":"llama","hidden_size":-1,"vocab_size":1e400}',
            b'{"quantization_config":{"bits":0,"config_groups":[]}}',
            b'{"model_type":"x","text_config":{"text_config":{"layer_types":[[],{},null]}}}',
            b'{"block_configs":[{"attention":3},[],null],"time_step_limit":[0,Infinity]}',
        ],
        "quantiser": [
            b'{"quantization":{"quant_algo":"NVFP4","group_size":16,"exclude_modules":["lm_head"]}}',
            b'{"quantization":{"quant_algo":"MIXED_PRECISION","quantized_layers":{"a":{}}}}',
            b'{"quantization":[NaN]}',
        ],
        "gguf_words": [
            b'{"llama.block_count":4,"llama.attention.head_count":[8,0,8,0],"llama.x":true}',
            b'{"llama.attention.head_count_kv":[8,0],"llama.nextn_predict_layers":-9,"llama.block_count":2}',
        ],
        "listing": [b"a" * 64 + b"  x.safetensors\n", b'[{"path":"../x","size":-1}]'],
        "log": [
            b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
            b"load_tensors: loading model tensors\nllama_context: n_ctx = 99999999999\n",
        ],
        "start_log": [
            b"INFO Available KV cache memory: 47.4 GiB\nINFO GPU KV cache size: 9,9 tokens\n",
            b"llama_kv_cache: size = 1e999 MiB (-1 cells, 9 layers)\n",
        ],
        "recipe_page": [
            b"model:\n  name: a\nvariants: [1, {a: &x [*x]}]\n",
            b"hardware: {h100: {min_gpus: -1}}\nstrategies: null\n",
        ],
        "command": [
            b"vllm serve moonshotai/Kimi-K3 --tensor-parallel-size 8 --max-model-len 1e9",
            b"docker run --gpus all -e A='\nservices:\n  x:\n    command: [",
        ],
        "stream": [b'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n'],
    }
