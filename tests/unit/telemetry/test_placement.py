"""Where an engine says its models lie."""

from __future__ import annotations

import json

import pytest

from heavylift.telemetry.placement import placements


def test_a_list_of_what_runs_is_read() -> None:
    """Sizes in all and on cards; a model that states none is left out."""
    models = [{"name": "m:latest", "size": 4000, "size_vram": 1000}, {"name": "other"}]
    (found,) = placements(json.dumps({"models": models}))
    assert (found.name, found.share) == ("m:latest", 0.25)


@pytest.mark.parametrize("page", ["", "[]", "{}", '{"models": 3}', '{"models": [3]}'])
def test_what_is_no_such_list_tells_nothing(page: str) -> None:
    """Not knowing is no share of zero."""
    assert placements(page) == ()
