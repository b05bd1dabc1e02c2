"""Whether a comparison of two benchmarks shows a slowdown that matters.

python slower.py compare.json 0.05

`heavylift bench compare` says no to any certain slowdown, also to one of a millisecond. A gate asks
for more: the whole interval of the difference must lie above a share of what it was before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(comparison: str, most: str) -> int:
    """1 when a metric is certainly slower by more than `most` (a share), else 0."""
    changes = json.loads(Path(comparison).read_text("utf-8"))["changes"]
    worse = [each for each in changes if each["is_worse"] and each["low"] > float(most) * each["a"]]
    for each in worse:
        at_least = each["low"] / each["a"]
        print(f"{each['metric']}: slower by {at_least:.0%} at least", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
