"""Records of a batch: what it was asked, where it stands, what its audit says."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from heavylift.batch.policy import Budget, Patience, RetryRules


class State(IntEnum):
    """Where a row stands. The numbers are in journals: never change one."""

    PENDING = 0
    SENT = 1
    """Claimed by a run and, as far as the journal knows, sent."""
    OK = 2
    FAILED = 3
    SKIPPED = 4
    """Will not be sent, for a stated reason: cancelled, over a limit, not valid."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks:
    """How long to wait, in seconds; None = for ever. Without streaming, the first byte comes with
    the whole answer.
    """

    connect_s: float | None = 10.0
    first_byte_s: float | None = 3600.0
    gap_s: float | None = 600.0
    total_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How a batch is run. Nothing in here changes what a row is.

    `concurrency` is a ceiling, or the number itself when `pinned`. `key_env` names the variable
    that holds the key, which is never stored. `drain_s`: how long a stop waits for answers.
    """

    endpoints: tuple[str, ...]
    key_env: str = "HEAVYLIFT_API_KEY"
    concurrency: int = 256
    pinned: bool = False
    stream: bool = False
    dedupe: bool = False
    keep_order: bool = False
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    drain_s: float = 30.0
    clocks: Clocks = field(default_factory=Clocks)
    retry: RetryRules = field(default_factory=RetryRules)
    patience: Patience = field(default_factory=Patience)
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What makes rows of an input: model, template, fixed fields. A change of it changes rows.

    `columns` maps names in the template to columns of the input. `id_prefix` begins the names of
    rows that have none of their own. `fields` join every body and win over its own. `only_url` is
    the one route that rows may name. `schema` is the JSON schema that every answer must match.
    """

    model: str | None = None
    url: str = "/v1/chat/completions"
    only_url: str | None = None
    template: str | None = None
    system: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    id_column: str | None = None
    id_prefix: str = ""
    fields: dict[str, object] = field(default_factory=dict)
    schema: dict[str, object] | None = None


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row to be sent: its line in the source, and where it lies in the spooled input.

    A Struct, like `Settled`, because one is made per row and a frozen dataclass costs thrice.
    """

    seq: int
    line: int
    at: int
    size: int


class Settled(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row that is done: its lines for the files, and what the journal keeps of it."""

    seq: int
    state: State
    line: bytes
    log: bytes
    attempts: int = 1
    reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Rows by state, and what they used, as the journal has it on disk."""

    input: int = 0
    pending: int = 0
    sent: int = 0
    ok: int = 0
    failed: int = 0
    skipped: int = 0
    resent: int = 0
    """Rows that a run had sent, or was about to, when it died; they were sent once more."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def left(self) -> int:
        """Rows that still have to be done."""
        return self.pending + self.sent


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """Whether everything is accounted for, read from the files themselves.

    `missing`: rows without an outcome, or whose recorded line is not where the journal says.
    `duplicates`: lines of the outputs beyond one per row. `unrecorded_bytes`: what lies behind the
    recorded end of a file after a crash; the next run cuts it off.
    """

    input: int
    ok: int
    failed: int
    skipped: int
    missing: int
    duplicates: int
    resent: int
    unrecorded_bytes: int
    shards_left: int = 0
    """Shards of a batch in shards that are not done: how many rows they hold is not known."""

    @property
    def sound(self) -> bool:
        """True when `ok + failed + skipped = input`, with nothing missing and nothing twice."""
        adds_up = self.ok + self.failed + self.skipped == self.input
        return adds_up and not (self.missing or self.duplicates or self.shards_left)


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """Where a batch stands. `reasons` counts failures and skips by class. `running` None = no run
    holds it, else the process that does.
    """

    folder: str
    counts: Counts
    reasons: dict[str, int]
    running: int | None
    cost_usd: float | None
    cancelled: bool
    shards_left: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """A run at one moment. Rates are over the last seconds, `eta_s` from them; None = unknown."""

    counts: Counts
    in_flight: int
    limit: int
    rows_per_s: float | None
    tokens_per_s: float | None
    eta_s: float | None
    waiting_for: str | None = None
    """The failure that keeps all endpoints closed at the moment."""
    answered: bool = False
    """An endpoint has answered in this run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a run ended. `stopped`: why before the end (`signal`, `cancelled`, a limit, or the
    failure of every endpoint); None = it did all there was to do.
    """

    folder: str
    endpoints: tuple[str, ...]
    audit: Audit
    reasons: dict[str, int]
    stopped: str | None
    elapsed_s: float
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None

    @property
    def all_failed(self) -> bool:
        """True when rows have failed and not one has succeeded."""
        return self.audit.failed > 0 and self.audit.ok == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What a batch would use, before it is sent. Tokens are counted by the server for a sample of
    rows where it can, else taken as a quarter of the bytes (`counted` says which).

    `completion_tokens_max` sums the limits that rows state; None = one states none. `hours`,
    `completion_tokens` and `cost_usd` need answers: None without a sample that was really sent.
    """

    rows: int
    prompt_tokens: int
    counted: bool
    completion_tokens_max: int | None
    sampled: int = 0
    completion_tokens: int | None = None
    hours: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Defect:
    """What is wrong with a line of the input: the line (from 1), a code, and details."""

    line: int
    problem: str
    detail: str = ""
