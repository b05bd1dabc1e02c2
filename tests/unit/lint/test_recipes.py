"""What others publish and ran is not alarmed at."""

from __future__ import annotations

import shlex

import pytest

from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import RecipeFacts
from heavylift.linting import Linting

LAYOUT = {
    "vllm": (
        "vllm serve moonshotai/Kimi-K3",
        "--tensor-parallel-size",
        "--pipeline-parallel-size",
        "--data-parallel-size",
        "--decode-context-parallel-size",
        "--enable-expert-parallel",
    ),
    "sglang": (
        "sglang serve --model-path moonshotai/Kimi-K3",
        "--tp-size",
        "--pp-size",
        "--dp-size",
        "--dcp-size",
        "--ep-size",
    ),
}
RECIPES = [
    recipe
    for recipe in Catalog().recipes("kimi-k3").recipes
    if recipe.engine in LAYOUT
    and recipe.status in ("verified", "reported", "unverified")
    and recipe.gpus is not None
    and recipe.gpu_ids
    and recipe.tensor_parallel_size is not None
]


def command(recipe: RecipeFacts) -> str:
    """The command that a recipe's layout, arguments and variables make."""
    entry, tensor, pipeline, data, dcp, expert = LAYOUT[recipe.engine]
    words = [f"{name}={value}" for name, value in recipe.environment.items()]
    words += [entry, "--trust-remote-code"]
    for flag, size in (
        (tensor, recipe.tensor_parallel_size),
        (pipeline, recipe.pipeline_parallel_size),
        (data, recipe.data_parallel_size),
        (dcp, recipe.decode_context_parallel_size),
    ):
        words.append(f"{flag} {size}")
    if recipe.expert_parallel_size > 1:
        words.append(
            expert if recipe.engine == "vllm" else f"{expert} {recipe.expert_parallel_size}"
        )
    for argument in recipe.arguments:
        name, _, value = argument.partition(" ")
        words.append(f"{name} {shlex.quote(value)}" if value else name)
    if (recipe.nodes or 1) > 1 and recipe.data_parallel_size == 1:
        words.append(f"--nnodes {recipe.nodes}")
    return " ".join(words)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)
def test_published_recipes_are_quiet(recipe: RecipeFacts, linting: Linting) -> None:
    """A published recipe has no finding above a remark, but for SGLang's pipeline stages, which a
    later report found to need one more flag.
    """
    per_node = (recipe.gpus or 0) // (recipe.nodes or 1)
    rack = f"{recipe.nodes or 1}x{per_node} {recipe.gpu_ids[0]}"
    report = linting.lint(command(recipe), rack=rack, version=f"image {recipe.image or 'main'}")
    loud = {finding.code for finding in report.findings if finding.severity in ("fail", "warn")}
    known = {"requires:disable_custom_all_reduce"} if recipe.pipeline_parallel_size > 1 else set()
    assert loud <= known
