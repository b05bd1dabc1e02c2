"""Shapes of the facts about speed: the model's constants, measured classes, acceptances, links."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from heavylift.facts.schema import Fact, Rule
from heavylift.traffic.shape import TrafficShape


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedModelFacts:
    """What the model of speed takes as given for every class of hardware and engine.

    `memory_efficiency` and `compute_efficiency` are parts of the peaks, `prefill_floor` is in
    microseconds per layer, `network_bandwidth` in GB/s one way per GPU between machines.
    `version_drift` is how many times faster a later version of an engine was seen to be. The uses
    of the pools are the parts of their rates that split services reach. `load_bandwidth` is what a
    machine reads its weights with when it starts, GB/s.
    """

    memory_efficiency: Fact[float]
    compute_efficiency: Fact[float]
    prefill_floor: Fact[float]
    network_bandwidth: Fact[float]
    version_drift: Fact[float]
    prefill_pool_use: Fact[float]
    decode_pool_use: Fact[float]
    load_bandwidth: Fact[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedClassFacts(Rule):
    """Published measurements of a card with an engine, and how they lie about the model.

    `crosses_nodes`: tensor parallelism goes over the network. Measured time lies between
    `low_ratio` and `high_ratio` times the model's for most rows. `versions` of the engine and the
    days `first` to `last` are those of the rows, as far as stated; `drawn_from` are their source
    ids.
    """

    gpu: str
    engine: str
    crosses_nodes: bool
    fixed_us_per_layer: float
    low_ratio: float
    high_ratio: float
    rows: int
    sweeps: int
    versions: tuple[str, ...]
    drawn_from: tuple[str, ...]
    first: date | None = None
    last: date | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedSpreadFacts(Rule):
    """How measured times lie about the model in a setting that is no class.

    `setting`: `unseen` (a class that was left out), `thin` (fixed cost taken from one other sweep
    of the class), `anchored` (fixed cost taken from one point of the same service), `ttft` (time to
    first token, any class), `speculation` (beside the class).
    """

    setting: str
    low_ratio: float
    high_ratio: float
    rows: int
    classes: int
    fixed_us_per_layer: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedClassBook:
    """All classes, and the spreads for what is no class."""

    classes: tuple[SpeedClassFacts, ...]
    spreads: tuple[SpeedSpreadFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceFacts(Rule):
    """Tokens a step yields with speculative decoding: `accepted_tokens` for 1, 2, 3, … drafted
    ones, 0 where none was measured.
    """

    model: str
    method: str
    accepted_tokens: tuple[float, ...]
    workload: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceBook:
    """All measured acceptances."""

    acceptances: tuple[AcceptanceFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferLinkFacts(Rule):
    """A way between two pools: GB/s of one machine, one way."""

    id: str
    title: str
    gb_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferLinkBook:
    """All ways between pools."""

    links: tuple[TransferLinkFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrafficShapeFacts(Rule):
    """Made-up traffic of a kind that has a name."""

    id: str
    title: str
    shape: TrafficShape


@dataclass(frozen=True, kw_only=True, slots=True)
class TrafficShapeBook:
    """All shapes of made-up traffic."""

    shapes: tuple[TrafficShapeFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedFacts:
    """All facts about speed."""

    model: SpeedModelFacts
    book: SpeedClassBook
    acceptances: tuple[AcceptanceFacts, ...]
    links: tuple[TransferLinkFacts, ...]
    shapes: tuple[TrafficShapeFacts, ...]
