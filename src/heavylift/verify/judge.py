"""From trials to a check's result, and from checks to the verdict. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from heavylift.stats import mean, rate_interval
from heavylift.verify.records import Check, CheckResult, Status, Trial
from heavylift.wire.failures import Failure
from heavylift.wire.reply import Reply, judge
from heavylift.wire.text_health import defect, is_garbage

EVIDENCE_CHARS: Final = 300
_MOST_EVIDENCE: Final = 5
_WORST_FIRST: Final = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS)


def result(
    check: Check, trials: Sequence[Trial], *, expected: frozenset[str], seconds: float = 0.0
) -> CheckResult:
    """The result of a check from its trials.

    A feature that the server refuses is skipped, unless it is `expected` of this model: then a
    refusal is a failure like any other.
    """
    judged = [trial for trial in trials if not trial.unsupported or expected >= set(check.needs)]
    reasons = Counter(trial.reason for trial in trials if trial.reason is not None)
    failed = [trial for trial in trials if trial.reason is not None]
    shown = failed or [trial for trial in trials if trial.evidence][:1]
    passed = sum(trial.reason is None for trial in judged)
    return CheckResult(
        id=check.id,
        status=_status(check, passed, judged, trials),
        rate=passed / len(judged) if judged else None,
        interval=rate_interval(passed, len(judged)) if judged else None,
        trials=len(trials),
        required_rate=check.required_rate,
        reasons=dict(reasons),
        evidence=tuple(_evidence(trial) for trial in shown[:_MOST_EVIDENCE]),
        figures=_figures(trials),
        seconds=seconds,
        title=check.title,
    )


def verdict(checks: Iterable[CheckResult]) -> Status:
    """The worst status; `unknown` when nothing could be judged."""
    seen = {check.status for check in checks}
    return next((status for status in _WORST_FIRST if status in seen), Status.UNKNOWN)


def _status(check: Check, passed: int, judged: Sequence[Trial], trials: Sequence[Trial]) -> Status:
    if not trials:
        return Status.UNKNOWN
    if not judged:
        return Status.SKIPPED
    return Status.PASS if passed / len(judged) >= check.required_rate else check.on_failure


def _evidence(trial: Trial) -> str:
    text = f"{trial.reason}: {trial.evidence}" if trial.reason else trial.evidence
    return text[:EVIDENCE_CHARS]


def _figures(trials: Sequence[Trial]) -> dict[str, float]:
    """The mean of each figure over the trials that have it."""
    names = sorted({name for trial in trials for name in trial.figures})
    return {
        name: mean([trial.figures[name] for trial in trials if name in trial.figures])
        for name in names
    }


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
