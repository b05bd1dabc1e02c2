"""The models of the catalogue: their parameters and bytes against independent counts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from heavylift.checkpoint.inventory import Inventory, from_facts
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog

CATALOG = Catalog()
GOLDEN = tomllib.loads((Path(__file__).parents[2] / "golden" / "models.toml").read_text("utf-8"))


def native(identifier: str) -> Inventory:
    """The tensors of a model's own checkpoint."""
    model = CATALOG.model(identifier)
    return from_facts(model, CATALOG.family(model.family), model.variants[0])


def main_parameters(inventory: Inventory) -> int:
    """Parameters without prediction heads."""
    return sum(group.params_total for group in inventory.groups if not group.is_draft)


@pytest.mark.parametrize(("model", "expected"), GOLDEN["main_parameters"].items())
def test_parameters_are_those_of_an_independent_count(model: str, expected: int) -> None:
    """The family's tensors add up to what the modelling code makes of the same config."""
    assert main_parameters(native(model)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("entry", GOLDEN["published"], ids=lambda entry: str(entry["model"]))
def test_parameters_are_what_the_maker_says(entry: dict[str, Any]) -> None:
    """Within the rounding of a model card, each with its source."""
    assert entry["source"]
    billions = main_parameters(native(entry["model"])) / 1e9
    assert billions == pytest.approx(entry["billions"], rel=0.03)


@pytest.mark.parametrize("identifier", CATALOG.ids("models"))
def test_totals_of_a_model_are_those_of_its_tensors(identifier: str) -> None:
    """What a facts file states as totals is what its family and dimensions give."""
    model = CATALOG.model(identifier)
    if model.totals is None:
        pytest.skip("no totals stated")
    inventory = native(identifier)
    assert inventory.tensors == model.totals.tensors
    assert inventory.bytes_total == model.totals.bytes
    assert inventory.params_total == model.totals.parameters


def test_a_model_that_sees_is_not_the_one_of_the_same_size_that_does_not() -> None:
    """Its tower is not in the text model: one that has no description is better not planned."""
    assert CATALOG.model("Qwen2.5-VL-7B").id == "qwen2.5-vl-7b"
    with pytest.raises(HeavyliftError, match="FACT010"):
        CATALOG.model("Qwen2.5-Omni-7B")
