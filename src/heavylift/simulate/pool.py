"""A replica's KV memory: what active sequences hold, and what a prefix cache keeps of others."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from heavylift.simulate.request import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """What a replica holds, in tokens of KV.

    `state_tokens` is what a sequence's recurrent state takes of the same pool, as tokens; a kept
    prefix has a state of its own at its end. `seats` bounds sequences, None = only the pool does.
    `spared_ratio` is a part of each prompt's new tokens that is taken as known besides.
    """

    tokens: int
    seats: int | None = None
    state_tokens: int = 0
    block_tokens: int = 1
    caches_prefixes: bool = True
    spared_ratio: float = 0.0


class _Entry:
    """A kept part of a prompt: its tokens, with its state if it ends a prompt, and its users."""

    __slots__ = ("state", "tokens", "users")

    def __init__(self, tokens: int, state: int) -> None:
        self.tokens = tokens
        self.state = state
        self.users = 1


class Pool:
    """Tokens in use and kept. What several sequences share is counted once.

    A sequence takes whole blocks when it is admitted; the unused rest of its last block stays
    counted while it grows: right on average, off by at most a block per sequence.
    """

    __slots__ = ("_entries", "_kept", "_unused", "evictions", "room", "used")

    def __init__(self, room: Room) -> None:
        self.room = room
        self.used = 0
        self.evictions = 0
        self._kept = 0
        self._entries: dict[int, _Entry] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        """Tokens that no active sequence holds: kept prefixes give way."""
        return self.room.tokens - self.used

    @property
    def kept(self) -> int:
        """Tokens of prefixes that nobody uses now."""
        return self._kept

    def known(self, name: int) -> bool:
        """True when this part of a prompt is held."""
        return name in self._entries

    def admit(self, request: Request, tokens: int) -> int | None:
        """Takes the room of a sequence of `tokens`; how many of them were there already.

        None, and nothing taken, when there is no room.
        """
        room, entries = self.room, self._entries
        found: list[int] = []
        cached = woken = 0
        for name, size in request.segments:
            entry = entries.get(name)
            if entry is None:
                break
            found.append(name)
            cached += min(size, entry.tokens)
            if not entry.users:
                woken += entry.tokens + entry.state
            if entry.tokens < size:
                break
        # The last token of a prompt is computed: its output is the first of the answer.
        cached = min(cached, tokens - 1)
        block = room.block_tokens
        fresh = -(-(tokens + 1 - cached) // block) * block + room.state_tokens
        if self.used + woken + fresh > room.tokens:
            return None
        for name in found:
            entry = entries[name]
            if not entry.users:
                del self._unused[name]
                self._kept -= entry.tokens + entry.state
            entry.users += 1
        request.held = found
        request.reserved = fresh
        self.used += woken + fresh
        if self.used + self._kept > room.tokens:
            self._shrink()
        return cached + int((tokens - cached) * room.spared_ratio)

    def publish(self, request: Request) -> None:
        """The prompt is computed: what was new of it may be shared from now on."""
        entries, held, segments = self._entries, request.held, request.segments
        if not self.room.caches_prefixes:
            return
        last = len(segments) - 1
        for index in range(len(held), last + 1):
            name, size = segments[index]
            state = self.room.state_tokens if index == last else 0
            if name in entries or self.used + state > self.room.tokens:
                return
            entries[name] = _Entry(size, state)
            held.append(name)
            request.reserved -= size
            self.used += state
        if self.used + self._kept > self.room.tokens:
            self._shrink()

    def grow(self, request_tokens: int) -> None:
        """More tokens of active sequences, in sum."""
        self.used += request_tokens
        if self.used + self._kept > self.room.tokens:
            self._shrink()

    def release(self, request: Request, grown: int) -> None:
        """Gives back what a sequence holds, with the `grown` tokens it took since it was admitted.

        Shared parts that nobody else uses stay, the longest unused going first when room is needed.
        The answer stays with a conversation.
        """
        entries, held = self._entries, request.held
        self.used -= request.reserved + grown
        if request.grows and request.made and held and len(held) == len(request.segments):
            entry = entries[held[-1]]
            whole = request.segments[-1][1] + request.made
            if whole > entry.tokens:
                self.used += whole - entry.tokens
                entry.tokens = whole
        for name in held:
            entry = entries[name]
            entry.users -= 1
            if not entry.users:
                size = entry.tokens + entry.state
                self.used -= size
                self._kept += size
                self._unused[name] = None
        request.held = []
        request.reserved = 0
        if self.used + self._kept > self.room.tokens:
            self._shrink()

    def _shrink(self) -> None:
        over = self.used + self._kept - self.room.tokens
        while over > 0 and self._unused:
            name, _ = self._unused.popitem(last=False)
            entry = self._entries.pop(name)
            size = entry.tokens + entry.state
            self._kept -= size
            self.evictions += 1
            over -= size
