"""The engine probe, run in processes of its own beside a torch that is a few lines long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heavylift.preflight.checks.view import PROBE_MARK
from heavylift.preflight.snapshot import ENGINE_PROBE

TORCH = '''
import multiprocessing
from types import SimpleNamespace

__version__ = "2.9.0+fake"
bfloat16 = "bfloat16"
version = SimpleNamespace(cuda="13.0", hip=None)


class Box:
    """A tensor of equal numbers."""

    def __init__(self, value, size):
        self.value, self.size = value, size

    def __eq__(self, other):
        return Box(self.value == other, self.size)

    def __matmul__(self, other):
        return Box(self.value * other.value * 4096, self.size)

    def all(self):
        return self

    def item(self):
        return self.value

    def numel(self):
        return self.size


class Device:
    def __init__(self, index):
        self.index = index

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


cuda = SimpleNamespace(
    is_available=lambda: True,
    device_count=lambda: 2,
    get_arch_list=lambda: ["sm_90"],
    set_device=lambda index: None,
    synchronize=lambda: None,
    device=Device,
)


def full(shape, value, device):
    return Box(value, shape[0])


def ones(*shape, **options):
    return Box(1.0, shape[0])
'''

DISTRIBUTED = """
import time


def init_process_group(backend, init_method, rank, world_size):
    {behaviour}


def all_reduce(data):
    data.value = 3.0


def destroy_process_group():
    pass
"""

Probe = Callable[..., dict[str, Any]]


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    """Runs a step with a small torch that behaves as told; what the probe printed."""

    def run(step: str, *, behaviour: str = "pass", limit_s: int = 60) -> dict[str, Any]:
        package = tmp_path / "site" / "torch"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(TORCH, "utf-8")
        (package / "multiprocessing.py").write_text("from multiprocessing import *", "utf-8")
        (package / "distributed.py").write_text(DISTRIBUTED.format(behaviour=behaviour), "utf-8")
        script = tmp_path / "engine_probe.py"
        source = ENGINE_PROBE.read_text("utf-8")
        assert "REDUCE_LIMIT_S = 60" in source
        script.write_text(source.replace("REDUCE_LIMIT_S = 60", f"REDUCE_LIMIT_S = {limit_s}"))
        ran = subprocess.run(
            [sys.executable, str(script), step],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        )
        (line,) = [row for row in ran.stdout.splitlines() if row.startswith(PROBE_MARK)]
        found: dict[str, Any] = json.loads(line.removeprefix(PROBE_MARK))
        return found

    return run


def test_build_of_torch(probe: Probe) -> None:
    """The build is told by CUDA and HIP release, with the cards torch sees."""
    found = probe("torch")
    assert (found["version"], found["cuda"], found["hip"]) == ("2.9.0+fake", "13.0", None)
    assert (found["devices"], found["archs"], found["hsa_runtime"]) == (2, ["sm_90"], [])


def test_versions(probe: Probe) -> None:
    """Only packages that are installed are named."""
    found = probe("versions")
    assert found["python"] == sys.version.split()[0]
    assert "vllm" not in found


def test_product_on_every_card(probe: Probe) -> None:
    """Each card's product is compared with the known one."""
    assert [gpu["exact"] for gpu in probe("gemm")["gpus"]] == [True, True]


def test_sum_over_two_cards(probe: Probe) -> None:
    """Two processes sum, and the first answers whether it is right and how fast."""
    found = probe("all_reduce")
    assert (found["exact"], found["exit_codes"]) == (True, [0, 0])
    assert found["bus_gb_per_s"] > 0


def test_a_sum_that_hangs(probe: Probe) -> None:
    """Processes that never meet are ended at the limit, which is told."""
    assert probe("all_reduce", behaviour="time.sleep(60)", limit_s=2) == {
        "devices": 2,
        "hung_s": 2,
    }


def test_a_sum_that_dies(probe: Probe) -> None:
    """Processes that end with an error are told by their status, without a result."""
    found = probe("all_reduce", behaviour="raise SystemExit(3)")
    assert found == {"devices": 2, "exit_codes": [3, 3]}


def test_toolchain(probe: Probe) -> None:
    """Compilers are looked for, caches tried."""
    found = probe("toolchain")
    assert set(found) == {"nvcc", "hipcc", "ninja", "cxx", "writable", "locks"}


def test_parsers_where_there_is_no_engine(probe: Probe) -> None:
    """Without an engine no parser is named, and that is no error."""
    assert probe("parsers") == {"tool": [], "reasoning": []}


VLLM = {
    "vllm-0.32.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n",
    "vllm/__init__.py": "",
    "vllm/_C.py": "raise ImportError('undefined symbol: _ZN3c10')",
    "vllm/tool_parsers/__init__.py": (
        "class ToolParserManager:\n"
        "    tool_parsers = {'seen': 1}\n    lazy_parsers = {'kimi_k3': 2}\n"
    ),
    "vllm/reasoning/__init__.py": (
        "class ReasoningParserManager:\n    lazy_parsers = {'kimi_k3': 2}\n"
    ),
}


@pytest.fixture
def with_vllm(tmp_path: Path) -> None:
    """An engine of a few lines, as its release lays it out."""
    for name, content in VLLM.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")


@pytest.mark.usefixtures("with_vllm")
def test_a_build_that_does_not_load(probe: Probe) -> None:
    """What an import says is kept; modules that the release does not have are no failure."""
    assert probe("imports") == {"modules": {"vllm._C": "ImportError: undefined symbol: _ZN3c10"}}
    assert probe("versions")["vllm"] == "0.32.0"


@pytest.mark.usefixtures("with_vllm")
def test_parsers_of_an_engine(probe: Probe) -> None:
    """Parsers are known by name, also those that are loaded only when they are used."""
    assert probe("parsers") == {"tool": ["kimi_k3", "seen"], "reasoning": ["kimi_k3"]}


def test_a_package_that_is_missing() -> None:
    """A step whose package is missing names it."""
    ran = subprocess.run(
        [sys.executable, "-I", str(ENGINE_PROBE), "torch"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert '"missing": "torch"' in ran.stdout


def test_the_driver_alone(probe: Probe) -> None:
    """The driver's own library is asked, and its absence is told."""
    found = probe("cuinit")
    assert found["library"] in (None, "libcuda.so.1")
