"""How often the right cause is named: over the cases of tests/logs/diagnose, as they are and inside
20,000 lines of a healthy log with consequences before and after them.
"""

from __future__ import annotations

import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Final

from heavylift.devserver.healthy_log import ENGINES, healthy_lines
from heavylift.diagnose.match import diagnose
from heavylift.diagnose.scan import Scanner
from heavylift.diagnose.symptoms import CompiledSymptoms
from heavylift.facts.catalog import Catalog
from heavylift.records.diagnosis import Diagnosis

CASES: Final = Path(__file__).parents[1] / "tests" / "logs" / "diagnose"
_CONSEQUENCES: Final = (
    "RuntimeError: Engine core initialization failed. Failed core proc(s): {}",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77)",
)
_AT: Final = 11_000


def main() -> int:
    """Print the shares, by area and in all; status 1 below what is promised."""
    symptoms = CompiledSymptoms(Catalog().symptoms())

    def ask(lines: tuple[str, ...]) -> Diagnosis:
        scanner = Scanner(symptoms, "log")
        scanner.feed("\n".join(lines).encode())
        return diagnose([scanner.reading()])

    healthy = tuple(healthy_lines("vllm", 20_000))
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for path in sorted(CASES.glob("*.toml")):
        for case in tomllib.loads(path.read_text("utf-8"))["cases"]:
            wanted, lines = case["cause_class"], tuple(case["lines"])
            alone = ask(lines)
            inside = ask((*healthy[:_AT], *_CONSEQUENCES, *lines, *_CONSEQUENCES, *healthy[_AT:]))
            named = [cause.cause_class for cause in alone.causes]
            same = [cause.cause_class for cause in inside.causes][:1] == named[:1]
            hits = (
                1,
                named[:1] == [wanted],
                wanted in named[:3],
                bool(alone.causes) and alone.causes[0].area == path.stem,
                same or not alone.recognised,
            )
            for row in (path.stem, "all"):
                counts[row] = [count + hit for count, hit in zip(counts[row], hits, strict=True)]
    print(f"{'area':16} {'cases':>5} {'first':>6} {'top 3':>6} {'area':>6} {'same inside':>11}")
    for row in (*sorted(set(counts) - {"all"}), "all"):
        cases, *right = counts[row]
        shares = [f"{100 * count / cases:6.1f}" for count in right]
        print(f"{row:16} {cases:5} {shares[0]} {shares[1]} {shares[2]} {shares[3]:>11}")
    for engine in ENGINES:
        answer = ask(tuple(healthy_lines(engine, 20_000)))
        print(
            f"healthy {engine}: {'WRONG' if answer.recognised else 'not recognised, as it should'}"
        )
    cases, first, third, *_ = counts["all"]
    return int(first / cases < 0.90 or third / cases < 0.97)  # noqa: PLR2004 - what is promised


if __name__ == "__main__":
    sys.exit(main())
