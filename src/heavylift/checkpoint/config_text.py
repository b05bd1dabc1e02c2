"""The text of a config.json as the document it stands for, and what lies beside it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

CONFIG: Final = "config.json"
CONFIG_LIMIT_BYTES: Final = 16 * 2**20
QUANTISATION: Final = "hf_quant_config.json"
"""Where one quantiser writes what a config.json need not say."""

_STATED: Final = ("quantization_config", "compression_config")
_QUANTISER: Final = "modelopt"
# Python writes these for numbers that JSON has no word for, and reads them.
_NO_JSON: Final = (b"Infinity", b"NaN")


class ConfigTextError(ValueError):
    """The text is no JSON object; says why."""


def decoded(raw: bytes) -> dict[str, Any]:
    """The object in a text. Raises ConfigTextError for what is none.

    Texts with Python's `Infinity` and `NaN` are read as Python reads them: published configs have
    them.
    """
    try:
        try:
            return msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.DecodeError:
            if not any(word in raw for word in _NO_JSON):
                raise
            found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigTextError(str(error) or type(error).__name__) from error
    if not isinstance(found, dict):
        raise ConfigTextError(type(found).__name__)
    return found


def with_quantisation(document: Mapping[str, Any], beside: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config with what its quantiser's own file says, where the config itself says nothing."""
    described = beside.get("quantization")
    if any(document.get(name) is not None for name in _STATED) or not isinstance(
        described, Mapping
    ):
        return document
    return {**document, _STATED[0]: {"quant_method": _QUANTISER, **described}}
