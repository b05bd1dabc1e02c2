"""Reports of bench and verify in a real browser: nothing fetched, nothing cut off, all drawn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.browser.driver import Browser

PYTHON = [sys.executable, "-m", "heavylift", "--lang", "en"]
WIDTHS = (1000, 1400)


@contextmanager
def playing(*command: str) -> Iterator[str]:
    """The address of a scripted engine."""
    with subprocess.Popen([*PYTHON, "dev", *command], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield server.stderr.readline().split()[-1]
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sweep of two loads, and a verification with long words in it."""
    folder = tmp_path_factory.mktemp("reports")
    made = {name: folder / f"{name}.html" for name in ("bench", "verify")}
    with playing("engine", "paced") as url:
        options = ("-c", "1", "-c", "4", "--requests", "8", "--output-tokens", "8")
        samples = ("--samples", str(folder / "samples.jsonl"))
        command = [*PYTHON, "bench", url, *options, *samples, "--html", str(made["bench"])]
        subprocess.run(command, capture_output=True, check=False)
    with playing("bad-server", "tool-arguments-broken") as url:
        command = [*PYTHON, "verify", url, "--only", "tools", "--html", str(made["verify"])]
        subprocess.run(command, capture_output=True, check=False)
    return made


@pytest.mark.parametrize("name", ["bench", "verify"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_is_whole_in_one_file(
    chromium: Browser, reports: dict[str, Path], name: str, width: int
) -> None:
    """It asks for nothing else, and no column runs off the page."""
    chromium.call("POST", "/window/rect", {"width": width, "height": 900})
    chromium.open(reports[name].as_uri())
    assert chromium.run("return performance.getEntriesByType('resource').length") == 0
    wide = chromium.run(
        "const root = document.documentElement; return [root.scrollWidth, root.clientWidth]"
    )
    assert wide[0] <= wide[1]


def test_the_plots_of_a_benchmark_are_drawn(chromium: Browser, reports: dict[str, Path]) -> None:
    """Curve, two distributions with a line per load, timeline: each under a heading, with marks."""
    chromium.open(reports["bench"].as_uri())
    drawn = chromium.run(
        """return [...document.querySelectorAll('svg')].map(svg => {
            const box = svg.getBoundingClientRect();
            const marks = svg.querySelectorAll('polyline, path, circle, rect').length;
            return [svg.previousElementSibling.tagName, box.width > 300, box.height > 100, marks];
        })"""
    )
    assert len(drawn) >= 4
    for heading, wide, high, marks in drawn:
        assert (heading, wide, high) == ("H2", True, True)
        assert marks >= 2
    words = chromium.run("return document.body.innerText")
    assert "x4" in words
    headings = chromium.run("return [...document.querySelectorAll('h2')].map(h => h.innerText)")
    assert any(heading.endswith("· x4") for heading in headings)
