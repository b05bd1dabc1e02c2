"""Whatever a file, a config, a log, a command or a stream holds: an answer or a coded error.

The targets are those of the fuzzer (`make fuzz`), which looks longer and led by coverage.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heavylift.checkpoint.read import INDEX_ENTRIES_LIMIT, SHARDS_LIMIT, read_checkpoint
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.inspecting import inspect
from heavylift.planning import Planning
from heavylift.units import GIB


def _targets() -> ModuleType:
    path = Path(__file__).parents[2] / "fuzz" / "targets.py"
    spec = importlib.util.spec_from_file_location("fuzz_targets", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


FUZZ: Any = _targets()


@pytest.mark.parametrize("name", FUZZ.TARGETS)
def test_seeds_and_every_cut_of_them_are_answered(name: str) -> None:
    """Sound and broken inputs, each ended early in some places."""
    for seed in FUZZ.seeds()[name]:
        for end in {*range(0, len(seed), max(len(seed) // 24, 1)), len(seed)}:
            FUZZ.allowed(FUZZ.TARGETS[name], seed[:end])


@pytest.mark.parametrize("name", FUZZ.TARGETS)
@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_seeds_are_answered(name: str, data: st.DataObject) -> None:
    """Bytes overwritten, inserted and cut anywhere."""
    seed = data.draw(st.sampled_from(FUZZ.seeds()[name]))
    at = data.draw(st.integers(0, len(seed)))
    patch = data.draw(st.binary(max_size=12))
    cut = data.draw(st.integers(0, 12))
    FUZZ.allowed(FUZZ.TARGETS[name], seed[:at] + patch + seed[at + cut :])


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=4)
)
FIELDS = sorted(
    {
        field.split(".")[-1]
        for family in map(Catalog().family, Catalog().ids("families"))
        for field in family.config_dims.values()
    }
    | {"model_type", "text_config", "quantization_config", "num_experts_per_tok", "bits"}
)
CONFIGS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=8)
    ),
    max_leaves=24,
)


@given(CONFIGS)
@settings(max_examples=100, deadline=None)
def test_any_config_is_answered(document: object) -> None:
    """Fields that are missing, null, strings, zero, negative, huge or not a number."""
    FUZZ.allowed(FUZZ.config, json.dumps(document).encode())
    if isinstance(document, dict):
        for kind in ("kimi_k3", "llama"):
            FUZZ.allowed(FUZZ.config, json.dumps({**document, "model_type": kind}).encode())


# --- a sound config with one field spoiled -------------------------------------------------------

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("value", [None, "4096", 0, -1, 1e400, 2**70, [], {}, True, 3.5])
@pytest.mark.parametrize("field", ["hidden_size", "num_attention_heads", "num_hidden_layers"])
def test_a_spoiled_field_of_a_config_is_named(tmp_path: Path, field: str, value: object) -> None:
    """The plan is refused with the field, and inspecting goes by the tensors."""
    header = b"{}"
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    text = json.dumps({**LLAMA, field: value}).replace("Infinity", "1e400")
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(HeavyliftError) as caught:
        Planning().knowledge(str(tmp_path))
    error = caught.value
    assert error.code in ("PLAN052", "PLAN053", "PLAN056")
    assert error.code == "PLAN056" or error.params["field"] == field
    assert inspect(str(tmp_path), Catalog(), None).sound


# --- too much of everything ----------------------------------------------------------------------


def header(raw: bytes) -> bytes:
    """A safetensors file that is all header."""
    return len(raw).to_bytes(8, "little") + raw


def million_tensors() -> bytes:
    """A sound header of a million tensors of their own kinds."""
    rows = (
        b'"t%d":{"dtype":"U8","shape":[],"data_offsets":[%d,%d]}' % (n, n, n + 1)
        for n in range(1_000_000)
    )
    return header(b"{" + b",".join(rows) + b"}")


BIG: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a million tensors": ("model.safetensors", million_tensors),
    "ten million empty entries": (
        "model.safetensors",
        lambda: header(b"{" + b",".join(b'"%x":{}' % n for n in range(8_000_000)) + b"}"),
    ),
    "metadata without end": (
        "model.safetensors",
        lambda: header(
            b'{"__metadata__":{' + b",".join(b'"%x":"b"' % n for n in range(6_000_000)) + b"}}"
        ),
    ),
    "an index of short names": (
        "model.safetensors.index.json",
        lambda: b'{"weight_map":{' + b",".join(b'"%x":"b"' % n for n in range(8_000_000)) + b"}}",
    ),
    "ten megabytes of nested config": ("config.json", lambda: b'{"a":' * 2_000_000),
    "ten megabytes of small tables": (
        "config.json",
        lambda: b'{"a":[' + b",".join([b'{"a":1}'] * 1_400_000) + b"]}",
    ),
    "a vocabulary of a million": (
        "a.gguf",
        lambda: (
            b"GGUF"
            + struct.pack("<IQQ", 3, 0, 1)
            + struct.pack("<Q", 1)
            + b"a"
            + struct.pack("<IIQ", 9, 8, 1_000_000)
            + b"".join(struct.pack("<Q", 3) + b"%03x" % (n % 4096) for n in range(1_000_000))
        ),
    ),
}

CHILD = """
import resource, sys
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.inspecting import inspect
try:
    inspect(sys.argv[1], Catalog(), None)
except HeavyliftError as error:
    print(error.code)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("case", BIG)
def test_too_much_of_anything_takes_less_than_a_gibibyte(tmp_path: Path, case: str) -> None:
    """A process of its own reads it, ends by itself, and says how much memory it had."""
    name, make = BIG[case]
    (tmp_path / name).write_bytes(make())
    if name == "config.json":
        (tmp_path / "model.safetensors").write_bytes(header(b"{}"))
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )
    assert ran.stderr == ""
    assert int(ran.stdout.split()[-1]) * 1024 < GIB


def test_an_index_of_more_than_any_model_has_is_refused(tmp_path: Path) -> None:
    """By its entries before it is decoded, by its files before one is opened."""
    path = tmp_path / "model.safetensors.index.json"
    for entries, code in (
        ({str(n): "a" for n in range(INDEX_ENTRIES_LIMIT + 1)}, "CKPT024"),
        ({str(n): str(n) for n in range(SHARDS_LIMIT + 1)}, "CKPT033"),
    ):
        path.write_text(json.dumps({"weight_map": entries}))
        with pytest.raises(HeavyliftError) as caught:
            read_checkpoint(tmp_path)
        assert caught.value.code == code
