"""How near plans come to what engines printed at their start, term by term.

    python benchmarks/plan_accuracy.py                     the cases in benchmarks/accuracy
    python benchmarks/plan_accuracy.py --cases FILE.jsonl  the same on others
    python benchmarks/plan_accuracy.py --write             write benchmarks/accuracy_results.md and
                                                           accuracy_unseen.md

`unseen.jsonl` holds starts that were collected after the facts were written. A case that cannot be
planned is counted and names the fact that is missing. An error is relative to what was measured; 0
inside a planned interval.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
sys.path.insert(0, str(HERE / "accuracy"))

from cases import Case, read_cases  # noqa: E402
from rivals import rival_lines  # noqa: E402
from scoring import (  # noqa: E402
    EXACT,
    Result,
    Score,
    Summary,
    fit,
    score_all,
)

from heavylift.planning import Planning  # noqa: E402

CASES: Final = HERE / "accuracy" / "cases.jsonl"
RESULTS: Final = HERE / "accuracy_results.md"
UNSEEN: Final = HERE / "accuracy" / "unseen.jsonl"
UNSEEN_RESULTS: Final = HERE / "accuracy_unseen.md"
# What they were planned as before anything was learned from them.
_FIRST_READING: Final = """\
The facts were mended after a first reading of these: it planned 22 of 29 weights (median 2.59 %,
worst 27.8 %) and 29 of 44 caches, and called u028 `fits`, which ran out of memory; u002, which it
could not plan, is called so now. Both had sized a sound pool: what their warm-up took after that is
in no rule yet, and their verdict is not judged below.
"""
_LARGE: Final = 1000
_TITLES: Final = {
    "weights": "weights, GiB on a GPU",
    "kv_each": "KV bytes of a token (of a sequence, where states or windows are kept)",
    "kv_pool": "what the KV pool holds (planned: at most)",
}


def main() -> int:
    """Prints the report, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.write:
        RESULTS.write_text(report(CASES))
        title = "Plans against starts collected afterwards"
        UNSEEN_RESULTS.write_text(report(UNSEEN, title, _FIRST_READING))
    else:
        print(report(given.cases), end="")
    return 0


def report(cases: Path, title: str = "Plans against measured starts", said: str = "") -> str:
    """The report on a file of cases; what rivals say is beside the cases of this folder."""
    planning = Planning()
    found = [
        f"# {title}",
        "",
        *([said] if said else []),
        *lines(score_all(read_cases(cases), planning)),
    ]
    if cases == CASES:
        found += ["", *rival_lines(planning)]
    return "\n".join(found) + "\n"


def lines(results: Sequence[Result]) -> Iterator[str]:
    """What a report says of starts, in Markdown."""
    exact = [each for each in results if each.case.evidence in EXACT]
    yield f"`make bench-accuracy`: {len(results)} starts, of which {len(exact)} by log or table."
    yield ""
    yield from _summary_table(exact)
    yield ""
    yield from _by_engine(results)
    yield ""
    yield from _fit_lines(results)
    yield ""
    for term, title in _TITLES.items():
        yield from _cases_of(results, term, title)
        yield ""
    yield from _excluded(results)


def summaries(results: Iterable[Result]) -> dict[str, Summary]:
    """Weights, KV cases planned, and KV bytes each, over the cases given."""
    every = list(results)
    weights = [each for each in every if "weights_gib" in each.case.measured]
    kv = [each for each in every if {"kv_gib", "kv_tokens"} & each.case.measured.keys()]
    pooled = [each for each in kv if each.score("kv_pool") or each.score("kv_each")]
    return {
        "weights": Summary.of(_scores(weights, "weights"), len(weights)),
        "kv": Summary.of(_scores(kv, "kv_each"), len(kv), planned=len(pooled)),
        "kv_pool": Summary.of(_scores(kv, "kv_pool"), len(kv)),
    }


def _scores(results: Iterable[Result], term: str) -> list[Score]:
    return [found for each in results if (found := each.score(term)) is not None]


def _summary_table(exact: Sequence[Result]) -> Iterator[str]:
    found = summaries(exact)
    yield "| term (log and table evidence) | planned | median error | worst |"
    yield "|---|---|---|---|"
    for name, title in (("weights", "weights"), ("kv", "KV bytes each"), ("kv_pool", "KV pool")):
        yield f"| {title} | {_row(found[name])} |"


def _by_engine(results: Sequence[Result]) -> Iterator[str]:
    yield "| engine · evidence | weights planned | median | worst | KV planned | median | worst |"
    yield "|---|---|---|---|---|---|---|"
    groups: dict[tuple[str, str], list[Result]] = {}
    for each in results:
        groups.setdefault((each.case.engine or "other", each.case.evidence), []).append(each)
    for (engine, evidence), members in sorted(groups.items()):
        found = summaries(members)
        if found["weights"].total or found["kv"].total:
            yield f"| {engine} · {evidence} | {_row(found['weights'])} | {_row(found['kv'])} |"


def _row(summary: Summary) -> str:
    shown = (_percent(summary.median), _percent(summary.worst))
    return f"{summary.planned}/{summary.total} | {' | '.join(shown)}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def _fit_lines(results: Sequence[Result]) -> Iterator[str]:
    found = fit(results)
    yield "| outcome | fits | tight | does not fit |"
    yield "|---|---|---|---|"
    for outcome, title in (("ok", "ran"), ("oom", "out of memory")):
        counts = [found.count(outcome, v) for v in ("fits", "tight", "does_not_fit")]
        yield f"| {title} | {' | '.join(map(str, counts))} |"
    yield ""
    yield (
        f"Balanced accuracy: {_share(found.warned)} where a start that ran out of memory had to be"
        f" warned of (tight or no) and one that ran not refused; {_share(found.decided)} over those"
        f" decided without a warning; {_share(found.by_exit_status)} where tight counts as a yes."
    )
    yield ""
    for each in results:
        if each.verdict and _is_wrong(each):
            yield f"- {each.case.id} {each.case.model}: {each.case.outcome}, called {each.verdict}"


def _is_wrong(result: Result) -> bool:
    return (result.case.outcome, result.verdict) in (("ok", "does_not_fit"), ("oom", "fits"))


def _share(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _cases_of(results: Sequence[Result], term: str, title: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield "| case | start | evidence | planned | measured | error |"
    yield "|---|---|---|---|---|---|"
    for each in results:
        score = each.score(term)
        if score is not None:
            low, high = score.planned
            planned = _number(low) if high == low else f"{_number(low)} – {_number(high)}"
            yield (
                f"| {each.case.id} | {_start(each.case)} | {each.case.evidence} | {planned}"
                f" | {_number(score.measured)} | {100 * score.error:+.2f} % |"
            )


def _start(case: Case) -> str:
    layout = "·".join(f"{name} {size}" for name, size in case.layout.items())
    return f"{case.model}, {case.engine}, {layout or 'one GPU'}"


def _number(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:,.0f}" if value >= _LARGE else f"{value:.2f}"


def _excluded(results: Sequence[Result]) -> Iterator[str]:
    yield "## Not planned, and the fact that is missing"
    yield ""
    for each in results:
        case = each.case
        if each.plan is None:
            facts = "; ".join(dict.fromkeys(case.missing.values())) or each.reason
            yield f"- {case.id} {case.model}: {facts}"
        else:
            for term, fact in case.missing.items():
                yield f"- {case.id} {case.model}, {term}: {fact}"


if __name__ == "__main__":
    sys.exit(main())
