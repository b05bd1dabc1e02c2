"""Write the recipes whose words are kept, as tests/golden/recipe/cases.toml lists them.

One text file per case: the commands, the remarks, and every file of the target.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from heavylift.cli.recipe import command

GOLDEN = Path(__file__).parents[1] / "tests/golden/recipe"
LEFT_OUT = ("plan.json", "launch.json", "README.md", "plan-prefill.json")
"""Plans have golden cases of their own, and the rest is said in other words."""


def cases() -> list[dict[str, Any]]:
    """The cases in order."""
    found: list[dict[str, Any]] = tomllib.loads((GOLDEN / "cases.toml").read_text("utf-8"))["cases"]
    return found


def made(args: list[str]) -> tuple[str, str]:
    """The folder of a case (`vllm-0.32.0`) and its text."""
    result = CliRunner().invoke(command, [*args, "--json"], catch_exceptions=False)
    recipe = json.loads(result.stdout)
    launch = recipe["launch"]
    parts = [f"heavylift recipe {' '.join(args)}"]
    parts.append(f"{recipe['status']} · {recipe['layout']} · {launch['deadline_s']} s")
    parts.append(f"image: {launch['image']} {launch['image_digest'] or ''}".rstrip())
    for rank in launch["ranks"]:
        parts.append(f"\n== {rank['name']} on {rank['host']}, {rank['gpus']} GPUs")
        parts += [f"{name}={value}" for name, value in rank["env"].items()]
        parts += [f"secret {name}: {value}" for name, value in rank["secrets"].items()]
        parts += rank["argv"]
    parts.append("\n== remarks")
    for note in launch["notes"]:
        said = ", ".join(f"{name}={value}" for name, value in note["params"].items())
        parts.append(f"{note['code']}: {said}".rstrip(": "))
    for file in recipe["files"]:
        if file["path"] not in LEFT_OUT:
            parts.append(f"\n== {file['path']}")
            parts.append(file["content"].rstrip("\n"))
    return f"{recipe['engine']}-{recipe['engine_version']}", "\n".join(parts) + "\n"


def main() -> None:
    """Write every case; folders of engines that have none any more go."""
    for folder in GOLDEN.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    for case in cases():
        folder, text = made(case["args"])
        path = GOLDEN / folder / f"{case['name']}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        sys.stdout.write(f"{path.relative_to(GOLDEN)}\n")


if __name__ == "__main__":
    main()
