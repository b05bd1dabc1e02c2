"""A GGUF header in the words of a config.json, so that a family reads it as it reads one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from heavylift.checkpoint.grouping import HeaderGroup
from heavylift.facts.checkpoint_schema import GgufFields

_TABLE: Final = "token_embd.weight"
_OUTPUT: Final = "output.weight"
_KV_HEADS: Final = "attention.head_count_kv"
_PATTERN: Final = "attention.sliding_window_pattern"
_DRAFTS: Final = "nextn_predict_layers"
_FULL, _SLIDING, _OTHER = "full_attention", "sliding_attention", "linear_attention"


def config_of(
    architecture: str,
    metadata: Mapping[str, Any],
    by_layer: Mapping[str, tuple[int, ...]],
    groups: Iterable[HeaderGroup],
    book: GgufFields,
) -> dict[str, Any]:
    """The fields of a config.json that a header states, its keys without the architecture.

    Lists with the same number for every layer count as that number. A layer without KV heads does
    not attend; one that a pattern of windows names sees a window. Layers that only draft are no
    layers of the network. The size of the vocabulary, and whether its table is the output as well,
    follow from the tensors.
    """
    prefix = f"{architecture}."
    stated = {
        key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)
    }
    lists = {
        key.removeprefix(prefix): value for key, value in by_layer.items() if key.startswith(prefix)
    }
    for key, numbers in lists.items():
        counted = {number for number in numbers if number}
        if len(counted) == 1:
            stated[key] = counted.pop()
    document: dict[str, Any] = {}
    for key, fields in book.fields.items():
        if key in stated:
            document.update(dict.fromkeys(fields, stated[key]))
    for field, (whole, part) in book.differences.items():
        if _are_numbers(stated.get(whole), stated.get(part)):
            document[field] = stated[whole] - stated[part]
    drafts = stated.get(_DRAFTS, 0)
    if _are_numbers(stated.get("block_count"), drafts):
        document["num_hidden_layers"] = stated["block_count"] - drafts
    kinds = _kinds(lists)
    if kinds:
        document["layer_types"] = kinds
    return {**document, **_of_tensors(groups)}


def _are_numbers(*values: object) -> bool:
    return all(type(value) is int for value in values)


def _kinds(lists: Mapping[str, tuple[int, ...]]) -> list[str]:
    """What each layer is, where lists say; nothing where they do not."""
    if 0 in lists.get(_KV_HEADS, ()):
        return [_FULL if heads else _OTHER for heads in lists[_KV_HEADS]]
    return [_SLIDING if windowed else _FULL for windowed in lists.get(_PATTERN, ())]


def _of_tensors(groups: Iterable[HeaderGroup]) -> dict[str, Any]:
    shapes = {group.pattern: group.shape for group in groups}
    if _TABLE not in shapes or not shapes[_TABLE]:
        return {}
    return {"vocab_size": shapes[_TABLE][0], "tie_word_embeddings": _OUTPUT not in shapes}
