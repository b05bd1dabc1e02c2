"""Every bad server is caught by the right check with the right name; a healthy one by none."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from heavylift.devserver.bad import BAD_SERVERS, BadServer, bad_server
from heavylift.devserver.library import load
from heavylift.devserver.scenario import Defect, FaultKind, Pace
from heavylift.errors import HeavyliftError
from heavylift.verify.records import Profile, Status, Verification
from heavylift.verify.suites import shipped

HEALTHY_RUNS = 50


@pytest.mark.parametrize("server", BAD_SERVERS, ids=lambda server: server.name)
def test_a_bad_server_is_caught_by_the_right_check_with_the_right_name(
    verify: Callable[..., Verification], server: BadServer
) -> None:
    """And the whole verification fails, or warns where the check only warns."""
    profile = Profile(server.profile)
    only = () if server.fault is None and not server.is_front else (server.caught_by,)
    against = load("obliging") if server.is_front else None
    verification = verify(server.scenario(), profile=profile, only=only, against=against)
    check = next(check for check in verification.checks if check.id == server.caught_by)
    assert check.status in (Status.FAIL, Status.WARN)
    assert max(check.reasons, key=lambda name: check.reasons[name]) == server.called
    assert check.rate is not None
    assert check.rate < check.required_rate
    assert check.evidence
    assert verification.verdict in (Status.FAIL, Status.WARN)


def test_a_healthy_server_is_never_accused(verify: Callable[..., Verification]) -> None:
    """In fifty runs with other questions each time."""
    for seed in range(HEALTHY_RUNS):
        verification = verify(load("obliging"), seed=seed, against=load("obliging"))
        accused = [check for check in verification.checks if check.reasons]
        # The scripted engine has no completions route; that is no accusation.
        assert [check.id for check in accused] == ["basics.completions"], seed
        assert verification.verdict is Status.PASS


def test_a_healthy_server_passes_acceptance(verify: Callable[..., Verification]) -> None:
    """Every check of the long profile, each rung of the ladder up to the limit of 16k."""
    verification = verify(load("obliging"), profile=Profile.ACCEPTANCE)
    assert verification.verdict is Status.PASS
    rungs = [check.id for check in verification.checks if check.id.startswith("context.")]
    assert rungs[:3] == ["context.2k", "context.10k", "context.16k"]
    assert rungs[3:] == ["context.over_long", "context.just_over"]
    assert all(
        "prefill_tokens_per_s" in c.figures for c in verification.checks if c.id in rungs[:3]
    )


def test_a_rung_of_the_ladder_says_how_full_the_cache_was(
    verify: Callable[..., Verification],
) -> None:
    """As the engine's own metrics told while the prompt was read."""
    healthy = load("obliging")
    server = msgspec.structs.replace(healthy.server, kv_use_ratio=0.37)
    slow = msgspec.structs.replace(healthy, server=server, pace=Pace(ttft_s=0.05))
    verification = verify(slow, only=("context",))
    (rung,) = [check for check in verification.checks if check.id == "context.2k"]
    assert rung.figures["kv_use_ratio"] == pytest.approx(0.37)


def test_every_defect_and_every_fault_of_a_reply_has_a_bad_server() -> None:
    """Nothing that a scripted engine can do wrong goes without a check that must catch it."""
    assert {server.defect for server in BAD_SERVERS if server.defect} == set(Defect)
    harmless = {
        FaultKind.SPLIT_UTF8,  # correct: only a client could stumble
        FaultKind.SLOW_HEADERS,  # slow is not wrong
        FaultKind.CONTEXT_TOO_LONG,  # a rejection like others, with its own check
        FaultKind.DIE,  # as a drop, for all
        FaultKind.FREEZE,  # a hang for all: its supervisor finds it
    }
    played = {server.fault.kind for server in BAD_SERVERS if server.fault}
    assert played == set(FaultKind) - harmless
    assert {server.caught_by.partition(".")[0] for server in BAD_SERVERS} == {
        check.group for check in shipped()
    }


def test_a_bad_server_that_is_not_there_is_an_error() -> None:
    """With the command that lists them."""
    with pytest.raises(HeavyliftError, match="DEV005") as caught:
        bad_server("nothing")
    assert caught.value.hint_command == "heavylift dev bad-server --list"
