"""Fixtures that every part of the suite shares."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from heavylift.plan.planner import Knowledge
from heavylift.planning import Planning
from heavylift.records.plan import Plan, PlanRequest, Rack
from heavylift.records.receipt import Receipt

# No example has a deadline: workers share the machine, and a busy one proves nothing of the code.
settings.register_profile("heavylift", deadline=None)
settings.load_profile("heavylift")


@pytest.fixture(scope="session")
def planning() -> Planning:
    """The shipped facts, read once for the whole run."""
    return Planning()


@pytest.fixture(scope="session")
def knowledge_of(planning: Planning) -> Callable[[str], Knowledge]:
    """What a plan of a model may look at, read once per model."""
    known: dict[str, Knowledge] = {}

    def of(model: str) -> Knowledge:
        if model not in known:
            known[model] = planning.knowledge(model)
        return known[model]

    return of


@pytest.fixture(scope="session")
def make_plan(planning: Planning, knowledge_of: Callable[[str], Knowledge]) -> Callable[..., Plan]:
    """`make_plan("kimi-k3", "8xMI355X", tensor=8, engine="atom", …)`: a plan without fixes.

    Layout sizes are given by the names of the constraints; everything else is a field of the
    request. `fixes=True` looks for fixes as well.
    """
    sizes = ("tensor", "pipeline", "data", "expert", "decode_context")

    def make(
        model: str, on: str, *, fixes: bool = False, receipt: Receipt | None = None, **given: Any
    ) -> Plan:
        knowledge = knowledge_of(model)
        constraints = {name: given.pop(name) for name in sizes if name in given}
        given["engine"] = planning.engine(given.get("engine"))
        gpu, rack = planning.rack(on)

        def build(each: Rack) -> PlanRequest:
            return PlanRequest(model=model, rack=each, layout_constraints=constraints, **given)

        request = build if rack is None else build(rack)
        return planning.plan(request, knowledge, gpu=gpu, receipt=receipt, with_fixes=fixes)

    return make


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data that is not part of the repository; skips where it is absent."""
    folder = Path(os.environ.get("HEAVYLIFT_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("no reference data beside the repository")
    return folder


@pytest.fixture(autouse=True)
def home(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No test writes where the user's own files are; those of the real engine share its home."""
    if "engine_home" not in request.fixturenames:
        monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path_factory.mktemp("home")))
