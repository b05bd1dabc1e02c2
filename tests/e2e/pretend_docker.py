"""A pretended Docker client: `pull` prints what Docker prints, `run` runs the words right here.

What it is asked goes to the file PRETEND_DOCKER_LOG, a JSON list per line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main(words: list[str]) -> int:
    """Do what is asked, or pretend to."""
    with Path(os.environ["PRETEND_DOCKER_LOG"]).open("a", encoding="utf-8") as log:
        log.write(json.dumps(words) + "\n")
    if words[0] == "pull":
        for line in (
            "1.0: Pulling from example/engine",
            "0123456789ab: Pulling fs layer",
            "ba9876543210: Already exists",
            "0123456789ab: Download complete",
        ):
            print(line, flush=True)
        time.sleep(0.3)
        print("0123456789ab: Pull complete", flush=True)
        return 0
    if words[0] == "run":
        place = next(n for n, word in enumerate(words[1:], 1) if not word.startswith("--"))
        entry = ""
        for word in words[1:place]:
            name, _, value = word.partition("=")
            if name == "--entrypoint":
                entry = value
            elif name == "--env" and "=" in value:
                os.environ[value.partition("=")[0]] = value.partition("=")[2]
        os.execvp(entry, [entry, *words[place + 1 :]])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
