"""Pictures that are somewhere else, and films: what a server may answer, and what that proves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from heavylift.devserver.bad import bad_server
from heavylift.devserver.library import load
from heavylift.pictures import decode_png, read_shape
from heavylift.verify.probes.base import Ask, Server, Situation
from heavylift.verify.probes.images import film, remote
from heavylift.verify.records import Profile, Status, Trial, Verification
from heavylift.wire.client import Outcome
from heavylift.wire.failures import ErrorBody, Failure
from heavylift.wire.reply import Reply
from heavylift.wire.timing import Latency

URL = "http://127.0.0.1:1/0.png"


class Host:
    """A host of pictures that says it was asked, or not."""

    def __init__(self, *, fetched: bool, reachable: bool = True) -> None:
        self._fetched = fetched
        self._reachable = reachable
        self.offered: list[bytes] = []

    def offer(self, png: bytes) -> str | None:
        """One address for all."""
        self.offered.append(png)
        return URL if self._reachable else None

    def was_fetched(self, url: str) -> bool:
        """As it was made."""
        assert url == URL
        return self._fetched


def situation(host: Host | None) -> Situation:
    """One trial."""
    server = Server(model="m", listed=("m",), context_tokens=None, chars_per_token=4.0)
    return Situation(
        server=server,
        number=0,
        chance=random.Random(1).random,
        markers=(),
        answer_tokens=64,
        remote=host,
    )


def outcome(reply: Reply) -> Outcome:
    """What came back."""
    status = 200 if reply.failure is None else 400
    return Outcome(reply=reply, latency=Latency(), started_at=0.0, status=status)


def asked(probe: Any, answer: Callable[[Ask], Reply]) -> Trial:
    """The trial of a probe whose one question is answered so."""
    try:
        (ask,) = next(probe)
        probe.send((outcome(answer(ask)),))
    except StopIteration as end:
        trial: Trial = end.value
        return trial
    raise AssertionError


REFUSED = Reply(failure=Failure.BAD_REQUEST, error=ErrorBody(message="no addresses"))


@pytest.mark.parametrize(
    ("fetched", "sees", "reason", "unsupported"),
    [
        (True, True, None, False),
        (True, False, "wrong_answer", False),
        (False, True, "never_fetched", False),
        (False, None, "bad_request", True),
        (True, None, "bad_request", False),
    ],
)
def test_a_picture_behind_an_address(
    fetched: bool, sees: bool | None, reason: str | None, unsupported: bool
) -> None:
    """Fetched and seen; fetched and not seen; spoken of and never fetched; refused, with or
    without having been fetched.
    """
    host = Host(fetched=fetched)

    def answer(_: Ask) -> Reply:
        if sees is None:
            return REFUSED
        shape = read_shape(decode_png(host.offered[0]))
        assert shape is not None
        text = f"a {shape[1]} {shape[0]}" if sees else "a lighthouse"
        return Reply(text=text, finish_reason="stop")

    trial = asked(remote(situation(host), {}), answer)
    assert (trial.reason, trial.unsupported) == (reason, unsupported)


def test_another_machines_server_proves_nothing() -> None:
    """It cannot reach a picture of this one."""
    for host in (None, Host(fetched=False, reachable=False)):
        trial = asked(remote(situation(host), {}), lambda _: REFUSED)
        assert (trial.reason, trial.undecided) == ("not_reachable", True)


def test_a_film_that_is_passed_over_is_told_from_one_that_is_seen() -> None:
    """By its colour; a refusal is no fault."""
    assert asked(film(situation(None), {}), lambda _: REFUSED).unsupported
    blind = asked(film(situation(None), {}), lambda _: Reply(text="Hello.", finish_reason="stop"))
    assert blind.reason == "wrong_answer"


def test_a_server_that_takes_everything_is_reported_so(
    verify: Callable[..., Verification],
) -> None:
    """Fetches a picture, sees a film, hears a sound."""
    only = ("images.remote", "images.video", "images.audio")
    found = verify(load("obliging"), profile=Profile.ACCEPTANCE, only=only)
    assert [check.status for check in found.checks] == [Status.PASS] * 3
    assert all(check.rate == 1 for check in found.checks)
    blind = verify(bad_server("blind").scenario(), profile=Profile.ACCEPTANCE, only=only)
    film_check = next(check for check in blind.checks if check.id == "images.video")
    assert (film_check.status, set(film_check.reasons)) == (Status.WARN, {"wrong_answer"})
