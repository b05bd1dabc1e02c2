"""Which known model a GGUF header speaks of: by its dimensions, not by its name. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from heavylift.errors import Scalar
from heavylift.facts.schema import ModelFacts

# Fields of a header, without the architecture in front -> dimensions of our models.
_DIMENSIONS: Final = {
    "block_count": "layers",
    "embedding_length": "hidden_size",
    "attention.head_count": "heads",
    "expert_count": "experts",
}
_NEEDED: Final = ("layers", "hidden_size")


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufDimensions:
    """What a header says of its network. `dims` by our names, those that are single numbers."""

    architecture: str
    name: str
    dims: Mapping[str, int]
    context: int | None

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> GgufDimensions:
        """The dimensions in the single values of a header."""
        architecture = _text(metadata.get("general.architecture")) or "?"

        def number(key: str) -> int | None:
            value = metadata.get(f"{architecture}.{key}")
            return value if type(value) is int and value > 0 else None

        dims = {ours: value for key, ours in _DIMENSIONS.items() if (value := number(key))}
        drafts = number("nextn_predict_layers") or 0
        if "layers" in dims:
            dims["layers"] -= drafts
        return cls(
            architecture=architecture,
            name=_text(metadata.get("general.name")) or _text(metadata.get("general.basename")),
            dims=dims,
            context=number("context_length"),
        )

    @property
    def title(self) -> str:
        """How the form is called on a screen."""
        return f"GGUF, {self.architecture}"

    def find(self, models: Iterable[ModelFacts], where: str) -> ModelFacts | None:
        """The model of these dimensions; of several the one that the header or the path names, then
        the one that reads as far. None where none has them, or too few are stated.
        """
        if any(name not in self.dims for name in _NEEDED):
            return None
        alike = [model for model in models if self._is(model)]

        def order(model: ModelFacts) -> tuple[bool, bool, bool]:
            names = (model.id, model.title, *(name.rpartition("/")[2] for name in model.names))
            keys = {_key(name) for name in names}
            said = _key(f"{self.name} {where}")
            named = any(key in said for key in keys)
            return not named, model.max_context.value != self.context, model.is_recalled

        return min(alike, key=order, default=None)

    def _is(self, model: ModelFacts) -> bool:
        known = model.dim_values
        if ("experts" in known) != ("experts" in self.dims):
            return False
        return all(known.get(name, value) == value for name, value in self.dims.items())

    def shown(self) -> dict[str, Scalar]:
        """For a message."""
        return {
            "architecture": self.architecture,
            "layers": self.dims.get("layers"),
            "hidden_size": self.dims.get("hidden_size"),
        }


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _key(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
