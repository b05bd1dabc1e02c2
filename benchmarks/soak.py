"""A soak and a smoke of a real engine: `make bench-smoke`, `make bench-soak` (MINUTES=25).

The embedded engine serves SmolLM2 in two slots; `heavylift verify` goes through its basics again
and again for so long, one request at a time. Prints what the run says of itself: requests that did
not arrive, the slope of the latencies and of the engine's memory, each with its interval. That a
model of 135 million parameters answers wrongly is known and not what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heavylift.cli.served import KEY_VARIABLE
from heavylift.launch import engine_env
from heavylift.launch.embedded import launch
from heavylift.launch.runner import serve
from heavylift.recipe.engines import embedded

SMOKE_S = 30.0
"""What the profile promises, on an engine that is not slow."""
SOAK_CHECKS = ("basics.stream", "basics.whole", "basics.chat", "basics.two_turns")
SLOT_TOKENS = 2048


def main() -> int:
    """Runs what was asked for; the status says whether it held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("smoke", "soak"))
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--answer-tokens", type=int, default=48)
    given = parser.parse_args()
    print(f"load average of the machine before: {os.getloadavg()[0]:.1f}")
    with _engine() as (url, key):
        if given.what == "smoke":
            return _smoke(url, key, given.answer_tokens)
        return _soak(url, key, given.answer_tokens, given.minutes)


def _smoke(url: str, key: str, answer_tokens: int) -> int:
    began_at = time.perf_counter()
    report = _verify(url, key, "--answer-tokens", str(answer_tokens))
    wall_s = time.perf_counter() - began_at
    checks = report["checks"]
    judged = [check for check in checks if check["status"] != "skipped"]
    print(
        f"smoke: {wall_s:.1f} s of wall time, {report['seconds']:.1f} s of it checks; "
        f"{len(judged)} of {len(checks)} checks judged, {sum(c['trials'] for c in judged)} trials"
    )
    for check in sorted(checks, key=lambda each: -each["seconds"])[:8]:
        print(f"  {check['seconds']:6.1f} s  {check['id']}  {check['status']}")
    return 0 if wall_s <= SMOKE_S else 1


def _soak(url: str, key: str, answer_tokens: int, minutes: float) -> int:
    only = [word for check in SOAK_CHECKS for word in ("--only", check)]
    report = _verify(
        url,
        key,
        *("--profile", "soak", "--hours", str(minutes / 60), *only),
        *("--answer-tokens", str(answer_tokens), "--concurrency", "1"),
    )
    checks = {check["id"]: check for check in report["checks"]}
    trials = sum(checks[name]["trials"] for name in SOAK_CHECKS)
    print(f"soak: {report['seconds'] / 60:.1f} minutes, {trials} trials")
    of_the_run = [check for name, check in checks.items() if name.startswith("soak.")]
    for check in of_the_run:
        print(f"  {check['id']}  {check['status']}: {check['evidence'][0]}")
    return 0 if all(check["status"] == "pass" for check in of_the_run) else 1


def _verify(url: str, key: str, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "heavylift", "verify", url, *options, "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, KEY_VARIABLE: key},
    )
    if not done.stdout:
        sys.exit(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextmanager
def _engine() -> Iterator[tuple[str, str]]:
    settings = embedded.EmbeddedSettings(
        model_path=str(engine_env.smollm2_path()),
        model="smollm2",
        slot_tokens=SLOT_TOKENS,
        slots=2,
    )
    key = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        spec = launch(settings, plan_digest="sha256:none")
        log = Path(folder, "engine.log")
        with serve(spec, secrets={embedded.KEY_SECRET: key}, log=log) as served:
            yield served.address, key


if __name__ == "__main__":
    sys.exit(main())
