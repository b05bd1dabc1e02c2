"""Cards are known by a name with the memory behind it."""

from __future__ import annotations

import pytest

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog

CATALOG = Catalog()


@pytest.mark.parametrize(
    ("written", "card"),
    [
        ("MI355X 288GB", "mi355x"),
        ("RTX PRO 6000 Blackwell 96GB", "rtx-pro-6000-blackwell"),
        ("DGX Spark GB10 (121.7 GiB)", "gb10"),
        ("A100 80GB (79.25 GiB)", "a100-80"),
        ("A100 40GB", "a100-40"),
        ("H20 96GB", "h20"),
        ("H20 141GB", "h20-141"),
        ("B300 268GB", "b300"),
        ("RTX 5090 32GB (31.84 GiB)", "rtx-5090"),
        ("Apple M3 Ultra 512GB", "m3-ultra-512"),
        ("AMD Strix Halo (128 GB)", "strix-halo"),
        ("H100-80GB", "h100"),
        ("H100 94 GB", "h100-nvl"),
    ],
)
def test_a_size_behind_a_name_is_read(written: str, card: str) -> None:
    """As the box says it or as the driver does; of two cards of one name it tells which."""
    assert CATALOG.gpu(written).id == card


@pytest.mark.parametrize("written", ["RTX 3090 48GB", "24GB GPU", "H100/A100 80GB", "96GB", "GPU"])
def test_a_size_that_no_card_of_the_name_has_is_another_card(written: str) -> None:
    """A card with more memory than it was sold with is not the one that is known."""
    with pytest.raises(HeavyliftError, match="FACT011"):
        CATALOG.gpu(written)
