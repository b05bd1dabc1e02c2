"""Inventories rebuilt from facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heavylift.checkpoint.inventory import from_facts
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog

CATALOG = Catalog()
K3 = CATALOG.model("kimi-k3")
FAMILY = CATALOG.family("kimi-k3")


def test_the_inventory_of_k3_is_the_published_index() -> None:
    """497,220 tensors, 1,560,860,324,864 B, 2,779,931,837,184 parameters (k3-index)."""
    found = from_facts(K3, FAMILY, K3.variants[0])
    assert K3.totals is not None
    assert found.tensors == K3.totals.tensors == 497_220
    assert found.bytes_total == K3.totals.bytes == 1_560_860_324_864
    assert found.params_total == K3.totals.parameters == 2_779_931_837_184


def test_active_parameters_of_k3_are_the_published_104_billion() -> None:
    """16 of 896 experts and all else but the embedding table: 104.19 B; published as 104 B."""
    active = from_facts(K3, FAMILY, K3.variants[0]).active_params(K3)
    assert round(active / 10**9, 2) == 104.19


def test_bytes_by_role_are_those_of_the_components() -> None:
    """Experts 1361.370 and 85.086 GB, shared experts 24.310, MLA 11.145 (k3-inventory)."""
    found = from_facts(K3, FAMILY, K3.variants[0]).by(lambda group: group.role)
    assert found["experts"] == 1_361_370_415_104 + 85_085_650_944
    assert found["shared_experts"] == 24_310_185_984
    assert found["kda_attention"] + found["mla_attention"] == 61_258_257_408 + 11_145_412_608
    assert found["vision"] + found["projector"] == 802_428_928 + 92_289_024


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.1-70b", "smollm2-135m-instruct"])
def test_every_model_rebuilds_to_its_totals(name: str) -> None:
    """What the facts say a checkpoint adds up to is what its patterns give."""
    model = CATALOG.model(name)
    found = from_facts(model, CATALOG.family(model.family), model.variants[0])
    assert model.totals is not None
    assert (found.tensors, found.bytes_total, found.params_total) == (
        model.totals.tensors,
        model.totals.bytes,
        model.totals.parameters,
    )


def test_a_format_the_family_has_no_list_for_is_refused() -> None:
    """A variant in another format cannot be rebuilt, and says so."""
    with pytest.raises(HeavyliftError) as caught:
        from_facts(K3, FAMILY, replace(K3.variants[0], format="zip"))
    assert caught.value.code == "FACT014"
