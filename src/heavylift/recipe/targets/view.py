"""A launch as a target sees it: names, images, cards, machines and addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.access_schema import CardAccess
from heavylift.recipe.targets.records import Runtime, TargetOptions
from heavylift.records.finding import Finding, Severity
from heavylift.records.launch import SELF, LaunchSpec, RankSpec, Rendezvous, host_token, host_tokens

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - inside a container of its own network only
API_PORT: Final = "api"

_SEVERITY: Final = {
    "exposed_without_key": Severity.WARN,
    "image_by_tag": Severity.WARN,
    "image_of_the_engine": Severity.UNKNOWN,
    "installed_at_start": Severity.INFO,
    "model_not_kept": Severity.WARN,
    "not_reachable": Severity.FAIL,
}
ENGINES: Final = "engines"
"""Stands for every role that loads the model."""

_IMAGE_NOTES: Final = ("no_image", "image_by_tag", "published_image")
_ENGINE_ROLES: Final = ("serve", "prefill", "decode")
_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_TOKEN: Final = re.compile(r"\{(host|file):([A-Za-z0-9._-]+)\}")
_FLOATING: Final = re.compile(r"(?:^|[-_.])(?:latest|nightly|main|master|edge)(?:$|[-_.])")
PLAIN_PYTHON: Final = "python:3.12-slim"
"""What a program that is known as a package alone runs in."""
# The requirement and the program's words follow as arguments: nothing of them is in the script.
_FROM_PACKAGE: Final = 'python3 -m pip install --quiet --no-cache-dir "$0" && exec "$@"'


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Ranks that meet each other (`rendezvous`), head first; or one that meets nobody."""

    rendezvous: Rendezvous | None
    ranks: tuple[RankSpec, ...]

    @property
    def head(self) -> RankSpec:
        """The rank the others need."""
        return self.ranks[0]


@dataclass(frozen=True, kw_only=True)
class LaunchView:
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
        for rank in self.spec.ranks:
            for text in (*rank.argv, *rank.env.values()):
                for _, token in pieces(text):
                    if token is not None and not self._knows(token):
                        raise HeavyliftError("REC114", {"rank": rank.name, "name": token.name})
        if self.access is None and any(rank.gpus for rank in self.spec.ranks):
            raise HeavyliftError("REC103", {"vendor": self.spec.gpu_vendor})

    def _knows(self, token: Token) -> bool:
        if token.kind == "file":
            return token.name in self.spec.files
        return token.name == SELF or any(token.name == rank.name for rank in self.spec.ranks)

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
            if self.is_placed(rank):
                place = first_on.setdefault(rank.host, rank.name)
            else:
                place = next(iter(found), rank.name) if rank.gpus == 0 else rank.name
            found.setdefault(place, []).append(rank)
        return {place: tuple(ranks) for place, ranks in found.items()}

    @staticmethod
    def is_placed(rank: RankSpec) -> bool:
        """True when the host of a rank is stated: a name of its own stands for none."""
        return rank.host not in ("", rank.name)

    def machine_of(self, rank: RankSpec) -> str:
        """The machine of a rank."""
        return next(place for place, ranks in self.machines.items() if rank in ranks)

    def takes_cards(self, rank: RankSpec) -> bool:
        """True when the rank needs cards: a number of them, or nobody said."""
        return self.access is not None and rank.gpus != 0

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The ranks in groups that start and fall together, in order.

        A head opens a pool of its role; ranks of that role join it until the next head. Who meets
        nobody is a pool of one.
        """
        heads = {each.head: each for each in self.spec.rendezvous}
        found: list[tuple[Rendezvous | None, list[RankSpec]]] = []
        open_pools: dict[str, list[RankSpec]] = {}
        for rank in self.ranks:
            if rank.name not in heads and rank.role in open_pools:
                open_pools[rank.role].append(rank)
                continue
            members = [rank]
            found.append((heads.get(rank.name), members))
            if rank.name in heads:
                open_pools[rank.role] = members
        return tuple(Pool(rendezvous=rendezvous, ranks=tuple(ranks)) for rendezvous, ranks in found)

    def pool_of(self, rank: RankSpec) -> Pool:
        """The pool of a rank."""
        return next(pool for pool in self.pools if rank in pool.ranks)

    def can_restart_alone(self, rank: RankSpec) -> bool:
        """True when starting this rank anew can help: no other of its pool waits for it."""
        return len(self.pool_of(rank).ranks) == 1

    def gpus(self, rank: RankSpec) -> int:
        """The cards a rank asks a cluster for. Raises REC109 when nobody says how many."""
        count = self.spec.gpus_per_node if rank.gpus is None else rank.gpus
        if count is None:
            raise HeavyliftError("REC109", {"rank": rank.name})
        return count

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

    def deadline_settings(self, rank: RankSpec) -> tuple[str, ...]:
        """Variables and flags of a rank that hold the deadline."""
        text = str(self.deadline_s)
        flags = [
            word.partition("=")[0]
            for word, value in zip(rank.argv, (*rank.argv[1:], ""), strict=True)
            if word.startswith("-") and text in (value, word.partition("=")[2])
        ]
        return (*(name for name in sorted(rank.env) if rank.env[name] == text), *flags)

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
        if "@" not in written and floats(written):
            raise HeavyliftError("REC106", {"image": written})
        return written

    def packaged(self) -> LaunchView:
        """The launch for containers: what no image is known to hold is installed into a plain one,
        in its pinned version, when it starts.
        """
        ranks = tuple(
            replace(
                rank,
                image=PLAIN_PYTHON,
                argv=("sh", "-c", _FROM_PACKAGE, rank.package, *rank.argv),
            )
            if rank.package is not None and rank.image is None
            else rank
            for rank in self.ranks
        )
        return replace(self, spec=replace(self.spec, ranks=ranks))

    def runtime(self, otherwise: Runtime) -> Runtime:
        """What runs the ranks: as asked for, else `otherwise` where every rank has an image."""
        if self.options.runtime is not None:
            return self.options.runtime
        known = all(map(self._has_image, self.packaged().ranks))
        return otherwise if known else Runtime.HOST

    def _has_image(self, rank: RankSpec) -> bool:
        """True when an image is known that does not move."""
        written = rank.image or self.spec.image
        return written is not None and (
            "@" in written
            or (rank.image is None and self.spec.image_digest is not None)
            or not floats(written)
        )

    # --- addresses -------------------------------------------------------------------------------

    def bound_to(self, address: str) -> LaunchView:
        """The same launch with ranks that listen on `address`.

        Raises REC107 when a serving rank's command does not say where it listens.
        """
        ranks = tuple(self._rebound(rank, address) for rank in self.ranks)
        return replace(self, spec=replace(self.spec, bind_host=address, ranks=ranks))

    def listens_on(self, rank: RankSpec) -> str | None:
        """Where a rank's command or environment says it listens; else where the launch does (None =
        not said).
        """
        place = self._bind_place(rank)
        if isinstance(place, int):
            return rank.argv[place].rpartition("=")[2]
        if place is not None:
            return rank.env[place].removesuffix(f":{self.port(rank)}")
        return self.spec.bind_host

    def _rebound(self, rank: RankSpec, address: str) -> RankSpec:
        place = self._bind_place(rank)
        if isinstance(place, int):
            words = list(rank.argv)
            flag, equals, _ = words[place].rpartition("=")
            words[place] = f"{flag}{equals}{address}"
            return replace(rank, argv=tuple(words))
        if place is not None:
            return replace(rank, env={**rank.env, place: f"{address}:{self.port(rank)}"})
        if rank in self.serving:
            raise HeavyliftError("REC107", {"rank": rank.name})
        return rank

    def _bind_place(self, rank: RankSpec) -> int | str | None:
        """The word, or the variable, that holds the address a rank listens on: its own, or one of
        this machine. A variable holds the port as well.
        """
        known = {self.spec.bind_host, host_token(SELF), host_token(rank.name), EVERYWHERE}
        known |= {*LOOPBACK}
        for index, word in enumerate(rank.argv):
            flag, equals, value = word.partition("=")
            if not (flag.startswith("-") and flag.endswith("host")):
                continue
            if equals and value in known:
                return index
            if not equals and index + 1 < len(rank.argv) and rank.argv[index + 1] in known:
                return index + 1
        if rank not in self.serving:
            return None
        written = {f"{address}:{self.port(rank)}" for address in known}
        return next((name for name in sorted(rank.env) if rank.env[name] in written), None)

    def chosen_by_the_cluster(self) -> None:
        """Raise REC115 when hosts are stated although the target leaves them to a cluster."""
        placed = [rank.host for rank in self.ranks if self.is_placed(rank)]
        if placed and len(self.ranks) > 1:
            raise HeavyliftError("REC115", {"hosts": ", ".join(dict.fromkeys(placed))})

    def on_host(self, rank: RankSpec) -> RankSpec:
        """The rank without a container: folders go by their paths on the host."""
        model = (self.spec.model_mount,) if self.spec.model_mount is not None else ()
        moved = [*model, *self.spec.cache_mounts, *rank.mounts]

        def moved_word(text: str) -> str:
            for mount in moved:
                inside = rf"(?<![\w./-]){re.escape(mount.target)}(?![\w.-])"
                text = re.sub(inside, _literally(mount.source), text)
            return text

        return replace(
            rank,
            argv=tuple(map(moved_word, rank.argv)),
            env={name: moved_word(text) for name, text in rank.env.items()},
        )

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
        found = []
        for rank in self.serving:
            at = self.listens_on(rank)
            if (exposed or at not in (None, *LOOPBACK)) and not rank.secrets:
                shown = None if exposed or pieces(at or "")[0][1] is not None else at
                found.append(_finding("exposed_without_key", rank.name, observed=shown))
            asked = self._asked_from_elsewhere(rank)
            if asked and not exposed and at in LOOPBACK:
                found.append(_finding("not_reachable", rank.name, observed=at, expected=asked))
        return tuple(found)

    def _asked_from_elsewhere(self, rank: RankSpec) -> str | None:
        """A rank of another machine whose command asks this one's API."""
        asked = f"{host_token(rank.name)}:{rank.ports.get(API_PORT) or self.spec.served_port}"
        for other in self.ranks:
            elsewhere = self.machine_of(other) != self.machine_of(rank)
            if elsewhere and any(asked in text for text in (*other.argv, *other.env.values())):
                return other.name
        return None

    def image_findings(self) -> tuple[Finding, ...]:
        """Images that are known by a tag only: what they hold may change."""
        references = dict.fromkeys(map(self.image, self.ranks))
        tags = (
            _finding("image_by_tag", each, observed=each) for each in references if "@" not in each
        )
        borrowed = (
            _finding("image_of_the_engine", rank.name, observed=rank.argv[0])
            for rank in self.ranks
            if not self.loads_model(rank) and rank.image is None
        )
        installed = (
            _finding("installed_at_start", rank.name, observed=rank.package)
            for rank in self.ranks
            if rank.package is not None and rank.image == PLAIN_PYTHON
        )
        return (*tags, *borrowed, *installed)

    def kept_findings(self) -> tuple[Finding, ...]:
        """A model that every new pod fetches again, for want of a claim that keeps it."""
        if self.spec.model_mount is not None or self.options.cache_claim is not None:
            return ()
        return (_finding("model_not_kept", self.spec.model, observed=self.spec.model_path),)


def _literally(text: str) -> str:
    """A text as the replacement of a pattern."""
    return text.replace("\\", r"\\")


def _finding(
    rule: str, subject: str, *, observed: str | None, expected: str | None = None
) -> Finding:
    return Finding(
        id=rule,
        code=rule,
        severity=_SEVERITY[rule],
        subject=subject,
        observed=observed,
        expected=expected,
    )


def floats(reference: str) -> bool:
    """True for an image whose publisher moves its tag, or that has none."""
    tag = _tag(reference)
    return tag is None or _FLOATING.search(tag) is not None


def _tag(reference: str) -> str | None:
    _, _, last = reference.rpartition("/")
    _, colon, tag = last.partition(":")
    return tag if colon else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """What stands for an address (`host`) or a file of the recipe's folder (`file`) in a word."""

    kind: str
    name: str


def with_images(spec: LaunchSpec, images: Mapping[str, str]) -> LaunchSpec:
    """The launch with images of the user's, by role; those of `ENGINES` for all that load the
    model. What was remarked about images that are not taken goes.
    """
    stated = images.get(ENGINES)
    if stated is not None:
        reference, _, digest = stated.partition("@")
        notes = tuple(note for note in spec.notes if note.code not in _IMAGE_NOTES)
        spec = replace(spec, image=reference, image_digest=digest or None, notes=notes)
    ranks = tuple(replace(rank, image=images.get(rank.role, rank.image)) for rank in spec.ranks)
    return replace(spec, ranks=ranks)


def pieces(text: str) -> tuple[tuple[str, Token | None], ...]:
    """A word as (literal, the token that follows it, None at the end)."""
    found: list[tuple[str, Token | None]] = []
    end = 0
    for match in _TOKEN.finditer(text):
        found.append((text[end : match.start()], Token(kind=match[1], name=match[2])))
        end = match.end()
    return (*found, (text[end:], None))


def used_files(rank: RankSpec) -> tuple[str, ...]:
    """Names of the recipe's files that a rank reads, in order."""
    return tuple(
        dict.fromkeys(
            token.name
            for text in (*rank.argv, *rank.env.values())
            for _, token in pieces(text)
            if token is not None and token.kind == "file"
        )
    )


def host_variable(name: str) -> str:
    """The shell variable that holds the address of the rank of that name."""
    return "HOST_" + name.upper().replace("-", "_")
