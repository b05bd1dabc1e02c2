"""Reads a checkpoint's headers and prints what is wrong with it: `python -m … FOLDER|FILE.gguf`.

A process of its own, because files on a dead server make whoever reads them wait for ever.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from heavylift.checkpoint.gguf_file import read_gguf
from heavylift.checkpoint.read import read_checkpoint
from heavylift.errors import HeavyliftError

_SPLIT = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.ASCII)
_DEFECTS = 50
_CONFIG_BYTES = 2**24


def describe(path: Path) -> dict[str, Any]:
    """What is known of a checkpoint, as plain values."""
    gguf = _gguf_files(path)
    report: dict[str, Any] = {"path": str(path), "format": "gguf" if gguf else "safetensors"}
    try:
        report |= _describe_gguf(path, gguf) if gguf else _describe_safetensors(path)
    except HeavyliftError as error:
        report["error"] = error.code
        report["error_params"] = error.params
    return report | _remote_code(path) | {"largest": _largest(path)}


def _largest(path: Path) -> str | None:
    """The largest file of weights, to measure the disk with."""
    files = [path] if path.is_file() else [*path.glob("*.safetensors"), *path.glob("*.gguf")]
    return str(max(files, key=lambda file: file.stat().st_size)) if files else None


def _gguf_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".gguf" else []
    return sorted(path.glob("*.gguf"))


def _describe_safetensors(path: Path) -> dict[str, Any]:
    checkpoint = read_checkpoint(path)
    return {
        "files": len(checkpoint.files),
        "bytes": checkpoint.file_bytes,
        "tensors": checkpoint.tensors,
        "defect_count": len(checkpoint.defects),
        "defects": [
            {"path": each.path, "problem": each.problem, "detail": each.detail}
            for each in checkpoint.defects[:_DEFECTS]
        ],
    }


def _describe_gguf(path: Path, files: list[Path]) -> dict[str, Any]:
    first = files[0]
    header = read_gguf(first)
    split = _SPLIT.search(first.name)
    siblings = first.parent.glob(f"{first.name[: split.start()]}-*.gguf") if split else [first]
    return {
        "files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "architecture": header.metadata.get("general.architecture"),
        "split_count": header.metadata.get("split.count"),
        "split_number": header.metadata.get("split.no"),
        "named_count": int(split[1]) if split else 1,
        "present": len(list(siblings)),
        "first_given": path.is_dir() or not split or "-00001-of-" in first.name,
    }


def _remote_code(path: Path) -> dict[str, Any]:
    """Which configuration files ask for code of the checkpoint, and what its tokenizer imports."""
    folder = path if path.is_dir() else path.parent
    asking, read = [], []
    for name in ("config.json", "tokenizer_config.json", "processor_config.json"):
        file = folder / name
        try:
            if file.stat().st_size <= _CONFIG_BYTES:
                document = msgspec.json.decode(file.read_bytes())
                read.append(name)
                if isinstance(document, dict) and document.get("auto_map"):
                    asking.append(name)
        except (OSError, msgspec.DecodeError):
            continue
    tokenizer = [file.name for file in sorted(folder.glob("tokenization_*.py"))]
    uses = [name for name in tokenizer if _imports_bytes_to_unicode(folder / name)]
    return {
        "configs": read,
        "auto_map": asking,
        "tokenizer_files": tokenizer,
        "bytes_to_unicode": uses,
    }


def _imports_bytes_to_unicode(file: Path) -> bool:
    """Whether a tokenizer imports the helper that transformers 5 moved."""
    try:
        text = file.read_bytes()[:_CONFIG_BYTES]
    except OSError:
        return False
    return (
        re.search(rb"^\s*from transformers\S* import .*bytes_to_unicode", text, re.MULTILINE)
        is not None
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(describe(Path(sys.argv[1]))))
