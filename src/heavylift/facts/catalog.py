"""The catalogue: finds, decodes and cross-checks the facts files.

Files are read when something in them is asked for, so that a plan of one model on one card reads
a handful of them. `check` reads everything and returns every defect.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from heavylift.errors import HeavyliftError
from heavylift.facts.decode import Decoder, Defect
from heavylift.facts.expressions import ExpressionError, evaluate
from heavylift.facts.schema import (
    EngineFacts,
    FamilyFacts,
    GpuFacts,
    ModelFacts,
    NodeFacts,
    RecipeBook,
    Source,
    TensorPattern,
)

R = TypeVar("R")

DATA: Final = Path(__file__).parent / "data"


class FactsError(HeavyliftError):
    """Facts files with defects; `defects` holds every one of them, each with its path."""

    def __init__(self, defects: Iterable[Defect]) -> None:
        self.defects = tuple(defects)
        first = self.defects[0]
        super().__init__(
            "FACT001",
            {
                "count": len(self.defects),
                "path": first.path,
                "problem": first.problem,
                "detail": first.detail,
            },
        )


def _key(name: str) -> str:
    """A name as it is compared: case, spaces, dashes, dots and underscores do not matter."""
    return "".join(character for character in name.lower() if character.isalnum())


class Catalog:
    """All facts under one folder. `Catalog()` is the one that ships with the package."""

    def __init__(self, root: Path = DATA) -> None:
        self.root = root
        self._records: dict[tuple[str, str], Any] = {}

    # --- what is asked for -----------------------------------------------------------------------

    def model(self, name: str) -> ModelFacts:
        """The model of that id or name. Raises FACT010 with a suggestion when there is none."""
        return self._named(self._models, name, "FACT010", "models")

    def gpu(self, name: str) -> GpuFacts:
        """The card of that id or alias. Raises FACT011 with a suggestion when there is none."""
        return self._named(self._gpus, name, "FACT011", "gpus")

    def engine(self, name: str) -> EngineFacts:
        """The engine of that id or name. Raises FACT012 with a suggestion when there is none."""
        return self._named(self._engines, name, "FACT012", "engines")

    def family(self, identifier: str) -> FamilyFacts:
        """The architecture family of that id."""
        return self._load("families", identifier, self._decode_family)

    def node(self, identifier: str) -> NodeFacts:
        """The node type of that id."""
        return self._load("nodes", identifier, self._decoder_for(NodeFacts))

    def source(self, identifier: str) -> Source:
        """The source of that id. Raises KeyError when there is none."""
        return self._sources[identifier]

    def recipes(self, model: str) -> RecipeBook:
        """The published recipes of a model id; an empty book when none were published."""
        if not (self.root / "recipes" / f"{model}.toml").is_file():
            return RecipeBook(model=model, recipes=())
        return self._load("recipes", model, self._decoder_for(RecipeBook, {"model": model}))

    def ids(self, kind: str) -> tuple[str, ...]:
        """The ids of a kind of facts (`models`, `gpus`, `engines`, …), in alphabetical order."""
        folder = self.root / kind
        stems = (path.stem for path in folder.glob("*.toml"))
        if kind == "families":
            stems = (path.parent.name for path in folder.glob("*/architecture.toml"))
        return tuple(sorted(stems))

    def gpus(self) -> tuple[GpuFacts, ...]:
        """All cards."""
        return tuple(self._all("gpus", self._decoder_for(GpuFacts)))

    def engines(self) -> tuple[EngineFacts, ...]:
        """All engines."""
        return tuple(self._all("engines", self._decoder_for(EngineFacts)))

    def model_for_hf_type(self, model_type: str) -> FamilyFacts | None:
        """The family that claims a `model_type` of a config.json, or None."""
        for identifier in self.ids("families"):
            family = self.family(identifier)
            if model_type in family.hf_model_types:
                return family
        return None

    # --- names -----------------------------------------------------------------------------------

    @cached_property
    def _models(self) -> dict[str, str]:
        return self._index("models", "names")

    @cached_property
    def _gpus(self) -> dict[str, str]:
        return self._index("gpus", "aliases")

    @cached_property
    def _engines(self) -> dict[str, str]:
        return self._index("engines", "names")

    def _index(self, kind: str, field: str) -> dict[str, str]:
        index: dict[str, str] = {}
        for identifier in self.ids(kind):
            table = self._table(f"{kind}/{identifier}.toml")
            for name in (identifier, table.get("title", identifier), *table.get(field, ())):
                index[_key(str(name))] = identifier
        return index

    def _named(self, index: Mapping[str, str], name: str, code: str, kind: str) -> Any:
        wanted = _key(name)
        if wanted in index:
            identifier = index[wanted]
            cls = {"models": ModelFacts, "gpus": GpuFacts, "engines": EngineFacts}[kind]
            return self._load(kind, identifier, self._decoder_for(cls))
        close = difflib.get_close_matches(wanted, index, n=1, cutoff=0.6)
        raise HeavyliftError(
            code,
            {
                "name": name,
                "suggestion": self._table(f"{kind}/{index[close[0]]}.toml")["title"]
                if close
                else "",
                "known": ", ".join(self.ids(kind)),
            },
        )

    # --- files -----------------------------------------------------------------------------------

    def _table(self, relative: str) -> dict[str, Any]:
        key = ("table", relative)
        if key not in self._records:
            try:
                text = (self.root / relative).read_text("utf-8")
            except FileNotFoundError as error:
                raise HeavyliftError("FACT002", {"path": relative}) from error
            try:
                self._records[key] = tomllib.loads(text)
            except tomllib.TOMLDecodeError as error:
                raise FactsError([Defect(relative, "not_toml", str(error))]) from error
        table: dict[str, Any] = self._records[key]
        return table

    @cached_property
    def _sources(self) -> dict[str, Source]:
        table = self._table("sources.toml")
        decoder = Decoder("sources.toml", sources=None)
        decoded = {
            identifier: decoder.record(Source, entry, identifier, given={"id": identifier})
            for identifier, entry in table.items()
        }
        if decoder.defects:
            raise FactsError(decoder.defects)
        return {identifier: source for identifier, source in decoded.items() if source is not None}

    def _load(self, kind: str, identifier: str, decode: Callable[[str, str], R]) -> R:
        key = (kind, identifier)
        if key not in self._records:
            self._records[key] = decode(kind, identifier)
        record: R = self._records[key]
        return record

    def _all(self, kind: str, decode: Callable[[str, str], R]) -> list[R]:
        return [self._load(kind, identifier, decode) for identifier in self.ids(kind)]

    def _decoder_for(
        self, cls: type[R], given: Mapping[str, Any] | None = None
    ) -> Callable[[str, str], R]:
        def decode(kind: str, identifier: str) -> R:
            relative = f"{kind}/{identifier}.toml"
            fields = dict(given) if given is not None else {"id": identifier}
            return self._decode(cls, relative, self._table(relative), fields)

        return decode

    def _decode(
        self, cls: type[R], relative: str, table: Mapping[str, Any], given: Mapping[str, Any]
    ) -> R:
        decoder = Decoder(relative, frozenset(self._sources))
        record = decoder.record(cls, table, given=given)
        if decoder.defects or record is None:
            raise FactsError(decoder.defects)
        return record

    def _decode_family(self, _kind: str, identifier: str) -> FamilyFacts:
        folder = self.root / "families" / identifier
        table = dict(self._table(f"families/{identifier}/architecture.toml"))
        formats = []
        for path in sorted(folder.glob("*.toml")):
            if path.stem != "architecture":
                entry = self._table(f"families/{identifier}/{path.name}")
                formats.append({"id": path.stem, **entry})
        table["formats"] = formats
        relative = f"families/{identifier}"
        return self._decode(FamilyFacts, relative, table, {"id": identifier})

    # --- everything ------------------------------------------------------------------------------

    def check(self) -> tuple[Defect, ...]:
        """Every defect of every file, and of how they refer to one another. Empty = sound."""
        defects: list[Defect] = []

        def attempt(load: Callable[[], R]) -> R | None:
            try:
                return load()
            except FactsError as error:
                defects.extend(error.defects)
            except HeavyliftError as error:
                defects.append(Defect(str(error.params.get("path", "")), "missing_file"))
            return None

        if attempt(lambda: self._sources) is None:
            return tuple(defects)
        for kind, cls in (("nodes", NodeFacts), ("gpus", GpuFacts), ("engines", EngineFacts)):
            for identifier in self.ids(kind):
                attempt(lambda k=kind, i=identifier, c=cls: self._load(k, i, self._decoder_for(c)))
        for identifier in self.ids("families"):
            attempt(lambda i=identifier: self.family(i))
        for identifier in self.ids("models"):
            model = attempt(lambda i=identifier: self.model(i))
            if model is not None:
                family = attempt(lambda m=model: self.family(m.family))
                if family is not None:
                    defects.extend(_model_defects(model, family))
            attempt(lambda i=identifier: self.recipes(i))
        defects.extend(self._reference_defects())
        return tuple(defects)

    def _reference_defects(self) -> Iterable[Defect]:
        nodes, gpus, engines = (set(self.ids(kind)) for kind in ("nodes", "gpus", "engines"))
        for identifier in sorted(gpus):
            gpu = self._records.get(("gpus", identifier))
            if gpu is not None and gpu.node not in nodes:
                yield Defect(f"gpus/{identifier}.toml: node", "unknown_node", gpu.node)
        for identifier in sorted(nodes):
            node = self._records.get(("nodes", identifier))
            if node is not None and node.gpu not in gpus:
                yield Defect(f"nodes/{identifier}.toml: gpu", "unknown_gpu", node.gpu)
        for identifier in self.ids("models"):
            book = self._records.get(("recipes", identifier))
            for recipe in book.recipes if book is not None else ():
                where = f"recipes/{identifier}.toml: {recipe.id}"
                if recipe.engine not in engines:
                    yield Defect(where, "unknown_engine", recipe.engine)
                for gpu_id in recipe.gpu_ids:
                    if gpu_id not in gpus:
                        yield Defect(where, "unknown_gpu", gpu_id)


def _model_defects(model: ModelFacts, family: FamilyFacts) -> Iterable[Defect]:
    file = f"models/{model.id}.toml"
    missing = [name for name in family.dims if name not in model.dims]
    for name in missing:
        yield Defect(f"{file}: dims.{name}", "missing")
    for name in family.layer_sets:
        if name not in model.layers:
            yield Defect(f"{file}: layers.{name}", "missing")
    if missing:
        return
    count = model.dim("layers")
    for name, layers in model.layers.items():
        if any(not 0 <= layer < count for layer in layers.value):
            yield Defect(f"{file}: layers.{name}", "layer_out_of_range", str(count))
    formats = {entry.id for entry in family.formats}
    for variant in model.variants:
        if variant.format not in formats:
            yield Defect(f"{file}: variants.{variant.id}.format", "unknown_format", variant.format)
    for entry in family.formats:
        for pattern in entry.tensors:
            problem = _pattern_problem(pattern, model)
            if problem:
                where = f"families/{family.id}/{entry.id}.toml: {pattern.name}"
                yield Defect(where, "expression", f"{model.id}: {problem}")


def _pattern_problem(pattern: TensorPattern, model: ModelFacts) -> str:
    try:
        for size in pattern.shape:
            evaluate(size, model.dim_values)
        if pattern.experts is not None:
            evaluate(pattern.experts, model.dim_values)
    except ExpressionError as error:
        return str(error)
    if pattern.layers is not None and pattern.layers not in model.layers:
        return pattern.layers
    return ""
