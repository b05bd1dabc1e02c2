"""A provider's price of the day from the `genai-prices` package, an extra."""

from __future__ import annotations

import importlib
from datetime import UTC, date, datetime, time
from importlib import metadata
from typing import Any, Final

from heavylift.errors import HeavyliftError
from heavylift.records.decision import TokenPrice

PACKAGE: Final = "genai-prices"


def fresh_price(known: TokenPrice, day: date) -> TokenPrice:
    """The price of the same offer as the package has it on a day.

    Raises ENV071 when the package is not installed, PLAN086 when it does not know the offer.
    """
    try:
        package: Any = importlib.import_module("genai_prices")
    except ImportError as error:
        raise HeavyliftError("ENV071", hint_command='pip install "heavylift[prices]"') from error
    try:
        found = package.calc_price(
            package.Usage(input_tokens=1),
            model_ref=known.name,
            provider_id=known.provider,
            genai_request_timestamp=datetime.combine(day, time(), UTC),
        )
    except LookupError as error:
        raise HeavyliftError("PLAN086", {"provider": known.provider, "name": known.name}) from error
    price = found.model_price
    prompt = _usd(price.input_mtok)
    cached = prompt if price.cache_read_mtok is None else _usd(price.cache_read_mtok)
    return TokenPrice(
        provider=known.provider,
        name=known.name,
        tier=known.tier,
        input_usd=prompt,
        cached_input_usd=cached,
        output_usd=_usd(price.output_mtok),
        kind="reported",
        source=f"{PACKAGE} {metadata.version(PACKAGE)}",
        as_of=day.isoformat(),
    )


def _usd(amount: Any) -> float:
    """The amount; of a price in tiers that of the first."""
    return float(getattr(amount, "base", amount))
