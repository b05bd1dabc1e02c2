"""Verification and benchmark of a real engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from heavylift.bench import run as bench
from heavylift.bench.files import shipped_prose
from heavylift.bench.prompts import Workload
from heavylift.bench.records import Load, LoadKind
from heavylift.facts.catalog import Catalog
from heavylift.launch.embedded import launch
from heavylift.launch.runner import Served, serve
from heavylift.quality import run as quality
from heavylift.quality.records import Comparison, Question, Verdict
from heavylift.recipe.engines import embedded
from heavylift.recipe.engines.embedded import EmbeddedSettings
from heavylift.records.served_model import ServedModel
from heavylift.verify import run as verify
from heavylift.verify.records import CheckResult, Profile, Status
from heavylift.verify.suites import shipped
from heavylift.wire.client import Endpoint, Limits

pytestmark = pytest.mark.e2e

Serve = Callable[[EmbeddedSettings], AbstractContextManager[Served]]

CAPABLE_OF = (
    "basics.models",
    "basics.stream",
    "basics.whole",
    "basics.usage_stream",
    "basics.usage_whole",
    "basics.length",
    "basics.parity",
    "basics.cancel",
    "basics.concurrency",
    "basics.completions",
    "context.over_long",
)
"""What a model of 135 million parameters can do: the protocol, not the answers."""


@pytest.fixture
def settings(smollm2: Path) -> EmbeddedSettings:
    """SmolLM2 in two slots."""
    return EmbeddedSettings(model_path=str(smollm2), model="smollm2", slot_tokens=2048, slots=2)


def test_a_real_engine_passes_what_a_small_model_can_do(
    start: Serve, settings: EmbeddedSettings, api_key: str
) -> None:
    """Protocol, counts, limits, cancellation; what it cannot do fails without stopping the rest."""
    with start(settings) as served:
        wish = verify.Wish(
            endpoint=Endpoint.parse(served.address, api_key),
            checks=shipped(),
            profile=Profile.SMOKE,
            prose=shipped_prose(),
            markers=tuple(m for each in Catalog().reply_formats() for m in each.markers),
            model="smollm2",
            skip=("tools", "structured", "images", "reasoning", "context.ladder"),
            answer_tokens=24,
            concurrency=2,
        )
        verification = asyncio.run(verify.run(wish, lambda _: None))
    found = {check.id: check for check in verification.checks}
    broken = {name: found[name] for name in CAPABLE_OF if found[name].status is not Status.PASS}
    assert not broken
    assert verification.subject.engine == "llamacpp"
    assert verification.subject.context_tokens == 2048


def test_the_responses_route_of_a_real_engine_is_understood(
    start: Serve, settings: EmbeddedSettings, api_key: str
) -> None:
    """What goes wrong on it is the small model's own, or is not offered; nothing is malformed."""
    with start(settings) as served:
        found = _verified(served, api_key, only=("responses",))
    assert len(found) == 6
    for check in found.values():
        assert set(check.reasons) <= SMALL_MODELS_OWN, check
    judged = {name for name, check in found.items() if check.rate is not None}
    assert {"responses.answer", "responses.stream", "responses.turns"} <= judged


SMALL_MODELS_OWN = {"wrong_answer", "no_call", "call_as_text", "bad_request", "server_error"}
"""`bad_request` and `server_error`: how engines refuse pictures that they have no eyes for."""


def _verified(
    served: Served, key: str, *, only: tuple[str, ...], against: Served | None = None
) -> dict[str, CheckResult]:
    """The checks of a verification, by name."""
    other = None if against is None else Endpoint.parse(against.address, key)
    wish = verify.Wish(
        endpoint=Endpoint.parse(served.address, key),
        checks=shipped(),
        profile=Profile.SMOKE,
        prose=shipped_prose(),
        markers=tuple(m for each in Catalog().reply_formats() for m in each.markers),
        model="smollm2",
        only=only,
        other=other,
        answer_tokens=32,
        concurrency=2,
    )
    verification = asyncio.run(verify.run(wish, lambda _: None))
    return {check.id: check for check in verification.checks}


def test_a_real_engine_is_measured(start: Serve, settings: EmbeddedSettings, api_key: str) -> None:
    """A closed loop gives times, counts by the server, and as long answers as were asked for."""
    with start(settings) as served:
        wish = bench.Wish(
            endpoint=Endpoint.parse(served.address, api_key),
            loads=(Load(kind=LoadKind.CLOSED, requests=6, concurrency=2),),
            workload=Workload(
                model="smollm2", prompt_tokens=128, wanted_tokens=16, extra={"ignore_eos": True}
            ),
            prose=shipped_prose(),
            metric_names=Catalog().metric_names(),
        )
        report = asyncio.run(bench.run(wish, lambda _key, _params: None))
    assert report.requests.ok == 6
    (stage,) = report.stages
    assert set(report.invalid_reasons) <= {"loop_lag", "schedule_delay"}, report.invalid_reasons
    assert stage.output_tokens_mean == pytest.approx(16, abs=1)
    assert stage.prompt_tokens_mean == pytest.approx(128 + 40, rel=0.35)
    assert report.ttft_s is not None
    assert report.tpot_s is not None
    assert 0 < report.tpot_s.p50 < report.ttft_s.p50 + 1


# --- quality -------------------------------------------------------------------------------------

DAMAGED_BYTES = 2**20


@pytest.fixture
def damaged(smollm2: Path, tmp_path: Path) -> Path:
    """SmolLM2 with a mebibyte of its weights overwritten in each of four places."""
    copy = tmp_path / "damaged.gguf"
    copy.write_bytes(smollm2.read_bytes())
    size = copy.stat().st_size
    noise = random.Random(1).randbytes(DAMAGED_BYTES)
    with copy.open("r+b") as weights:
        for part in (4, 5, 6, 7):
            weights.seek(size * part // 8)
            weights.write(noise)
    return copy


def test_a_damaged_copy_of_a_real_model_is_found_worse_and_the_model_itself_is_not(
    start: Serve, smollm2: Path, damaged: Path, api_key: str, tmp_path: Path
) -> None:
    """Names, as far as a small model knows them: itself, then with part of its weights lost. Held
    against the model itself, the copy answers otherwise word for word.
    """
    settings = EmbeddedSettings(model_path=str(smollm2), model="smollm2", slot_tokens=512, slots=2)
    spec = launch(replace(settings, model_path=str(damaged)), plan_digest="sha256:none")
    secrets = {embedded.KEY_SECRET: api_key}
    with (
        start(settings) as sound,
        serve(spec, secrets=secrets, log=tmp_path / "damaged.log") as worse,
    ):
        itself = _compared(sound, sound, api_key)
        other = _compared(sound, worse, api_key)
        agreeing = _verified(sound, api_key, only=("against.text",), against=sound)
        differing = _verified(worse, api_key, only=("against.text",), against=sound)
    assert agreeing["against.text"].status is Status.PASS
    assert differing["against.text"].status is Status.FAIL, differing
    assert set(differing["against.text"].reasons) <= {"text_differs", "garbage_text"}
    assert itself.verdict in (Verdict.EQUIVALENT, Verdict.NOT_ENOUGH_DATA)
    assert other.verdict is Verdict.WORSE, other.contrasts
    assert other.interval.high < 0


def _compared(reference: Served, candidate: Served, key: str) -> Comparison:
    asked = tuple(
        Question(
            id=f"echo-{number}",
            group="copy",
            language="en",
            text=f"What is the capital of {country}?",
            expected=(capital,),
            max_tokens=10,
        )
        for number, (country, capital) in enumerate(CAPITALS)
    )
    wish = quality.Wish(
        reference=Endpoint.parse(reference.address, key),
        candidate=Endpoint.parse(candidate.address, key),
        questions=asked,
        margin=0.05,
        reference_side=ServedModel(url="reference", model="smollm2"),
        candidate_side=ServedModel(url="candidate", model="smollm2"),
        noise_floor=False,
        concurrency=2,
        limits=Limits(first_byte_s=60.0, gap_s=60.0, total_s=90.0),
    )
    return asyncio.run(quality.run(wish, lambda _name, _done, _total: None))


CAPITALS = (
    ("France", "Paris"),
    ("Germany", "Berlin"),
    ("Italy", "Rome"),
    ("Spain", "Madrid"),
    ("Japan", "Tokyo"),
    ("England", "London"),
    ("Russia", "Moscow"),
    ("China", "Beijing"),
    ("Egypt", "Cairo"),
    ("Greece", "Athens"),
    ("Ireland", "Dublin"),
    ("Norway", "Oslo"),
    ("Sweden", "Stockholm"),
    ("Poland", "Warsaw"),
    ("Austria", "Vienna"),
    ("Portugal", "Lisbon"),
    ("Cuba", "Havana"),
    ("Peru", "Lima"),
    ("India", "Delhi"),
    ("South Korea", "Seoul"),
)
