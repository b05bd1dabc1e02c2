"""Builds llama-server for a CPU out of the source of the wheel that the embedded engine comes in:
`build_llama_server.py FOLDER`.

Ten minutes of two cores, once; FOLDER/bin/llama-server is what comes of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from heavylift.facts.catalog import Catalog
from heavylift.recipe.engines.embedded import PACKAGES

PROGRAM = "llama-server"
# What the build would fetch or try out for itself is left out; speed is not looked at.
OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DGGML_NATIVE=OFF",
    "-DGGML_CCACHE=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)


def main(folder: Path) -> None:
    """Build what is not there."""
    program = folder / "bin" / PROGRAM
    if program.exists():
        return
    package = next(each for each in PACKAGES if each.role == "engine")
    build = Catalog().serving("llamacpp").table_versions[package.version]
    with tempfile.TemporaryDirectory(prefix="llama-server-") as temporary:
        work = Path(temporary)
        source = _source(package.requirement, work)
        cmake = _cmake(work)
        # The number of the build is not in the source: it would be read from a history of commits.
        number = f"-DLLAMA_BUILD_NUMBER={build.removeprefix('b')}"
        made = work / "build"
        run(cmake, "-S", source, "-B", made, *OPTIONS, number, "-DLLAMA_BUILD_COMMIT=none")
        jobs = str(os.cpu_count() or 1)
        run(cmake, "--build", made, "--target", PROGRAM, "--parallel", jobs)
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(made / "bin" / PROGRAM, program.with_suffix(".new"))
    program.with_suffix(".new").rename(program)


def _source(requirement: str, work: Path) -> Path:
    """The folder of llama.cpp in the source package."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    package = requirement.partition("==")[0]
    run(*pip, "download", "--no-deps", "--no-binary", package, "-d", work, requirement)
    (archive,) = work.glob(f"{package}-*.tar.gz")
    shutil.unpack_archive(archive, work, filter="data")
    (listing,) = work.glob(f"{package}-*/thirdparty/llama.cpp/CMakeLists.txt")
    return listing.parent


def _cmake(work: Path) -> str:
    """CMake: the machine's own, or that of its wheel."""
    found = shutil.which("cmake")
    if found is not None:
        return found
    venv.create(work / "cmake", with_pip=True)
    run(work / "cmake/bin/python", "-m", "pip", "install", "--quiet", "cmake")
    return str(work / "cmake/bin/cmake")


def run(*words: str | Path) -> None:
    """Run a command; its failure is ours."""
    subprocess.run([str(word) for word in words], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
