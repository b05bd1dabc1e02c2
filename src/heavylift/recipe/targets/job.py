"""A launch seen by a target: names, images, cards, machines and addresses, asked for in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.access_schema import CardAccess
from heavylift.records.finding import Finding, Severity
from heavylift.records.launch import SELF, LaunchSpec, RankSpec, Rendezvous, host_token, host_tokens
from heavylift.recipe.targets.records import Runtime, TargetOptions

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - inside a container of its own network only
API_PORT: Final = "api"

_ENGINE_ROLES: Final = ("serve", "prefill", "decode")
_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_FLOATING: Final = "latest"


@dataclass(frozen=True, kw_only=True)
class Job:
    """The launch spec, what the place adds, and how its cards are reached (None = no cards)."""

    spec: LaunchSpec
    options: TargetOptions
    access: CardAccess | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.options.name):
            raise HeavyliftError("REC101", {"name": self.options.name})
        names = [rank.name for rank in self.spec.ranks]
        if not names or len(set(names)) != len(names) or not all(map(_NAME.fullmatch, names)):
            raise HeavyliftError("REC102", {"names": ", ".join(names)})
        if self.access is None and any(rank.gpus for rank in self.spec.ranks):
            raise HeavyliftError("REC103", {"vendor": self.spec.gpu_vendor})

    # --- ranks -----------------------------------------------------------------------------------

    @property
    def ranks(self) -> tuple[RankSpec, ...]:
        """All processes, in order."""
        return self.spec.ranks

    def full_name(self, rank: RankSpec) -> str:
        """The name of a rank's service or container: unique on its machine."""
        return f"{self.options.name}-{rank.name}"

    @property
    def is_multi_node(self) -> bool:
        """True when ranks stand on more than one machine."""
        return len(self.machines) > 1

    @property
    def host_network(self) -> bool:
        """True when containers share the network of their machine: as said, else several do."""
        if self.spec.host_network is not None:
            return self.spec.host_network
        return self.is_multi_node

    @property
    def is_exposed(self) -> bool:
        """True when others than its own machine reach the service."""
        return self.spec.bind_host not in (None, *LOOPBACK)

    @staticmethod
    def loads_model(rank: RankSpec) -> bool:
        """True for an engine, False for what stands beside engines."""
        return rank.role in _ENGINE_ROLES

    def rank(self, name: str) -> RankSpec:
        """The rank of that name."""
        return next(rank for rank in self.ranks if rank.name == name)

    @cached_property
    def machines(self) -> dict[str, tuple[RankSpec, ...]]:
        """The ranks by machine; a machine goes by the name of its first rank.

        Ranks whose host is written the same share a machine. One that takes no cards and names no
        host of its own stands beside the first.
        """
        found: dict[str, list[RankSpec]] = {}
        first_on: dict[str, str] = {}
        for rank in self.ranks:
            if rank.host:
                place = first_on.setdefault(rank.host, rank.name)
            else:
                place = next(iter(found), rank.name) if rank.gpus == 0 else rank.name
            found.setdefault(place, []).append(rank)
        return {place: tuple(ranks) for place, ranks in found.items()}

    def machine_of(self, rank: RankSpec) -> str:
        """The machine of a rank."""
        return next(place for place, ranks in self.machines.items() if rank in ranks)

    def takes_cards(self, rank: RankSpec) -> bool:
        """True when the rank needs cards: a number of them, or nobody said."""
        return self.access is not None and rank.gpus != 0

    def rendezvous_of(self, rank: RankSpec) -> Rendezvous | None:
        """How the pool of the rank meets, None for a rank that meets nobody."""
        named = {each.name: each for each in self.ranks}
        for each in self.spec.rendezvous:
            if each.head == rank.name or (each.head in named and named[each.head].role == rank.role):
                return each
        return None

    def can_restart_alone(self, rank: RankSpec) -> bool:
        """True when starting this rank anew can help: its pool has no other that waits for it."""
        return sum(each.role == rank.role for each in self.ranks) == 1 or not self.rendezvous_of(
            rank
        )

    @property
    def serving(self) -> tuple[RankSpec, ...]:
        """The ranks that answer HTTP. Where none says so: those with an API port."""
        said = tuple(rank for rank in self.ranks if rank.serves)
        return said or tuple(
            rank for rank in self.ranks if rank.serves is None and API_PORT in rank.ports
        )

    def port(self, rank: RankSpec) -> int:
        """The port a serving rank answers on. Raises REC104 when none is known."""
        port = rank.ports.get(API_PORT) or self.spec.served_port
        if not port:
            raise HeavyliftError("REC104", {"rank": rank.name})
        return port

    def secrets(self) -> tuple[str, ...]:
        """Variables that hold secrets, of any rank, in order."""
        return tuple(dict.fromkeys(name for rank in self.ranks for name in rank.secrets))

    # --- time ------------------------------------------------------------------------------------

    @property
    def deadline_s(self) -> int:
        """By when it must be ready: the one number of every probe, unit and check."""
        return self.spec.deadline_s

    @property
    def stop_grace_s(self) -> int | None:
        """How long running requests may take to finish once it is told to stop."""
        return self.spec.stop_grace_s

    # --- images ----------------------------------------------------------------------------------

    def image(self, rank: RankSpec) -> str:
        """The reference of the rank's image, with its digest where known.

        Raises REC105 when no image is known and REC106 for one that floats.
        """
        written = rank.image or self.spec.image
        if written is None:
            raise HeavyliftError(
                "REC105", {"engine": self.spec.engine, "version": self.spec.engine_version}
            )
        if rank.image is None and self.spec.image_digest and "@" not in written:
            written = f"{written}@{self.spec.image_digest}"
        if "@" not in written and _tag(written) in {None, _FLOATING}:
            raise HeavyliftError("REC106", {"image": written})
        return written

    def runtime(self, otherwise: Runtime) -> Runtime:
        """What runs the ranks: as asked for, else `otherwise` where every rank has an image."""
        if self.options.runtime is not None:
            return self.options.runtime
        known = all(rank.image or self.spec.image for rank in self.ranks)
        return otherwise if known else Runtime.HOST

    # --- addresses -------------------------------------------------------------------------------

    def bound_to(self, address: str) -> Job:
        """The same launch with serving ranks that listen on `address`.

        Raises REC107 when a serving rank's command does not say where it listens.
        """
        if self.spec.bind_host == address:
            return self
        ranks = tuple(
            self._rebound(rank, address) if rank in self.serving else rank for rank in self.ranks
        )
        return replace(self, spec=replace(self.spec, bind_host=address, ranks=ranks))

    def _rebound(self, rank: RankSpec, address: str) -> RankSpec:
        words = list(rank.argv)
        old = self.spec.bind_host or LOOPBACK[0]
        for index, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if flag.startswith("-") and flag.endswith("host"):
                if equals and value == old:
                    words[index] = f"{flag}={address}"
                    return replace(rank, argv=tuple(words))
                if not equals and words[index + 1 : index + 2] == [old]:
                    words[index + 1] = address
                    return replace(rank, argv=tuple(words))
        raise HeavyliftError("REC107", {"rank": rank.name, "address": old})

    def needed_hosts(self, ranks: tuple[RankSpec, ...]) -> tuple[str, ...]:
        """Names of the ranks whose addresses these ranks must be told, in order."""
        needed = dict.fromkeys(
            rank.name if name == SELF else name
            for rank in ranks
            for text in (*rank.argv, *rank.env.values())
            for name in host_tokens(text)
        )
        return tuple(needed)

    # --- findings --------------------------------------------------------------------------------

    def findings(self, *, exposed: bool = False) -> tuple[Finding, ...]:
        """What is not right with the launch at any target.

        `exposed` True where the target itself opens the service to others.
        """
        if not (exposed or self.is_exposed):
            return ()
        return tuple(
            _finding("exposed_without_key", rank.name, observed=self.spec.bind_host)
            for rank in self.serving
            if not rank.secrets
        )

    def image_findings(self) -> tuple[Finding, ...]:
        """Images that are known by a tag only: what they hold may change."""
        references = dict.fromkeys(map(self.image, self.ranks))
        return tuple(
            _finding("image_by_tag", each, observed=each) for each in references if "@" not in each
        )


def _finding(rule: str, subject: str, *, observed: str | None) -> Finding:
    return Finding(
        id=rule, code="REC110", severity=Severity.WARN, subject=subject, observed=observed
    )


def _tag(reference: str) -> str | None:
    _, _, last = reference.rpartition("/")
    _, colon, tag = last.partition(":")
    return tag if colon else None


def pieces(text: str) -> tuple[tuple[str, str | None], ...]:
    """A word as (literal, name of the rank whose address follows it, None at the end)."""
    found: list[tuple[str, str | None]] = []
    for name in host_tokens(text):
        literal, _, text = text.partition(host_token(name))
        found.append((literal, name))
    return (*found, (text, None))


def host_variable(name: str) -> str:
    """The shell variable that holds the address of the rank of that name."""
    return "HOST_" + name.upper().replace("-", "_")
