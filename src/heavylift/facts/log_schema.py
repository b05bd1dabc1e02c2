"""Shapes of the facts on engines' logs: how far a start has come, and the memory it tells of."""

from __future__ import annotations

from dataclasses import dataclass, field

from heavylift.facts.schema import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class LogPhase(Rule):
    """A phase of a start, and the words of the lines it begins with.

    `progress` is a regular expression with the groups `done` and `total`, in `unit` (`shards`,
    `graphs`): what it finds is also a sign of the phase.
    """

    engine: str
    phase: str
    anchors: tuple[str, ...]
    progress: str | None = None
    unit: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LogTerm(Rule):
    """A line that tells a memory term: the bytes of it are the group `size`, in `unit`.

    `term` is a plan's term, or `pool`: all an engine took for what grows with use. Of several
    lines of one device the one named by `keep` counts, `first` (a drafter's pool comes after the
    model's) or `last` (a log that goes through its set-up twice); patterns of one term add up, but
    for an `alternative`, which says again what another pattern may have said.
    """

    engine: str
    term: str
    pattern: str
    unit: str
    keep: str = "last"
    alternative: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFigure(Rule):
    """A number of a log that is no memory term: `kv_tokens`, `most_sequences`, `block_tokens`.
    `adds_up`: each replica tells its own.
    """

    engine: str
    figure: str
    pattern: str
    adds_up: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LogVersion(Rule):
    """How an engine says which version it is: the group `version` of `pattern`."""

    engine: str
    pattern: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LogRank(Rule):
    """How an engine names the rank that wrote a line: the group `rank` of `pattern`."""

    engine: str
    pattern: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LogAddress(Rule):
    """How an engine says where it listens: the group `url` or `port` of `pattern`."""

    engine: str
    pattern: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LogDecode(Rule):
    """A line that an engine writes now and then about its speed.

    Groups of `pattern`: `running` sequences and `rate`, output tokens per second of all; where
    told, `waiting`, `prompt_rate`, and what the cache holds: `tokens`, or `usage` in percent.
    """

    engine: str
    pattern: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LogBuffers(Rule):
    """An engine that prints its memory buffer by buffer and pass by pass, as llama.cpp's library
    does: no pattern adds that up, `telemetry.llamacpp` does. `sign` is in the lines of every start.
    """

    engine: str
    sign: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LogBook:
    """What is known of the logs of engines. `same_as`: an engine that has another's log."""

    phases: tuple[LogPhase, ...]
    terms: tuple[LogTerm, ...] = ()
    figures: tuple[LogFigure, ...] = ()
    ranks: tuple[LogRank, ...] = ()
    addresses: tuple[LogAddress, ...] = ()
    versions: tuple[LogVersion, ...] = ()
    decodes: tuple[LogDecode, ...] = ()
    buffers: tuple[LogBuffers, ...] = ()
    same_as: dict[str, str] = field(default_factory=dict)

    def writer(self, engine: str) -> str:
        """The engine in whose words the log of `engine` is: itself, or another."""
        return self.same_as.get(engine, engine)

    def tells_buffers(self, engine: str) -> bool:
        """True for a log whose memory is told buffer by buffer."""
        return self.writer(engine) in {each.engine for each in self.buffers}


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartRule(Rule):
    """Cause classes of a failure, and whether starting again can help."""

    causes: tuple[str, ...]
    helps: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartBook:
    """All that is known of it."""

    restarts: tuple[RestartRule, ...]
