"""What a report says of the model that it is about."""

from __future__ import annotations

from heavylift.cli.text import text
from heavylift.records.served_model import ServedModel


def served_line(served: ServedModel) -> str:
    """Model, variant, engine, version and release in one line; what is not known says so."""
    unknown = text("served.unknown")
    return text(
        "served.target",
        model=served.model or unknown,
        variant=served.variant or unknown,
        engine=served.engine or unknown,
        version=served.version or unknown,
        release=served.release or unknown,
        url=served.url,
    )
