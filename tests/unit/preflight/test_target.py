"""What a host is judged against."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.preflight.checks.view import Target
from heavylift.preflight.target import no_target, of_file, of_model, rack_of
from heavylift.records.snapshot import Observation, Snapshot, State

Take = Callable[..., Snapshot]


def test_a_plan_brings_its_facts(
    catalog: Catalog, targets: dict[str, Target], tmp_path: Path
) -> None:
    """A plan from a file has its card, model and the recipe it rests on."""
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(targets["amd"].plan))
    found = of_file(path, catalog)
    assert found.plan == targets["amd"].plan
    assert found.gpu is not None
    assert (found.gpu.id, found.gpu.vendor) == ("mi355x", "amd")
    assert found.recipe is not None
    assert "mi355x" in found.recipe.gpu_ids


def test_a_launch_is_told_from_a_plan(
    catalog: Catalog, targets: dict[str, Target], tmp_path: Path
) -> None:
    """A launch from a file is a target of its own; a model nobody knows is left out."""
    path = tmp_path / "launch.json"
    path.write_bytes(msgspec.json.encode(targets["launch"].spec))
    found = of_file(path, catalog)
    assert (found.plan, found.spec) == (None, targets["launch"].spec)
    assert found.model is not None
    document = msgspec.to_builtins(targets["launch"].spec) | {"model": "nobody/knows"}
    path.write_bytes(msgspec.json.encode(document))
    assert of_file(path, catalog).model is None


def test_a_launch_is_judged_with_the_plan_of_its_recipe(
    catalog: Catalog, targets: dict[str, Target], tmp_path: Path
) -> None:
    """The cards that it wants are the plan's: without them a machine that has none would do. A
    plan that cannot be read is none.
    """
    path = tmp_path / "launch.json"
    path.write_bytes(msgspec.json.encode(targets["launch"].spec))
    beside = tmp_path / "plan.json"
    beside.write_bytes(msgspec.json.encode(targets["amd"].plan))
    found = of_file(path, catalog)
    assert (found.plan, found.spec) == (targets["amd"].plan, targets["launch"].spec)
    assert found.gpu is not None
    assert found.gpu.id == "mi355x"
    beside.write_bytes(b"{")
    assert of_file(path, catalog).plan is None


@pytest.mark.parametrize("content", ["", "[]", '{"ranks": 1}', "[" * 100_000])
def test_a_file_that_is_neither(catalog: Catalog, tmp_path: Path, content: str) -> None:
    """Any other file is PRE110."""
    path = tmp_path / "x.json"
    path.write_text(content, "utf-8")
    with pytest.raises(HeavyliftError) as caught:
        of_file(path, catalog)
    assert caught.value.code == "PRE110"


def test_a_model_by_name(catalog: Catalog) -> None:
    """A model is known by any of its names."""
    model = of_model("moonshotai/Kimi-K3", catalog).model
    assert model is not None
    assert model.id == "kimi-k3"


def test_racks_are_read_off_the_cards(snapshot: Take, catalog: Catalog) -> None:
    """Equal cards of the catalogue make a rack, over hosts too; others make none."""
    target = no_target(catalog)
    assert rack_of([snapshot("nvidia")], target) == "8xH200"
    assert rack_of([snapshot("nvidia"), snapshot("nvidia")], target) == "2x8xH200"
    assert rack_of([snapshot("amd")], target) == "8xMI355X"
    assert rack_of([snapshot("amd"), snapshot("nvidia")], target) is None
    absent = Observation(state=State.ABSENT)
    csv = "tool:nvidia-smi --query-gpu=index,compute_cap --format=csv"
    blind = {"tool:nvidia-smi -q -x": absent, csv: absent}
    assert rack_of([snapshot("nvidia", blind)], target) is None
    unknown = "<nvidia_smi_log><gpu><product_name>Card 9000</product_name></gpu></nvidia_smi_log>"
    assert rack_of([snapshot("nvidia", {"tool:nvidia-smi -q -x": unknown})], target) is None
