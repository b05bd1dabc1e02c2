"""Recipes made once for many tests: `make_recipe("kimi-k3", "8xB300", "vllm", …)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heavylift.recipe.job import Start
from heavylift.reciping import RecipeWish, Reciping
from heavylift.records.plan import PlanRequest, Rack
from heavylift.records.recipe import Recipe

SIZES = ("tensor", "pipeline", "data", "expert", "decode_context")


@pytest.fixture(scope="session")
def reciping() -> Reciping:
    """The shipped facts, read once for the whole run."""
    return Reciping()


@pytest.fixture(scope="session")
def make_recipe(reciping: Reciping) -> Callable[..., Recipe]:
    """Layout sizes by the names of constraints, `start` as its fields, the rest of the request."""

    def make(
        model: str,
        rack: str,
        engine: str | None = None,
        *,
        start: dict[str, Any] | None = None,
        split: tuple[int, int] | None = None,
        replicas: int = 1,
        despite: bool = False,
        **given: Any,
    ) -> Recipe:
        layout = {name: given.pop(name) for name in SIZES if name in given}

        def ask(each: Rack) -> PlanRequest:
            return PlanRequest(model=model, rack=each, layout_constraints=layout, **given)

        return reciping.recipe(
            RecipeWish(
                model=model,
                rack=rack,
                ask=ask,
                engine=engine,
                start=Start(**(start or {})),
                split=split,
                replicas=replicas,
                despite=despite,
            )
        )

    return make
