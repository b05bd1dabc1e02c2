"""What used tokens would have cost at providers, from the facts about prices. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heavylift.facts.price_schema import ApiPriceFacts

_MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelUse:
    """Tokens of one model. `cached_tokens` are among `prompt_tokens`."""

    model: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


def cost_usd(
    uses: Iterable[ModelUse], prices: Iterable[ApiPriceFacts]
) -> tuple[float, float] | None:
    """The least and the most that these tokens cost at the providers of their models, USD; None
    when a model has no price in USD: half a sum would look like a whole one.

    Formula: per model (prompt − cached) × input + cached × cached input + completion × output, over
    the providers' usual offers (no tier).
    """
    usual = [price for price in prices if price.currency == "USD" and not price.tier]
    low = high = 0.0
    for use in uses:
        offers = [_cost(use, price) for price in usual if use.model in (price.model, price.name)]
        if not offers:
            return None
        low += min(offers)
        high += max(offers)
    return low, high


def _cost(use: ModelUse, price: ApiPriceFacts) -> float:
    cached = price.input if price.cached_input is None else price.cached_input
    fresh_tokens = use.prompt_tokens - use.cached_tokens
    return (
        fresh_tokens * price.input
        + use.cached_tokens * cached
        + use.completion_tokens * price.output
    ) / _MILLION
