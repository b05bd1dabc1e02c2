"""The planner with its facts loaded: what the command line, the pages and other programs call.

`plan` itself is pure and is handed everything; here the files are found and read, a model may be an
id, a name or a folder, and a rack may be `this-machine`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from heavylift.checkpoint.adoption import Names, adopt, names_of
from heavylift.checkpoint.blobs import gguf_at
from heavylift.checkpoint.config import (
    ConfigFile,
    Uncovered,
    model_from_config,
    same_architecture,
    text_part,
    uncovered,
    undescribed,
)
from heavylift.checkpoint.config_text import (
    CONFIG,
    CONFIG_LIMIT_BYTES,
    ConfigTextError,
    decoded,
    with_quantisation,
)
from heavylift.checkpoint.copies import in_form
from heavylift.checkpoint.defects import Defect
from heavylift.checkpoint.files import Files, LocalFiles
from heavylift.checkpoint.gguf_config import config_of
from heavylift.checkpoint.gguf_model import GgufDimensions
from heavylift.checkpoint.gguf_parts import SUFFIX as GGUF_SUFFIX
from heavylift.checkpoint.hub_settings import HubId
from heavylift.checkpoint.inventory import Inventory, from_facts
from heavylift.checkpoint.mixes import FORMAT as GGUF_FORMAT
from heavylift.checkpoint.mixes import mixed, takes_mixes
from heavylift.checkpoint.read import Checkpoint, read_checkpoint, read_files
from heavylift.errors import HeavyliftError, Scalar
from heavylift.facts.card_names import stated_bytes
from heavylift.facts.catalog import Catalog
from heavylift.facts.consistency import name_key
from heavylift.facts.copies import Copy, form_of
from heavylift.facts.expressions import ExpressionError
from heavylift.facts.registry_schema import RegistryFacts
from heavylift.facts.schema import (
    EngineFacts,
    Fact,
    FactKind,
    FamilyFacts,
    GpuFacts,
    MemoryShareRule,
    ModelFacts,
    NodeFacts,
    VariantFacts,
)
from heavylift.inspecting import Reach, is_path, read_hub, read_quantisation
from heavylift.plan import compare as comparing
from heavylift.plan.assemble import TOO_FEW_BLOCKS
from heavylift.plan.defaults import takes_whole_context
from heavylift.plan.fit import capability, fit_model
from heavylift.plan.fixes import fixes
from heavylift.plan.have import Have, of_rack, parse_have
from heavylift.plan.planner import (
    Choice,
    Knowledge,
    Machine,
    best_plan,
    choose,
    plan_on_layout,
    subjects,
    with_receipt,
)
from heavylift.plan.rack import count_rack, joined_rack, parse_rack, rack_parts, resolve_rack
from heavylift.plan.search import search
from heavylift.plan.smaller import refused_rack, smaller_rack, too_small
from heavylift.plan.subject import HOST_VENDOR, UNNAMED_VENDOR, ModelKnowledge
from heavylift.plan.thumb import rules_of_thumb
from heavylift.plan.variants import variant_table
from heavylift.records.fit import FitList, FitMiss, FitRow
from heavylift.records.plan import (
    Capacity,
    Note,
    Plan,
    PlanRequest,
    PlanVerdict,
    Rack,
    SmallerRack,
)
from heavylift.records.receipt import Receipt
from heavylift.records.search import Searched
from heavylift.records.variants import VariantTable
from heavylift.units import GIB, MIB

THIS_MACHINE: Final = "this-machine"
_UNNAMED: Final = "card-of-"
"""What the id of a card begins with that only its memory is known of; its bytes follow."""

_TOWERS: Final = ("vision", "audio")
"""Parts beside a language model, by their role and the table of a config that describes them."""

T = TypeVar("T")
V = TypeVar("V", int, float, str)


class Loaded(Mapping[str, T]):
    """A mapping from ids to facts that reads a file when its entry is asked for."""

    def __init__(self, ids: tuple[str, ...], load: Callable[[str], T]) -> None:
        self._ids = ids
        self._load = load
        self._loaded: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        if key not in self._ids:
            raise KeyError(key)
        if key not in self._loaded:
            self._loaded[key] = self._load(key)
        return self._loaded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


class Machines(Loaded[Machine]):
    """The machines of known cards, and of those that only their memory is known of."""

    def __getitem__(self, key: str) -> Machine:
        return self._load(key) if key.startswith(_UNNAMED) else super().__getitem__(key)


class Planning:
    """A catalogue and what is asked of it."""

    def __init__(self, catalog: Catalog | None = None, *, reach: Reach | None = None) -> None:
        """`reach` opens a model on a hub; without it no network is asked."""
        self.catalog = catalog or Catalog()
        self.remarks: list[Defect] = []
        self._reach = reach

    def knowledge(self, model: str) -> Knowledge:
        """Everything a plan of `model` may look at: an id, a name, a folder with a checkpoint, or
        an id on a hub that the facts do not know.

        Raises FACT010 for an unknown name, for a folder what `inventory_of_files` raises, and for
        a hub HUB001 to HUB014. What is wrong with the files and harms nothing is in `remarks`.
        """
        if not model.strip():
            # Nothing is no name, neither of a model nor of the folder one happens to be in.
            return self.knowledge_of(self.catalog.model(model))
        folder = _folder(Path(model).expanduser())
        if is_path(model):
            return self._knowledge_of_folder(folder)
        try:
            return self.knowledge_of(self.catalog.model(model))
        except HeavyliftError as error:
            if folder.is_dir() or _is_gguf(folder):
                return self._knowledge_of_folder(folder)
            return self._knowledge_by_name(model, unknown=error)

    def _knowledge_by_name(self, name: str, *, unknown: HeavyliftError) -> Knowledge:
        """A variant by its place on a hub; what is there; else what its name says, as assumed.

        What the facts hold of a place is enough; otherwise its files say more than its name.
        Raises `unknown` for what is none of these.
        """
        place = self._knowledge_of_place(name)
        if place is not None:
            return place
        hub_id = HubId.parse(name)
        copy = self.catalog.copy_of(name)
        if hub_id is not None and self._reach is not None:
            try:
                return self._knowledge_on_hub(hub_id, self._reach)
            except HeavyliftError as error:
                if copy is None or not error.code.startswith("HUB"):
                    raise
        known = None if copy is None else self._knowledge_of_copy(copy)
        if known is not None:
            return known
        if hub_id is not None or name.endswith((GGUF_SUFFIX, ".safetensors")):
            raise HeavyliftError("PLAN059", {"path": name}) from unknown
        raise unknown

    def knowledge_of_name(self, name: str) -> Knowledge | None:
        """What the facts alone know of a name: a variant by its place on a hub, or a copy by what
        its name says. Neither a disk nor a network is asked; None for any other name.
        """
        place = self._knowledge_of_place(name)
        if place is not None:
            return place
        copy = self.catalog.copy_of(name)
        return None if copy is None else self._knowledge_of_copy(copy)

    def _knowledge_of_place(self, name: str) -> Knowledge | None:
        place = self.catalog.variant_in_repo(name)
        if place is None:
            return None
        model, variant = place
        return self._knowledge_of_form(self.catalog.model(model), variant)

    def _knowledge_of_form(self, facts: ModelFacts, variant: str) -> Knowledge:
        """A model with one of its forms alone."""
        only = tuple(each for each in facts.variants if each.id == variant)
        return self.knowledge_of(replace(facts, variants=only))

    def _knowledge_of_copy(self, copy: Copy) -> Knowledge | None:
        """A model in the form its copy's name says; None where it cannot be worked out."""
        facts = self.catalog.model(copy.model)
        if copy.form is None:
            return self.knowledge_of(facts)
        family = self.catalog.family(facts.family)
        mixes = self._mixes(facts, family)
        if copy.form.mix is not None and copy.form.mix in mixes:
            return self.knowledge_of(replace(facts, variants=(mixes[copy.form.mix],)))
        variant = in_form(facts, family, copy.form)
        return None if variant is None else self.knowledge_of(replace(facts, variants=(variant,)))

    def _knowledge_on_hub(self, hub_id: HubId, reach: Reach) -> Knowledge:
        with reach(hub_id) as files:
            checkpoint = read_hub(files, hub_id)
            if checkpoint.file_format == "gguf":
                return self._knowledge_of_gguf(checkpoint)
            return self._knowledge_of_files(files, hub_id.id.rpartition("/")[2], checkpoint)

    def _knowledge_of_folder(self, folder: Path) -> Knowledge:
        if _is_gguf(folder) or _holds_gguf_alone(folder):
            return self._knowledge_of_gguf(read_checkpoint(folder))
        files = LocalFiles(folder)
        config = read_config(files)
        return self._knowledge_of_files(files, folder.resolve().name, None, config)

    def _knowledge_of_gguf(self, checkpoint: Checkpoint) -> Knowledge:
        """A GGUF model: its bytes are those of its header, what it keeps of a text is that of the
        known model of its dimensions, else what its header states by its family; of an architecture
        that nobody described it is unknown.

        Raises PLAN061 for a header that names no architecture.
        """
        checkpoint.require_sound()
        self.remarks += [defect for defect in checkpoint.defects if defect.is_remark]
        stated = GgufDimensions.of(checkpoint.metadata)
        others = map(self.catalog.model, self.catalog.ids("models"))
        found = stated.find(others, checkpoint.where)
        if found is not None:
            facts, family = found, self.catalog.family(found.family)
        else:
            facts, family = self._stated_in_gguf(checkpoint, stated)
        variant = VariantFacts(
            id="gguf",
            title=stated.title,
            format="gguf",
            engines=tuple(e.id for e in self.catalog.engines() if not _takes_folders(e)),
            kind=FactKind.MEASURED,
            source=checkpoint.where,
            as_of=facts.max_context.as_of,
        )
        inventory = adopt(checkpoint.groups, ()).inventory(checkpoint.where)
        return self._knowledge_with(facts, family, variant, inventory)

    def _stated_in_gguf(
        self, checkpoint: Checkpoint, stated: GgufDimensions
    ) -> tuple[ModelFacts, FamilyFacts]:
        """The model that a header describes in its own words."""
        family = self.catalog.family_for_gguf(stated.architecture)
        if "general.architecture" not in checkpoint.metadata:
            raise HeavyliftError("PLAN061", {"path": checkpoint.where, **stated.shown()})
        document = config_of(
            stated.architecture,
            checkpoint.metadata,
            checkpoint.by_layer,
            checkpoint.groups,
            self.catalog.gguf_fields(),
        )
        document["model_type"] = stated.architecture
        config = ConfigFile(
            path=checkpoint.where, document=document, read_on=datetime.now(UTC).date()
        )
        identifier = Path(checkpoint.where).name.removesuffix(GGUF_SUFFIX)
        inventory = adopt(checkpoint.groups, ()).inventory(checkpoint.where)
        facts, unknown = undescribed(config, inventory, identifier=identifier)
        if family is None or uncovered(config, family) is not None:
            family = unknown
        else:
            try:
                facts = model_from_config(config, family, identifier=identifier, formats=())
            except HeavyliftError as error:
                # A header that leaves out what its family needs says as much as that of no family.
                if error.code not in ("PLAN052", "PLAN053"):
                    raise
                family = unknown
        context = facts.max_context
        named = Fact(
            value=stated.architecture,
            unit="class",
            kind=context.kind,
            source=context.source,
            as_of=context.as_of,
        )
        return replace(facts, hf_architecture=named), family

    def _knowledge_of_files(
        self,
        files: Files,
        identifier: str,
        checkpoint: Checkpoint | None,
        config: ConfigFile | None = None,
    ) -> Knowledge:
        """A checkpoint's files: what the tensors are from its headers, what they mean by family.

        A network that the catalogue knows under another name keeps that name and its recipes. One
        that nobody described is planned from its headers alone, and a config.json without weights
        by its own dimensions.
        """
        config = config or read_config(files)
        checkpoint = checkpoint or _read_if_there(files)
        if checkpoint is not None:
            self.remarks += [defect for defect in checkpoint.defects if defect.is_remark]
        engines = tuple(e.id for e in self.catalog.engines() if _takes_folders(e))
        family, config, other = self._family_of(config, has_files=checkpoint is not None)
        if family is None:
            if checkpoint is None:
                raise _not_described(config, other)
            checkpoint.require_sound()
            inventory = adopt(checkpoint.groups, ()).inventory(checkpoint.where)
            facts, family = undescribed(config, inventory, identifier=identifier)
            variant = replace(facts.variants[0], engines=engines)
            return self._knowledge_with(facts, family, variant, inventory)
        if checkpoint is None and not family.formats:
            raise HeavyliftError("PLAN067", {"path": config.path, "family": family.title})
        if checkpoint is None:
            self.remarks += _towers_left_out(config, family)
        facts = model_from_config(
            config,
            family,
            identifier=identifier,
            formats=("safetensors",),
            has_files=checkpoint is not None,
        )
        own = facts.variants[0]
        known = self._same_network(facts)
        usual = own if known is None else known.variants[0]
        variant = replace(
            usual if checkpoint is not None else own,
            engines=engines if known is None else usual.engines,
            quantised=own.quantised,
            kv_cache_dtype=own.kv_cache_dtype,
            method=own.method,
        )
        if checkpoint is None:
            self.remarks += self._form_left_out(own, identifier)
            inventory = _by_config(config, facts, family, own)
        else:
            names = names_of(self.catalog.tensor_names(), with_cuts=not family.formats, model=facts)
            inventory = inventory_of(checkpoint, facts, family, names)
        return self._knowledge_with(known or facts, family, variant, inventory)

    def _form_left_out(self, variant: VariantFacts, name: str) -> Iterator[Defect]:
        """A form that the name of a folder speaks of and the config in it does not."""
        form = form_of(name, self.catalog.forms())
        if form is not None and not variant.quantised:
            yield Defect(file=variant.source, problem="form_in_name", observed=form.title)

    def _family_of(
        self, config: ConfigFile, *, has_files: bool
    ) -> tuple[FamilyFacts | None, ConfigFile, Uncovered | None]:
        """The family of a config, the config of the network it describes (of one with towers around
        it the language model's), and what keeps a family that has its name from describing it.

        The towers of a network that only its language model is known of are known by their files
        alone: without these it has no family.
        """
        family, other = self._covering(config)
        if family is not None:
            return family, config, None
        if has_files:
            for part in text_part(config, self.catalog.tensor_names().words.nests):
                inner, _ = self._covering(part)
                if inner is not None:
                    return inner, part, None
        return None, config, other

    def _covering(self, config: ConfigFile) -> tuple[FamilyFacts | None, Uncovered | None]:
        """The family that describes a config; else what keeps the one of its name from it."""
        other = None
        for family in self.catalog.families_for_hf_type(config.model_type()):
            found = uncovered(config, family)
            if found is None:
                return family, None
            other = other or found
        return None, other

    def _knowledge_with(
        self, facts: ModelFacts, family: FamilyFacts, variant: VariantFacts, inventory: Inventory
    ) -> Knowledge:
        """A model with one form, whose tensors are at hand."""
        return Knowledge(
            model=ModelKnowledge(
                model=replace(facts, variants=(variant,)),
                family=family,
                book=self.catalog.recipes(facts.id),
                inventories={variant.id: inventory},
                registries=self._registries,
                methods=self._methods,
            ),
            engines=Loaded(self.catalog.ids("engines"), self._engine),
            machines=self._machines,
        )

    def _same_network(self, facts: ModelFacts) -> ModelFacts | None:
        """The catalogue's model of the same dimensions; of several the one whose name the folder
        has, else the first.
        """
        others = map(self.catalog.model, self.catalog.ids("models"))
        same = [other for other in others if same_architecture(facts, other)]
        # Copies of one network that read further apart are told by how far; one whose likeness is
        # only recalled does not speak for it.
        same.sort(
            key=lambda other: (
                other.max_context.value != facts.max_context.value,
                other.is_recalled,
            )
        )
        key = name_key(facts.id)
        for other in same:
            names = (other.id, other.title, *other.names)
            if key in {name_key(name.rpartition("/")[2]) for name in names}:
                return other
        return same[0] if same else None

    def knowledge_of(self, facts: ModelFacts) -> Knowledge:
        """Everything a plan of a model may look at whose facts are at hand."""
        family = self.catalog.family(facts.family)
        inventories = {
            variant.id: from_facts(facts, family, variant)
            for variant in facts.variants
            if variant.bytes_total is None
        }
        mixes = self._mixes(facts, family)
        return Knowledge(
            model=ModelKnowledge(
                model=facts,
                family=family,
                book=self.catalog.recipes(facts.id),
                inventories=Loaded(
                    (*inventories, *mixes),
                    lambda name: inventories.get(name) or from_facts(facts, family, mixes[name]),
                ),
                mixes=mixes,
                registries=self._registries,
                methods=self._methods,
            ),
            engines=Loaded(self.catalog.ids("engines"), self._engine),
            machines=self._machines,
        )

    def _mixes(self, facts: ModelFacts, family: FamilyFacts) -> Mapping[str, VariantFacts]:
        """The forms that quantisers make of a model, but for those that were published as such."""
        book = self.catalog.mixes()
        published = {variant.id for variant in facts.variants}
        offered = {
            mix.id: mix
            for mix in book.mixes
            if mix.id not in published and (not mix.with_experts or "experts" in facts.dims)
        }
        if not takes_mixes(family):
            return self._mixes_between_bounds(facts, family)
        return Loaded(tuple(offered), lambda name: mixed(facts, family, offered[name], book))

    def _mixes_between_bounds(
        self, facts: ModelFacts, family: FamilyFacts
    ) -> Mapping[str, VariantFacts]:
        """Where nobody listed a family's tensors in the quantisers' files: the mixes by the least
        and the most that they store a matrix in. One that does not suit the model raises KeyError.
        """
        if any(each.id == GGUF_FORMAT for each in family.formats):
            return {}  # its files are of types that the list gives
        forms = {form.mix: form for form in self.catalog.forms().forms}
        offered = tuple(mix for mix in forms if mix is not None)

        def load(mix: str) -> VariantFacts:
            variant = in_form(facts, family, forms[mix])
            if variant is None:
                raise KeyError(mix)
            return replace(variant, id=mix)

        return Loaded(offered, load)

    def rack(self, text: str) -> tuple[GpuFacts, Rack | None]:
        """The card and the rack a text names; no rack when only a card was named. Of several kinds
        of cards in one machine it is the smallest.

        Cards of several kinds in one machine are joined by a plus. A card that is not known, with
        its memory behind its name (`4x24GB GPU`), is planned by that memory alone.

        Raises PLAN001 to PLAN003 for a text that is no rack, PLAN008 for cards of several makers,
        FACT011 for an unknown card without a size.
        """
        if text == THIS_MACHINE:
            gpu, node = self._host
            return gpu, resolve_rack(parse_rack(f"1x{THIS_MACHINE}"), gpu, node)
        parts = rack_parts(text)
        if len(parts) > 1:
            return self._joined(text, parts)
        parsed = parse_rack(text)
        try:
            gpu = self.catalog.gpu(parsed.gpu)
        except HeavyliftError as error:
            stated = stated_bytes(parsed.gpu) if error.code == "FACT011" else None
            if stated is None:
                raise
            unnamed = self._unnamed(stated, parsed.gpu)
            return unnamed.gpu, resolve_rack(parsed, unnamed.gpu, unnamed.node)
        return gpu, resolve_rack(parsed, gpu, self.catalog.node(gpu.node))

    def _joined(self, text: str, parts: tuple[str, ...]) -> tuple[GpuFacts, Rack]:
        """A machine with cards of several kinds, and the one with the least memory."""
        read = [parse_rack(part) for part in parts]
        gpus = [self.catalog.gpu(parsed.gpu) for parsed in read]
        nodes = [self.catalog.node(gpu.node) for gpu in gpus]
        rack = joined_rack(text, tuple(zip(read, gpus, nodes, strict=True)))
        return self.catalog.gpu(rack.gpu), rack

    def engine(self, name: str | None) -> str | None:
        """The id of the engine of that name. Raises FACT012 for an unknown one."""
        return None if name is None else self.catalog.engine(name).id

    def plan(
        self,
        request: PlanRequest | Callable[[Rack], PlanRequest],
        knowledge: Knowledge,
        *,
        gpu: GpuFacts | None = None,
        receipt: Receipt | None = None,
        with_fixes: bool = True,
    ) -> Plan:
        """The best plan of a request, with its nearest fixes.

        For a card without a count `request` is a function of the rack: racks are tried from one
        GPU upwards, and the smallest that holds the model is taken, or the largest tried.
        """
        if isinstance(request, PlanRequest):
            found = best_plan(request, knowledge)
        else:
            if gpu is None:
                raise TypeError(gpu)
            found = self._smallest(request, knowledge, gpu)
        if receipt is not None:
            found = with_receipt(found, receipt, knowledge)
        found = self._with_share(found, knowledge)
        if not with_fixes:
            return found
        found = as_started(found, knowledge)
        return replace(found, fixes=fixes(found, knowledge))

    def _with_share(self, plan: Plan, knowledge: Knowledge) -> Plan:
        """On a machine with shared memory: what of it the plan counts, and how to have more."""
        gpu = knowledge.machines[plan.rack.gpu].gpu
        share = self._share(gpu)
        if share is None:
            return plan
        most = share.most_bytes(int(gpu.memory_nameplate.value * GIB))
        shown = gpu.memory_visible.value
        code = "shared_memory" if share.setting is None or most <= shown else "shared_memory_more"
        setting = (
            "" if share.setting is None else share.setting.format(mib=most // MIB, gb=most // GIB)
        )
        params: dict[str, Scalar] = {"shown": shown, "most": most, "setting": setting}
        return replace(plan, notes=(*plan.notes, Note(code=code, params=params)))

    def have(self, text: str) -> Have:
        """What somebody has: sizes as they are said (`512GB-mac`), or a rack of the catalogue.

        Raises PLAN006 for a machine of an unknown kind, PLAN007 for a card without a count, and
        what `rack` raises.
        """
        said = parse_have(text, self.catalog.memory_shares(), datetime.now(UTC).date())
        if said is not None:
            return said
        gpu, rack = self.rack(text)
        if rack is None:
            raise HeavyliftError("PLAN007", {"text": text, "gpu": gpu.title})
        return of_rack(text, rack, self._machines[gpu.id], self._share(gpu))

    def _share(self, gpu: GpuFacts) -> MemoryShareRule | None:
        shares = {share.id: share for share in self.catalog.memory_shares()}
        return None if gpu.memory_share is None else shares.get(gpu.memory_share)

    def variants(self, model: str, have: Have | None = None) -> VariantTable:
        """The published forms of a model of the catalogue, against what somebody has."""
        knowledge = self.knowledge(model)
        catalogued = replace(knowledge, machines=Loaded(self.catalog.ids("gpus"), self._machine))
        book = self.catalog.variant_reports(knowledge.model.model.id)
        return variant_table(catalogued, book, have)

    def fit(self, text: str, context_tokens: int | None = None) -> FitList:
        """Every model and variant of the catalogue that a rack holds, the most capable first.

        On a machine with shared memory also those that fit once its driver gives more of it. A card
        without a count is one card, and the answer says so. Raises what `rack` raises.
        """
        gpu, rack = self.rack(text)
        if rack is None:
            rack = count_rack(gpu, self._machines[gpu.id].node, 1, text=text)
        share = self._share(gpu)
        have = of_rack(text, rack, self._machines[gpu.id], share)
        most = have.memory_bytes // rack.gpu_count
        shown = gpu.memory_visible.value
        rows: list[FitRow] = []
        misses: list[FitMiss] = []
        for identifier in self.catalog.ids("models"):
            knowledge = self.knowledge_of(self.catalog.model(identifier))
            for each in fit_model(knowledge, rack, context_tokens):
                if isinstance(each, FitRow):
                    rows.append(each)
                    continue
                raised = None
                if most > shown:
                    raised = self._raised(knowledge, rack, most, each, context_tokens)
                if raised is None:
                    misses.append(each)
                else:
                    rows.append(raised)
        rows.sort(key=capability)
        misses.sort(key=lambda miss: (miss.short_bytes is None, miss.short_bytes or 0))
        return FitList(
            rack=rack,
            visible_bytes=shown,
            raised_bytes=most if most > shown else None,
            setting=None if share is None else share.setting,
            rows=tuple(rows),
            misses=tuple(misses),
        )

    def _raised(
        self,
        knowledge: Knowledge,
        rack: Rack,
        most: int,
        miss: FitMiss,
        context_tokens: int | None,
    ) -> FitRow | None:
        """A variant that missed, on the same machine with its driver's share at the most."""
        if miss.short_bytes is None:
            return None
        machine = self._machines[rack.gpu]
        visible = replace(machine.gpu.memory_visible, value=most)
        larger = replace(machine, gpu=replace(machine.gpu, memory_visible=visible))
        known = replace(knowledge, machines={rack.gpu: larger})
        for each in fit_model(known, rack, context_tokens):
            if isinstance(each, FitRow) and each.variant == miss.variant:
                return replace(each, raised=True)
        return None

    def search(self, build: Callable[[Rack], PlanRequest], knowledge: Knowledge) -> Searched:
        """The best way to serve on every card, out of every rack, engine, KV dtype and layout."""
        racks = [
            rack
            for identifier in self.catalog.ids("gpus")
            for rack in comparing.rack_sizes(knowledge, identifier)
        ]
        return search(knowledge, racks, build)

    def with_rules_of_thumb(self, plan: Plan) -> Plan:
        """The plan with what the usual rules of thumb say of it."""
        answers = rules_of_thumb(plan, self.catalog.rules_of_thumb())
        return replace(plan, rules_of_thumb=answers)

    def compare(
        self,
        racks: tuple[str, ...],
        build: Callable[[Rack], PlanRequest],
        knowledge: Knowledge,
        *,
        with_speed: bool = False,
    ) -> comparing.Comparison:
        """A row per rack, in order. A rack that cannot be planned spoils no other's row.

        `with_speed`: each with a forecast and the rents of its card.
        """
        rows: list[comparing.CompareRow] = []
        failures = []
        seen: set[str] = set()
        for text in dict.fromkeys(racks):
            try:
                plan = self._plan_on(text, build, knowledge)
            except HeavyliftError as error:
                failure = comparing.CompareFailure(rack=text, code=error.code, params=error.params)
                failures.append(failure)
                continue
            if plan.rack.label not in seen:
                seen.add(plan.rack.label)
                rows.append(comparing.row(plan, knowledge))
        if with_speed:
            facts, prices = self.catalog.speed(), self.catalog.prices()
            rows = [comparing.with_speed_and_rent(row, knowledge, facts, prices) for row in rows]
        return comparing.Comparison(
            model=knowledge.model.model.id,
            title=knowledge.model.model.title,
            rows=tuple(rows),
            failures=tuple(failures),
        )

    def _plan_on(
        self, text: str, build: Callable[[Rack], PlanRequest], knowledge: Knowledge
    ) -> Plan:
        gpu, rack = self.rack(text)
        if rack is None:
            return self._smallest(build, knowledge, gpu, with_lost=False)
        return choose(build(rack), knowledge).plan(with_lost=False)

    def _smallest(
        self,
        build: Callable[[Rack], PlanRequest],
        knowledge: Knowledge,
        gpu: GpuFacts,
        *,
        with_lost: bool = True,
    ) -> Plan:
        found: Choice | None = None
        failed: HeavyliftError | None = None
        smaller: list[SmallerRack] = []
        sizes = comparing.rack_sizes(knowledge, gpu.id, text=gpu.title)
        for size in sizes:
            request = build(replace(size, reading="smallest_count"))
            try:
                asked = subjects(request, knowledge)
                hopeless = None if size is sizes[-1] else too_small(request, asked)
                if hopeless is not None:
                    smaller.append(hopeless)
                    continue
                found = choose(request, knowledge, asked)
            except HeavyliftError as error:
                # A count at which no layout exists is passed over; the next may have one.
                smaller.append(refused_rack(request, error, gpu))
                failed = error
                continue
            if found.best.fits is not Capacity.DOES_NOT_FIT:
                break
            smaller.append(smaller_rack(found.best))
        if found is None:
            raise failed or HeavyliftError("PLAN031", {"model": knowledge.model.model.title})
        plan = found.plan(with_lost=with_lost)
        below = tuple(each for each in smaller if each.gpus < plan.rack.gpu_count)
        return replace(plan, smaller=below)

    # --- loading ---------------------------------------------------------------------------------

    @cached_property
    def _registries(self) -> Mapping[str, RegistryFacts]:
        return Loaded(self.catalog.ids("registries"), self.catalog.registry)

    @cached_property
    def _methods(self) -> Mapping[str, tuple[str, ...]]:
        return {each.scheme: each.methods for each in self.catalog.quantisation_methods()}

    def _engine(self, identifier: str) -> EngineFacts:
        return self.catalog.engine(identifier)

    @cached_property
    def _machines(self) -> Mapping[str, Machine]:
        return Machines((*self.catalog.ids("gpus"), THIS_MACHINE), self._machine)

    def _machine(self, identifier: str) -> Machine:
        if identifier == THIS_MACHINE:
            gpu, node = self._host
            return Machine(gpu=gpu, node=node)
        if identifier.startswith(_UNNAMED):
            return self._unnamed(int(identifier.removeprefix(_UNNAMED)))
        gpu = self.catalog.gpu(identifier)
        return Machine(gpu=gpu, node=self.catalog.node(gpu.node))

    def _unnamed(self, memory_bytes: int, title: str | None = None) -> Machine:
        """A card of so much memory, up to eight of it in a machine."""
        as_of = datetime.now(UTC).date()

        def stated(value: V, unit: str) -> Fact[V]:
            return Fact(
                value=value, unit=unit, kind=FactKind.ASSUMED, source="heavylift", as_of=as_of
            )

        identifier = f"{_UNNAMED}{memory_bytes}"
        gpu = GpuFacts(
            id=identifier,
            title=title or f"{memory_bytes / GIB:.1f} GiB",
            vendor=UNNAMED_VENDOR,
            architecture=UNNAMED_VENDOR,
            aliases=(),
            memory_nameplate=stated(memory_bytes / 10**9, "GB"),
            memory_visible=stated(memory_bytes, "bytes"),
            native_formats=stated("", "names"),
            node=identifier,
        )
        node = NodeFacts(
            id=identifier,
            title=gpu.title,
            gpu=identifier,
            gpus_per_node=stated(8, "GPUs"),
            gpus_per_link_domain=stated(8, "GPUs"),
        )
        return Machine(gpu=gpu, node=node)

    @cached_property
    def _host(self) -> tuple[GpuFacts, NodeFacts]:
        """This machine without a card, measured now."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        as_of = datetime.now(UTC).date()

        def measured(value: V, unit: str) -> Fact[V]:
            return Fact(
                value=value, unit=unit, kind=FactKind.MEASURED, source=THIS_MACHINE, as_of=as_of
            )

        gpu = GpuFacts(
            id=THIS_MACHINE,
            title=THIS_MACHINE,
            vendor=HOST_VENDOR,
            architecture=os.uname().machine,
            aliases=(),
            memory_nameplate=measured(memory / 10**9, "GB"),
            memory_visible=measured(memory, "bytes"),
            native_formats=measured("", "names"),
            node=THIS_MACHINE,
        )
        node = NodeFacts(
            id=THIS_MACHINE,
            title=THIS_MACHINE,
            gpu=THIS_MACHINE,
            gpus_per_node=measured(1, "GPUs"),
            gpus_per_link_domain=measured(1, "GPUs"),
        )
        return gpu, node


def as_started(plan: Plan, knowledge: Knowledge) -> Plan:
    """A plan as a start by its words alone finds it: an engine that refuses such a start, although
    what was planned fits once it is given the limits, is no better than tight.
    """
    plan = _with_whole_context(plan, knowledge)
    return _tight(plan) if any(note.code == TOO_FEW_BLOCKS for note in plan.notes) else plan


def _with_whole_context(plan: Plan, knowledge: Knowledge) -> Plan:
    """A plan that nobody stated a context for: whether the model's whole one holds as well, which
    engines take that are given none. Some refuse to start where one sequence of it does not fit:
    their `context_tokens` default is the model's.
    """
    most = knowledge.model.model.max_context.value
    capacity = plan.capacity_verdict
    if plan.request.context_tokens is not None or capacity is Capacity.DOES_NOT_FIT:
        return plan
    # What a start measured was measured at its own context.
    if plan.context_tokens == most or plan.rack.parts or plan.receipt is not None:
        return plan
    request = replace(plan.request, context_tokens=most)
    whole = plan_on_layout(request, knowledge, plan.engine, plan.layout)
    if whole is None or whole.capacity_verdict is Capacity.FITS:
        return plan
    engine = knowledge.engines[plan.engine]
    params: dict[str, Scalar] = {"context": plan.context_tokens, "whole": most}
    if not takes_whole_context(engine):
        if not plan.verdict.is_positive:
            return plan
        note = Note(code=f"whole_context_{whole.capacity_verdict}", params=params)
        return replace(plan, notes=(*plan.notes, note))
    params["engine"] = engine.title
    note = Note(code=f"start_context_{whole.capacity_verdict}", params=params)
    return _tight(replace(plan, notes=(*plan.notes, note)))


def _tight(plan: Plan) -> Plan:
    """A plan that holds what was asked for, and no start without its limits."""
    if plan.capacity_verdict is Capacity.DOES_NOT_FIT:
        return plan
    fits = plan.verdict is PlanVerdict.FITS
    return replace(
        plan,
        verdict=PlanVerdict.TIGHT if fits else plan.verdict,
        capacity_verdict=Capacity.TIGHT,
    )


def _by_config(
    config: ConfigFile, facts: ModelFacts, family: FamilyFacts, variant: VariantFacts
) -> Inventory:
    """The tensors that a config's dimensions give. Raises PLAN069 for a shape that is not whole."""
    try:
        return from_facts(facts, family, variant)
    except ExpressionError as error:
        params = {"path": config.path, "expression": str(error)}
        raise HeavyliftError("PLAN069", params) from error


def _towers_left_out(config: ConfigFile, family: FamilyFacts) -> Iterator[Defect]:
    """Towers of a config without files whose tensors the family does not list: the plan is then of
    the language model alone.
    """
    roles = {pattern.role for entry in family.formats for pattern in entry.tensors}
    for role in _TOWERS:
        field = f"{role}_config"
        if role not in roles and isinstance(config.document.get(field), Mapping):
            yield Defect(file=config.path, problem="tower_not_counted", observed=field)


def _not_described(config: ConfigFile, other: Uncovered | None) -> HeavyliftError:
    if other is None:
        return HeavyliftError("PLAN051", {"model_type": config.model_type()})
    return HeavyliftError(
        "PLAN068", {"path": config.path, "field": other.field, "value": other.value}
    )


def read_config(files: Files) -> ConfigFile:
    """The config.json of a checkpoint.

    Raises PLAN058 and PLAN059 for what is no folder, PLAN050 when there is none or it cannot be
    read, PLAN056 when it is no JSON object.
    """
    where = files.where
    path = str(Path(where) / CONFIG)
    opened = files.open(CONFIG)
    if isinstance(opened, Defect):
        if isinstance(files, LocalFiles) and not files.folder.is_dir():
            raise HeavyliftError(
                "PLAN058" if files.folder.is_file() else "PLAN059", {"path": where}
            )
        raise HeavyliftError("PLAN050", {"path": where, "reason": opened.detail or opened.problem})
    try:
        raw = opened.read(CONFIG_LIMIT_BYTES + 1, 0)
    finally:
        opened.close()
    if len(raw) > CONFIG_LIMIT_BYTES:
        raise HeavyliftError("PLAN056", {"path": path, "reason": f"> {CONFIG_LIMIT_BYTES} B"})
    try:
        document = with_quantisation(decoded(raw), read_quantisation(files))
    except ConfigTextError as error:
        raise HeavyliftError("PLAN056", {"path": path, "reason": str(error)[:120]}) from error
    return ConfigFile(path=path, document=document, read_on=datetime.now(UTC).date())


def inventory_of(
    checkpoint: Checkpoint, facts: ModelFacts, family: FamilyFacts, names: Names | None = None
) -> Inventory:
    """The tensors of a checkpoint's headers, by the family's modules; by `names` those of none.

    Raises CKPT020 with every defect of the files, PLAN054 when tensors are missing, PLAN055 when
    their shapes are not those of the config: a plan over a part of a model, or of a cache that the
    weights do not have, would be wrong without showing it.
    """
    checkpoint.require_sound()
    if not family.formats:
        return adopt(checkpoint.groups, (), names).inventory(checkpoint.where, cut_by_name=True)
    plain = replace(facts.variants[0], quantised=())
    try:
        expected = from_facts(facts, family, plain).groups
    except ExpressionError as error:
        params = {"path": checkpoint.where, "expression": str(error)}
        raise HeavyliftError("PLAN069", params) from error
    found = adopt(checkpoint.groups, expected, names)
    if found.missing:
        raise HeavyliftError(
            "PLAN054",
            {
                "path": checkpoint.where,
                "missing": sum(group.count for group in found.missing),
                "unknown": sum(group.count for group in found.unsaid),
                "first": found.missing[0].name,
            },
        )
    for each in found.disagrees:
        raise HeavyliftError(
            "PLAN055",
            {
                "path": checkpoint.where,
                "tensor": each.found.pattern,
                "found": f"{each.found.per_layer} × {list(each.found.shape)}",
                "expected": f"{each.expected.per_layer} × {list(each.expected.shape)}",
            },
        )
    return found.inventory(checkpoint.where)


def _folder(path: Path) -> Path:
    """The folder of a checkpoint that is named by it or by its config.json."""
    return path.parent if path.name == CONFIG and path.is_file() else path


def _read_if_there(files: Files) -> Checkpoint | None:
    """The headers of a checkpoint; None where there is a config and no safetensors."""
    try:
        return read_files(files)
    except HeavyliftError as error:
        if error.code not in ("CKPT022", "CKPT034"):
            raise
        return None


def _is_gguf(path: Path) -> bool:
    return gguf_at(path) is not None


def _holds_gguf_alone(folder: Path) -> bool:
    """True for a folder with GGUF files and no config.json: what says what its tensors mean."""
    if not folder.is_dir() or (folder / CONFIG).exists():
        return False
    return any(name.endswith(GGUF_SUFFIX) for name in LocalFiles(folder).names())


def _takes_folders(engine: EngineFacts) -> bool:
    """Engines that split tensors read safetensors folders; those that split layers read GGUF."""
    return all(rule.splits == "ranks" for rule in engine.layouts)
