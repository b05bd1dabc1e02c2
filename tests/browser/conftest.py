"""A real browser on real pages: a server of its own, one browser for all tests of a run."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.browser.driver import Browser, browser, is_installed
from tests.e2e.deployments import Field, field_of_deployments

REPOSITORY: Final = Path(__file__).parents[2]
CACHE: Final = REPOSITORY / ".cache"
REQUIRED: Final = "HEAVYLIFT_TEST_BROWSER"
AXE: Final = "axe-core@4.11.0"
AXE_SHA256: Final = "39bed7d72308f6d620789c169d699bfd7e8da80f65b545821a6b2215c3e83107"

Picture = Callable[[str], None]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A browser; skipped where none is installed, unless one is required."""
    if not is_installed():
        if os.environ.get(REQUIRED):
            pytest.fail("chromium and chromedriver are not installed")
        pytest.skip("chromium and chromedriver are not installed")
    with browser() as session:
        yield session


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of heavylift's own for the server and what it watches."""
    folder = tmp_path_factory.mktemp("web")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEAVYLIFT_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def pages(home: Path) -> Iterator[str]:
    """The address of a server as a user starts it."""
    command = [sys.executable, "-m", "heavylift", "--lang", "en", "web", "--port", "0"]
    environment = {**os.environ, "HEAVYLIFT_HOME": str(home)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        try:
            yield found[0]
        finally:
            process.terminate()
            assert process.wait(20) == 0


@pytest.fixture
def page(chromium: Browser, pages: str) -> Iterator[Browser]:
    """The browser on an empty page in the usual size and light; it must not have complained."""
    chromium.open(f"{pages}static/icon.svg")
    chromium.call("DELETE", "/cookie")
    chromium.resize(1440, 1000)
    chromium.prefer("light")
    chromium.complaints()
    yield chromium
    assert chromium.complaints() == []
    root = "document.documentElement"
    assert chromium.run(f"return {root}.scrollWidth <= {root}.clientWidth"), "runs over the side"


@pytest.fixture
def picture(page: Browser) -> Picture:
    """Keeps a picture of the whole page under .cache/web (or HEAVYLIFT_PICTURES)."""
    folder = Path(os.environ.get("HEAVYLIFT_PICTURES", CACHE / "web"))
    folder.mkdir(parents=True, exist_ok=True)

    def keep(name: str) -> None:
        page.run("scrollTo(0, 0)")
        page.picture(folder / f"{name}.png")

    return keep


@pytest.fixture
def deployments(home: Path) -> Iterator[Field]:  # noqa: ARG001 - where they are kept
    """Deployments of scripted engines, stopped at the end."""
    with field_of_deployments() as field:
        yield field


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility checker of this exact version, fetched once; not part of the repository."""
    kept = CACHE / f"{AXE}.tgz"
    if not kept.is_file():
        _fetch(kept)
    archive = kept.read_bytes()
    assert hashlib.sha256(archive).hexdigest() == AXE_SHA256
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        script = files.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def _fetch(target: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", AXE, "--silent", "--fetch-retries=1"]
    try:
        run = subprocess.run(
            command, cwd=target.parent, capture_output=True, text=True, timeout=60, check=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip(f"{AXE} cannot be fetched")
    (target.parent / run.stdout.split()[-1]).rename(target)


@pytest.fixture
def violations(page: Browser, axe: str) -> Callable[[], list[Any]]:
    """What the checker finds wrong on the page as it stands: WCAG 2.2 A and AA, best practice."""

    def found() -> list[Any]:
        # The page's own policy forbids scripts of others: the browser's debugger may run one.
        page.devtools("Runtime.evaluate", {"expression": axe})
        result = page.devtools(
            "Runtime.evaluate",
            {"expression": "axe.run()", "awaitPromise": True, "returnByValue": True},
        )
        assert len(result["result"]["value"]["passes"]) > 20  # it has looked
        return [
            (each["id"], [node["target"] for node in each["nodes"]])
            for each in result["result"]["value"]["violations"]
        ]

    return found
