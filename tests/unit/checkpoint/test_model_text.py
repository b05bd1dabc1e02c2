"""Facts files made from a config: what they say is what the config said."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.checkpoint.model_text import Publication, model_text, ranges
from heavylift.facts.catalog import Catalog
from heavylift.facts.decode import Decoder
from heavylift.facts.schema import ModelFacts

CATALOG = Catalog()
SAID = Publication(
    title='The "new" one',
    names=("new",),
    repo="maker/new",
    source="here",
    as_of="2026-11-30",
    engines=("vllm",),
    variant_title="bf16",
)


def decoded(text: str) -> ModelFacts:
    """The record of a facts file."""
    decoder = Decoder("new.toml", None)
    record = decoder.record(ModelFacts, tomllib.loads(text), given={"id": "new"})
    assert not decoder.defects
    assert record is not None
    return record


@pytest.mark.parametrize(
    "identifier", ["kimi-k2.5", "gemma-4-31b", "nemotron-3-nano", "deepseek-v4-flash", "glm-5.1"]
)
def test_a_facts_file_says_what_the_model_is(identifier: str) -> None:
    """Dimensions, layers, forms and totals survive the way into a file and back."""
    model = CATALOG.model(identifier)
    read = decoded(model_text(model, CATALOG.family(model.family), SAID))
    assert read.title == SAID.title
    assert read.dim_values == {name: model.dim(name) for name in read.dims}
    assert {name: fact.value for name, fact in read.layers.items()} == {
        name: fact.value for name, fact in model.layers.items()
    }
    assert read.variants[0].quantised == model.variants[0].quantised
    assert read.totals is not None
    assert model.totals is not None
    assert read.totals.bytes == model.totals.bytes


@given(st.sets(st.integers(0, 300), max_size=60))
def test_layer_numbers_are_written_as_ranges_and_read_back(numbers: set[int]) -> None:
    """`0-2, 5` and `3-59/4` stand for the numbers they were made from."""
    ordered = tuple(sorted(numbers))
    decoder = Decoder("x", None)
    assert decoder._list((int, ...), ranges(ordered), "x", {}) == ordered


def test_what_is_no_range_is_refused() -> None:
    """Words, open ends and letters are a wrong type, as before."""
    for text in ("0-", "a-b", "1..3", "3-1/0"):
        decoder = Decoder("x", None)
        decoder._list((int, ...), text, "x", {})
        assert [defect.problem for defect in decoder.defects] == ["wrong_type"]
