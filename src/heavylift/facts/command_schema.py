"""Shapes of the facts on commands: flags by version, and what found commands are judged by."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from heavylift.facts.schema import FactKind, Rule

# --- flags of engines ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagFacts:
    """A flag or an environment variable as an engine's releases declare it.

    `type`: `bool` (takes no value), `optional` (may), `list` (one or more), `int`, `float`, `str`
    or `json`. `since` is the first read version with it (None = the oldest read has it), `until`
    the first without it. `negatable`: `--no-…` exists. `choices` of every version read; empty =
    free. `variable` is the environment variable that says the same.

    `alias_since`: the first read version with an alias that is older or younger than the name.
    `choice_since` and `choice_until` bound a choice as `since` and `until` do the flag.
    """

    type: str = "str"
    default: str | None = None
    since: str | None = None
    until: str | None = None
    replaced_by: str | None = None
    variable: str | None = None
    negatable: bool = False
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    alias_since: dict[str, str] = field(default_factory=dict)
    choice_since: dict[str, str] = field(default_factory=dict)
    choice_until: dict[str, str] = field(default_factory=dict)

    @property
    def takes_value(self) -> bool:
        """True when a word after it is its value."""
        return self.type != "bool"


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingsFileFacts(Rule):
    """The keys of the file of settings that an engine takes, by their path (`outer.inner`), over
    the versions in `read`, oldest first: the file refuses every other key.
    """

    read: tuple[str, ...]
    keys: dict[str, FlagFacts]


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagTableFacts:
    """The flags and variables of an engine over the versions in `read`, oldest first.

    `partial`: more exist than are listed, so an absent name says nothing; `env_partial`: that holds
    for the variables alone. `file`: the engine's file of settings, where it takes one.
    """

    engine: str
    read: tuple[str, ...]
    kind: FactKind
    source: str
    as_of: date
    flags: dict[str, FlagFacts]
    env: dict[str, FlagFacts] = field(default_factory=dict)
    partial: bool = False
    env_partial: bool = False
    file: SettingsFileFacts | None = None


# --- what commands found elsewhere are checked against -------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFacts:
    """Container images by pattern: whose cards they are for and which engine they start.

    `entry`: the image starts the server itself, so arguments follow the image. `name`: what to
    write when this image is meant.
    """

    pattern: str
    name: str | None = None
    vendor: str | None = None
    entry: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEngineFacts:
    """How the commands of one engine look.

    `table` is its flag table. `entries` are the words a command starts with (`vllm serve`), the
    first being the one to write; `legacy_entries` still work; `launchers` names an entry that
    wraps the engine. `settings` maps what rules speak of (`tensor_parallel`) to its flags.
    `env_prefixes` mark variables that only this engine reads. `refuses_foreign_code`: a model with
    code of its own does not start until it is trusted. `abbreviates`: unambiguous beginnings of
    flags are taken. `exact`: a flag is only taken in its own spelling, dashes and underscores told
    apart.
    """

    id: str
    title: str
    table: str | None = None
    plans_as: str | None = None
    serves: bool = True
    entries: tuple[str, ...] = ()
    legacy_entries: tuple[str, ...] = ()
    launchers: dict[str, str] = field(default_factory=dict)
    images: tuple[ImageFacts, ...] = ()
    env_prefixes: tuple[str, ...] = ()
    settings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    abbreviates: bool = False
    exact: bool = False
    refuses_foreign_code: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandModelFacts(Rule):
    """What must be known of a model to judge a command that serves it.

    `patterns` match the name or path in lower case; the first model that matches is taken.
    `plans_as` is the id of a model that can be planned. `owners` are those whose repositories of it
    are known. `tags` are words that rules ask for. `trust_optional`: its publisher's commands trust
    its code, and engines have classes of their own for it.
    """

    id: str
    title: str
    patterns: tuple[str, ...]
    plans_as: str | None = None
    owners: tuple[str, ...] = ()
    tool_parsers: tuple[str, ...] = ()
    reasoning_parsers: tuple[str, ...] = ()
    trust_remote_code: bool = False
    trust_optional: bool = False
    context_tokens: int | None = None
    bytes_total: int | None = None
    heads: int | None = None
    experts: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointNameFacts(Rule):
    """A published form of a model that its name betrays: bytes of all files, and tags."""

    model: str
    patterns: tuple[str, ...]
    bytes_total: int | None = None
    variant: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeFloorFacts(Rule):
    """The engine version from which on a published recipe serves the models of these names."""

    engine: str
    patterns: tuple[str, ...]
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandCardFacts(Rule):
    """A card that commands name and that has no file of its own: enough to add up memory.

    `memory_gib` is what is sold, read in the larger unit: the most a driver may offer.
    """

    id: str
    names: tuple[str, ...]
    vendor: str
    architecture: str
    memory_gib: float
    link: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandOverheadFacts(Rule):
    """What a start was seen to take of an engine's fraction beside weights, KV and the buffers that
    a plan counts itself: bytes per GPU, the most of the logged starts.
    """

    engine: str
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NameChangeFacts(Rule):
    """A flag or variable that the read versions do not have: what became of it.

    `rule` is the finding (`renamed_flag`, `removed_flag`, `env_renamed`); `elsewhere` instead says
    that an unread build (an image, a fork) knows the name. `values` are those of the old variable
    that the new one says otherwise; a value that is not among them cannot be carried over.
    """

    engine: str
    name: str
    rule: str | None = None
    replaced_by: str | None = None
    elsewhere: str | None = None
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandRuleFacts(Rule):
    """A rule on a command: a finding when every condition of `when` holds and none of `unless`.

    `rule` is its public name, `detail` what tells it from others of that name. `subject` names the
    flag, variable or setting to show. `mend` lists edits.

    Outside `since` (included) and `until` (excluded) there is no finding. A version that is stated
    but has no number (an image, a fork) lowers it to a remark; `unstated` is the severity when none
    is stated (`none` = no finding).
    """

    id: str
    rule: str
    severity: str
    when: tuple[str, ...]
    detail: str | None = None
    engines: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    subject: str = ""
    mend: tuple[str, ...] = ()
    unstated: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEngines:
    """The file of engines, as their commands look. `devices` says whose cards a device node or a
    container resource stands for, by the beginning of its name.
    """

    engines: tuple[CommandEngineFacts, ...]
    devices: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandModels:
    """The file of models, the checkpoints published of them and the versions that recipes ask for,
    as commands name them.
    """

    models: tuple[CommandModelFacts, ...]
    checkpoints: tuple[CheckpointNameFacts, ...] = ()
    floors: tuple[RecipeFloorFacts, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandCards:
    """The file of cards that only commands name, and of what starts were seen to take."""

    cards: tuple[CommandCardFacts, ...]
    overheads: tuple[CommandOverheadFacts, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NameChanges:
    """The file of flags and variables that came and went."""

    names: tuple[NameChangeFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandRules:
    """A file of rules on commands."""

    rules: tuple[CommandRuleFacts, ...]
