"""One look at an engine's environment: `ENGINE_PYTHON engine_probe.py STEP`, prints a JSON line.

Runs in the engine's interpreter, where heavylift is not installed: standard library only, and what
the step itself is about. Each step is a process of its own, because a broken build may crash it.
"""

import contextlib
import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "HEAVYLIFT_PROBE "
PACKAGES = (
    "torch",
    "vllm",
    "sglang",
    "aiter",
    "amd-aiter",
    "atom",
    "tokenspeed",
    "tensorrt-llm",
    "transformers",
    "tokenizers",
    "triton",
    "flashinfer-python",
    "deep-ep",
    "deep-gemm",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-nvshmem-cu12",
    "nvidia-nvshmem-cu13",
)
# Compiled parts whose import shows whether an engine fits the torch beside it.
EXTENSIONS = {"vllm": "vllm._C", "sglang": "sgl_kernel", "amd-aiter": "aiter", "aiter": "aiter"}
# Where vLLM keeps its registries: newest first, it has moved them more than once.
PARSER_HOMES = (
    ("tool", "vllm.tool_parsers", "ToolParserManager"),
    ("tool", "vllm.entrypoints.openai.tool_parsers", "ToolParserManager"),
    ("reasoning", "vllm.reasoning", "ReasoningParserManager"),
)
GEMM_SIZE = 4096
REDUCE_BYTES = 2**20
REDUCE_LIMIT_S = 60
WORLD = 2

Found = dict[str, Any]


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> Found:
    """Versions of Python and of the packages that matter."""
    found = {package: version_of(package) for package in PACKAGES}
    return {"python": sys.version.split()[0]} | {k: v for k, v in found.items() if v}


def torch_build() -> Found:
    """What torch is built for and what it sees."""
    torch = importlib.import_module("torch")
    found: Found = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "available": torch.cuda.is_available(),
        "devices": torch.cuda.device_count(),
        "hsa_runtime": [],
    }
    libraries = Path(str(torch.__file__)).parent / "lib"
    found["hsa_runtime"] = [str(path.resolve()) for path in libraries.glob("libhsa-runtime64.so*")]
    if torch.cuda.is_available():
        found["archs"] = torch.cuda.get_arch_list()
    return found


def imports() -> Found:
    """Which compiled parts of engines load, and why others do not."""
    found: dict[str, str | None] = {}
    for package, module in EXTENSIONS.items():
        if version_of(package) is None:
            continue
        try:
            # A release may not have the module at all; that is no broken one.
            if importlib.util.find_spec(module) is not None:
                importlib.import_module(module)
                found[module] = None
        except Exception as error:  # noqa: BLE001 - whatever a broken build raises is the finding
            found[module] = f"{type(error).__name__}: {error}"[:500]
    return {"modules": found}


def parsers() -> Found:
    """Names of the tool and reasoning parsers that the engine has registered."""
    found: Found = {"tool": [], "reasoning": []}
    seen: list[str] = []
    for kind, module, name in PARSER_HOMES:
        if kind in seen:
            continue
        with contextlib.suppress(Exception):  # a home this release does not have
            manager = getattr(importlib.import_module(module), name)
            names: set[str] = set()
            for registry in vars(manager).values():
                if isinstance(registry, dict):
                    names.update(str(key) for key in registry)
            if names:
                found[kind] = sorted(names)
                seen.append(kind)
    return found


def toolchain() -> Found:
    """Compilers, caches and locks of kernels that are built at start."""
    caches = [str(Path.home() / ".cache"), tempfile.gettempdir()]
    cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin"
    spec = importlib.util.find_spec("aiter")
    locks: list[str] = []
    for location in (spec.submodule_search_locations or []) if spec is not None else []:
        locks += [str(path) for path in Path(location, "jit", "build").glob("lock_*")]
    return {
        "nvcc": shutil.which("nvcc") or shutil.which("nvcc", path=str(cuda)),
        "hipcc": shutil.which("hipcc"),
        "ninja": shutil.which("ninja"),
        "cxx": shutil.which("g++") or shutil.which("c++") or shutil.which("clang++"),
        "writable": {path: os.access(path, os.W_OK) for path in caches},
        "locks": locks,
    }


def cuinit() -> Found:
    """The code of cuInit and the number of cards, by the driver's own library."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"library": None, "reason": str(error)[:200]}
    code = driver.cuInit(0)
    count = ctypes.c_int(-1)
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    return {"library": "libcuda.so.1", "code": code, "devices": count.value}


def gemm() -> Found:
    """A product of known result on every card, and its rate."""
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return {"devices": 0}
    rates = []
    for index in range(torch.cuda.device_count()):
        with torch.cuda.device(index):
            one = torch.ones(GEMM_SIZE, GEMM_SIZE, dtype=torch.bfloat16, device="cuda")
            product = one @ one
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(8):
                product = one @ one
            torch.cuda.synchronize()
            seconds = (time.perf_counter() - begin) / 8
            exact = bool((product == GEMM_SIZE).all().item())
            rates.append({"exact": exact, "tflops": 2 * GEMM_SIZE**3 / seconds / 1e12})
    return {"devices": len(rates), "gpus": rates}


def reduce_worker(rank: int, world: int, address: str, queue: Any) -> None:
    """One rank of the sum over two cards; rank 0 answers."""
    torch = importlib.import_module("torch")
    dist = importlib.import_module("torch.distributed")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=address, rank=rank, world_size=world)
    data = torch.full((REDUCE_BYTES // 4,), float(rank + 1), device="cuda")
    dist.all_reduce(data)
    torch.cuda.synchronize()
    exact = bool((data == world * (world + 1) / 2).all().item())
    data = torch.ones(64 * REDUCE_BYTES // 4, device="cuda")
    dist.all_reduce(data)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    dist.all_reduce(data)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    if rank == 0:
        bus_bytes = data.numel() * 4 * 2 * (world - 1) / world
        queue.put({"exact": exact, "bus_gb_per_s": bus_bytes / seconds / 1e9})
    dist.destroy_process_group()


def all_reduce() -> Found:
    """Sum over two cards. A hang shows as no answer within the limit, and the group is killed."""
    torch = importlib.import_module("torch")
    if torch.cuda.device_count() < WORLD:
        return {"devices": torch.cuda.device_count()}
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        address = f"file://{folder}/rendezvous"
        workers = [
            context.Process(target=reduce_worker, args=(rank, WORLD, address, queue), daemon=True)
            for rank in range(WORLD)
        ]
        for worker in workers:
            worker.start()
        deadline = time.monotonic() + REDUCE_LIMIT_S
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        if any(worker.is_alive() for worker in workers):
            for worker in workers:
                worker.kill()
            return {"devices": 2, "hung_s": REDUCE_LIMIT_S}
        codes: list[int] = [worker.exitcode for worker in workers]
        answer: Found = queue.get() if codes == [0, 0] else {}
        return {"devices": WORLD, "exit_codes": codes} | answer


STEPS: dict[str, Callable[[], Found]] = {
    "torch": torch_build,
    "imports": imports,
    "versions": versions,
    "parsers": parsers,
    "toolchain": toolchain,
    "cuinit": cuinit,
    "gemm": gemm,
    "all_reduce": all_reduce,
}


def main() -> None:
    """Run one step and print what it found."""
    # The folder of this script holds modules of heavylift; the engine must not find them.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    try:
        found = STEPS[sys.argv[1]]()
    except ImportError as error:
        found = {"missing": error.name, "reason": str(error)[:500]}
    sys.stdout.write(f"\n{MARK}{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
