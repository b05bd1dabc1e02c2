"""The catalogue: finds, decodes and cross-checks the facts files.

Files are read when something in them is asked for, so that a plan of one model on one card reads
a handful of them. `check` reads everything and returns every defect.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.facts import consistency
from heavylift.facts.access_schema import CardAccess
from heavylift.facts.card_names import CardSize, read_card
from heavylift.facts.checkpoint_schema import (
    FormBook,
    GgufFields,
    HubBook,
    HubFacts,
    TensorBook,
)
from heavylift.facts.command_schema import (
    CommandCards,
    CommandEngines,
    CommandModels,
    CommandRuleFacts,
    CommandRules,
    FlagTableFacts,
    NameChangeFacts,
    NameChanges,
)
from heavylift.facts.consistency import Everything, name_key
from heavylift.facts.copies import Copy, read_name
from heavylift.facts.decode import Decoder
from heavylift.facts.defects import Defect, FactsError
from heavylift.facts.document import read_document
from heavylift.facts.golive_schema import GoLiveBook
from heavylift.facts.import_schema import ImportBook
from heavylift.facts.log_schema import LogBook, RestartBook
from heavylift.facts.mix_schema import MixBook
from heavylift.facts.price_schema import (
    ApiPriceBook,
    AssumptionBook,
    MachineBook,
    PriceFacts,
    RentalBook,
)
from heavylift.facts.registry_schema import MethodBook, MethodRule, RegistryFacts
from heavylift.facts.router_schema import RouterFacts
from heavylift.facts.schema import (
    CheckFacts,
    CheckList,
    CheckpointFormat,
    EngineFacts,
    FamilyFacts,
    Golden,
    GoldenBook,
    GpuFacts,
    MemoryShareBook,
    MemoryShareRule,
    MetricBook,
    ModelFacts,
    NodeFacts,
    RecipeBook,
    ReplyBook,
    ReplyFormat,
    Showcase,
    Source,
)
from heavylift.facts.serving_schema import ServingCommon, ServingEngine
from heavylift.facts.speed_schema import (
    AcceptanceBook,
    SpeedClassBook,
    SpeedFacts,
    SpeedModelFacts,
    TrafficShapeBook,
    TransferLinkBook,
)
from heavylift.facts.symptom_consistency import symptom_defects
from heavylift.facts.symptom_schema import (
    SymptomBook,
)
from heavylift.facts.thumb_schema import ThumbRuleBook, ThumbRuleFacts
from heavylift.facts.variant_schema import VariantReportBook

R = TypeVar("R")

DATA: Final = Path(__file__).parent / "data"

_NAMES_IN: Final = {"models": "names", "gpus": "aliases", "engines": "names"}
"""The key under which a file of each kind lists the other names of its thing."""

_KINDS: Final = ("models", "gpus", "nodes", "families", "engines")
"""The kinds that other files refer to."""

_NOT_KNOWN: Final = {"models": "FACT010", "gpus": "FACT011", "engines": "FACT012"}


class Catalog:
    """All facts under one folder. `Catalog()` is the one that ships with the package.

    Everything asked for raises `FactsError` when its file has defects and FACT002 when there is no
    such file.
    """

    def __init__(self, root: Path = DATA) -> None:
        self.root = root
        self._tables: dict[str, dict[str, Any]] = {}
        self._records: dict[str, Any] = {}
        self._ids: dict[str, tuple[str, ...]] = {}
        self._names: dict[str, Mapping[str, str]] = {}

    # --- what is asked for -----------------------------------------------------------------------

    def model(self, name: str) -> ModelFacts:
        """The model of that id or name. Raises FACT010 with a suggestion when there is none."""
        return self._named(ModelFacts, "models", name)

    def gpu(self, name: str) -> GpuFacts:
        """The card of that id or alias, also with its memory behind it (`RTX 3090 24GB`).

        Raises FACT011 with a suggestion when there is none.
        """
        try:
            return self._named(GpuFacts, "gpus", name)
        except HeavyliftError as error:
            identifier = read_card(name, self._card_sizes) if error.code == "FACT011" else None
            if identifier is None:
                raise
            return self._named(GpuFacts, "gpus", identifier)

    @cached_property
    def _card_sizes(self) -> Mapping[str, CardSize]:
        """Of files nobody has checked: what is no size there is no card's."""
        tables = {each: self._table(f"gpus/{each}.toml") for each in self.ids("gpus")}
        return {
            identifier: CardSize(
                names=(identifier, *_spellings(table, "gpus")),
                maker=str(table.get("vendor")),
                nameplate_gb=_number_in(table, "memory_nameplate"),
                visible_bytes=_number_in(table, "memory_visible"),
            )
            for identifier, table in tables.items()
        }

    def engine(self, name: str) -> EngineFacts:
        """The engine of that id or name, also with a remark behind it (`vllm (ROCm)`).

        Raises FACT012 with a suggestion when there is none.
        """
        bare, remark, _ = name.partition("(")
        return self._named(EngineFacts, "engines", bare.strip() if remark else name)

    def node(self, identifier: str) -> NodeFacts:
        """The node type of that id."""
        return self._load(NodeFacts, f"nodes/{identifier}.toml", id=identifier)

    def memory_shares(self) -> tuple[MemoryShareRule, ...]:
        """The rules of machines whose memory processor and GPU share."""
        if "memory_shares" not in {path.stem for path in self.root.glob("*.toml")}:
            return ()
        return self._load(MemoryShareBook, "memory_shares.toml").shares

    def rules_of_thumb(self) -> tuple[ThumbRuleFacts, ...]:
        """What others plan with instead of an account."""
        return self._load(ThumbRuleBook, "rules_of_thumb.toml").rules

    def golive(self) -> GoLiveBook:
        """The points of a go-live report."""
        return self._load(GoLiveBook, "golive.toml")

    def family(self, identifier: str) -> FamilyFacts:
        """The architecture family of that id, with the tensor lists of all its file formats."""
        folder = f"families/{identifier}"
        stems = sorted(path.stem for path in (self.root / folder).glob("*.toml"))
        defects: list[Defect] = []
        formats = _collect(
            lambda stem: self._format(folder, stem),
            (stem for stem in stems if stem != "architecture"),
            defects,
        )
        whole = _collect(
            lambda stem: self._load(
                FamilyFacts, f"{folder}/{stem}.toml", id=identifier, formats=tuple(formats)
            ),
            ("architecture",),
            defects,
        )
        if defects:
            raise FactsError(defects)
        return whole[0]

    def _format(self, folder: str, stem: str) -> CheckpointFormat:
        """A family's tensors in a format, after those of the family it builds on."""
        own = self._load(CheckpointFormat, f"{folder}/{stem}.toml", id=stem)
        if own.base is None:
            return own
        path = f"{folder}/{stem}.toml: base"
        if own.base not in self.ids("families") or f"families/{own.base}" == folder:
            raise FactsError([Defect(path, "unknown_family", own.base)])
        base = self._load(CheckpointFormat, f"families/{own.base}/{stem}.toml", id=stem)
        if base.base is not None:
            raise FactsError([Defect(path, "unknown_family", own.base)])
        return replace(own, tensors=(*base.tensors, *own.tensors))

    def recipes(self, model: str) -> RecipeBook:
        """The published recipes of a model id; an empty book when none were published."""
        if model not in self.ids("recipes"):
            return RecipeBook(model=model, recipes=())
        return self._load(RecipeBook, f"recipes/{model}.toml", model=model)

    def hubs(self) -> tuple[HubFacts, ...]:
        """Hubs of models, the one that is asked first at the front."""
        return self._load(HubBook, "checkpoints/hubs.toml").hubs

    def tensor_names(self) -> TensorBook:
        """How the tensors of any model are named."""
        return self._load(TensorBook, "checkpoints/tensors.toml")

    def gguf_fields(self) -> GgufFields:
        """What the keys of a GGUF header state in the words of a config.json."""
        return self._load(GgufFields, "checkpoints/gguf_fields.toml")

    def family_for_gguf(self, architecture: str) -> FamilyFacts | None:
        """The family that GGUF headers call so, or None."""
        claiming = self._families_claiming("gguf_architectures", architecture)
        return next(map(self.family, claiming), None)

    def mixes(self) -> MixBook:
        """Mixes of types that quantisers make; none where no file lists them."""
        if "mixes" not in self.ids("checkpoints"):
            return MixBook(engines=(), mixes=())
        return self._load(MixBook, "checkpoints/mixes.toml")

    def variant_reports(self, model: str) -> VariantReportBook:
        """What is reported of the forms of a model id; an empty book when nothing is."""
        if model not in self.ids("variants"):
            return VariantReportBook(model=model, reports=())
        return self._load(VariantReportBook, f"variants/{model}.toml")

    def forms(self) -> FormBook:
        """Forms of weights that names of copies speak of."""
        return self._load(FormBook, "checkpoints/forms.toml")

    def copy_of(self, name: str) -> Copy | None:
        """The known model that the name of a copy speaks of, and its form; None for others."""
        tables = {each: self._table(f"models/{each}.toml") for each in self.ids("models")}
        names = {each: (each, *_spellings(table, "models")) for each, table in tables.items()}
        found = read_name(name, self.forms(), names)
        owner, apart, rest = name.partition(" ")
        if found is None and apart and "/" not in owner:
            # `Sehyo Qwen3.5-122B-A10B NVFP4`: every copy in a form of its own has an owner.
            owned = read_name(rest, self.forms(), names)
            return owned if owned is not None and owned.form is not None else None
        return found

    def variant_in_repo(self, name: str) -> tuple[str, str] | None:
        """The model and variant whose files lie in the hub's place of that name, or None."""
        wanted = name.lower()
        for identifier in self.ids("models"):
            for variant in self._table(f"models/{identifier}.toml").get("variants", ()):
                if isinstance(variant, dict) and str(variant.get("repo", "")).lower() == wanted:
                    return identifier, str(variant.get("id"))
        return None

    def metric_names(self) -> Mapping[str, tuple[str, ...]]:
        """Figure of an engine's metrics -> the names that engines give it."""
        book = self._load(MetricBook, "served/metrics.toml")
        return {each.field: each.names for each in book.metrics}

    def engine_logs(self) -> LogBook:
        """What engines' logs tell of a start."""
        return self._load(LogBook, "served/logs.toml")

    def import_words(self) -> ImportBook:
        """What other planners' files say, in our words."""
        return self._load(ImportBook, "served/imports.toml")

    def restarts(self) -> Mapping[str, bool]:
        """Cause class of a failure -> whether starting again can help, where that is known."""
        book = self._load(RestartBook, "served/restarts.toml")
        return {cause: rule.helps for rule in book.restarts for cause in rule.causes}

    def reply_formats(self) -> tuple[ReplyFormat, ...]:
        """What is known of the replies of models: their markers, what they can do."""
        return self._load(ReplyBook, "served/replies.toml").formats

    def goldens(self) -> tuple[Golden, ...]:
        """Requests whose number of prompt tokens is known."""
        return self._load(GoldenBook, "served/goldens.toml").goldens

    def symptoms(self) -> tuple[SymptomBook, ...]:
        """All books of symptoms."""
        return tuple(map(self._symptom_book, self.ids("symptoms")))

    def _symptom_book(self, name: str) -> SymptomBook:
        return self._load(SymptomBook, f"symptoms/{name}.toml", id=name)

    def flags(self, table: str) -> FlagTableFacts:
        """The flag table of that id."""
        return self._converted(FlagTableFacts, f"flags/{table}.toml")

    def registry(self, identifier: str) -> RegistryFacts:
        """What an engine or a library lists as runnable."""
        return self._converted(RegistryFacts, f"registries/{identifier}.toml")

    def quantisation_methods(self) -> tuple[MethodRule, ...]:
        """What checkpoints of each scheme call their quantisation."""
        if "methods" not in self.ids("checkpoints"):
            return ()
        return self._load(MethodBook, "checkpoints/methods.toml").schemes

    def _converted(self, cls: type[R], relative: str) -> R:
        """The record of a file that a tool wrote: hundreds of like rows, converted in one go and
        not walked field by field.
        """
        if relative not in self._records:
            try:
                record: Any = msgspec.convert(self._table(relative), cls)
            except msgspec.ValidationError as error:
                raise FactsError([Defect(relative, "wrong_type", str(error))]) from error
            if record.source not in self._sources:
                raise FactsError([Defect(f"{relative}: source", "unknown_source", record.source)])
            self._records[relative] = record
        found: R = self._records[relative]
        return found

    def serving_ids(self) -> tuple[str, ...]:
        """Ids of the engines whose start is known."""
        return tuple(name for name in self.ids("serving") if name != "common")

    def serving(self, engine: str) -> ServingEngine:
        """How the engine of that id is started. Raises FACT002 when nobody wrote it down."""
        return self._load(ServingEngine, f"serving/{engine}.toml")

    def prepares_late(self, engine: str) -> bool:
        """True for an engine whose preparations need its server; False for one nobody described."""
        return engine in self.ids("serving") and self.serving(engine).prepares_late

    def router(self, name: str) -> RouterFacts:
        """How the router of that name is started. Raises FACT002 when nobody wrote it down."""
        return self._load(RouterFacts, f"routers/{name}.toml")

    def serving_common(self) -> ServingCommon:
        """What holds for the start of every engine."""
        return self._load(ServingCommon, "serving/common.toml")

    def command_engines(self) -> CommandEngines:
        """Engines as their commands look, and devices."""
        return self._load(CommandEngines, "lint/engines.toml")

    def command_models(self) -> CommandModels:
        """Models and checkpoints as commands name them."""
        return self._load(CommandModels, "lint/models.toml")

    def command_cards(self) -> CommandCards:
        """Cards that only commands name, and what starts were seen to take."""
        return self._load(CommandCards, "lint/cards.toml")

    def name_changes(self) -> tuple[NameChangeFacts, ...]:
        """Flags and variables that came and went."""
        return self._load(NameChanges, "lint/names.toml").names

    def command_rules(self) -> tuple[CommandRuleFacts, ...]:
        """Rules on commands, of every file of them."""
        return tuple(
            rule
            for stem in self.ids("lint/rules")
            for rule in self._load(CommandRules, f"lint/rules/{stem}.toml").rules
        )

    def checks(self, group: str) -> tuple[CheckFacts, ...]:
        """The doctor's checks of a group, in order."""
        return self._load(CheckList, f"checks/{group}.toml").checks

    def card_access(self, vendor: str) -> CardAccess:
        """How containers, pods and jobs are given the cards of that vendor."""
        return self._load(CardAccess, f"access/{vendor}.toml", vendor=vendor)

    def speed(self) -> SpeedFacts:
        """The model of speed: its constants, the measured classes, the acceptances."""
        return SpeedFacts(
            model=self._load(SpeedModelFacts, "speed/model.toml"),
            book=self._load(SpeedClassBook, "speed/classes.toml"),
            acceptances=self._load(AcceptanceBook, "speed/acceptance.toml").acceptances,
            links=self._load(TransferLinkBook, "speed/links.toml").links,
            shapes=self._load(TrafficShapeBook, "speed/traffic.toml").shapes,
        )

    def prices(self) -> PriceFacts:
        """Everything about money: providers, rents, machines, assumptions."""
        machines = self._load(MachineBook, "prices/machines.toml")
        return PriceFacts(
            api=self._load(ApiPriceBook, "prices/api.toml").prices,
            rentals=self._load(RentalBook, "prices/rental.toml").rentals,
            machines=machines.machines,
            power=machines.power,
            assumptions=self._load(AssumptionBook, "prices/assumptions.toml").assumptions,
        )

    def source(self, identifier: str) -> Source:
        """The source of that id. Raises KeyError when there is none."""
        return self._sources[identifier]

    def source_or_none(self, identifier: str) -> Source | None:
        """The source of that id; None for what is not a source (a receipt, a recipe's id)."""
        return self._sources.get(identifier)

    def all_sources(self) -> tuple[Source, ...]:
        """Every source, in alphabetical order of ids."""
        return tuple(source for _, source in sorted(self._sources.items()))

    def showcase(self) -> Showcase:
        """The model and rack that demonstrations and first hints speak of."""
        return self._load(Showcase, "showcase.toml")

    def _showcases(self) -> tuple[str, ...]:
        return tuple(path.stem for path in self.root.glob("showcase.toml"))

    def ids(self, kind: str) -> tuple[str, ...]:
        """The ids of a kind of facts (`models`, `gpus`, `engines`, …), in alphabetical order."""
        if kind not in self._ids:
            self._ids[kind] = self._list(kind)
        return self._ids[kind]

    def _list(self, kind: str) -> tuple[str, ...]:
        if kind == "families":
            found = [path.parent.name for path in self.root.glob("families/*/architecture.toml")]
        else:
            found = [path.stem for path in self.root.glob(f"{kind}/*.toml")]
        return tuple(sorted(found))

    def gpus(self) -> tuple[GpuFacts, ...]:
        """All cards."""
        return tuple(map(self.gpu, self.ids("gpus")))

    def engines(self) -> tuple[EngineFacts, ...]:
        """All engines."""
        return tuple(map(self.engine, self.ids("engines")))

    def family_for_hf_type(self, model_type: str) -> FamilyFacts | None:
        """The family that claims a `model_type` of a config.json, or None."""
        return next(iter(self.families_for_hf_type(model_type)), None)

    def families_for_hf_type(self, model_type: str) -> tuple[FamilyFacts, ...]:
        """The families that claim a `model_type`, the one that others stand in for first."""
        found = map(self.family, self._families_claiming("hf_model_types", model_type))
        return tuple(sorted(found, key=lambda family: family.instead_of is not None))

    def _families_claiming(self, key: str, name: str) -> tuple[str, ...]:
        """Ids of the families with a name in a list of theirs: the others need not be decoded."""
        tables = {
            identifier: self._table(f"families/{identifier}/architecture.toml")
            for identifier in self.ids("families")
        }
        return tuple(
            identifier
            for identifier, table in tables.items()
            if isinstance(table.get(key), list) and name in table[key]
        )

    # --- names -----------------------------------------------------------------------------------

    def _named(self, cls: type[R], kind: str, name: str) -> R:
        identifier = self._identify(kind, name)
        return self._load(cls, f"{kind}/{identifier}.toml", id=identifier)

    def _identify(self, kind: str, name: str) -> str:
        """The id that `name` stands for. Ids are looked at first: other names are in the files."""
        identifiers = self.ids(kind)
        if name in identifiers:
            return name
        wanted = name_key(name)
        known: Mapping[str, str] = {name_key(each): each for each in identifiers}
        if wanted not in known:
            known = self._known_names(kind)
        if wanted in known:
            return known[wanted]
        close = difflib.get_close_matches(wanted, known, n=1)
        raise HeavyliftError(
            _NOT_KNOWN[kind],
            {
                "name": name,
                "suggestion": self._title(kind, known[close[0]]) if close else "",
                "known": ", ".join(self.ids(kind)),
            },
        )

    def _known_names(self, kind: str) -> Mapping[str, str]:
        """Every id and other name of a kind, as names are compared, with the id it stands for."""
        if kind not in self._names:
            known = {name_key(identifier): identifier for identifier in self.ids(kind)}
            for identifier in self.ids(kind):
                for spelling in _spellings(self._table(f"{kind}/{identifier}.toml"), kind):
                    known.setdefault(name_key(spelling), identifier)
            self._names[kind] = known
        return self._names[kind]

    def _title(self, kind: str, identifier: str) -> str:
        return str(self._table(f"{kind}/{identifier}.toml").get("title", identifier))

    # --- files -----------------------------------------------------------------------------------

    def _table(self, relative: str) -> dict[str, Any]:
        if relative not in self._tables:
            self._tables[relative] = read_document(self.root, relative)
        return self._tables[relative]

    @cached_property
    def _sources(self) -> dict[str, Source]:
        decoder = Decoder("sources.toml", sources=None)
        decoded: dict[str, Source] = {}
        for identifier, table in self._table("sources.toml").items():
            if not isinstance(table, dict):
                decoder.defect(identifier, "wrong_type", f"table: {table!r:.60}")
                continue
            source = decoder.record(Source, table, identifier, given={"id": identifier})
            if source is not None:
                decoded[identifier] = source
        if decoder.defects:
            raise FactsError(decoder.defects)
        return decoded

    def _load(self, cls: type[R], relative: str, **given: Any) -> R:
        """The record in a file, decoded once. `given` are fields that the file does not hold."""
        if relative not in self._records:
            decoder = Decoder(relative, frozenset(self._sources))
            record = decoder.record(cls, self._table(relative), given=given)
            if record is None or decoder.defects:
                raise FactsError(decoder.defects)
            self._records[relative] = record
        found: R = self._records[relative]
        return found

    # --- everything ------------------------------------------------------------------------------

    def check(self) -> tuple[Defect, ...]:
        """Every defect of every file, and of how they refer to one another. Empty = sound."""
        defects: list[Defect] = []
        _collect(lambda _: self._sources, ("sources",), defects)
        if defects:
            return tuple(defects)
        everything = Everything(
            sources=frozenset(self._sources),
            ids={kind: self.ids(kind) for kind in _KINDS},
            gpus=_collect(self.gpu, self.ids("gpus"), defects),
            nodes=_collect(self.node, self.ids("nodes"), defects),
            engines=_collect(self.engine, self.ids("engines"), defects),
            families=_collect(self.family, self.ids("families"), defects),
            models=_collect(self.model, self.ids("models"), defects),
            books=_collect(self.recipes, self.ids("recipes"), defects),
            showcases=_collect(_anyway(self.showcase), self._showcases(), defects),
            reports=_collect(self.variant_reports, self.ids("variants"), defects),
            shares=_collect(_anyway(self.memory_shares), ("memory_shares",), defects),
            registries={
                each.engine: each
                for each in _collect(self.registry, self.ids("registries"), defects)
            },
        )
        self._check_books(defects)
        defects += self._command_defects()
        _collect(self.checks, self.ids("checks"), defects)
        _collect(self.card_access, self.ids("access"), defects)
        symptoms = _collect(self._symptom_book, self.ids("symptoms"), defects)
        return (*defects, *consistency.defects(everything), *symptom_defects(symptoms))

    def _command_defects(self) -> list[Defect]:
        """Defects of the flag tables and of what commands are judged by."""
        defects: list[Defect] = []
        _collect(self.flags, self.ids("flags"), defects)
        _collect(self.serving, self.serving_ids(), defects)
        _collect(self.router, self.ids("routers"), defects)
        if self.ids("serving"):
            _collect(_anyway(self.serving_common), ("common",), defects)
        parts: tuple[Callable[[], Any], ...] = (
            self.command_engines,
            self.command_models,
            self.command_cards,
            self.name_changes,
            self.command_rules,
        )
        if (self.root / "lint").is_dir():
            for part in parts:
                _collect(_anyway(part), ("lint",), defects)
        return defects

    def _check_books(self, defects: list[Defect]) -> None:
        """The facts of speed, of money, of what is served, of a go-live report, and the rules of
        thumb: read as one record each.
        """
        if (self.root / "rules_of_thumb.toml").is_file():
            _collect(_anyway(self.rules_of_thumb), ("rules_of_thumb",), defects)
        if (self.root / "golive.toml").is_file():
            _collect(_anyway(self.golive), ("golive",), defects)
        books: dict[str, Callable[[], object]] = {"speed": self.speed, "prices": self.prices}
        present = [kind for kind in books if self.ids(kind)]
        _collect(lambda kind: books[kind](), present, defects)
        served: dict[str, Callable[[], object]] = {
            "logs": self.engine_logs,
            "metrics": self.metric_names,
            "imports": self.import_words,
            "replies": self.reply_formats,
            "goldens": self.goldens,
            "restarts": self.restarts,
        }
        _collect(lambda name: served[name](), self.ids("served"), defects)
        names: dict[str, Callable[[], object]] = {
            "hubs": self.hubs,
            "tensors": self.tensor_names,
            "forms": self.forms,
            "gguf_fields": self.gguf_fields,
            "methods": self.quantisation_methods,
            "mixes": self.mixes,
        }
        _collect(lambda name: names[name](), self.ids("checkpoints"), defects)


def _collect(
    load: Callable[[str], R], identifiers: Iterable[str], defects: list[Defect]
) -> list[R]:
    """The records that load; the defects of the others go to `defects`."""
    loaded = []
    for identifier in identifiers:
        try:
            loaded.append(load(identifier))
        except FactsError as error:
            defects.extend(error.defects)
        except HeavyliftError as error:
            if error.code != "FACT002":
                raise
            defects.append(Defect(str(error.params["path"]), "no_file"))
    return loaded


def _anyway(load: Callable[[], R]) -> Callable[[str], R]:
    """A loader of one file, in the shape of those that load by id."""
    return lambda _: load()


def _number_in(table: Mapping[str, Any], field: str) -> float:
    """The value of a fact in a file that nobody has checked yet; 0 for what is no number."""
    fact = table.get(field)
    value = fact.get("value") if isinstance(fact, dict) else None
    return float(value) if isinstance(value, int | float) else 0.0


def _spellings(table: Mapping[str, Any], kind: str) -> Iterator[str]:
    """The title and other names in a file that nobody has checked yet."""
    others = table.get(_NAMES_IN[kind])
    for spelling in (table.get("title"), *(others if isinstance(others, list) else ())):
        if isinstance(spelling, str):
            yield spelling
