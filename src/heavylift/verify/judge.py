"""From trials to a check's result, and from checks to the verdict. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from heavylift.stats import rate_interval
from heavylift.verify.records import Check, CheckResult, Status, Trial
from heavylift.wire.failures import Failure
from heavylift.wire.reply import Reply, judge
from heavylift.wire.text_health import defect, is_garbage

EVIDENCE_CHARS: Final = 300
_MOST_EVIDENCE: Final = 5
_WORST_FIRST: Final = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS)


class Tally:
    """The trials of one check, counted as they come: of hours of trials it keeps a few lines."""

    def __init__(self, check: Check, *, expected: frozenset[str]) -> None:
        """A feature that the server refuses is skipped, unless it is `expected` of this model:
        then a refusal is a failure like any other.
        """
        self._check = check
        self._refusals_count = bool(check.needs) and expected >= set(check.needs)
        self._trials = self._judged = self._passed = self._undecided = 0
        self._seconds = 0.0
        self._reasons: Counter[str] = Counter()
        self._shown: list[str] = []
        self._fine: str | None = None
        self._sums: dict[str, list[float]] = {}

    def add(self, trials: Iterable[Trial], seconds: float = 0.0) -> None:
        """Take trials, which took so long together."""
        self._seconds += seconds
        for trial in trials:
            self._add(trial)

    def _add(self, trial: Trial) -> None:
        self._trials += 1
        self._undecided += trial.undecided
        if not trial.undecided and (not trial.unsupported or self._refusals_count):
            self._judged += 1
            self._passed += trial.reason is None
        if trial.reason is not None:
            self._reasons[trial.reason] += 1
            if len(self._shown) < _MOST_EVIDENCE:
                self._shown.append(_evidence(trial))
        elif trial.evidence and self._fine is None:
            self._fine = _evidence(trial)
        for name, value in trial.figures.items():
            total = self._sums.setdefault(name, [0.0, 0.0])
            total[0] += value
            total[1] += 1

    def result(self) -> CheckResult:
        """What they come to. Figures are means over the trials that have them."""
        check, judged = self._check, self._judged
        fine = () if self._fine is None else (self._fine,)
        return CheckResult(
            id=check.id,
            status=self._status(),
            rate=self._passed / judged if judged else None,
            interval=rate_interval(self._passed, judged) if judged else None,
            trials=self._trials,
            required_rate=check.required_rate,
            reasons=dict(self._reasons),
            evidence=tuple(self._shown) or fine,
            figures={name: total / count for name, (total, count) in sorted(self._sums.items())},
            seconds=self._seconds,
            title=check.title,
        )

    def _status(self) -> Status:
        if not self._judged:
            return Status.UNKNOWN if self._undecided or not self._trials else Status.SKIPPED
        enough = self._passed / self._judged >= self._check.required_rate
        return Status.PASS if enough else self._check.on_failure


def result(
    check: Check, trials: Sequence[Trial], *, expected: frozenset[str], seconds: float = 0.0
) -> CheckResult:
    """The result of a check from its trials; see `Tally`."""
    tally = Tally(check, expected=expected)
    tally.add(trials, seconds)
    return tally.result()


def verdict(checks: Iterable[CheckResult]) -> Status:
    """The worst status; `unknown` when nothing could be judged."""
    seen = {check.status for check in checks}
    return next((status for status in _WORST_FIRST if status in seen), Status.UNKNOWN)


def _evidence(trial: Trial) -> str:
    text = f"{trial.reason}: {trial.evidence}" if trial.reason else trial.evidence
    return text[:EVIDENCE_CHARS]


# --- single replies ------------------------------------------------------------------------------


def reply_failure(reply: Reply, markers: Iterable[str]) -> str | None:
    """What is wrong with a reply whatever was asked: its failure class, a marker, garbage."""
    listed = tuple(markers)
    if reply.failure in (None, Failure.TOOL_CALLS_LOST, Failure.EMPTY) and _leaks(reply, listed):
        return str(Failure.MARKER_LEAK)
    if reply.failure is not None:
        return str(reply.failure)
    again = judge(reply, listed)
    if again is not None:
        return str(again)
    return defect(reply.text) or ("garbage_text" if is_garbage(reply.reasoning) else None)


def _leaks(reply: Reply, markers: Sequence[str]) -> bool:
    return any(marker in reply.text or marker in reply.reasoning for marker in markers)


def is_doubled(text: str) -> bool:
    """True when the second half of the text is the first again."""
    stripped = text.strip()
    half = len(stripped) // 2
    if half == 0 or (len(stripped) % 2 and not stripped[half].isspace()):
        return False
    return stripped[:half].strip() == stripped[len(stripped) - half :].strip()


def wrong_text(reply: Reply, expected: str) -> str | None:
    """What is wrong with a text in which `expected` must be found, whatever stands around it."""
    times = reply.text.casefold().count(expected.casefold())
    if times == 0:
        return "wrong_answer"
    return "answer_twice" if times > 1 and is_doubled(reply.text) else None


def wrong_usage(reply: Reply, chunks: int) -> str | None:
    """What is wrong with the token counts of a reply that came in `chunks` (0 = not streamed)."""
    usage = reply.usage
    if usage is None or usage.completion_tokens is None or usage.prompt_tokens is None:
        return "usage_missing"
    if usage.prompt_tokens < 1 or usage.completion_tokens < max(1, chunks):
        return "usage_wrong"
    return None


def schema_problem(value: Any, schema: Any) -> str | None:
    """Where a value departs from its JSON schema; None = it does not."""
    # Loaded here: it takes 0.1 s, and most checks need none of it.
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    problem = next(iter(Draft202012Validator(schema).iter_errors(value)), None)
    return None if problem is None else f"{problem.json_path}: {problem.message}"
