"""Release: what exactly was started, so that it can be compared with another and gone back to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One stage's word on a release: `verify pass`, `bench fail`, with its time and report."""

    stage: str
    status: str
    at: str
    report: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """One start of a deployment. Digests are `sha256:` and hex of the file or image they name.

    `number` counts up per deployment. `receipt_digest` is None until the engine's log has been
    read; `driver` names what a roll-back cannot bring back.
    """

    deployment: str
    number: int
    created_at: str
    recipe_digest: str
    plan_digest: str
    receipt_digest: str | None
    engine: str
    engine_version: str
    image_digest: str | None
    model_revision: str | None
    driver: str | None
    verdicts: tuple[Verdict, ...] = ()
    schema: int = SCHEMA
