"""The golden plans: inputs, expected bytes term by term, and the source of each."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heavylift.records.plan import Plan
from heavylift.units import GIB, MIB

FOLDER = Path(__file__).parents[2] / "golden" / "plan"
CASES = [
    pytest.param(case, id=case["name"])
    for path in sorted(FOLDER.glob("*.toml"))
    for case in tomllib.loads(path.read_text("utf-8"))["case"]
]


def value(plan: Plan, path: str) -> Any:
    """A field of the plan by its path; `term.`, `stage.`, `note.` and `sum.` look into lists."""
    head, _, rest = path.partition(".")
    match head:
        case "term":
            return next(term for term in plan.terms if term.id == rest).bytes.low
        case "stage":
            index, field = rest.split(".")
            return getattr(plan.stages[int(index)], field)
        case "note":
            code, field = rest.split(".")
            return next(note for note in plan.notes if note.code == code).params[field]
        case "sum":
            names = rest.split("+")
            return sum(term.bytes.low for term in plan.terms if term.segment in names)
    found: Any = plan
    for name in path.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("case", CASES)
def test_plan_says_what_its_source_says(
    case: dict[str, Any], make_plan: Callable[..., Plan]
) -> None:
    """A plan's terms, verdict and capacity equal the sourced figures of the golden case."""
    plan = make_plan(case["model"], case["on"], **case.get("given", {}))
    checked = 0
    for path, expected in case.get("exact", {}).items():
        assert value(plan, path) == expected, path
        checked += 1
    for unit, key, digit in ((GIB, "gib", 0.00005), (MIB, "mib", 0.0051)):
        for path, expected in case.get(key, {}).items():
            within = case.get("within", digit)
            assert value(plan, path) / unit == pytest.approx(expected, abs=within), path
            checked += 1
    for path, expected in case.get("inside", {}).items():
        assert expected in value(plan, path), path
        checked += 1
    for path, expected in case.get("about", {}).items():
        assert value(plan, path) == pytest.approx(expected, rel=0.01), path
        checked += 1
    assert checked, "a case that expects nothing tests nothing"
