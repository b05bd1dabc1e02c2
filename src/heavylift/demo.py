"""The demonstration: from a plan of the largest model to a served, checked answer here.

Everything in it is the real thing: llama.cpp from a wheel, a small model with real weights, and a
tiny random model of Kimi K3's own architecture. Steps are reported as they end; the result says
what each showed. Whatever ends it, no engine is left running.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from heavylift.devserver import tiny_k3
from heavylift.launch import engine_env
from heavylift.launch.embedded import forecast, launch
from heavylift.launch.runner import Served, serve
from heavylift.plan.receipts import compare
from heavylift.planning import THIS_MACHINE, Planning
from heavylift.recipe.engines import embedded
from heavylift.recipe.engines.embedded import EmbeddedSettings
from heavylift.records.finding import Finding, Severity
from heavylift.records.plan import Agreement, Plan, PlanRequest, TermComparison
from heavylift.records.receipt import Receipt
from heavylift.state.deployments import deployments_path, open_deployments
from heavylift.state.paths import state_dir
from heavylift.telemetry import llamacpp
from heavylift.units import MIB, gib
from heavylift.wire.client import Endpoint, Limits, Outcome, ask, list_models
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

SCHEMA: Final = 1
SLOTS: Final = 4
SLOT_TOKENS: Final = 1024
FORECAST_TOKENS: Final = 131_072

_LIMITS: Final = Limits(connect_s=5.0, first_byte_s=30.0, gap_s=30.0, total_s=60.0)
_QUESTION: Final = "What is the capital of France?"
_ANSWER_TOKENS: Final = 24
# More words than a slot has tokens: the engine must refuse, and say why.
_TOO_LONG: Final = "word " * (2 * SLOT_TOKENS)

OnStep = Callable[[str, dict[str, str | int | float]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoStep:
    """One step: its id, the seconds it took, and the numbers its line shows."""

    id: str
    seconds: float
    params: dict[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Demo:
    """What the demonstration showed. `sound` is False when any finding is a failure."""

    steps: tuple[DemoStep, ...]
    findings: tuple[Finding, ...]
    terms: tuple[TermComparison, ...]
    tiny_terms: tuple[TermComparison, ...]
    big_plan: Plan
    small_plan: Plan
    measured_plan: Plan
    receipt: Receipt
    seconds: float
    sound: bool
    schema: int = SCHEMA


class _Run:
    """One run: times steps and reports each as it ends, holds the key of its engines."""

    def __init__(self, on_step: OnStep, on_phase: Callable[[str], None]) -> None:
        self._on_step = on_step
        self._on_phase = on_phase
        # A folder of its own: two demonstrations at a time must not share a log.
        self.folder = state_dir() / "demo" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"
        self.planning = Planning()
        self.key = secrets.token_urlsafe(24)
        self.done: list[DemoStep] = []
        self.began = time.monotonic()

    @contextmanager
    def step(self, identifier: str) -> Iterator[dict[str, str | int | float]]:
        """One step; what is put into the yielded dict is shown with it."""
        params: dict[str, str | int | float] = {}
        began = time.monotonic()
        yield params
        step = DemoStep(id=identifier, seconds=time.monotonic() - began, params=params)
        self.done.append(step)
        self._on_step(identifier, {**params, "seconds": step.seconds})

    @contextmanager
    def serving(self, identifier: str, settings: EmbeddedSettings, plan: Plan) -> Iterator[Served]:
        """The engine, from the recipe's first byte to its last: written down, started, stopped."""
        folder = self.folder / settings.model
        with self.step(identifier) as shown:
            spec = launch(settings, plan_digest=digest(plan))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
            (folder / "launch.json").write_bytes(msgspec.json.encode(spec))
            served = serve(
                spec,
                secrets={embedded.KEY_SECRET: self.key},
                log=folder / "engine.log",
                on_phase=self._on_phase,
            )
            shown |= {"address": served.address, "folder": str(folder)}
        with served:
            yield served
        with self.step("stop") as shown:
            shown["model"] = settings.model


def run(on_step: OnStep, on_phase: Callable[[str], None]) -> Demo:
    """Run all steps. Raises what planning, installing and launching raise."""
    this = _Run(on_step, on_phase)
    try:
        return _run(this)
    finally:
        # Models are made again in a moment; plans, launches and logs are what is worth keeping.
        for leftover in this.folder.rglob("*.gguf*"):
            leftover.unlink(missing_ok=True)


def _run(this: _Run) -> Demo:
    planning = this.planning
    with this.step("plan_big") as shown:
        showcase = planning.catalog.showcase()
        big = _plan(planning, showcase.model, showcase.rack)
        shown |= {
            "verdict": big.verdict.value,
            "rack": big.rack.label,
            "title": big.title,
            "gib": round(gib(big.per_gpu.known_total_bytes), 2),
            "tensors": big.checkpoint_tensors or 0,
        }
    with this.step("engine") as shown:
        shown["state"] = "there" if engine_env.is_installed() else "new"
        engine_env.install_embedded()
    with this.step("plan_small") as shown:
        request = _small_request(planning)
        small = planning.plan(request, planning.knowledge(embedded.SMOLLM2_ID))
        shown |= {
            "verdict": small.verdict.value,
            "mib": round(small.per_gpu.known_total_bytes / MIB, 2),
        }
    settings = _settings(str(engine_env.smollm2_path()), embedded.SMOLLM2_ID)
    with this.serving("serve_small", settings, small) as served:
        findings = _checks(this, served, embedded.SMOLLM2_ID)
        lines = served.log_lines()
    with this.step("receipt") as shown:
        receipt = _receipt(lines, small)
        terms = compare(small, receipt)
        with open_deployments(deployments_path()) as store:
            shown["digest"] = store.save_receipt(receipt)[:19]
        shown["equal"] = sum(term.agreement is Agreement.EQUAL for term in terms)
        shown["new"] = sum(term.agreement is Agreement.NEW for term in terms)
    with this.step("plan_again") as shown:
        measured = planning.plan(request, planning.knowledge(embedded.SMOLLM2_ID), receipt=receipt)
        shown["mib"] = round(measured.per_gpu.known_total_bytes / MIB, 2)
    tiny_terms = _tiny(this)
    findings += _forecast(this)
    findings += tuple(_term_finding(term) for term in (*terms, *tiny_terms))
    return Demo(
        steps=tuple(this.done),
        findings=findings,
        terms=terms,
        tiny_terms=tiny_terms,
        big_plan=big,
        small_plan=small,
        measured_plan=measured,
        receipt=receipt,
        seconds=time.monotonic() - this.began,
        sound=all(finding.severity is not Severity.FAIL for finding in findings),
    )


# --- plans ---------------------------------------------------------------------------------------


def _plan(planning: Planning, model: str, on: str) -> Plan:
    _, rack = planning.rack(on)
    if rack is None:
        raise ValueError(on)
    return planning.plan(PlanRequest(model=model, rack=rack), planning.knowledge(model))


def _small_request(planning: Planning, model: str = embedded.SMOLLM2_ID) -> PlanRequest:
    _, rack = planning.rack(THIS_MACHINE)
    if rack is None:
        raise ValueError(THIS_MACHINE)
    return PlanRequest(
        model=model,
        rack=rack,
        engine=embedded.ENGINE,
        context_tokens=SLOTS * SLOT_TOKENS,
        concurrency=SLOTS,
    )


def _settings(path: str, model: str) -> EmbeddedSettings:
    return EmbeddedSettings(model_path=path, model=model, slot_tokens=SLOT_TOKENS, slots=SLOTS)


def digest(plan: Plan) -> str:
    """The `sha256:` of a plan's JSON."""
    return f"sha256:{hashlib.sha256(msgspec.json.encode(plan)).hexdigest()}"


# --- serving -------------------------------------------------------------------------------------


def _checks(this: _Run, served: Served, model: str) -> tuple[Finding, ...]:
    endpoint = Endpoint.parse(served.address, this.key)
    question = ({"role": "user", "content": _QUESTION},)
    whole = ChatRequest(
        model=model,
        messages=question,
        stream=False,
        max_tokens=_ANSWER_TOKENS,
        extra={"temperature": 0},
    )
    with this.step("models") as shown:
        listed = [card.id for card in list_models(endpoint, limits=_LIMITS)]
        shown["models"] = ", ".join(listed)
    with this.step("chat") as shown:
        answer = ask(endpoint, whole, limits=_LIMITS)
        shown["text"] = " ".join(answer.reply.text.split())
    with this.step("stream") as shown:
        streamed = ask(endpoint, replace(whole, stream=True), limits=_LIMITS)
        shown |= {
            "tokens": _tokens(streamed),
            "ttft_ms": round(1000 * (streamed.latency.ttft_s or 0.0)),
        }
    with this.step("too_long") as shown:
        long = ({"role": "user", "content": _TOO_LONG},)
        refused = ask(endpoint, replace(whole, messages=long), limits=_LIMITS)
        shown["failure"] = refused.failure.value if refused.failure else "answered"
    return (
        _check("models", passed=model in listed, observed=", ".join(listed), expected=model),
        _check("chat", passed=answer.failure is None, observed=_failure(answer), expected="ok"),
        _check(
            "stream", passed=streamed.failure is None, observed=_failure(streamed), expected="ok"
        ),
        _check(
            "too_long",
            passed=refused.failure is Failure.CONTEXT_TOO_LONG,
            observed=_failure(refused),
            expected=Failure.CONTEXT_TOO_LONG.value,
        ),
    )


def _tokens(outcome: Outcome) -> int:
    usage = outcome.reply.usage
    return 0 if usage is None else usage.completion_tokens or 0


def _failure(outcome: Outcome) -> str:
    return "ok" if outcome.failure is None else outcome.failure.value


def _check(name: str, *, passed: bool, observed: str, expected: str) -> Finding:
    return Finding(
        id=f"demo.{name}",
        code=f"demo.check.{name}",
        severity=Severity.OK if passed else Severity.FAIL,
        subject="embedded",
        observed=observed,
        expected=expected,
    )


# --- memory --------------------------------------------------------------------------------------


def _receipt(lines: list[str], plan: Plan) -> Receipt:
    return llamacpp.receipt_for(
        plan, lines, taken_at=datetime.now(UTC).isoformat(timespec="seconds")
    )


def _tiny(this: _Run) -> tuple[TermComparison, ...]:
    """The tiny random K3: its architecture's own KV and state against the engine's log."""
    planning = this.planning
    facts = tiny_k3.tiny_model(planning.catalog.model(tiny_k3.MODEL_ID))
    with this.step("tiny_write") as shown:
        path = this.folder / f"{facts.id}.gguf"
        path.parent.mkdir(parents=True, exist_ok=True)
        tiny_k3.write_tiny_k3(path, tokenizer_from=engine_env.smollm2_path())
        shown["mb"] = round(path.stat().st_size / 10**6)
    plan = planning.plan(_small_request(planning, facts.id), planning.knowledge_of(facts))
    settings = _settings(str(path), facts.id)
    with this.serving("serve_tiny", settings, plan) as served:
        lines = served.log_lines()
    return compare(plan, _receipt(lines, plan))


def _forecast(this: _Run) -> tuple[Finding, ...]:
    """llama.cpp's own projection for the whole K3, on a header without weights, against ours."""
    planning = this.planning
    model = tiny_k3.MODEL_ID
    _, rack = planning.rack(THIS_MACHINE)
    if rack is None:
        raise ValueError(THIS_MACHINE)
    with this.step("forecast") as shown:
        request = PlanRequest(
            model=model,
            rack=rack,
            engine=embedded.ENGINE,
            context_tokens=FORECAST_TOKENS,
            concurrency=1,
        )
        plan = planning.plan(request, planning.knowledge(model), with_fixes=False)
        path = this.folder / "kimi-k3-header.gguf"
        tiny_k3.write_k3_header(path)
        settings = EmbeddedSettings(model_path=str(path), model=model, slot_tokens=FORECAST_TOKENS)
        projected = forecast(settings, log=this.folder / "forecast.log")
        ours = plan.totals
        theirs = projected.memory
        shown |= {
            "tokens": FORECAST_TOKENS,
            "kv_mib": ours.kv_cache_bytes_total / MIB,
            "state_mib": round(ours.recurrent_state_bytes_total / MIB, 2),
        }
    pairs = []
    if theirs.kv is not None:
        pairs.append(("kv", ours.kv_cache_bytes_total, theirs.kv.size))
    if theirs.recurrent is not None:
        pairs.append(("state", ours.recurrent_state_bytes_total, theirs.recurrent.size))
    return tuple(
        _check(
            f"forecast_{name}",
            passed=abs(planned - printed.bytes) <= printed.resolution_bytes,
            observed=f"{printed.bytes} B",
            expected=f"{planned} B",
        )
        for name, planned, printed in pairs
    )


def _term_finding(term: TermComparison) -> Finding:
    return Finding(
        id=f"demo.term.{term.term}",
        code="demo.check.term",
        severity=Severity.FAIL if term.agreement is Agreement.OUTSIDE else Severity.OK,
        subject=term.term,
        observed=f"{term.measured_bytes} B",
        expected=None if term.planned is None else f"{term.planned.low} B",
        evidence=(term.line,),
        params={"agreement": term.agreement.value},
    )
