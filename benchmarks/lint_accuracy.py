"""Recall of the linter on commands that people pasted, and false alarms on those that worked.

    python benchmarks/lint_accuracy.py [FILE.jsonl | FILE.toml] [--verbose]

Each line of the file is a command: `text`, `gpu` and `version` as stated beside it, `status`, and
`expected_findings` as `rule` or `rule:detail`; in TOML, `cases` with `expected`. Rules are compared
before the colon. Run three times: with everything stated, with the rack alone, and with the text
alone. Without a file, the commands of public reports in tests/golden/lint/reports.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from heavylift.linting import Linting

REPOSITORY = Path(__file__).resolve().parents[1]
REPORTS = REPOSITORY / "tests/golden/lint/reports/reports.toml"
ABOVE_STYLE = ("fail", "warn")


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    if path.suffix == ".toml":
        cases = tomllib.loads(path.read_text("utf-8"))["cases"]
        return [{**case, "expected_findings": case["expected"]} for case in cases]
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def measure(
    given: list[dict[str, Any]], linting: Linting, *, rack: bool, version: bool, verbose: bool
) -> None:
    """Print recall and false alarms of one way of asking."""
    expected = made = worked = quiet = 0
    for row in given:
        report = linting.lint(
            row["text"],
            rack=row.get("gpu") if rack else None,
            version=row.get("version") if version else None,
        )
        rules = {finding.rule for finding in report.findings}
        wanted = [each.partition(":")[0] for each in row["expected_findings"]]
        missing = [each for each in wanted if each not in rules]
        expected += len(wanted)
        made += len(wanted) - len(missing)
        loud = [f"{f.severity}:{f.code}" for f in report.findings if f.severity in ABOVE_STYLE]
        if row["status"] == "worked":
            worked += 1
            quiet += not loud
        if verbose:
            false = loud if row["status"] == "worked" else []
            extra = sorted(rules - set(wanted))
            print(
                f"  {row['id']} {row['status']}: missing {missing} alarms {false} "
                f"loud {loud} extra {extra}"
            )
    print(
        f"rack {'stated' if rack else 'hidden'}, version {'stated' if version else 'hidden'}: "
        f"{made} of {expected} findings ({made / expected:.1%}), "
        f"{quiet} of {worked} working commands quiet"
    )


def main() -> None:
    """Measure the file named, or the commands of public reports."""
    arguments = [each for each in sys.argv[1:] if not each.startswith("--")]
    verbose = "--verbose" in sys.argv
    path = Path(arguments[0]) if arguments else REPORTS
    if not path.exists():
        print(f"no commands at {path}: name a file")
        return
    linting, given = Linting(), rows(path)
    measure(given, linting, rack=True, version=True, verbose=verbose)
    measure(given, linting, rack=True, version=False, verbose=verbose)
    measure(given, linting, rack=False, version=False, verbose=verbose)


if __name__ == "__main__":
    main()
