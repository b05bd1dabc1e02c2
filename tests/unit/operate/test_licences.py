"""The licence of a model, as `fetch`, `up` and go-live reports are told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from heavylift.facts.catalog import Catalog
from heavylift.operate.licences import acknowledge, licence_of


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has acknowledged anything here."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path))


def test_a_described_licence_is_told_with_its_source_and_conditions() -> None:
    """Name, source and date are those of the fact; every condition comes with its own."""
    facts = Catalog().model("kimi-k3")
    assert facts.licence is not None
    told = licence_of(Catalog(), "Kimi-K3")
    assert (told.name, told.source) == (facts.licence.value, facts.licence.source)
    assert (told.as_of, told.note) == (facts.licence.as_of.isoformat(), facts.licence.note)
    assert [each.id for each in told.terms] == [each.id for each in facts.licence_terms]
    assert all(each.text and each.source and each.as_of for each in told.terms)
    assert told.acknowledged_at is None


def test_a_model_that_nobody_described_has_no_licence_that_is_known() -> None:
    """Nothing is guessed from its name."""
    told = licence_of(Catalog(), "somebody/their-model")
    assert (told.name, told.source, told.as_of, told.note, told.terms) == (*[None] * 4, ())


def test_an_acknowledgement_is_kept_under_every_name_of_the_model() -> None:
    """By its id, it holds for its title too."""
    assert acknowledge(Catalog(), "kimi-k3").acknowledged_at is not None
    assert licence_of(Catalog(), "Kimi K3").acknowledged_at is not None
