"""The planner in a real browser: plan K3, move the sliders, switch the language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.browser.conftest import Picture
from tests.browser.driver import Browser

pytestmark = pytest.mark.browser

K3: Final = "?model=kimi-k3&on=8xMI355X&engine=atom&context=1M&text-only=1"
MISSES: Final = "?model=kimi-k3&on=8xB200&context=128k&concurrency=16"
LEFT, RIGHT, DOWN, END = "\ue012", "\ue014", "\ue015", "\ue010"
COMPLETE: Final = "document.body.dataset.complete"


def test_k3_is_planned(page: Browser, pages: str, picture: Picture) -> None:
    """One bar per GPU, the verdict, the command, and the chart of the band."""
    page.open(pages + K3)
    page.wait(COMPLETE)
    assert page.text("#r-verdict .word") == "✓ Fits"
    assert page.run("return document.querySelectorAll('.bar').length") == 8
    assert "heavylift plan kimi-k3 --on 8xMI355X" in page.text("#command")
    assert page.run("return document.querySelectorAll('#r-speed polygon').length") > 0
    assert "atom" in page.text("#r-recipe")
    picture("planner-light")


def test_a_slider_moves_the_plan_the_address_and_the_command(page: Browser, pages: str) -> None:
    """Sequences by the keyboard up to more than there is room for: it does not fit any more."""
    page.open(pages + K3)
    page.wait(COMPLETE)
    page.run("document.querySelectorAll('input[type=range]')[1].focus()")
    page.press(RIGHT)
    page.press(END)
    page.wait("document.querySelector('#r-verdict .word').textContent.includes('Does not fit')")
    page.wait("document.body.dataset.settled?.includes('concurrency=512')")
    assert "concurrency=512" in page.run("return location.search")
    assert "--concurrency 512" in page.text("#command")
    assert page.run("return document.querySelector('#concurrency').value") == "512"
    page.wait("document.querySelectorAll('#r-fixes a').length > 0")


def test_a_typed_number_moves_the_slider(page: Browser, pages: str) -> None:
    """A context as people write it; what is none is marked and nothing breaks."""
    page.open(pages + K3)
    page.run("document.querySelector('#context').value = ''")
    page.type("#context", "64k\n")
    page.wait("document.body.dataset.settled?.includes('context=64k')")
    assert page.run("return document.querySelector('input[type=range]').value") == "16"
    page.run("document.querySelector('#context').value = ''")
    page.type("#context", "lots\n")
    page.wait("document.querySelector('#r-verdict').textContent.includes('WEB001')")
    assert page.run("return document.querySelector('#context').ariaInvalid") == "true"


def test_the_language_is_switched_and_the_question_stays(
    page: Browser, pages: str, picture: Picture
) -> None:
    """Simplified, then Traditional Chinese, then English again, by the links of the page."""
    page.open(pages + K3)
    for tag, verdict in (("zh-Hans", "放得下"), ("zh-Hant", "放得下"), ("en", "Fits")):
        page.click(f"[data-language][lang={tag}]")
        page.wait(f"document.documentElement.lang === '{tag}'")
        assert verdict in page.text("#r-verdict .word")
        assert page.run("return location.search") == K3
        page.wait(COMPLETE)
        picture(f"planner-{tag}")


def test_a_fix_is_a_button_that_leads_to_its_plan(
    page: Browser, pages: str, picture: Picture
) -> None:
    """From what does not fit to a rack that holds it, in one click."""
    page.open(pages + MISSES)
    page.wait("document.querySelectorAll('#r-fixes a').length > 0")
    page.wait(COMPLETE)
    picture("planner-misses")
    page.click("#r-fixes a")
    page.wait("document.querySelector('#r-verdict .word')?.textContent.includes('Fits')")


def test_bars_are_walked_with_the_arrow_keys(page: Browser, pages: str) -> None:
    """The readout says what the focus is on, with its formula and source."""
    page.open(pages + K3)
    page.run("document.querySelector('.piece[tabindex=\"0\"]').focus()")
    assert "GPU 0 · Weights" in page.text("[data-readout]")
    page.press(RIGHT)
    page.press(DOWN)
    said = page.text("[data-readout]")
    assert "GPU 1 · KV cache" in said
    assert "1,048,576" in said
    assert page.run("return document.activeElement.ariaLabel") == said


def test_a_simulation_and_a_comparison_come_when_they_are_asked_for(
    page: Browser, pages: str, picture: Picture
) -> None:
    """Both take their time, and say so."""
    page.open(f"{pages}?model=kimi-k3&on=8xB300&concurrency=8&isl=1k&osl=64")
    page.wait(COMPLETE)
    page.click("button[data-part=simulate]")
    page.wait("document.querySelectorAll('#r-simulate td').length > 5")
    page.click("button[data-part=compare]")
    page.wait("document.querySelectorAll('#r-compare tr').length > 5")
    picture("planner-asked")


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_runs_over_the_side(
    page: Browser, pages: str, picture: Picture, width: int
) -> None:
    """On a telephone and on a small screen: the page scrolls down, never sideways."""
    page.resize(max(width, 500), 900)
    page.devtools(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        page.open(f"{pages}?model=kimi-k3&on=16xH200&context=32k&concurrency=64")
        page.wait(COMPLETE)
        root = "document.documentElement"
        assert page.run(f"return {root}.scrollWidth <= {root}.clientWidth")
        picture(f"planner-{width}")
    finally:
        page.devtools("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("query", [K3, MISSES], ids=["fits", "misses"])
def test_the_planner_is_accessible(  # noqa: PLR0917 - fixtures
    page: Browser,
    pages: str,
    picture: Picture,
    violations: Callable[[], list[Any]],
    scheme: str,
    query: str,
) -> None:
    """The checker finds nothing: contrast, names, roles, order, in both schemes."""
    page.prefer(scheme)
    page.open(pages + query)
    page.wait(COMPLETE)
    page.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert violations() == []
    if scheme == "dark":
        picture("planner-dark")


def test_the_theme_is_chosen_and_kept(page: Browser, pages: str) -> None:
    """System, light, dark: the button says which, and the next page keeps it."""
    page.open(pages + K3)
    page.click("[data-theme-button]")
    page.click("[data-theme-button]")
    dark = page.run("return getComputedStyle(document.body).backgroundColor")
    page.open(f"{pages}live")
    assert page.run("return document.documentElement.dataset.theme") == "dark"
    assert page.run("return getComputedStyle(document.body).backgroundColor") == dark
    page.run("localStorage.clear()")
