"""The supervisor of one deployment: starts its engine, watches it, starts it again if that helps.

Everything it knows goes into the run's record as it changes, so that whoever looks finds the truth
after any kill. It composes nothing of other stages: what explains a failure and what proves an
answer comes in as hooks.
"""

from __future__ import annotations

import contextlib
import secrets as randomness
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from heavylift.errors import HeavyliftError
from heavylift.launch import processes
from heavylift.launch.attempt import Attempt
from heavylift.launch.background import Background
from heavylift.launch.job import Hooks, Job, Measured, Proof, Ready
from heavylift.launch.liveness import Judgement
from heavylift.launch.looks import Watch
from heavylift.launch.restarts import Decision, End, decide
from heavylift.launch.starting import Course, Signs, Starting, eta_s
from heavylift.records.deployment import (
    Alive,
    Deployment,
    Failure,
    Phase,
    Progress,
    RunState,
)
from heavylift.records.finding import Finding, Severity

_TICK_S: Final = 0.05
_SAVE_S: Final = 1.0


@dataclass(slots=True)
class _History:
    restarts_at: list[float] = field(default_factory=list)
    failed_starts: int = 0


class _Stop(Exception):  # noqa: N818 - no failure: somebody asked
    """Somebody asked for the end."""


class Supervisor:
    """One run of a deployment."""

    def __init__(self, job: Job, run: RunState, hooks: Hooks) -> None:
        self._job = job
        self._hooks = hooks
        self._saved_at = 0.0
        self._is_kept = True
        self._undone = [job.ways.early, job.ways.late]
        self._history = _History()
        self.run_state = run
        self.stop_asked = False
        """Set from outside (a signal) to end the run in order."""

    def run(self) -> RunState:
        """Keep the deployment running until it is stopped or cannot be helped; how that stands."""
        while True:
            failure, was_ready = self._one_attempt()
            if failure is None:
                return self._over(Phase.STOPPED, None)
            self._history.failed_starts = 0 if was_ready else self._history.failed_starts + 1
            failure = self._explained(failure)
            decision = self._decision(failure, was_ready=was_ready)
            failure = replace(
                failure,
                can_restart=decision.after_s is not None,
                restart_reason=decision.reason,
            )
            if decision.after_s is None:
                return self._over(Phase.FAILED, failure)
            if not self._back_off(failure, decision.after_s):
                return self._over(Phase.STOPPED, None)

    # --- between attempts ------------------------------------------------------------------------

    def _explained(self, failure: Failure) -> Failure:
        logs = tuple(Path(each.log) for each in self.run_state.processes)
        with contextlib.suppress(HeavyliftError):
            return self._hooks.explain(failure, tuple(log for log in logs if log.is_file()))
        return failure

    def _decision(self, failure: Failure, *, was_ready: bool) -> Decision:
        end = End(
            was_ready=was_ready,
            cause_class=failure.cause_class or _CAUSE_OF_CODE.get(failure.code),
            was_killed=bool(failure.params.get("was_killed")),
        )
        return decide(
            end,
            rules=self._job.rules,
            helps=self._job.restarts,
            restarts_at=self._history.restarts_at,
            failed_starts=self._history.failed_starts,
            now_s=time.monotonic(),
        )

    def _back_off(self, failure: Failure, after_s: float) -> bool:
        """Wait before the next attempt; False when the end was asked for meanwhile."""
        until = time.monotonic() + after_s
        due = datetime.now(UTC) + timedelta(seconds=after_s)
        self._set(
            phase=Phase.BACKOFF,
            failure=failure,
            url=None,
            ready_at=None,
            alive=Alive.DEAD,
            restart_at=due.isoformat(timespec="seconds"),
        )
        while time.monotonic() < until:
            if self.stop_asked:
                return False
            time.sleep(_TICK_S)
        self._history.restarts_at.append(time.monotonic())
        self._set(restarts=self.run_state.restarts + 1, restart_at=None)
        return not self.stop_asked

    def _over(self, phase: Phase, failure: Failure | None) -> RunState:
        self._set(
            phase=phase,
            failure=failure if failure is not None else self.run_state.failure,
            ready_at=None,
            alive=Alive.DEAD,
            alive_reason="",
            stalled_s=None,
            restart_at=None,
            ended_at=_now(),
        )
        return self.run_state

    # --- one attempt -----------------------------------------------------------------------------

    def _one_attempt(self) -> tuple[Failure | None, bool]:
        """Run the engine once; why it ended (None: it was asked to) and whether it had served."""
        number = self.run_state.attempt + 1
        attempt = Attempt(
            self._job.spec,
            words=self._job.words,
            folder=Path(self.run_state.folder) / f"attempt-{number}",
            run_id=self.run_state.id,
            secrets=self._job.secrets,
            ssh=self._job.deployment.ssh,
            url=self._job.deployment.url,
            cwd=self._job.recipe_folder,
            ways=self._job.ways,
        )
        self._set(
            attempt=number,
            phase=Phase.PREFLIGHT,
            processes=(),
            url=None,
            ready_at=None,
            ready_s=None,
            alive=Alive.UNKNOWN,
            alive_reason="",
            progress=Progress(),
            stalled_s=None,
            is_late=False,
            findings=(),
            verdict="pending",
            verdict_reasons=(),
        )
        was_ready = False
        try:
            attempt.clear()
            attempt.check()
            self._prepare(0, attempt, self._check_stop)
            self._set(phase=Phase.PROCESS, progress=Progress())
            attempt.start(grace_s=self._job.rules.grace_s)
            ready = self._until_ready(attempt)
            was_ready = True
            return self._until_dead(attempt, ready), was_ready
        except _Stop:
            self._set(phase=Phase.STOPPING)
            return None, was_ready
        except HeavyliftError as error:
            return self._failure(error, attempt), was_ready
        finally:
            attempt.stop(self._job.rules.grace_s)
            self._set(processes=attempt.states())

    def _prepare(self, which: int, attempt: Attempt, check: Callable[[], None]) -> None:
        """Once in a run: fetch the image, make the model. Raises `_Stop` and RUN043."""
        commands = self._undone[which]
        if not commands:
            return
        self._set(phase=Phase.IMAGE, progress=Progress())

        def told(progress: Progress) -> None:
            if progress != self.run_state.progress:
                self._set(progress=progress)

        attempt.prepare(commands, check, told)
        self._undone[which] = ()

    def _failure(self, error: HeavyliftError, attempt: Attempt) -> Failure:
        return Failure(
            code=error.code,
            params=dict(error.params) | {"was_killed": attempt.was_killed()},
            phase=str(self.run_state.phase),
            at=_now(),
        )

    def _until_ready(self, attempt: Attempt) -> Ready:
        """Follow the start. Raises `_Stop`, or the error that ended it."""
        rules = self._job.rules
        began_s = time.monotonic()
        starting = Starting(rules, now_s=began_s, deadline_s=float(self._job.spec.deadline_s))
        phase_since_s = began_s
        asking: Background[str | None] | None = None
        reason = "address"

        def check() -> None:
            self._check_stop()
            attempt.look()
            attempt.raise_if_over()

        while True:
            self._check_stop()
            attempt.look()
            if self._undone[1] and attempt.listens():
                self._prepare(1, attempt, check)
                # What was fetched meanwhile is no part of the load.
                deadline_s = float(self._job.spec.deadline_s)
                starting = Starting(rules, now_s=time.monotonic(), deadline_s=deadline_s)
            if self._note_phase(attempt):
                phase_since_s = time.monotonic()
            now_s = time.monotonic()
            signs = attempt.signs(now_s)
            course, still_s = starting.judge(now_s, signs)
            self._note_course(attempt, course, still_s, signs, now_s - phase_since_s)
            attempt.raise_if_over()
            if course.is_given_up:
                raise HeavyliftError(
                    "RUN030" if course is Course.OVERDUE else "RUN031",
                    {
                        "phase": str(self.run_state.phase),
                        "still_s": round(still_s),
                        "deadline_s": self._job.spec.deadline_s,
                        "reason": reason,
                        "log": str(attempt.logs()[0]),
                    },
                )
            if asking is not None and asking.is_done:
                problem = asking.result()
                if problem is None:
                    return self._ready(attempt, now_s - began_s)
                reason, asking = problem, None
            if not self._undone[1] and asking is None and attempt.address() is not None:
                asking = Background(attempt.why_not_ready)
            time.sleep(_TICK_S)

    def _note_phase(self, attempt: Attempt) -> bool:
        found = attempt.phase()
        phase = self.run_state.phase if found is None else Phase(found)
        states = attempt.states()
        if phase is self.run_state.phase and states == self.run_state.processes:
            return False
        changed = phase is not self.run_state.phase
        self._set(phase=phase, processes=states)
        return changed

    def _note_course(
        self, attempt: Attempt, course: Course, still_s: float, signs: Signs, elapsed_s: float
    ) -> None:
        done, total, unit = attempt.progress()
        before = self.run_state.progress
        is_news = (done, total) != (before.done, before.total)
        self._set_sometimes(
            is_news,
            progress=Progress(
                done=done,
                total=total,
                unit=unit,
                read_bytes=signs.moved_bytes,
                eta_s=eta_s(done, total, elapsed_s),
            ),
            is_late=course is Course.LATE,
            stalled_s=still_s if course is Course.STALLED else None,
        )

    def _ready(self, attempt: Attempt, took_s: float) -> Ready:
        ready = Ready(
            url=attempt.address() or "",
            key=attempt.key,
            model=attempt.model,
            logs=attempt.logs(),
            attempt=attempt,
        )
        measured = Measured()
        with contextlib.suppress(HeavyliftError):
            measured = self._hooks.measure(ready)
        self._set(
            phase=Phase.READY,
            url=ready.url,
            ready_at=_now(),
            ready_s=round(took_s, 3),
            alive=Alive.ALIVE,
            alive_reason="answered",
            stalled_s=None,
            is_late=False,
            failure=None,
            processes=attempt.states(),
            findings=measured.findings,
            receipt_digest=measured.receipt_digest,
            verdict="pending" if self._hooks.prove is not None else "skipped",
        )
        return ready

    def _until_dead(self, attempt: Attempt, ready: Ready) -> Failure:
        """Watch a serving engine. Raises `_Stop`, or the error that ended it."""
        watch = Watch(attempt, self._job.rules, self._job.metrics, now_s=time.monotonic())
        prove = self._hooks.prove
        proof = None if prove is None else Background(lambda: prove(ready))
        words: Background[str | None] | None = Background(attempt.first_words)
        look_at = 0.0
        watched: Background[None] | None = None
        while True:
            self._check_stop()
            attempt.look()
            attempt.bound_logs(self._job.rules.log_limit_bytes)
            attempt.raise_if_over()
            if proof is not None and proof.is_done:
                self._take_proof(proof)
                proof = None
            if words is not None and words.is_done:
                self._take_words(words)
                words = None
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + self._job.rules.look_s
                self._judge(watch.judgement(), attempt)
                watched = self._watched(watched, ready, watch.page)
            time.sleep(_TICK_S)

    def _watched(
        self, before: Background[None] | None, ready: Ready, page: str | None
    ) -> Background[None] | None:
        """A look for whoever keeps them, unless the one before is not over."""
        look = self._hooks.watch
        if look is None or (before is not None and not before.is_done):
            return before
        return Background(lambda: look(ready, page))

    def _judge(self, judgement: Judgement, attempt: Attempt) -> None:
        if (judgement.alive, judgement.reason) != (
            self.run_state.alive,
            self.run_state.alive_reason,
        ):
            self._set(alive=judgement.alive, alive_reason=judgement.reason)
        if judgement.alive is Alive.DEAD:
            raise HeavyliftError(
                "RUN032",
                {
                    "reason": judgement.reason,
                    "still_s": round(judgement.still_s),
                    "log": str(attempt.logs()[0]),
                },
            )

    def _take_words(self, words: Background[str | None]) -> None:
        """A first answer of one sign or word is a finding: nothing else tells of it."""
        problem = None
        with contextlib.suppress(HeavyliftError):
            problem = words.result()
        if problem is not None:
            finding = Finding(
                id=f"run.words.{problem}",
                code=f"run.words.{problem}",
                severity=Severity.FAIL,
                subject=self.run_state.deployment,
            )
            self._set(findings=(*self.run_state.findings, finding))

    def _take_proof(self, proof: Background[Proof]) -> None:
        try:
            word = proof.result()
        except HeavyliftError as error:
            word = Proof(verdict="unknown", reasons=(error.code,))
        self._set(
            verdict=word.verdict,
            verdict_reasons=word.reasons,
            findings=(*self.run_state.findings, *word.findings),
        )
        self._hooks.judged(self.run_state, word)

    # --- the record ------------------------------------------------------------------------------

    def _check_stop(self) -> None:
        if self.stop_asked:
            raise _Stop

    def _set(self, **changes: Any) -> None:
        if changes.get("phase", self.run_state.phase) is not self.run_state.phase:
            changes["phase_at"] = _now()
        changed = replace(self.run_state, **changes)
        if changed != self.run_state or not self._is_kept:
            self.run_state = changed
            self._is_kept = self._hooks.save(changed) is not False

    def _set_sometimes(self, is_news: bool, **changes: Any) -> None:
        """For what changes all the time: kept, but without news written once a second at most."""
        now_s = time.monotonic()
        if is_news or now_s - self._saved_at >= _SAVE_S:
            self._saved_at = now_s
            self._set(**changes)


_CAUSE_OF_CODE: Final[Mapping[str, str]] = {
    "RUN010": "program_missing",
    "RUN033": "port_in_use",
    "RUN030": "startup_timeout",
    "RUN031": "startup_timeout",
}
"""Causes that need no log."""


def new_run(deployment: Deployment, folder: Path) -> RunState:
    """A run that has not begun, with a folder of its own under the deployment's."""
    identifier = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{randomness.token_hex(4)}"
    return RunState(
        id=identifier,
        deployment=deployment.name,
        release=deployment.release,
        folder=str(folder / "runs" / identifier),
        started_at=_now(),
        boot_id=processes.boot_id(),
        phase_at=_now(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
