"""A served model that was measured or verified, as its reports name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedModel:
    """A model behind a URL, or the file that its answers were kept in (`url`). `engine` and
    `version` None = the server does not say; the others None = nobody said. `context_tokens` is
    the longest sequence it takes.
    """

    url: str
    model: str | None = None
    engine: str | None = None
    version: str | None = None
    variant: str | None = None
    release: str | None = None
    is_quantised: bool | None = None
    context_tokens: int | None = None
