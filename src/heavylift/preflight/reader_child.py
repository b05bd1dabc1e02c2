"""Reads files and asks the kernel, in a process that may be killed. Run by `reading`, not imported.

Standard library only: it is started with `python -I -S` so that it is up in a few milliseconds.
Input: a JSON list of `[operation, argument, limit in bytes]`. Output: a JSON line before each item
(`{"begin": n}`) and one after it, so that the parent knows which item hangs.
"""

import contextlib
import errno
import glob
import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable

# Programs whose presence matters to a launch: engines, their workers, and compilers of kernels.
INTERESTING = (
    "vllm",
    "enginecore",
    "worker_tp",
    "sglang",
    "ray::",
    "raylet",
    "ollama",
    "llama-server",
    "trtllm",
    "tokenspeed",
    "atom.",
    "ninja",
    "hipcc",
    "nvcc",
    "cc1plus",
    "ptxas",
)
GPU_DEVICES = ("/dev/kfd", "/dev/dri/renderD", "/dev/nvidia")
# Variables that steer engines and their libraries; those that could be a secret are left out.
ENVIRONMENT = (
    "AITER_",
    "ATOM_",
    "CUDA_",
    "DEEPEP_",
    "FLASHINFER_",
    "GLOO_",
    "GPU_",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HIP_",
    "HSA_",
    "LD_LIBRARY_PATH",
    "MASTER_",
    "MC_",
    "NCCL_",
    "NVIDIA_",
    "NVSHMEM_",
    "OLLAMA_",
    "OMP_",
    "PYTORCH_",
    "RAY_ADDRESS",
    "RCCL_",
    "ROCBLAS_",
    "ROCM_",
    "ROCR_",
    "SGLANG_",
    "SLURM_",
    "TMPDIR",
    "TORCH_",
    "TRITON_",
    "TRANSFORMERS_CACHE",
    "UCX_",
    "VLLM_",
    "XDG_CACHE_HOME",
)
SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "COOKIE", "AUTH")
BLOCK = 8 * 2**20


def read(path: str, limit: int) -> tuple[str, bool]:
    """What a file holds, and whether there was more."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        pieces = []
        size = 0
        while size <= limit and (piece := os.read(descriptor, min(limit + 1 - size, 65536))):
            pieces.append(piece)
            size += len(piece)
    finally:
        os.close(descriptor)
    data = b"".join(pieces)
    return data[:limit].decode("utf-8", "replace"), len(data) > limit


def list_paths(pattern: str, limit: int) -> tuple[str, bool]:
    """The paths of a pattern, a line each, and whether there were more."""
    paths = sorted(glob.glob(pattern))
    return "\n".join(paths[:limit]), len(paths) > limit


def status(path: str, _limit: int) -> str:
    """Owner, mode, size and time of a path."""
    found = os.stat(path)
    return json.dumps(
        {
            "type": stat.filemode(found.st_mode)[0],
            "mode": stat.S_IMODE(found.st_mode),
            "uid": found.st_uid,
            "gid": found.st_gid,
            "size": found.st_size,
            "modified_s": int(found.st_mtime),
        }
    )


def open_device(path: str, _limit: int) -> str:
    """Open a device for reading and writing, and close it."""
    os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    return "opened"


def link(path: str, _limit: int) -> str:
    """Where a link points."""
    return os.readlink(path)


def space(path: str, _limit: int) -> str:
    """Room at a place, or where it would be made: its nearest folder that is there."""
    at = path
    while not os.path.exists(at) and os.path.dirname(at) != at:
        at = os.path.dirname(at)
    found = os.statvfs(at)
    unit = found.f_frsize
    return json.dumps({"at": at, "total": found.f_blocks * unit, "free": found.f_bavail * unit})


def environment(_argument: str, _limit: int) -> str:
    """Variables that steer engines, without those that could be secrets."""
    return json.dumps(
        {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(ENVIRONMENT) and not any(word in name for word in SECRET)
        }
    )


def process(pid: str, _limit: int) -> str:
    """What a process is. Arguments are not kept: they hold secrets."""
    folder = f"/proc/{pid}"
    line, _ = read(f"{folder}/stat", 4096)
    name, rest = line[line.index("(") + 1 : line.rindex(")")], line[line.rindex(")") + 2 :]
    devices: list[str] = []
    handles = "read"
    try:
        for each in os.listdir(f"{folder}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"{folder}/fd/{each}")
                if target.startswith(GPU_DEVICES) and target not in devices:
                    devices.append(target)
    except PermissionError:
        handles = "denied"
    title = name
    # Last, because this one read waits for the memory of the process: it hangs with a hung one.
    with contextlib.suppress(OSError):
        words = [word for word in read(f"{folder}/cmdline", 4096)[0].split("\0") if word]
        title = program_title(words) or name
    wanted = title.lower()
    if not devices and rest[:1] != "D" and not any(word in wanted for word in INTERESTING):
        return json.dumps({"handles": handles})
    return json.dumps(
        {"title": title, "state": rest[:1], "handles": handles, "devices": sorted(devices)}
    )


def program_title(words: list[str]) -> str:
    """The program, and for an interpreter the module or script it runs."""
    if not words:
        return ""
    title = words[0].split(" ")[0] if words[0].startswith("/") else words[0][:60]
    rest = words[1:]
    if os.path.basename(title).startswith("python") and rest:
        if rest[0] == "-m" and len(rest) > 1:
            return f"{title} -m {rest[1]}"
        script = next((word for word in rest[:3] if not word.startswith("-")), "")
        return f"{title} {script}".strip() if "/" in script or script.endswith(".py") else title
    return title


def write_probe(folder: str, limit: int) -> str:
    """Whether a file can be written there: a nameless one that is gone with its descriptor."""
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, limit)
    return "written"


def speed(path: str, limit: int) -> str:
    """How fast a file is read, past the page cache as far as the kernel lets us."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, limit, os.POSIX_FADV_DONTNEED)
        begin = time.monotonic()
        done = 0
        while done < limit and (piece := os.read(descriptor, min(BLOCK, limit - done))):
            done += len(piece)
        seconds = time.monotonic() - begin
    finally:
        os.close(descriptor)
    return json.dumps({"bytes": done, "seconds": seconds})


OPERATIONS: dict[str, Callable[[str, int], str | tuple[str, bool]]] = {
    "read": read,
    "glob": list_paths,
    "stat": status,
    "open": open_device,
    "link": link,
    "space": space,
    "environ": environment,
    "process": process,
    "write": write_probe,
    "speed": speed,
}


def answer(operation: str, argument: str, limit: int) -> dict[str, object]:
    """The result of one item: text, or the errno that stood in the way."""
    try:
        found = OPERATIONS[operation](argument, limit)
    except OSError as error:
        return {"errno": errno.errorcode.get(error.errno or 0, "EIO")}
    except ValueError:
        return {"errno": "EINVAL"}
    if isinstance(found, tuple):
        return {"text": found[0], "truncated": found[1]}
    return {"text": found}


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer the items of standard input, one after the other."""
    for number, (operation, argument, limit) in enumerate(json.load(sys.stdin)):
        _say({"begin": number})
        _say({"end": number} | answer(operation, argument, limit))


if __name__ == "__main__":
    main()
