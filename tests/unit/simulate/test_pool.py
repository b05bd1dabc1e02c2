"""A replica's memory: what is held, shared, kept and given up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from heavylift.simulate.pool import Pool, Room
from heavylift.simulate.request import Request

ROOM = 1000


def asked(tokens: int, *segments: tuple[int, int], grows: bool = False) -> Request:
    """A request of so many prompt tokens."""
    return Request(0.0, tokens, 10, tuple(segments), grows=grows)


def test_what_an_earlier_prompt_left_is_found() -> None:
    """The second request with the same beginning computes only what is new."""
    pool = Pool(Room(tokens=ROOM))
    first = asked(300, (1, 200), (2, 100))
    assert pool.admit(first, 300) == 0
    pool.publish(first)
    pool.release(first, 0)
    second = asked(350, (1, 200), (3, 150))
    assert pool.admit(second, 350) == 200


def test_prefixes_are_shared_while_both_run() -> None:
    """Shared tokens are counted once."""
    pool = Pool(Room(tokens=ROOM))
    first, second = asked(401, (1, 400)), asked(401, (1, 400))
    pool.admit(first, 401)
    pool.publish(first)
    before = pool.used
    assert pool.admit(second, 401) == 400
    assert pool.used == before + 2


def test_a_conversation_keeps_its_answer() -> None:
    """The next turn finds prompt and answer of the last."""
    pool = Pool(Room(tokens=ROOM))
    first = asked(100, (7, 100), grows=True)
    pool.admit(first, 100)
    pool.publish(first)
    first.made = 50
    pool.grow(50)
    pool.release(first, 50)
    assert pool.used == 0
    assert pool.admit(asked(180, (7, 180), grows=True), 180) == 150


def test_the_longest_unused_goes_first() -> None:
    """When room is needed, the oldest kept prefix is given up."""
    pool = Pool(Room(tokens=ROOM))
    for name in (1, 2):
        request = asked(400, (name, 400))
        pool.admit(request, 400)
        pool.publish(request)
        pool.release(request, 0)
    pool.admit(asked(500), 500)
    assert not pool.known(1)
    assert pool.known(2)


def test_what_finds_no_room_takes_none() -> None:
    """A refused admission leaves the pool as it was."""
    pool = Pool(Room(tokens=ROOM))
    pool.admit(asked(900), 900)
    before = pool.used
    assert pool.admit(asked(200), 200) is None
    assert pool.used == before


def test_blocks_and_state_count() -> None:
    """A sequence takes whole blocks and its state."""
    pool = Pool(Room(tokens=ROOM, block_tokens=64, state_tokens=100))
    pool.admit(asked(64), 64)
    assert pool.used == 2 * 64 + 100


class Uses(RuleBasedStateMachine):
    """Any order of admissions, growth and ends."""

    @initialize(block=st.sampled_from([1, 16]), state=st.sampled_from([0, 37]))
    def start(self, block: int, state: int) -> None:
        """An empty pool."""
        self.pool = Pool(Room(tokens=ROOM, block_tokens=block, state_tokens=state))
        self.running: list[tuple[Request, int]] = []

    @rule(first=st.integers(1, 6), own=st.integers(10, 14), size=st.integers(1, 300))
    def admit(self, first: int, own: int, size: int) -> None:
        """A request with a shared beginning and an end of its own."""
        request = asked(50 + size, (first, 50), (own, size), grows=True)
        if self.pool.admit(request, 50 + size) is not None:
            self.pool.publish(request)
            self.running.append((request, 0))

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 100), grown=st.integers(1, 30))
    def grow(self, index: int, grown: int) -> None:
        """An answer goes on, where there is room."""
        if self.pool.free < grown:
            return
        index %= len(self.running)
        request, before = self.running[index]
        self.running[index] = (request, before + grown)
        request.made += grown
        self.pool.grow(grown)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 100))
    def end(self, index: int) -> None:
        """An answer ends."""
        request, grown = self.running.pop(index % len(self.running))
        self.pool.release(request, grown)

    @invariant()
    def adds_up(self) -> None:
        """Nothing is counted below zero, and nothing kept is more than fits."""
        assert self.pool.used >= 0
        assert self.pool.kept >= 0
        assert self.pool.used + self.pool.kept <= ROOM
        if not self.running:
            assert self.pool.used == 0


TestUses = Uses.TestCase


@given(st.integers(1, 400))
def test_the_last_token_of_a_prompt_is_always_computed(size: int) -> None:
    """A prompt that is known whole still makes its first token."""
    pool = Pool(Room(tokens=ROOM))
    first = asked(size, (1, size))
    pool.admit(first, size)
    pool.publish(first)
    pool.release(first, 0)
    assert pool.admit(asked(size, (1, size)), size) == size - 1
