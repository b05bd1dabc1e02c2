"""What a launch is made from: a plan, the facts around it, and how it is to be exposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.command_schema import (
    CommandEngineFacts,
    CommandModelFacts,
    NameChangeFacts,
)
from heavylift.facts.schema import GpuFacts, ModelFacts, NodeFacts, RecipeFacts, Rule, VariantFacts
from heavylift.facts.serving_schema import (
    DraftFacts,
    ServingCommon,
    ServingEngine,
    ServingImage,
    ServingRule,
)
from heavylift.plan.subject import HOST_VENDOR
from heavylift.recipe.flags import FlagTable
from heavylift.records.launch import SELF, host_token
from heavylift.records.plan import Plan

SERVE: Final = "serve"
PREFILL: Final = "prefill"
DECODE: Final = "decode"
ROUTER: Final = "router"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What the plan does not say: where it listens, what it is called, from where it reads.

    `key`: requests need a key, taken from a secret. `model_path` None = the published repository.
    `read_gb_per_s` None = the slowest load anybody reported. `connector` moves KV between pools;
    `store` names where KV outlives a process (`embedded`, `centralised`).
    """

    bind_host: str = "127.0.0.1"
    port: int | None = None
    key: bool = False
    model_path: str | None = None
    revision: str | None = None
    served_name: str | None = None
    draft: str | None = None
    hosts: tuple[str, ...] = ()
    read_gb_per_s: float | None = None
    connector: str = "nixl"
    store: str | None = None

    @property
    def is_open(self) -> bool:
        """True when others than this machine can connect."""
        return self.bind_host not in LOOPBACK


@dataclass(frozen=True, kw_only=True)
class Job:
    """One pool of like processes: its plan, and every fact that shapes its command.

    `engine` is the id of the engine as a recipe names it (`atom-vllm`), `table_version` the version
    in `table` by which names are gated. `recipes` are all published ones of the model for this
    engine. `derived` names settings of the plan's request that nobody asked for, each with the id
    of the recipe it is from (empty: worked out here).
    """

    engine: str
    plan: Plan
    gpu: GpuFacts
    node: NodeFacts
    model: ModelFacts
    serving: ServingEngine
    command: CommandEngineFacts
    table: FlagTable
    table_version: str
    common: ServingCommon
    recipes: tuple[RecipeFacts, ...]
    changes: tuple[NameChangeFacts, ...] = ()
    naming: CommandModelFacts | None = None
    start: Start = field(default_factory=Start)
    role: str = SERVE
    replicas: int = 1
    derived: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_split(self) -> bool:
        """True for one half of a service whose prefill and decode are apart."""
        return self.role in (PREFILL, DECODE)

    @property
    def is_behind_router(self) -> bool:
        """True when a router, and nobody else, talks to the engine."""
        return self.is_split or self.replicas > 1

    @property
    def engine_port(self) -> int:
        """The port of one engine: beside the router's where there is one."""
        service = self.start.port or self.serving.port
        if not self.is_behind_router:
            return service
        return service + (2 if self.role == DECODE else 1)

    @property
    def engine_host(self) -> str:
        """Where one engine listens: on its own address where a router must reach it."""
        return host_token(SELF) if self.is_behind_router else self.start.bind_host

    @property
    def nodes(self) -> int:
        """Machines of one replica."""
        return self.plan.rack.nodes

    @property
    def gpus_per_node(self) -> int:
        """GPUs of one machine that the rack takes."""
        return self.plan.rack.gpus_per_node

    @property
    def on_host(self) -> bool:
        """True for a machine without cards."""
        return self.gpu.vendor == HOST_VENDOR

    @property
    def cards(self) -> int:
        """Cards of one process: those of its machine, none on a host without."""
        return 0 if self.on_host else self.gpus_per_node

    @cached_property
    def variant(self) -> VariantFacts | None:
        """The planned form of the weights; None for one made by a rule that nobody published."""
        known = self.model.variants
        return next((each for each in known if each.id == self.plan.variant), None)

    @property
    def variant_repo(self) -> str | None:
        """The repository of the planned variant; None when none is published under a name."""
        return None if self.variant is None else self.variant.repo

    @property
    def variant_format(self) -> str:
        """The file format of the planned variant; empty for a form that nobody published."""
        return "" if self.variant is None else self.variant.format

    @cached_property
    def model_path(self) -> str | None:
        """What the engine is given as its model: the path stated, else the repository."""
        return self.start.model_path or self.variant_repo

    @property
    def weights(self) -> str:
        """`model_path`, for an engine that must be told it. Raises REC015 where none is known."""
        path = self.model_path
        if path is None:
            given = {"variant": self.plan.variant, "engine": self.serving.title}
            raise HeavyliftError("REC015", given)
        return path

    @property
    def is_local(self) -> bool:
        """True when the model is a folder or file, not a repository."""
        return self.start.model_path is not None and self.start.model_path.startswith("/")

    @property
    def served_name(self) -> str:
        """The name clients ask for."""
        return self.start.served_name or self.plan.model

    @cached_property
    def draft(self) -> DraftFacts | None:
        """The draft model asked for."""
        return next((d for d in self.common.drafts if d.id == self.start.draft), None)

    @cached_property
    def features(self) -> frozenset[str]:
        """Words that rules of serving ask for."""
        layout = self.plan.layout
        holds = {
            "text_only": "vision" in self.model.layers and not self.plan.vision,
            "multi_node": self.nodes > 1,
            "trays": self.nodes > 1 and self.node.gpus_per_node.value < _PER_BOARD,
            "pipeline": layout.pipeline_parallel_size > 1,
            "data": layout.data_parallel_size > 1,
            "expert": layout.expert_parallel_size > 1,
            "dcp": layout.decode_context_parallel_size > 1,
            "split": self.is_split,
            "store": self.start.store is not None,
            "draft": self.start.draft is not None,
            self.role: True,
            f"gpu:{self.gpu.id}": True,
            f"draft:{self.start.draft}": self.start.draft is not None,
            f"connector:{self.start.connector}": self.is_split,
        }
        return frozenset(name for name, there in holds.items() if there)

    def holds(self, rule: Rule) -> bool:
        """True when the scope of a rule includes this launch."""
        return (
            _within(rule, self.table.facts.read, self.table_version)
            and (not rule.vendors or self.gpu.vendor in rule.vendors)
            and (not rule.architectures or self.gpu.architecture in rule.architectures)
            and (not rule.families or self.model.family in rule.families)
        )

    def rules(self) -> tuple[ServingRule, ...]:
        """The rules of the engine that apply, in their order."""
        return tuple(
            rule
            for rule in self.serving.rules
            if self.holds(rule) and all(map(self._has, rule.when))
        )

    def image(self) -> ServingImage | None:
        """The first image in scope."""
        return next((image for image in self.serving.images if self.holds(image)), None)

    def _has(self, word: str) -> bool:
        return (word.removeprefix("!") in self.features) != word.startswith("!")


_PER_BOARD: Final = 8
"""GPUs of a machine whose fast links end at its walls; trays with fewer are joined in a rack."""


def _within(rule: Rule, read: tuple[str, ...], version: str) -> bool:
    """Whether a version lies in a rule's bounds; a version nobody read lies in none."""
    if rule.since is None and rule.until is None:
        return True
    if version not in read:
        return False
    here = read.index(version)
    since = read.index(rule.since) if rule.since in read else 0
    until = read.index(rule.until) if rule.until in read else len(read)
    return since <= here < until
