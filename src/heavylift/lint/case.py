"""A command in its surroundings: what rules ask about it, answered once."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from heavylift.facts.command_schema import (
    CheckpointNameFacts,
    CommandEngineFacts,
    CommandModelFacts,
    CommandModels,
    CommandOverheadFacts,
    CommandRuleFacts,
    NameChangeFacts,
)
from heavylift.lint.command import FALSE, TRUE, Command, Option
from heavylift.lint.conditions import number
from heavylift.lint.hardware import Card, NamedRack, host_memory_bytes, named_racks
from heavylift.recipe.flags import FlagTable
from heavylift.records.plan import Layout, Plan

_VERSION: Final = re.compile(r"(?<![\w.])v?(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)(?!\.?\d)")
_BRANCH: Final = re.compile(
    r"main|nightly|dev\d|branch|image|fork|patch|vendor|custom|rc\d|\bpr\b|\b20\d\d-\d\d",
    re.IGNORECASE,
)
_SAID_IMAGE: Final = re.compile(r"(?:rocm )?image (?:\S*:)?([\w.-]+)", re.IGNORECASE)
_PATCHED: Final = re.compile(r"[+]|patch|fork|branch|fix", re.IGNORECASE)
_NAME: Final = re.compile(r"[\w./~-]+(?::[\w.-]+)?")
_IMAGE_DATE: Final = re.compile(r"(20\d{6})")
ANY_MODEL: Final = "any"
_MODEL_FLAGS: Final = ("--model", "--model-path", "-m", "--model_path")
_FLOATING: Final = re.compile(r"(?:^|[-_.])(?:latest|nightly|dev|main)(?:$|[-_.])")

KnownModels = Callable[[str], "KnownModel | None"]
"""What is known of the weights that a name stands for; None where nothing is."""

PlanLayout = Callable[["PlanWish"], Plan | None]
"""Plans a layout on a rack; None when that cannot be said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanWish:
    """What a command asks of the memory of a rack. `layout` None = the best one."""

    model: str
    engine: str
    version: str | None
    card: str
    gpus: int
    nodes: int | None
    variant: str | None
    layout: Layout | None
    context_tokens: int | None
    sequences: int | None
    batched_tokens: int | None
    memory_fraction: float | None
    kv_dtype: str | None
    moe_backend: str | None
    text_only: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownModel:
    """A model of the facts by the name a command gives it. `weights_bytes` of all files, None where
    the form that the name speaks of has no known size; `is_assumed` where nobody described that
    form. `block`: channels of a block of its quantised weights, None where they have none;
    `expert_widths` and `dense_widths` are the inner widths that tensor parallel ranks share.
    """

    name: str
    title: str
    context_tokens: int
    heads: int | None
    experts: int | None
    weights_bytes: int | None
    is_assumed: bool
    source: str
    block: int | None = None
    expert_widths: tuple[int, ...] = ()
    dense_widths: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Library:
    """Everything known that commands are judged by; tables are read when they are asked for."""

    engines: tuple[CommandEngineFacts, ...]
    devices: Mapping[str, str]
    tables: Mapping[str, FlagTable]
    models: CommandModels
    cards: tuple[Card, ...]
    overheads: tuple[CommandOverheadFacts, ...]
    changes: tuple[NameChangeFacts, ...]
    rules: tuple[CommandRuleFacts, ...]
    known: KnownModels
    plan: PlanLayout


@dataclass(frozen=True, kw_only=True, slots=True)
class Hints:
    """What was said beside the command: the rack, the model, the engine version."""

    rack: str | None = None
    model: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """The engine version a command is for. `text` None: not stated. `number` None: stated, but a
    build without one (an image, a branch, a fork).
    """

    text: str | None = None
    number: str | None = None

    @property
    def is_unnumbered(self) -> bool:
        """True when a version is stated that no table can know."""
        return self.text is not None and self.number is None

    @property
    def is_fork(self) -> bool:
        """True for a build that somebody changed."""
        return self.text is not None and "fork" in self.text.lower()

    def precedes(self, other: str) -> bool:
        """True when there is a number, and it is before `other`."""
        return self.number is not None and _order(self.number) < _order(other)


def _order(version: str) -> tuple[int, ...]:
    parts = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    return (*parts, *(0,) * (3 - len(parts)))


@dataclass(frozen=True)
class Case:
    """One command with the library and the hints it is judged by."""

    command: Command
    library: Library
    hints: Hints = field(default_factory=Hints)
    companions: tuple[Command, ...] = ()

    # --- the engine ------------------------------------------------------------------------------

    @property
    def engine(self) -> CommandEngineFacts | None:
        """The engine; None when only variables were pasted and none of them tells."""
        return self.command.engine

    @property
    def serves(self) -> bool:
        """True for the start of a server."""
        return self.engine is not None and self.engine.serves

    @cached_property
    def table(self) -> FlagTable | None:
        """The engine's flag table."""
        if self.engine is None or self.engine.table is None:
            return None
        return self.library.tables[self.engine.table]

    @cached_property
    def version(self) -> Version:
        """The stated version, of the hint or of the image tag."""
        tag = self._image_tag
        for text in (self.hints.version, tag):
            if not text:
                continue
            if self.table is not None and self.table.is_read(text.removeprefix("v")):
                # As it is called by those who read it, a candidate among them.
                return Version(text, text.removeprefix("v"))
            found = _VERSION.search(text)
            if found and not _BRANCH.search(text.replace(found[0], "")):
                return Version(text, found[1])
            if _BRANCH.search(text) or (text == tag and not _floats(text)):
                return Version(text)
        return Version()

    @property
    def read_version(self) -> str | None:
        """The stated version where its names were read; None stands for the newest that was."""
        number = self.version.number
        read = number is not None and self.table is not None and self.table.is_read(number)
        return number if read else None

    @property
    def _image_tag(self) -> str:
        container = self.command.container
        return image_tag((container.image if container else None) or "")

    @property
    def is_partial(self) -> bool:
        """True when settings may stand elsewhere: a part was pasted, or a file is named."""
        return self.command.fragment or self.setting("config_file") is not None

    # --- settings --------------------------------------------------------------------------------

    def setting(self, name: str) -> str | None:
        """The last value the command gives a setting of the engine; None when it gives none."""
        values = self.all_of(name)
        return values[-1] if values else None

    def all_of(self, name: str) -> tuple[str, ...]:
        """Every value the command gives a setting, of the first flag for it that is there."""
        spellings = self.engine.settings.get(name, ()) if self.engine is not None else ()
        return next((values for each in spellings if (values := self._spelt(each))), ())

    def number_of(self, name: str) -> int | None:
        """A setting as a whole number; None when absent or no number."""
        value = self.setting(name)
        parsed = None if value is None else number(value)
        return None if parsed is None else int(parsed)

    def beside(self, name: str) -> int | None:
        """A setting of this command or, where it has none, of another one in the same text."""
        cases = (self, *(Case(each, self.library) for each in self.companions))
        return next((found for case in cases if (found := case.number_of(name)) is not None), None)

    def flag_of(self, name: str) -> str:
        """The first flag that a setting is written as, for messages."""
        spelt = self.engine.settings.get(name, ()) if self.engine is not None else ()
        return spelt[0].partition(":")[0] if spelt else name

    def _spelt(self, spelling: str) -> tuple[str, ...]:
        if spelling.startswith("$"):
            value = self.command.env.get(spelling[1:])
            return () if value is None else (value,)
        flag, _, member = spelling.partition(":")
        given = [option for option in self.command.options if option.name == flag]
        if member:
            return tuple(value for option in given for value in _member_values(option, member))
        said = tuple(
            option.text for option in given if option.text is not None and option.member is None
        )
        return said or self._by_variable(flag)

    def _by_variable(self, flag: str) -> tuple[str, ...]:
        """The value of the variable that says the same as a flag."""
        found = self.table.facts.flags.get(flag) if self.table is not None else None
        value = self.command.env.get(found.variable) if found and found.variable else None
        return () if value is None else (value,)

    def values(self, name: str) -> tuple[str, ...]:
        """The values of a name of the conditions' language."""
        if name.startswith(("-", "$")):
            return self._spelt(name)
        if name in self._surroundings:
            return self._surroundings[name]
        value = self.setting(name)
        return () if value is None else (value,)

    @cached_property
    def _surroundings(self) -> dict[str, tuple[str, ...]]:
        command, container = self.command, self.command.container
        cards = [rack.card for rack in self.racks]
        found: dict[str, tuple[str, ...]] = {
            "engine": _one(self.engine.id if self.engine else None),
            "entry": _one(command.entry or None),
            "launcher": _one(command.launcher),
            "fragment": _when(self.is_partial),
            "serves": _when(self.serves),
            "model": _one(self.model_name),
            "model_id": _one(self.model.id if self.model else None),
            "model_tag": self.model.tags if self.model else (),
            "hybrid": _when(self.is_hybrid),
            "checkpoint_tag": self.checkpoint.tags if self.checkpoint else (),
            "card": tuple(card.id for card in cards),
            "vendor": self.vendors,
            "stated_vendor": self.vendors if self.hints.rack and self.racks else (),
            "architecture": tuple(card.architecture for card in cards),
            "link": tuple(card.link for card in cards),
            "gpus": tuple(str(rack.gpus) for rack in self.racks if rack.gpus is not None),
            "expert_part_odd": _when(self._odd_part(of_experts=True)),
            "dense_part_odd": _when(self._odd_part(of_experts=False)),
        }
        if container is not None:
            image = container.image or ""
            facts = container.image_facts
            found |= {
                "container": (container.form,),
                "image": _one(image or None),
                "image_tag": _one(image_tag(image) or None),
                "image_vendor": _one(facts.vendor if facts else None),
                "image_date": tuple(_IMAGE_DATE.findall(image)[:1]),
                "image_floats": _when(bool(image) and _floats(image_tag(image))),
                "devices_vendor": self._device_vendors,
                "container_ipc": _one(container.ipc),
                "container_network": _one(container.network),
                "container_shm": _one(container.shm_bytes),
                "container_privileged": _when(container.privileged),
                "container_group": container.groups,
                "container_port": container.ports,
            }
            if container.form == "systemd":
                found.pop("container")
        elif self._said_image is not None:
            found["image_tag"] = (self._said_image,)
            found["image_date"] = tuple(_IMAGE_DATE.findall(self._said_image)[:1])
        return found

    @property
    def _said_image(self) -> str | None:
        """The tag of the image that a version hint names, as it was published: `image kimi-k3`."""
        said = _SAID_IMAGE.match(self.hints.version or "")
        patched = _PATCHED.search(self.hints.version or "")
        return said[1] if said and not patched else None

    # --- the model -------------------------------------------------------------------------------

    @cached_property
    def model_name(self) -> str | None:
        """The model as the command names it, or as the hint does."""
        named = self.setting("model")
        if named is None and self.engine is None:
            named = next(
                (each.value for each in self.command.options if each.name in _MODEL_FLAGS), None
            )
        if named is None and self.command.positionals:
            named = next(
                (each for each in self.command.positionals if not each.startswith("-")), None
            )
        return named or self.hints.model

    @cached_property
    def _name_key(self) -> str:
        """Everything that names the checkpoint, as patterns meet it."""
        parts = [self.model_name or ""]
        if self.engine is not None and not self.engine.serves:
            parts += self.all_of("include")
            parts += self.command.positionals[1:]
        return name_key(" ".join(parts))

    @cached_property
    def _named(self) -> tuple[CommandModelFacts | None, str, bool]:
        """The model, the name it is known by, and whether that name is of its files: a served name
        says which model answers, not which form of it is loaded.
        """
        mounts = self.command.container.mounts if self.command.container else ()
        outside = " ".join(name_key(path) for path, _ in mounts)
        for key, of_files in (
            (self._name_key, True),
            (name_key(self.hints.model or ""), True),
            (outside, True),
            (name_key(self.setting("served_name") or ""), False),
        ):
            found = self._match_model(key)
            if found is not None:
                return found, key, of_files
        return None, self._name_key, True

    @property
    def model(self) -> CommandModelFacts | None:
        """What is known of the model; by its served name where the path is mute."""
        return self._named[0]

    def _match_model(self, key: str) -> CommandModelFacts | None:
        return next(
            (
                model
                for model in self.library.models.models
                if any(_matches(key, pattern) for pattern in model.patterns)
            ),
            None,
        )

    @cached_property
    def checkpoint(self) -> CheckpointNameFacts | None:
        """The published form that the name betrays; None for a path or another name."""
        if self.model is None:
            return None
        key = self._named[1].strip()
        return next(
            (
                each
                for each in self.library.models.checkpoints
                if each.model in (self.model.id, ANY_MODEL)
                and any(_matches(key, pattern) for pattern in each.patterns)
            ),
            None,
        )

    @cached_property
    def known(self) -> KnownModel | None:
        """What the facts know of the weights by the name the command gives them, where the model
        is not one whose forms are listed with the commands.
        """
        name = self.model_name
        if name is None or (self.model is not None and self.model.plans_as is not None):
            return None
        if self.setting("quantization") is not None:
            # Weights quantised at the start are not those of the files.
            return None
        if self.serves and self.engine is not None and not self.engine.settings.get("tensor"):
            # A runner for single machines takes a form of its own choice.
            return None
        return self.shape

    @cached_property
    def shape(self) -> KnownModel | None:
        """What the facts know by the model's name alone: its widths and context, not the form of
        its weights.
        """
        name = self.model_name
        return self.library.known(name) if name is not None and _NAME.fullmatch(name) else None

    @property
    def context_tokens(self) -> int | None:
        """The longest context the model has."""
        if self.model is not None and self.model.context_tokens is not None:
            return self.model.context_tokens
        return self.shape.context_tokens if self.shape is not None else None

    @property
    def is_hybrid(self) -> bool:
        """True for a model that keeps a state per sequence beside its KV."""
        if self.model is not None:
            return "hybrid" in self.model.tags
        # A state cache is set only for a model that has a state.
        return self.setting("state_cache") is not None

    @property
    def is_foreign_checkpoint(self) -> bool:
        """True when the weights are not those the model's facts describe."""
        if self.checkpoint is None:
            return False
        return not {"native", "gguf"} & set(self.checkpoint.tags) or (
            "pruned" in self.checkpoint.tags
        )

    @property
    def weights_bytes(self) -> int | None:
        """Bytes of the checkpoint's files, where its name or its model tells."""
        if self.known is not None:
            return self.known.weights_bytes
        if self.checkpoint is not None and self.checkpoint.bytes_total is not None:
            return self.checkpoint.bytes_total
        model, _, of_files = self._named
        if model is None or not of_files or self.is_foreign_checkpoint:
            return None
        return None if self._foreign_quantization else model.bytes_total

    @property
    def weights_source(self) -> str | None:
        """Where `weights_bytes` is from."""
        named = self.known or self.checkpoint or self.model
        return named.source if named is not None else None

    @property
    def _foreign_quantization(self) -> bool:
        """True for a quantisation method that this engine's releases do not have."""
        value = self.setting("quantization")
        if value is None or self.table is None:
            return False
        flag = self.flag_of("quantization")
        found = self.table.flag(flag)
        return (
            found is not None and bool(found.facts.choices) and (value not in found.facts.choices)
        )

    # --- the rack --------------------------------------------------------------------------------

    @cached_property
    def racks(self) -> tuple[NamedRack, ...]:
        """Racks the hint names or, without one, the comments of the text."""
        if self.hints.rack:
            return named_racks(self.hints.rack, self.library.cards)
        return named_racks(" \n ".join(self.command.comments), self.library.cards)

    @property
    def host_memory_bytes(self) -> int | None:
        """Memory of the machine, where the hint states it."""
        return host_memory_bytes(self.hints.rack or "")

    @property
    def vendors(self) -> tuple[str, ...]:
        """Whose cards the command is for: those named, else those its image or variables imply."""
        if self.racks:
            return tuple(dict.fromkeys(rack.card.vendor for rack in self.racks))
        if self._device_vendors:
            return self._device_vendors
        container = self.command.container
        facts = container.image_facts if container else None
        return _one(facts.vendor if facts else None)

    @cached_property
    def _device_vendors(self) -> tuple[str, ...]:
        container = self.command.container
        devices = container.devices if container else ()
        return tuple(
            dict.fromkeys(
                vendor
                for beginning, vendor in self.library.devices.items()
                if any(device.startswith(beginning) for device in devices)
            )
        )

    # --- the layout ------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        """The layout the command states; sizes it leaves out are 1."""
        tensor = self.number_of("tensor") or 1
        data = self.number_of("data") or 1
        if self.setting("inner_data") not in (None, FALSE):
            # Data parallel attention shares the tensor ranks.
            data = 1
        return Layout(
            tensor_parallel_size=tensor,
            pipeline_parallel_size=self.number_of("pipeline") or 1,
            data_parallel_size=data,
            expert_parallel_size=self._experts(tensor, data),
            decode_context_parallel_size=self.number_of("dcp") or 1,
        )

    def _experts(self, tensor: int, data: int) -> int:
        value = self.setting("expert")
        if value is None or value == FALSE:
            return 1
        return tensor * data if value == TRUE else int(number(value) or 1)

    def _odd_part(self, *, of_experts: bool) -> bool:
        """Whether a tensor rank's part of the weights is not made of whole quantisation blocks."""
        shape, layout = self.shape, self.layout
        if shape is None or shape.block is None or layout.tensor_parallel_size == 1:
            return False
        if self.setting("quantization") not in (None, "fp8"):
            return False
        if of_experts:
            widths = () if layout.expert_parallel_size > 1 else shape.expert_widths
        else:
            widths = shape.dense_widths
        return any(width % (layout.tensor_parallel_size * shape.block) for width in widths if width)

    @property
    def states_layout(self) -> bool:
        """True when the command says how ranks share the model."""
        return any(self.setting(name) for name in ("tensor", "pipeline", "data", "expert"))


def image_tag(image: str) -> str:
    """The tag of an image; empty for a digest, `latest` where none is written."""
    if not image or "@sha256:" in image:
        return ""
    name = image.rsplit("/", 1)[-1]
    return name.partition(":")[2] or "latest"


def name_key(name: str) -> str:
    """A model name as patterns meet it: lower case, dots and underscores read as dashes."""
    return re.sub(r"[._]", "-", name.lower())


def _floats(tag: str) -> bool:
    """True for a tag that its project moves: by its name, or for naming neither version nor day."""
    if _FLOATING.search(tag):
        return True
    return bool(tag) and "$" not in tag and not re.search(r"\d", tag)


def _matches(key: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(key, pattern)


def _one(value: Any) -> tuple[str, ...]:
    return () if value is None else (str(value),)


def _when(holds: bool) -> tuple[str, ...]:
    return (TRUE,) if holds else ()


def _member_values(option: Option, member: str) -> tuple[str, ...]:
    """Values of a JSON member, also inside nested objects, or of the flag's dotted form."""
    if option.member is not None:
        same = option.member.replace("-", "_") == member
        return (option.text,) if same and option.text is not None else ()
    return tuple(_nested(option.likely_members, member))


def _nested(node: Any, member: str) -> list[str]:
    found: list[str] = []
    if isinstance(node, dict):
        for key, value in node.items():
            if key == member and not isinstance(value, dict | list):
                found.append(str(value).lower() if isinstance(value, bool) else str(value))
            else:
                found += _nested(value, member)
    elif isinstance(node, list):
        for each in node:
            found += _nested(each, member)
    return found
