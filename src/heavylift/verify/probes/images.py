"""Probes of pictures drawn by us, so that the right answer is known."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any, Final

from heavylift.media import media_url, plain_avi, tone_wav, wide_png
from heavylift.pictures import COLOURS, Shape, data_url, draw_number, draw_shape, encode_png
from heavylift.verify.judge import wrong_text
from heavylift.verify.probes.base import (
    REFUSED,
    Params,
    Probe,
    Situation,
    refused,
    shown,
    verdict,
)
from heavylift.verify.records import Trial
from heavylift.wire.failures import Failure

_NAMES: Final = ("red", "green", "blue", "black")


def _content(text: str, *urls: str) -> list[dict[str, Any]]:
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [*pictures, {"type": "text", "text": text}]


def shape(situation: Situation, params: Params) -> Probe:
    """Colours and shapes of `pictures` pictures are told, in their order."""
    count = params["pictures"]
    drawn = [
        (_NAMES[situation.pick(len(_NAMES))], list(Shape)[situation.pick(len(Shape))])
        for _ in range(count)
    ]
    urls = [data_url(draw_shape(figure, COLOURS[colour])) for colour, figure in drawn]
    question = "Which colour and shape (square, circle, triangle) is in each picture, in order?"
    route = params.get("route", "chat")
    (outcome,) = yield (situation.ask(_content(question, *urls), route=route),)
    unsupported = refused(outcome)
    if unsupported is not None:
        return unsupported
    failed = situation.failed(outcome)
    if failed is not None:
        return failed
    reasons = [wrong_text(outcome.reply, word) for pair in drawn for word in pair]
    return verdict(next(filter(None, reasons), None), outcome)


def number(situation: Situation, _: Params) -> Probe:
    """A number in large digits is read."""
    written = str(1000 + situation.pick(9000))
    content = _content("Which number is in the picture?", data_url(draw_number(written)))
    (outcome,) = yield (situation.ask(content),)
    unsupported = refused(outcome)
    if unsupported is not None:
        return unsupported
    return situation.failed(outcome) or verdict(wrong_text(outcome.reply, written), outcome)


def broken(situation: Situation, params: Params) -> Probe:
    """A picture that is none is refused, and the server lives on."""
    content = _content("What is in the picture?", params["url"])
    (outcome,) = yield (situation.ask(content),)
    (after,) = yield (situation.ask("What is 2 + 3? Answer with the number."),)
    failed = situation.failed(after)
    if failed is not None:
        return Trial(reason=failed.reason, evidence=f"afterwards: {failed.evidence}")
    answered = outcome.failure is None
    return Trial(reason="not_refused" if answered else None, evidence=shown(outcome))


def oversize(situation: Situation, params: Params) -> Probe:
    """A picture of very many pixels is seen or refused, and the server lives on.

    Params: `side` of the white square in pixels. A bomb for decoders that do not look first.
    """
    url = media_url("image/png", wide_png(params["side"]))
    (outcome,) = yield (situation.ask(_content("Which colour is the picture?", url)),)
    (after,) = yield (situation.ask("What is 2 + 3? Answer with the number."),)
    failed = situation.failed(after)
    if failed is not None:
        return Trial(reason=failed.reason, evidence=f"afterwards: {failed.evidence}")
    refusal = (Failure.BAD_REQUEST, Failure.CONTEXT_TOO_LONG, Failure.NOT_FOUND)
    fine = outcome.failure is None or outcome.failure in refusal
    return Trial(reason=None if fine else str(outcome.failure), evidence=shown(outcome))


def remote(situation: Situation, _: Params) -> Probe:
    """A picture behind an address is refused, or fetched and seen: which of them, is reported.

    A server that fetches what users name reaches what is near it, so refusing is no fault; one that
    answers without having fetched tells of a picture it never saw.
    """
    colour, figure = _NAMES[situation.pick(len(_NAMES))], list(Shape)[situation.pick(len(Shape))]
    host = situation.remote
    url = None if host is None else host.offer(encode_png(draw_shape(figure, COLOURS[colour])))
    if host is None or url is None:
        evidence = "a server elsewhere cannot reach a picture of this machine"
        return Trial(reason="not_reachable", evidence=evidence, undecided=True)
    question = "Which colour and shape (square, circle, triangle) is in the picture?"
    (outcome,) = yield (situation.ask(_content(question, url)),)
    fetched = host.was_fetched(url)
    if outcome.failure is not None and not fetched:
        return Trial(reason=str(outcome.failure), evidence=shown(outcome), unsupported=True)
    if not fetched:
        return verdict("never_fetched", outcome)
    failed = situation.failed(outcome)
    if failed is not None:
        return replace(failed, evidence=f"fetched: {failed.evidence}")
    reasons = [wrong_text(outcome.reply, word) for word in (colour, figure)]
    return verdict(next(filter(None, reasons), None), outcome)


def film(situation: Situation, _: Params) -> Probe:
    """Whether a film is taken is reported; where it is, its one colour is told.

    A part that is passed over without a word is told from one that was seen.
    """
    colour = _NAMES[situation.pick(len(_NAMES))]
    part = {"url": media_url("video/avi", plain_avi(COLOURS[colour]))}
    content = [
        {"type": "video_url", "video_url": part},
        {"type": "text", "text": "Which colour is the film? Answer with the colour."},
    ]
    (outcome,) = yield (situation.ask(content),)
    if outcome.failure in REFUSED:
        return Trial(reason=str(outcome.failure), evidence=shown(outcome), unsupported=True)
    failed = situation.failed(outcome)
    return failed or verdict(wrong_text(outcome.reply, colour), outcome)


def sound(situation: Situation, _: Params) -> Probe:
    """Whether sound is taken at all: reported, not demanded. It is half a second of a tone."""
    part = {"data": base64.b64encode(tone_wav()).decode(), "format": "wav"}
    content = [
        {"type": "input_audio", "input_audio": part},
        {"type": "text", "text": "What is this?"},
    ]
    (outcome,) = yield (situation.ask(content),)
    if outcome.failure is None:
        return verdict(None, outcome)
    return Trial(reason=str(outcome.failure), evidence=shown(outcome), unsupported=True)
