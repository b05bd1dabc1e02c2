"""Fuzzes one target, led by coverage: `python fuzz/run.py TARGET [SECONDS]`; `make fuzz` runs all.

What breaks a target is written beside the corpus as `crash-…`, `timeout-…` or `oom-…`, and the
status is not 0. Inputs that led somewhere new are kept in `fuzz/corpus/TARGET`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["heavylift"]):
    import targets

_MEMORY_MIB = 1024
_SECONDS_AN_INPUT = 20
_LONGEST_INPUT = 1 << 16


def main() -> None:
    """Write the seeds and fuzz."""
    name = sys.argv[1]
    seconds = sys.argv[2] if len(sys.argv) > 2 else "60"  # noqa: PLR2004 - the second word
    corpus = Path(__file__).parent / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(targets.seeds()[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    target = targets.TARGETS[name]
    target_with_errors = lambda data: targets.allowed(target, data)  # noqa: E731
    atheris.Setup(
        [
            sys.argv[0],
            str(corpus),
            f"-max_total_time={seconds}",
            f"-rss_limit_mb={_MEMORY_MIB}",
            f"-timeout={_SECONDS_AN_INPUT}",
            f"-max_len={_LONGEST_INPUT}",
            f"-artifact_prefix={corpus.parent}/{name}-",
        ],
        target_with_errors,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
