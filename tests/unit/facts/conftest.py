"""A small sound catalogue to break on purpose, the shipped one, and the reference data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from heavylift.facts.catalog import Catalog

FILES = {
    "sources.toml": """
[maker]
title = "The maker's data sheet"
retrieved = 2026-01-02
""",
    "gpus/card.toml": """
title = "Card 9000"
vendor = "maker"
architecture = "arch1"
aliases = ["Maker Card-9000", "the card"]
node = "box"
provenance = { kind = "spec", source = "maker", as_of = 2026-01-01 }
memory_nameplate = { value = 80, unit = "GB" }
memory_visible = { value = 85_000_000_000, unit = "bytes", kind = "measured", note = "printed" }
memory_bandwidth = { value = 2.5, unit = "TB/s" }
native_formats = { value = "bf16", unit = "names" }
""",
    "nodes/box.toml": """
title = "Box of two"
gpu = "card"
provenance = { kind = "spec", source = "maker", as_of = 2026-01-01 }
gpus_per_node = { value = 2, unit = "GPUs" }
gpus_per_link_domain = { value = 2, unit = "GPUs" }
""",
    "families/plain/architecture.toml": """
title = "Plain"
hf_model_types = ["plain"]
dims = ["layers", "width", "heads", "head_dim"]
layer_sets = ["all"]

[[caches]]
id = "kv"
layers = "all"
elements = "2*heads*head_dim"
split = "heads"
heads = "heads"

[[states]]
id = "memory"
layers = "all"
elements = "width"
heads = "heads"
dtype_class = "recurrent"

[config_dims]
layers = "num_layers"
max_context = "max_len"

[dim_defaults]
head_dim = "width/heads"
""",
    "families/plain/safetensors.toml": """
[[tensors]]
name = "layers.{l}.experts.{e}.weight"
dtype = "*"
shape = ["heads*head_dim", "width"]
role = "experts"
shard = "expert"
layers = "all"
experts = "4*heads"
unless = "heads"
""",
    "models/small.toml": """
title = "Small-1"
family = "plain"
names = ["maker/Small-1"]
provenance = { kind = "spec", source = "maker", as_of = 2026-01-01 }
max_context = { value = 4096, unit = "tokens" }

[dims]
layers = { value = 2, unit = "layers" }
width = { value = 8, unit = "channels" }
heads = { value = 2, unit = "heads" }
head_dim = { value = 4, unit = "channels" }

[layers]
all = { value = [0, 1], unit = "layer numbers" }

[[variants]]
id = "native"
title = "bf16"
format = "safetensors"
default_for = ["runner"]
tensor_types = { experts = "BF16" }
""",
    "engines/runner.toml": """
title = "Runner"
names = ["the-runner"]
default_version = "1.0"
provenance = { kind = "spec", source = "maker", as_of = 2026-01-01 }

[[versions]]
id = "1.0"
read = true

[[budgets]]
fraction_flag = "share"
base = "total"
default = 0.9
inside = ["weights"]

[[memory]]
id = "buffer"
segment = "workspace"
low = "width*ranks"
""",
    "recipes/small.toml": """
[[recipes]]
id = "one"
engine = "some-other-engine"
status = "verified"
gpu_ids = ["card"]
gpus = 2
tensor_parallel_size = 2
settings = { max_num_seqs = 4, gpu_memory_utilization = 0.9, kv_cache_dtype = "fp8" }
kind = "spec"
source = "maker"
as_of = 2026-01-01
""",
}

WriteFacts = Callable[..., Catalog]


@pytest.fixture
def facts(tmp_path: Path) -> WriteFacts:
    """Writes the small catalogue and returns it, after replacing `old` by `new` in one file."""

    def write(file: str = "sources.toml", old: str = "", new: str = "") -> Catalog:
        for relative, text in FILES.items():
            changed = text
            if relative == file and old:
                assert old in text
                changed = text.replace(old, new)
            path = tmp_path / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(changed, "utf-8")
        return Catalog(tmp_path)

    return write


@pytest.fixture(scope="session")
def shipped() -> Catalog:
    """The facts of the package."""
    return Catalog()


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data outside the repository; the test is skipped where there is none."""
    beside = Path(__file__).resolve().parents[3].parent / "shared"
    root = Path(os.environ.get("HEAVYLIFT_SHARED", beside))
    if not root.is_dir():
        pytest.skip("no reference data here")
    return root
