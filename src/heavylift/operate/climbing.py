"""The rungs of a bring-up, each as it is climbed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from heavylift.bench import run as benchmark
from heavylift.bench.files import shipped_prose
from heavylift.bench.prompts import Workload
from heavylift.bench.records import Load, LoadKind, Stage
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.operate import doctoring, operations, rehearse, truth
from heavylift.operate.asking import LADDER, TOOLS, Served, lost, tool_word
from heavylift.operate.operations import Begun, UpWish
from heavylift.operate.peak import Peak
from heavylift.operate.proof import features_of
from heavylift.operate.recipes import EmbeddedWish, Recipe
from heavylift.records.bring_up import Rung, RungKind, RungStatus
from heavylift.records.deployment import Phase, RunState
from heavylift.state import paths
from heavylift.state.deployments import deployments_path, open_deployments
from heavylift.verify import run as verification
from heavylift.verify.records import CheckResult, Profile, Status, Verification
from heavylift.verify.suites import shipped
from heavylift.wire.client import Limits

_PROMPT_TOKENS: Final = 512
_SHARE: Final = 4
"""Of the context of a sequence, the part that a prompt of the concurrency ladder takes at most."""

_WANTED_TOKENS: Final = 32
_EACH: Final = 2
"""Requests per slot: the second meets a server that is busy with the others."""

_WAIT_S: Final = 3600.0
_SMOKE: Final = ("basics.models", "basics.chat", "basics.stream", TOOLS)
_WORDS: Final = frozenset({"wrong_answer", "answer_twice"})
_UNSUPPORTED: Final = "no_dummy_weights"


class Wished(Protocol):
    """What a rung needs of the wish; see `BringUpWish`."""

    @property
    def small(self) -> Path | EmbeddedWish | None:
        """A recipe to try first."""

    @property
    def despite(self) -> tuple[str, ...]:
        """Failures of the doctor that are taken on."""

    @property
    def secrets(self) -> Path | None:
        """A file of secrets."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Machines reached by ssh."""

    @property
    def ssh(self) -> tuple[str, ...]:
        """The command that reaches them."""

    @property
    def target(self) -> str | None:
        """What runs it."""

    @property
    def answer_tokens(self) -> int:
        """Room for an answer with its thinking."""


@dataclass(kw_only=True)
class Climbing:
    """Climbs rungs of one recipe under one name. What a rung learns the later ones use."""

    wish: Wished
    name: str
    folder: Path
    recipe: Recipe
    on_change: Callable[[RunState], None]
    release: int | None = None
    url: str | None = None
    limit: int | None = None
    """Tokens of one sequence, as the server states or keeps."""

    _run: RunState | None = field(default=None)

    def climb(self, rung: Rung) -> Rung:
        """The rung as it ended. Raises what a stage raises: then it failed for that."""
        climbs: dict[RungKind, Callable[[Rung], Rung]] = {
            RungKind.SMALL_MODEL: self._small,
            RungKind.DOCTOR: self._doctor,
            RungKind.REHEARSAL: self._rehearsal,
            RungKind.LOAD: self._load,
            RungKind.SMOKE: self._smoke,
            RungKind.CONTEXT: self._context,
            RungKind.CONCURRENCY: self._concurrency,
        }
        return climbs[rung.kind](rung)

    # --- before the load -------------------------------------------------------------------------

    def _small(self, rung: Rung) -> Rung:
        if self.wish.small is None:
            return _skipped(rung, "not_wanted")
        name = f"{self.name}-small"[:63]
        begun = operations.up(UpWish(source=self.wish.small, name=name, secrets=self.wish.secrets))
        try:
            return _of_start(rung, operations.follow(begun, self.on_change).run)
        finally:
            operations.down(name)

    def _doctor(self, rung: Rung) -> Rung:
        examined = doctoring.examine(self.recipe, self.wish.despite)
        if not examined.failed:
            return _passed(rung)
        return replace(rung, status=RungStatus.FAILED, reason="doctor", findings=examined.failed)

    def _rehearsal(self, rung: Rung) -> Rung:
        if self._is_up():
            return _skipped(rung, "serves_already")
        try:
            found = rehearse.rehearse(
                rehearse.RehearseWish(
                    folder=self.folder,
                    layers=rung.layers,
                    name=self.name,
                    secrets=self.wish.secrets,
                    hosts=self.wish.hosts,
                    ssh=self.wish.ssh,
                    target=self.wish.target,
                ),
                self.on_change,
            )
        except HeavyliftError as error:
            if error.code not in ("REC052", "REC053"):
                raise
            return _skipped(rung, _UNSUPPORTED if error.code == "REC052" else "layers_unknown")
        return replace(
            rung,
            status=RungStatus.PASSED if found.passed else RungStatus.FAILED,
            reason=None if found.passed else found.reason or "does_not_come_up",
            failure=found.failure,
            findings=found.findings,
            receipt_digest=found.receipt_digest,
            report=found.log,
        )

    # --- from the load on ------------------------------------------------------------------------

    def _load(self, rung: Rung) -> Rung:
        begun = operations.up(
            UpWish(
                source=self.folder,
                name=self.name,
                secrets=self.wish.secrets,
                hosts=self.wish.hosts,
                ssh=self.wish.ssh,
                target=self.wish.target,
                replace=True,
            )
        )
        with Peak(None) as peak:
            run = self._followed(begun)
        climbed = _of_start(rung, run)
        with Peak(run) as held:
            pass
        most = max((each for each in (peak.bytes, held.bytes) if each is not None), default=None)
        return replace(
            climbed,
            receipt_digest=run.receipt_digest,
            peak_memory_bytes=most,
            memory_of=held.of or peak.of,
        )

    def _followed(self, begun: Begun) -> RunState:
        run = operations.follow(begun, self.on_change).run
        self.release = begun.release
        self._run = run
        self.url = run.url
        return run

    def _smoke(self, rung: Rung) -> Rung:
        served = self._served()
        with Peak(self._run) as peak:
            found = self._verified(rung, served.wish(_SMOKE, answer_tokens=self.wish.answer_tokens))
        self.limit = found.subject.context_tokens
        own = tuple(check for check in found.checks if check.id != TOOLS)
        return self._of_checks(rung, found, own, peak)

    def _context(self, rung: Rung) -> Rung:
        tokens = rung.context_tokens or 0
        ladder = tuple(
            replace(
                check,
                trials=dict.fromkeys(Profile, len(check.params["depths"])),
                params={
                    **check.params,
                    "rungs": {profile: [tokens] for profile in Profile},
                },
            )
            if check.id == LADDER
            else check
            for check in shipped()
        )
        served = self._served()
        # A rung leaves room for the answer inside it.
        room = min(self.wish.answer_tokens, max(32, tokens // 8))
        with Peak(self._run) as peak:
            found = self._verified(
                rung,
                served.wish((LADDER, TOOLS), checks=ladder, answer_tokens=room),
            )
        limit = found.subject.context_tokens
        if limit is not None and tokens > limit:
            return replace(
                rung,
                status=RungStatus.FAILED,
                reason="over_limit",
                params={"limit": limit, "tokens": tokens},
            )
        needles = tuple(check for check in found.checks if check.id.startswith("context."))
        climbed = self._of_checks(rung, found, needles, peak)
        figures = [check.figures for check in needles]
        return replace(
            climbed,
            prompt_tokens=next(
                (int(f["prompt_tokens"]) for f in figures if "prompt_tokens" in f), None
            ),
            ttft_s=next((f["ttft_s"] for f in figures if "ttft_s" in f), None),
        )

    def _concurrency(self, rung: Rung) -> Rung:
        count = rung.concurrency or 1
        served = self._served()
        limit = self.limit or self._limit()
        prompt = _PROMPT_TOKENS if limit is None else min(_PROMPT_TOKENS, limit // _SHARE)
        wish = benchmark.Wish(
            endpoint=served.endpoint(),
            loads=(Load(kind=LoadKind.CLOSED, concurrency=count, requests=max(2, _EACH * count)),),
            workload=Workload(
                model=served.model, prompt_tokens=prompt, wanted_tokens=_WANTED_TOKENS
            ),
            prose=shipped_prose(),
            warm_up=0,
            limits=Limits(first_byte_s=_WAIT_S, gap_s=_WAIT_S),
            release=str(served.release),
        )
        with Peak(self._run) as peak:
            report = asyncio.run(benchmark.run(wish, _nothing))
        self._kept(rung, report)
        tools = self._verified(None, served.wish((TOOLS,), answer_tokens=self.wish.answer_tokens))
        return self._judged(_of_stage(rung, report.stages[-1]), tools, peak)

    # --- parts -----------------------------------------------------------------------------------

    def _is_up(self) -> bool:
        return self._newest() is not None

    def _newest(self) -> RunState | None:
        """The newest run of the name when it serves."""
        with open_deployments(deployments_path()) as store:
            deployment = store.deployment(self.name)
            if deployment is None or not truth.status(store, deployment).ready:
                return None
            return store.runs(self.name, most=1)[0]

    def _served(self) -> Served:
        """What serves under the name. Raises OPS008 when nothing does any more."""
        run = self._newest()
        if run is None or run.url is None:
            raise HeavyliftError("OPS008", {"name": self.name})
        self._run, self.url, self.release = run, run.url, run.release
        spec = self.recipe.spec
        return Served(
            name=self.name,
            url=run.url,
            model=spec.served_name or spec.model,
            release=run.release,
            recipe=self.recipe,
        )

    def _limit(self) -> int | None:
        found = self._verified(
            None, self._served().wish(("basics.models",), answer_tokens=self.wish.answer_tokens)
        )
        self.limit = found.subject.context_tokens
        return self.limit

    def _verified(self, rung: Rung | None, wish: verification.Wish) -> Verification:
        found = asyncio.run(verification.run(wish, lambda _check: None))
        if rung is not None:
            self._kept(rung, found)
        return found

    def _report(self, rung: Rung) -> Path:
        return paths.deployment_dir(self.name) / "bring-up" / f"{rung.id}.json"

    def _kept(self, rung: Rung, report: Any) -> None:
        path = self._report(rung)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(msgspec.json.encode(report))

    def _of_checks(
        self, rung: Rung, found: Verification, checks: tuple[CheckResult, ...], peak: Peak
    ) -> Rung:
        failed = [check for check in checks if self._counts(check)]
        requests, errors = lost(checks)
        reasons: dict[str, int] = {}
        for check in checks:
            for reason, count in check.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + count
        climbed = replace(
            rung,
            status=RungStatus.FAILED if failed else RungStatus.PASSED,
            reason="checks" if failed else None,
            params={"checks": ", ".join(check.id for check in failed)} if failed else {},
            requests=requests,
            errors=errors,
            error_ratio=errors / requests if requests else None,
            failures=reasons,
            evidence=tuple(line for check in checks for line in check.evidence[:1]),
        )
        return self._judged(climbed, found, peak)

    def _counts(self, check: CheckResult) -> bool:
        """Whether a check stops here. Wrong words do where the model is known to find the right
        ones; they are recorded of any.
        """
        if check.status not in (Status.FAIL, Status.UNKNOWN):
            return False
        words = frozenset(check.reasons)
        return bool(features_of(Catalog(), self.recipe)) or not words or not words <= _WORDS

    def _judged(self, rung: Rung, tools: Verification, peak: Peak) -> Rung:
        """With how tool calls came, the memory, and the engine still being the one it was."""
        run = self._newest()
        climbed = replace(
            rung,
            tool_calls=tool_word(tools),
            peak_memory_bytes=peak.bytes,
            memory_of=peak.of,
            report=str(self._report(rung)),
        )
        if climbed.status is RungStatus.FAILED:
            return climbed
        if run is None or self._run is None or run.attempt != self._run.attempt:
            return replace(climbed, status=RungStatus.FAILED, reason="engine_ended")
        knows_tools = "tools" in features_of(Catalog(), self.recipe)
        if knows_tools and climbed.tool_calls == "malformed":
            return replace(climbed, status=RungStatus.FAILED, reason="tool_calls")
        return climbed


def _nothing(_name: str, _params: Any) -> None:
    """Nobody watches stage by stage."""


def _passed(rung: Rung) -> Rung:
    return replace(rung, status=RungStatus.PASSED)


def _skipped(rung: Rung, reason: str) -> Rung:
    return replace(rung, status=RungStatus.SKIPPED, reason=reason)


def _of_start(rung: Rung, run: RunState) -> Rung:
    """A start that serves and whose verification found nothing."""
    if run.phase is not Phase.READY:
        return replace(
            rung, status=RungStatus.FAILED, reason="does_not_come_up", failure=run.failure
        )
    if run.verdict in ("fail", "unknown"):
        return replace(
            rung,
            status=RungStatus.FAILED,
            reason="verification",
            findings=run.findings,
            evidence=run.verdict_reasons,
        )
    return replace(rung, status=RungStatus.PASSED, findings=run.findings)


def _of_stage(rung: Rung, stage: Stage) -> Rung:
    made = stage.requests.ok + stage.requests.failed
    failed = stage.requests.failed
    return replace(
        rung,
        status=RungStatus.FAILED if failed else RungStatus.PASSED,
        reason="errors" if failed else None,
        params={"errors": failed, "requests": made} if failed else {},
        requests=made,
        errors=failed,
        error_ratio=failed / made if made else None,
        failures=dict(stage.requests.failures),
        prompt_tokens=None if stage.prompt_tokens_mean is None else round(stage.prompt_tokens_mean),
        ttft_s=None if stage.ttft_s is None else stage.ttft_s.p50,
        tpot_s=None if stage.tpot_s is None else stage.tpot_s.p50,
        output_tokens_per_s=stage.output_tokens_per_s,
    )
