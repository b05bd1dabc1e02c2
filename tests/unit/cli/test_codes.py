"""The page of every error code, and the way from an error to it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from heavylift.cli import codes
from heavylift.cli.text import keys
from heavylift.locale import catalogue

from .conftest import Ran


@pytest.mark.parametrize("language", catalogue.LANGUAGES)
def test_every_code_has_a_page(language: str) -> None:
    """With a sentence, a stage, a status and what to do, in every language."""
    with catalogue.spoken(language):
        pages = [codes.page(code) for code in codes.codes()]
    assert len(pages) > 300
    for page in pages:
        assert page is not None
        assert page.sentence
        assert page.stage
        assert page.exit_meaning
        assert page.advice
        assert all(f"{{{name}}}" in page.sentence for name in page.parameters), page.code


def test_advice_is_about_codes_that_there_are() -> None:
    """No advice is left of an error that is gone."""
    start = "codes.advice."
    named = {key.removeprefix(start) for key in keys() if key.startswith(start)}
    stages = {code.rstrip("0123456789") for code in codes.codes()}
    assert stages <= named
    assert named <= stages | set(codes.codes())


def test_an_error_names_its_page_and_the_page_is_shown(run: Callable[..., Ran]) -> None:
    """What stands behind `docs:` can be typed, and shows the code with its exit status."""
    failed = run("plan", "no-such-model", "--on", "8xB300")
    command = failed.err.partition("docs: heavylift ")[2].splitlines()[0]
    shown = run(*command.split())
    assert shown.status == 0
    assert shown.out.startswith("error[FACT010]: ")
    assert f"exit status: {failed.status} " in shown.out


def test_a_code_is_taken_in_any_case_and_as_json(run: Callable[..., Ran]) -> None:
    """`gw050` is GW050; a program gets the same fields."""
    told = json.loads(run("explain", "gw050", "--json").out)
    assert (told["code"], told["parameters"]) == ("GW050", ["limit", "allowed", "left", "wanted"])
    assert told["next_command"] == "heavylift usage"


@pytest.mark.parametrize("asked", [("explain", "GW999"), ("explain", "GW050", "kimi-k3")])
def test_a_code_that_is_none_or_stands_beside_a_model_is_a_usage_error(
    run: Callable[..., Ran], asked: tuple[str, ...]
) -> None:
    """Status 2, with the code in the sentence where there is none of that name."""
    ran = run(*asked)
    assert ran.status == 2
    assert "GW999" in ran.err or "GW050" in asked
