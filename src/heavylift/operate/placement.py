"""Whether a model really is on cards, by the engine's own word, where it gives one."""

from __future__ import annotations

import asyncio
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.launch.job import Ready
from heavylift.operate.recipes import Recipe
from heavylift.records.finding import Finding, Severity
from heavylift.telemetry.placement import placements
from heavylift.units import GIB
from heavylift.wire.client import Client, Endpoint, Limits

_LIMITS: Final = Limits(connect_s=5.0, first_byte_s=10.0, total_s=20.0)
_WHOLE: Final = 0.995


def findings(catalog: Catalog, recipe: Recipe, ready: Ready) -> tuple[Finding, ...]:
    """What the engine says of the served model. On a machine whose plan has no cards a model in RAM
    is what was meant; without a plan nobody knows, and it is a remark.
    """
    engine = recipe.spec.engine
    known = engine in catalog.serving_ids()
    path = catalog.serving(engine).placement_path if known else None
    if path is None:
        return ()

    async def page() -> str | None:
        async with Client(Endpoint.parse(ready.url, ready.key or None), limits=_LIMITS) as client:
            return await client.page(path)

    try:
        text = asyncio.run(page())
    except HeavyliftError:
        return ()
    found = placements(text or "")
    model = next((each for each in found if each.name.partition(":")[0] == ready.model), None)
    if model is None:
        return ()
    wants_cards = recipe.spec.gpu_vendor is not None
    word = "cards" if model.share >= _WHOLE else "part" if model.vram_bytes else "cpu"
    severity = Severity.WARN if wants_cards or word == "part" else Severity.INFO
    return (
        Finding(
            id="run.placement",
            code=f"run.placement.{word}",
            severity=Severity.OK if word == "cards" else severity,
            subject=model.name,
            observed=model.vram_bytes,
            expected=model.size_bytes,
            params={
                "vram_gib": round(model.vram_bytes / GIB, 2),
                "percent": round(100 * model.share),
            },
        ),
    )
