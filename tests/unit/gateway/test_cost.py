"""What used tokens would have cost at providers."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from heavylift.facts.price_schema import ApiPriceFacts
from heavylift.gateway.books import Books, Reservation, Settlement, Wish
from heavylift.gateway.cost import ModelUse, cost_usd
from heavylift.gateway.ledger import open_ledger
from heavylift.gateway.quota import Bound, Cost


def price(provider: str, **given: Any) -> ApiPriceFacts:
    """A provider's offer of a model."""
    fields: dict[str, Any] = {
        "provider": provider,
        "model": "kimi-k3",
        "name": "kimi-k3",
        "currency": "USD",
        "input": 3.0,
        "output": 15.0,
        "kind": "reported",
        "source": "test",
        "as_of": date(2026, 11, 30),
    }
    return ApiPriceFacts(**(fields | given))


USE = ModelUse(
    model="kimi-k3", prompt_tokens=2_000_000, completion_tokens=1_000_000, cached_tokens=1_000_000
)


def test_cached_tokens_have_their_own_price_and_providers_differ() -> None:
    """1M fresh at 3, 1M cached at 0.3, 1M written at 15; the dearer one has no price for cached."""
    offers = [price("a", cached_input=0.3), price("b", input=4.0)]
    assert cost_usd([USE], offers) == (3.0 + 0.3 + 15.0, 4.0 + 4.0 + 15.0)


def test_a_model_without_a_price_leaves_the_sum_unknown() -> None:
    """So do offers of another tier or currency."""
    other = ModelUse(model="x", prompt_tokens=1, completion_tokens=1, cached_tokens=0)
    assert cost_usd([USE, other], [price("a")]) is None
    assert cost_usd([USE], [price("a", tier="batch"), price("b", currency="CNY")]) is None


def test_usage_says_what_it_would_have_cost(tmp_path: Path) -> None:
    """By key, with the models of the key added up."""
    with open_ledger(tmp_path) as ledger:
        created = ledger.store.create_key("a", now_epoch_s=1.0)
        key = ledger.store.key(created.id)
        assert key is not None
        books = Books(ledger.database, "test")
        wishes = [Wish(key, "kimi-k3", Bound(prompt_tokens=10, output_tokens=10)) for _ in range(2)]
        with ledger.database.transaction():
            given = books.book((), wishes, ledger.now())
            cost = Cost(prompt_tokens=500_000, completion_tokens=100_000)
            ends = [Settlement(one.id, cost) for one in given if isinstance(one, Reservation)]
            assert books.book(ends, (), ledger.now()) == []
        (row,) = ledger.store.priced_usage("key", [price("a")])
        assert row.requests == 2
        assert row.cost_usd_low == row.cost_usd_high == 3.0 + 3.0
        (unpriced,) = ledger.store.priced_usage("key", [])
        assert unpriced.cost_usd_low is None
