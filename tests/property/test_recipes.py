"""Whatever is asked for, a recipe is written, refused with a reason, or an error with a code."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.recipe.job import Start
from heavylift.reciping import RecipeWish, Reciping
from heavylift.records.plan import PlanRequest, PlanVerdict, Rack
from heavylift.records.recipe import Recipe

RACKS = (
    "8xB300",
    "8xGB300",
    "2x8xB200",
    "2x8xH200",
    "4x8xH100",
    "8xMI300X",
    "8xMI355X",
    "16xGB200",
)
ENGINES = ("vllm", "sglang", "atom", "atom-vllm", "tokenspeed", "tensorrt-llm", "llamacpp")


@cache
def _reciping() -> Reciping:
    return Reciping()


SIZES = st.fixed_dictionaries(
    {},
    optional={
        "tensor": st.sampled_from((1, 2, 8, 16)),
        "pipeline": st.sampled_from((1, 2)),
        "decode_context": st.sampled_from((1, 8)),
    },
)
WORKLOADS = st.fixed_dictionaries(
    {},
    optional={
        "context_tokens": st.sampled_from((4096, 131_072, 1_048_576)),
        "vision": st.just(value=False),
    },
)
DRAFTS = st.sampled_from((None, None, "redhat-dspark", "inferact-dspark"))


def _made(wish: RecipeWish) -> Recipe | HeavyliftError:
    try:
        return _reciping().recipe(wish)
    except HeavyliftError as error:
        return error


@settings(max_examples=40, deadline=None)
@given(
    place=st.tuples(st.sampled_from(RACKS), st.sampled_from(ENGINES)),
    layout=SIZES,
    workload=WORKLOADS,
    draft=DRAFTS,
)
def test_a_recipe_is_written_refused_or_named_impossible(
    place: tuple[str, str], layout: dict[str, int], workload: dict[str, Any], draft: str | None
) -> None:
    """A written one has a process per machine and a plan that is not known not to fit."""

    def ask(each: Rack) -> PlanRequest:
        return PlanRequest(model="kimi-k3", rack=each, layout_constraints=layout, **workload)

    rack, engine = place
    made = _made(
        RecipeWish(model="kimi-k3", rack=rack, ask=ask, engine=engine, start=Start(draft=draft))
    )
    if isinstance(made, HeavyliftError):
        assert made.code.startswith(("REC0", "PLAN0"))
        return
    if made.refused is not None:
        assert made.launch is None
        return
    assert made.launch is not None
    assert len(made.launch.ranks) == made.plan.rack.nodes
    assert made.plan.verdict not in (PlanVerdict.DOES_NOT_FIT, PlanVerdict.UNSUPPORTED)
    assert made.argv == tuple(rank.argv for rank in made.launch.ranks)
