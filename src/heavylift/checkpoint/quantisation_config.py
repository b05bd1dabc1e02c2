"""Which linear layers a config.json says are quantised, and in which form.

Every quantiser writes its own `quantization_config`. Here each becomes the same list of rules over
the family's tensor names; where files exist, their headers decide instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import QuantisedFacts, TensorPattern

_PLACES: Final = ("quantization_config", "text_config.quantization_config", "compression_config")
_MOST_ENTRIES: Final = 100_000
_LONGEST_ENTRY: Final = 300
# A pattern from a stranger's file must not take for ever: few repetitions, none of a group.
_MOST_REPETITIONS: Final = 2
_MOST_TRIALS: Final = 1_000_000
_REPEATED_GROUP: Final = re.compile(r"\)[*+{?]")
_HEAD_ROLE: Final = "lm_head"
_WRAPPERS: Final = ("thinker", "llm", "language")
"""What names of a language model begin with where it is one of several models in a checkpoint."""

_FP4: Final = ("float", 4)
_FP8: Final = ("float", 8)
_MX_GROUP: Final = 32
# One scale for a whole row, however long it is.
_WHOLE_ROW: Final = 2**30
_UNQUANTISED_BITS: Final = 16

# Type, bits and strategy of compressed-tensors -> scheme.
_COMPRESSED: Final[Mapping[tuple[Any, Any, Any], str]] = {
    ("int", 4, "group"): "int4-packed",
    ("int", 4, "channel"): "int4-packed",
    ("int", 8, "channel"): "int8-channel",
    ("int", 8, "tensor"): "int8-channel",
    ("float", 8, "channel"): "fp8-channel",
    ("float", 8, "tensor"): "fp8",
    ("float", 8, "group"): "mxfp8",
}
# Bits and method -> scheme, for the packers of whole numbers.
_PACKED: Final = {
    (4, "awq"): "int4-awq",
    (4, "gptq"): "int4-gptq",
    (8, "gptq"): "int8-gptq",
}
_MODELOPT_BITS: Final = {4: ("nvfp4", 16), 8: ("fp8", 1)}

# ModelOpt's names of its forms.
_MODELOPT: Final = {
    "NVFP4": ("nvfp4", 16),
    "NVFP4_AWQ": ("nvfp4", 16),
    "W4A4_NVFP4": ("nvfp4", 16),
    "W4A16_NVFP4": ("nvfp4-weight-only", 16),
    "FP8": ("fp8", 1),
    "FP8_PB_WO": ("fp8-block", 128),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8-channel", 1),
    "MXFP8": ("mxfp8", 32),
}


@dataclass(frozen=True, slots=True)
class _Form:
    """One form a config names: its scheme and its modules (None = every linear layer)."""

    scheme: str
    group: int
    targets: _Names | None


class _Names:
    """Module names as quantisers list them: whole names, any run of their parts (`gate`), patterns
    with `*`, or `re:` and a regular expression.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._plain: set[str] = set()
        self._patterns: list[re.Pattern[str]] = []
        for entry in entries:
            if entry.startswith("re:"):
                self._patterns.append(re.compile(entry.removeprefix("re:")))
            elif "*" in entry:
                text = ".*".join(map(re.escape, canonical(entry).split("*")))
                self._patterns.append(re.compile(rf"{text}(?:\..*)?$"))
            else:
                self._plain.add(canonical(entry))

    @property
    def patterns(self) -> int:
        """How many entries are patterns, tried one by one."""
        return len(self._patterns)

    def take(self, module: str, *, whole: bool = False) -> bool:
        """True when one of the names means `module`, or what it is part of. `whole` = only by its
        whole name: a word in it will not do.
        """
        parts = module.split(".")
        first = 1 if whole else len(parts)
        runs = (
            ".".join(parts[begin:end])
            for begin in range(first)
            for end in range(begin + 1, len(parts) + 1)
        )
        if any(run in self._plain for run in runs):
            return True
        # Names of the whole model have a wrapper in front that the family's do not.
        return any(
            pattern.match(name) is not None
            for pattern in self._patterns
            for name in (module, f"language_model.{module}")
        )


def canonical(name: str) -> str:
    """A tensor or module name without the wrapper that models with towers put around the text part:
    `language_model.model.layers…`, `model.language_model.layers…` and `thinker.model.layers…` are
    `model.layers…`.
    """
    parts = name.split(".")
    if parts[0] in _WRAPPERS and len(parts) > 1:
        parts = parts[1:]
    return ".".join(part for part in parts if part != "language_model")


def quantised_by_config(
    find: Callable[[str], Any],
    path: str,
    patterns: Iterable[TensorPattern],
    layers: Mapping[str, tuple[int, ...]],
    spelling: Mapping[str, str],
) -> tuple[QuantisedFacts, ...]:
    """The rules of a config, whose fields `find` gives, over the linear layers of a family.

    `spelling` gives the family's own names of schemes. Empty when nothing is quantised, or when
    the family's own list states how. Raises PLAN060 for a form that is not known: its bytes would
    be a guess.
    """
    linear = [pattern for pattern in patterns if pattern.linear]
    document = next((found for place in _PLACES if (found := find(place)) is not None), None)
    if document is None or not linear:
        return ()
    if not isinstance(document, Mapping):
        raise _unknown(path, document)
    forms, ignored = _forms(document, path)
    experts = _expert_form(find)
    places = sum(len(layers.get(each.layers or "", (0,))) for each in linear)
    trials = ignored.patterns + sum(f.targets.patterns for f in forms if f.targets is not None)
    if places * trials > _MOST_TRIALS:
        raise _unknown(path, f"{trials} patterns")
    taken: dict[tuple[str, int], dict[str, list[int]]] = {}
    everywhere: dict[str, int] = {}
    for pattern in linear:
        numbers = layers.get(pattern.layers or "", (0,)) if pattern.layers else (0,)
        everywhere[pattern.name] = len(numbers)
        for layer in numbers:
            form = _form_of(pattern, layer, (*experts, *forms), ignored)
            if form is not None:
                scheme = spelling.get(form.scheme, form.scheme)
                found = taken.setdefault((scheme, form.group), {})
                found.setdefault(pattern.name, []).append(layer)
    return tuple(_rules(taken, everywhere))


def method_by_config(find: Callable[[str], Any]) -> str:
    """What a config calls its form; a question mark where it has no name for it."""
    document = next((found for place in _PLACES if (found := find(place)) is not None), None)
    method = _method(document) if isinstance(document, Mapping) else None
    return method[:_LONGEST_ENTRY] if isinstance(method, str) else "?"


def kv_dtype_by_config(find: Callable[[str], Any]) -> str | None:
    """The KV dtype that a checkpoint brings scales for; None when it names none that is known."""
    document = next((found for place in _PLACES if (found := find(place)) is not None), None)
    if not isinstance(document, Mapping):
        return None
    scheme = document.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        is_fp8 = (scheme.get("type"), scheme.get("num_bits")) == _FP8
        return "fp8" if is_fp8 else None
    said = (scheme, document.get("kv_cache_quant_algo"))
    return "fp8" if "FP8" in said else None


def _rules(
    taken: Mapping[tuple[str, int], Mapping[str, Sequence[int]]], everywhere: Mapping[str, int]
) -> Iterator[QuantisedFacts]:
    for (scheme, group), names in taken.items():
        by_layers: dict[tuple[int, ...], list[str]] = {}
        for name, numbers in names.items():
            whole = len(numbers) == everywhere[name]
            by_layers.setdefault(() if whole else tuple(numbers), []).append(name)
        for numbers, members in by_layers.items():
            yield QuantisedFacts(scheme=scheme, group=group, tensors=tuple(members), layers=numbers)


def _form_of(
    pattern: TensorPattern, layer: int, forms: Iterable[_Form], ignored: _Names
) -> _Form | None:
    name = pattern.name.replace("{l}", str(layer)).replace("{e}", "0")
    module = canonical(name).removesuffix(".weight")
    is_head = pattern.role == _HEAD_ROLE
    for form in forms:
        named = form.targets is not None and form.targets.take(module, whole=is_head)
        # The output projection is quantised only where it is named: no tool takes it by class.
        if (named or (form.targets is None and not is_head)) and not ignored.take(module):
            return form
    return None


def _expert_form(find: Callable[[str], Any]) -> tuple[_Form, ...]:
    """Experts in a form of their own, which the config states beside the quantisation."""
    if find("expert_dtype") == "fp4":
        return (_Form("mxfp4-e8m0", 32, _Names(("experts",))),)
    return ()


def _forms(document: Mapping[str, Any], path: str) -> tuple[tuple[_Form, ...], _Names]:
    method = _method(document)
    ignored: list[str] = []
    for key in ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"):
        ignored += _texts(document.get(key), path)
    match method:
        case "mxfp4":
            return (), _Names(())
        case "fp8":
            return (_fp8(document, path),), _Names(ignored)
        case "compressed-tensors":
            forms = tuple(_compressed(document, path))
        case "modelopt" | "modelopt_fp4" | "modelopt_mixed":
            forms = tuple(_modelopt(document, path))
        case "awq" | "gptq" | "auto-round" | "intel/auto-round" | "gptq_marlin" | "awq_marlin":
            forms = (_packed(document, str(method), path),)
            ignored += _gptq_exceptions(document, path)
        case "bitsandbytes" if document.get("load_in_4bit") is True:
            forms = (_Form("int4-bitsandbytes", 64, None),)
            ignored += _texts(document.get("llm_int8_skip_modules"), path)
        case _:
            raise _unknown(path, method)
    return forms, _Names(ignored)


def _method(document: Mapping[str, Any]) -> object:
    """Whose words a config uses: as it says, or who wrote it where it does not."""
    producer = document.get("producer")
    wrote = producer.get("name") if isinstance(producer, Mapping) else None
    return document.get("quant_method") or wrote


def _fp8(document: Mapping[str, Any], path: str) -> _Form:
    block = document.get("weight_block_size")
    if block is None:
        return _Form("fp8", 1, None)
    if not isinstance(block, list) or len(set(map(str, block))) != 1:
        raise _unknown(path, block)
    group = _number(block[0], path)
    return _Form("fp8-block", group, None)


def _compressed(document: Mapping[str, Any], path: str) -> Iterator[_Form]:
    groups = document.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _unknown(path, document.get("format"))
    for entry in groups.values():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("weights"), Mapping):
            raise _unknown(path, entry)
        weights = entry["weights"]
        targets = _targets(entry, path)
        packing = entry.get("format") or document.get("format")
        yield _Form(*_weights_form(weights, packing, path), targets)


def _weights_form(weights: Mapping[str, Any], packing: object, path: str) -> tuple[str, int]:
    size = weights.get("group_size")
    group = 1 if size in (None, -1) else _number(size, path)
    kind, bits, strategy = (_word(weights.get(name)) for name in ("type", "num_bits", "strategy"))
    if (kind, bits) == _FP4:
        is_mx = group == _MX_GROUP or packing == "mxfp4-pack-quantized"
        return ("mxfp4-packed", _MX_GROUP) if is_mx else ("nvfp4-packed", 16)
    if (kind, bits, strategy) == ("float", 8, "block"):
        block = weights.get("block_structure")
        edge = block[0] if isinstance(block, list) and block else 128
        return "fp8-block", _number(edge, path)
    scheme = _COMPRESSED.get((kind, bits, strategy))
    if scheme is None or (scheme == "mxfp8" and group != _MX_GROUP):
        raise _unknown(path, (kind, bits, strategy))
    if scheme == "int4-packed":
        return scheme, group if group > 1 else _WHOLE_ROW
    return scheme, 1


def _modelopt(document: Mapping[str, Any], path: str) -> Iterator[_Form]:
    layers = document.get("quantized_layers")
    if isinstance(layers, Mapping):
        if len(layers) > _MOST_ENTRIES:
            raise _unknown(path, f"{len(layers)} layers")
        named: dict[str, list[str]] = {}
        for name, entry in layers.items():
            algorithm = entry.get("quant_algo") if isinstance(entry, Mapping) else None
            named.setdefault(str(algorithm), []).append(str(name))
        for algorithm, names in named.items():
            yield _Form(*_modelopt_form(algorithm, path), _Names(_texts(names, path)))
        return
    algorithm = _word(document.get("quant_algo"))
    groups = document.get("config_groups")
    if algorithm in _MODELOPT or not isinstance(groups, Mapping):
        yield _Form(*_modelopt_form(algorithm, path), None)
        return
    for entry in groups.values():
        weights = entry.get("weights") if isinstance(entry, Mapping) else None
        bits = _word(weights.get("num_bits")) if isinstance(weights, Mapping) else None
        if bits not in _MODELOPT_BITS:
            raise _unknown(path, bits)
        yield _Form(*_MODELOPT_BITS[bits], _targets(entry, path))


def _modelopt_form(algorithm: object, path: str) -> tuple[str, int]:
    if not isinstance(algorithm, str) or algorithm not in _MODELOPT:
        raise _unknown(path, algorithm)
    return _MODELOPT[algorithm]


def _packed(document: Mapping[str, Any], method: str, path: str) -> _Form:
    bits = document.get("bits", document.get("w_bit"))
    size = document.get("group_size", document.get("q_group_size"))
    group = _WHOLE_ROW if size == -1 else _number(size, path)
    packing = str(document.get("packing_format", ""))
    packer = "awq" if method.startswith("awq") or packing.endswith("awq") else "gptq"
    scheme = _PACKED.get((bits, packer)) if isinstance(bits, int) else None
    if scheme is None:
        raise _unknown(path, f"{method} {bits}")
    return _Form(scheme, group, None)


def _gptq_exceptions(document: Mapping[str, Any], path: str) -> list[str]:
    """Modules left alone: `-:` and a regular expression, or layers of 16 bits."""
    found = []
    dynamic = document.get("dynamic")
    if isinstance(dynamic, Mapping):
        names = [f"re:{name.removeprefix('-:')}" for name in dynamic if str(name).startswith("-:")]
        if len(names) < len(dynamic):
            raise _unknown(path, "dynamic")
        found += names
    extra = document.get("extra_config")
    if isinstance(extra, Mapping):
        for name, entry in extra.items():
            bits = entry.get("bits") if isinstance(entry, Mapping) else None
            if isinstance(bits, int) and bits < _UNQUANTISED_BITS:
                raise _unknown(path, f"{name}: {bits}")
            found.append(f"{name}")
    return _texts(found, path)


def _targets(entry: Mapping[str, Any], path: str) -> _Names | None:
    names = _texts(entry.get("targets"), path)
    return None if "Linear" in names else _Names(names)


def _texts(value: object, path: str) -> list[str]:
    """A list of names; None is an empty one. Raises PLAN060 for anything else or too much."""
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MOST_ENTRIES:
        raise _unknown(path, value)
    for entry in value:
        if not isinstance(entry, str) or len(entry) > _LONGEST_ENTRY:
            raise _unknown(path, entry)
        if entry.startswith("re:"):
            _require_harmless(entry.removeprefix("re:"), path)
        elif entry.count("*") > _MOST_REPETITIONS:
            raise _unknown(path, entry)
    return value


def _require_harmless(pattern: str, path: str) -> None:
    repetitions = sum(pattern.count(sign) for sign in "*+{")
    if repetitions > _MOST_REPETITIONS or _REPEATED_GROUP.search(pattern):
        raise _unknown(path, pattern)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise _unknown(path, pattern) from error


def _word(value: object) -> str | int | None:
    """A word or number of a config; None for a list or table in its place."""
    return value if isinstance(value, str | int) else None


def _number(value: object, path: str) -> int:
    if type(value) is not int or not 1 <= value <= 2**20:
        raise _unknown(path, value)
    return value


def _unknown(path: str, what: object) -> HeavyliftError:
    return HeavyliftError("PLAN060", {"path": path, "what": repr(what)[:60]})
