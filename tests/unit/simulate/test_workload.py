"""Made-up traffic: near what was published of its kind, the same at any speed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from heavylift.planning import Planning
from heavylift.simulate.request import Request
from heavylift.simulate.workload import Conversations, sizes_of
from heavylift.stats import mean, quantile
from heavylift.traffic.draws import gamma
from heavylift.traffic.shape import TrafficShape


def shape(planning: Planning, name: str) -> TrafficShape:
    """A shipped shape."""
    (entry,) = [s for s in planning.catalog.speed().shapes if s.id == name]
    return entry.shape


def played(
    made: TrafficShape, stay: Callable[[Request], float], count: int = 30_000
) -> list[Request]:
    """Requests in order of arrival, each answered after `stay`; without the first tenth."""
    source = Conversations(made, 10.0, random.Random(4).random)
    arrivals = source.arrivals()
    coming = next(arrivals)
    later: list[tuple[float, int, Request]] = []
    found: list[Request] = []
    while len(found) < count:
        if later and later[0][0] < coming.arrival_s:
            request = heapq.heappop(later)[2]
        else:
            request, coming = coming, next(arrivals)
        found.append(request)
        following = source.follow(request, request.arrival_s + stay(request))
        if following is not None:
            heapq.heappush(later, (following.arrival_s, len(found), following))
    return found[count // 10 :]


def reuse(requests: list[Request]) -> float:
    """Prompt tokens that an endless cache would know."""
    known: dict[int, int] = {}
    spared = 0
    for request in requests:
        *shared, (session, own) = request.segments
        spared += sum(size for _, size in shared) + min(own, known.get(session, 0))
        known[session] = own + request.output_tokens
    return spared / sum(r.input_tokens for r in requests)


PUBLISHED = [
    # name, prompt (statistic, value), answer mean, reuse
    # Azure 2023 conversations; Mooncake conversation trace (FAST25); AgentX replay and ATOM's cache
    # hits. See design/0017.
    pytest.param("chat", ("mean", 1155), 211, (0.0, 0.01), id="chat"),
    pytest.param("conversation", ("mean", 12_035), 343, (0.30, 0.45), id="conversation"),
    pytest.param("agent", ("mean", 69_551), 552, (0.90, 0.98), id="agent"),
]


@pytest.mark.parametrize(("name", "prompt", "answer", "reused"), PUBLISHED)
def test_the_shapes_come_out_near_published_traffic(
    planning: Planning,
    name: str,
    prompt: tuple[str, float],
    answer: float,
    reused: tuple[float, float],
) -> None:
    """Mean sizes within a quarter, reuse in the range that was measured."""
    made = shape(planning, name)
    requests = played(made, lambda _: 10.0)
    assert mean([r.input_tokens for r in requests]) == pytest.approx(prompt[1], rel=0.25)
    assert mean([r.output_tokens for r in requests]) == pytest.approx(answer, rel=0.25)
    assert reused[0] <= reuse(requests) <= reused[1]


@pytest.mark.parametrize("name", ["chat", "conversation", "agent"])
def test_planned_sizes_are_near_the_drawn_ones(planning: Planning, name: str) -> None:
    """What a plan is made for is what comes."""
    made = shape(planning, name)
    requests = played(made, lambda _: 10.0)
    given, answer = sizes_of(made)
    assert mean([r.input_tokens for r in requests]) == pytest.approx(given, rel=0.3)
    assert mean([r.output_tokens for r in requests]) == pytest.approx(answer, rel=0.3)


def test_conversations_are_the_same_at_any_speed(planning: Planning) -> None:
    """What is asked in a conversation does not hang on how fast it is answered."""
    made = shape(planning, "conversation")
    turns = [
        {
            (r.session, r.turn): (r.input_tokens, r.output_tokens)
            for r in played(made, lambda _, stay=stay: stay, count=4000)  # type: ignore[misc]
        }
        for stay in (1.0, 60.0)
    ]
    both = turns[0].keys() & turns[1].keys()
    assert len(both) > 2000
    assert all(turns[0][key] == turns[1][key] for key in both)


@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0, 2.0])
def test_gaps_have_the_stated_mean_and_variation(variation: float) -> None:
    """The coefficient of variation of gamma gaps is the one asked for."""
    chance = random.Random(7).random
    gaps = [gamma(3.0, variation, chance) for _ in range(60_000)]
    average = mean(gaps)
    spread = mean([(gap - average) ** 2 for gap in gaps]) ** 0.5
    assert average == pytest.approx(3.0, rel=0.03)
    assert spread / average == pytest.approx(variation, rel=0.03, abs=0.01)
    assert quantile(sorted(gaps), 0.0) >= 0
