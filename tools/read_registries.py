"""Read what engine releases say they can run, and write the registries.

Releases are unpacked as `read_flags.py` says; their files are parsed, never imported and never run:

    python tools/read_registries.py vllm vllm/0.27.0 … vllm/0.32.0
    python tools/read_registries.py sglang sglang/0.5.23
    python tools/read_registries.py tokenspeed tokenspeed/0.1.1
    python tools/read_registries.py transformers transformers/5.24.0
    python tools/read_registries.py llamacpp xllamacpp/2026.10.11549

The last part of each path is the version; paths go from the oldest to the newest. llama.cpp is a
library: of the names of architectures that the `gguf` package knows, those that stand in it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from read_flags import Names, literal, tree

OUTPUT = Path(__file__).parents[1] / "src/heavylift/facts/data/registries"
KEPT_BY_HAND = "# --- by hand"
# Not what a release runs: what it once ran, what others add, and the sum of the other tables.
NOT_RUN = ("_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS", "_VLLM_MODELS")


@dataclass
class Release:
    """What one release lists."""

    architectures: set[str] = field(default_factory=set)
    quantisations: set[str] = field(default_factory=set)
    capability: dict[str, int] = field(default_factory=dict)
    vendors: dict[str, set[str]] = field(default_factory=dict)


def assigned(path: Path) -> dict[str, ast.expr]:
    """Top-level names of a file and what they are."""
    return Names([path]).values


# --- vLLM ----------------------------------------------------------------------------------------


def read_vllm(root: Path) -> Release:
    """Model classes, quantisation methods and the oldest card of each."""
    package = root / "vllm"
    models = assigned(package / "model_executor/models/registry.py")
    release = Release()
    for name, table in models.items():
        if isinstance(table, ast.Dict) and name.endswith("_MODELS") and name not in NOT_RUN:
            release.architectures |= set(_keys(table))
    layers = package / "model_executor/layers/quantization"
    methods = layers / "__init__.py"
    names = Names([methods])
    release.quantisations = set(names.choices(ast.Name("QuantizationMethods")))
    oldest = _oldest_cards(layers)
    for table in _method_tables(methods):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(value, ast.Name) and value.id in oldest and key is not None:
                release.capability[str(literal(key))] = oldest[value.id]
    release.vendors["amd"] = set(_platform_list(package / "platforms/rocm.py"))
    return release


def _keys(table: ast.Dict) -> Iterator[str]:
    return (str(literal(key)) for key in table.keys if isinstance(literal(key), str))


def _method_tables(path: Path) -> Iterator[ast.Dict]:
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == "method_to_config"
            and isinstance(node.value, ast.Dict)
        ):
            yield node.value


def _oldest_cards(folder: Path) -> dict[str, int]:
    """Class of a method -> the least compute capability it returns as a plain number."""
    found: dict[str, int] = {}
    for path in folder.rglob("*.py"):
        for node in tree(path).body:
            if not isinstance(node, ast.ClassDef):
                continue
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "get_min_capability":
                    values = [literal(each.value) for each in _returns(method)]
                    if len(values) == 1 and isinstance(values[0], int):
                        found[node.name] = values[0]
    return found


def _returns(function: ast.FunctionDef) -> Iterator[ast.Return]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Return))


def _platform_list(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == "supported_quantization"
        ):
            listed = literal(node.value)
            yield from map(str, listed if isinstance(listed, list) else ())


# --- SGLang and TokenSpeed -----------------------------------------------------------------------


def entries(files: Iterable[Path]) -> set[str]:
    """Classes that modules export as `EntryClass`."""
    found: set[str] = set()
    for path in files:
        for node in tree(path).body:
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "EntryClass"
                for target in node.targets
            ):
                found |= {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
    return found


def read_sglang(root: Path) -> Release:
    """Model classes and quantisation methods."""
    package = root / "sglang/srt"
    release = Release(architectures=entries((package / "models").glob("*.py")))
    methods = assigned(package / "layers/quantization/__init__.py")
    for name, table in methods.items():
        if name.endswith("QUANTIZATION_METHODS") and isinstance(table, ast.Dict):
            release.quantisations |= set(_keys(table))
    return release


def read_tokenspeed(root: Path) -> Release:
    """Model classes."""
    return Release(architectures=entries((root / "tokenspeed/runtime/models").glob("*.py")))


# --- libraries -----------------------------------------------------------------------------------


def read_transformers(root: Path) -> Release:
    """Classes that write text, with pictures or without."""
    release = Release()
    values = assigned(root / "transformers/models/auto/modeling_auto.py")
    for name in (
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    ):
        table = values[name]
        for pair in literal(table.args[0]) or () if isinstance(table, ast.Call) else ():
            listed = pair[1] if isinstance(pair[1], tuple) else (pair[1],)
            release.architectures |= set(listed)
    return release


def read_llamacpp(root: Path) -> Release:
    """Architectures of GGUF files whose name stands in the library."""
    from gguf.constants import MODEL_ARCH_NAMES  # noqa: PLC0415  a development package

    library = next(root.rglob("*.so")).read_bytes()
    known = set(MODEL_ARCH_NAMES.values()) | set(_table(library))
    # A name may be the end of a longer one: the linker keeps one copy of both.
    return Release(architectures={name for name in known if name.encode() + b"\0" in library})


def _table(library: bytes) -> Iterator[str]:
    """Names between the first and the last of the library's own table."""
    start = library.find(b"\0deci\0falcon\0")
    stop = library.find(b"\0(unknown)\0", start)
    if 0 < start < stop:
        for word in re.findall(rb"[a-z][a-z0-9_.-]+", library[start:stop]):
            yield word.decode()


READERS: dict[str, Callable[[Path], Release]] = {
    "vllm": read_vllm,
    "sglang": read_sglang,
    "tokenspeed": read_tokenspeed,
    "transformers": read_transformers,
    "llamacpp": read_llamacpp,
}
SOURCES = {"llamacpp": "xllamacpp"}
# Libraries whose classes an engine runs where it has none of its own.
FALLBACKS = {"vllm": "transformers", "sglang": "transformers"}


# --- tables --------------------------------------------------------------------------------------


def table(title: str, versions: list[str], parts: list[set[str]]) -> Iterator[str]:
    """The names of a table, and when they came and went."""
    names = sorted({name for part in parts for name in part})
    yield f"[{title}]"
    yield "names = ["
    yield from (f"  {json.dumps(name)}," for name in names)
    yield "]"
    since: dict[str, str] = {}
    until: dict[str, str] = {}
    for name in names:
        present = [index for index, part in enumerate(parts) if name in part]
        if present[0]:
            since[name] = versions[present[0]]
        if present[-1] + 1 < len(versions):
            until[name] = versions[present[-1] + 1]
    yield from pairs(f"{title}.since", since)
    yield from pairs(f"{title}.until", until)


def _least(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The least of every name: what one release runs on is not called too old by another."""
    found: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            found[name] = min(value, found.get(name, value))
    return found


def pairs(title: str, values: Mapping[str, object]) -> Iterator[str]:
    """A table of values by name; nothing where there is none."""
    if values:
        yield ""
        yield f"[{title}]"
        for name, value in sorted(values.items()):
            yield f"{json.dumps(name)} = {json.dumps(value)}"


def write(engine: str, versions: list[str], releases: list[Release]) -> None:
    """Write a registry, with what is kept by hand at the end of the file that is there."""
    path = OUTPUT / f"{engine}.toml"
    old = path.read_text("utf-8") if path.is_file() else ""
    by_hand = old[old.index(KEPT_BY_HAND) :] if KEPT_BY_HAND in old else ""
    text = [
        f"# What releases of {engine} list, read by tools/read_registries.py.",
        "# Written by that tool: change the tool, not this file, but for what is kept by hand.",
        f"engine = {json.dumps(engine)}",
        f"read = {json.dumps(versions)}",
        'kind = "derived"',
        f"source = {json.dumps(f'{SOURCES.get(engine, engine)}-{versions[-1]}')}",
        f"as_of = {datetime.now(UTC).date()}",
        *([f"fallback = {json.dumps(FALLBACKS[engine])}"] if engine in FALLBACKS else []),
        "",
        *table("architectures", versions, [each.architectures for each in releases]),
    ]
    if any(each.quantisations for each in releases):
        text += ["", *table("quantisations", versions, [each.quantisations for each in releases])]
        text += pairs("quantisations.capability", _least(each.capability for each in releases))
        vendors = {
            name: sorted(set.union(*(each.vendors.get(name, set()) for each in releases)))
            for name in releases[-1].vendors
        }
        text += pairs("quantisations.vendors", vendors)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(text) + "\n" + (f"\n{by_hand}" if by_hand else ""), "utf-8")
    sys.stdout.write(f"{engine}: {len(releases[-1].architectures)} architectures\n")


def main(arguments: list[str]) -> None:
    """`read_registries.py ENGINE PATH…`, the oldest release first."""
    engine, *paths = arguments
    releases = [READERS[engine](Path(path)) for path in paths]
    write(engine, [Path(path).name for path in paths], releases)


if __name__ == "__main__":
    main(sys.argv[1:])
