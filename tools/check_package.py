"""Build the wheel and the source archive and use them as a stranger would.

    python tools/check_package.py [PYTHON …]

For every interpreter (those of 3.11 to 3.13 on the path, unless named): the wheel into an empty
environment with pip, then `heavylift demo`. Once: the source archive with pip, the wheel with pipx.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.11", "3.12", "3.13")


def run(*command: str | Path, **variables: str) -> str:
    """The output of a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(python: str, folder: Path) -> Path:
    """A new environment's interpreter."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def interpreters() -> list[str]:
    """The supported interpreters that are here and start."""
    found = []
    for version in VERSIONS:
        path = shutil.which(f"python{version}")
        started = path and subprocess.run([path, "-V"], capture_output=True, check=False)
        if path and started and started.returncode == 0:
            found.append(path)
    return found


def demo(command: Path, home: Path) -> str:
    """The last line of the demo."""
    return run(command, "demo", HEAVYLIFT_HOME=str(home)).strip().splitlines()[-1]


def main(pythons: Sequence[str]) -> None:
    """Build, install, run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = environment(sys.executable, folder / "build")
        run(builder, "-m", "pip", "install", "-q", "build", "pipx")
        run(builder, "-m", "build", "--outdir", folder / "dist", ROOT)
        (wheel,) = (folder / "dist").glob("*.whl")
        (archive,) = (folder / "dist").glob("*.tar.gz")
        print(f"built {wheel.name}, {archive.name}")
        for number, python in enumerate(pythons):
            installed = environment(python, folder / f"wheel{number}")
            run(installed, "-m", "pip", "install", "-q", wheel)
            print(f"{run(installed, '-V').strip()}: {demo(installed.parent / 'heavylift', folder)}")
        installed = environment(sys.executable, folder / "archive")
        run(installed, "-m", "pip", "install", "-q", archive)
        print(f"source archive: {run(installed.parent / 'heavylift', '--version').strip()}")
        places = {"PIPX_HOME": str(folder / "pipx"), "PIPX_BIN_DIR": str(folder / "bin")}
        run(builder, "-m", "pipx", "install", wheel, **places)
        print(f"pipx: {run(folder / 'bin' / 'heavylift', '--version').strip()}")


if __name__ == "__main__":
    main(sys.argv[1:] or interpreters())
