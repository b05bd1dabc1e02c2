"""Whatever is asked for, a recipe is written, refused with a reason, or an error with a code."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.recipe.job import Start
from heavylift.reciping import RecipeWish, Reciping
from heavylift.records.plan import PlanRequest, PlanVerdict, Rack

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


@settings(max_examples=60, deadline=None)
@given(
    rack=st.sampled_from(RACKS),
    engine=st.sampled_from(ENGINES),
    tensor=st.sampled_from((None, 1, 2, 8, 16)),
    pipeline=st.sampled_from((None, 1, 2)),
    dcp=st.sampled_from((None, 1, 8)),
    context=st.sampled_from((None, 4096, 131_072, 1_048_576)),
    text_only=st.booleans(),
    draft=st.sampled_from((None, "redhat-dspark", "inferact-dspark")),
)
def test_a_recipe_is_written_refused_or_named_impossible(
    rack: str,
    engine: str,
    tensor: int | None,
    pipeline: int | None,
    dcp: int | None,
    context: int | None,
    text_only: bool,
    draft: str | None,
) -> None:
    """A written one has a process per machine and a plan that is not known not to fit."""
    sizes = {"tensor": tensor, "pipeline": pipeline, "decode_context": dcp}
    layout = {name: size for name, size in sizes.items() if size is not None}

    def ask(each: Rack) -> PlanRequest:
        return PlanRequest(
            model="kimi-k3",
            rack=each,
            context_tokens=context,
            layout_constraints=layout,
            vision=False if text_only else None,
        )

    wish = RecipeWish(model="kimi-k3", rack=rack, ask=ask, engine=engine, start=Start(draft=draft))
    try:
        recipe = _reciping().recipe(wish)
    except HeavyliftError as error:
        assert error.code.startswith(("REC0", "PLAN0"))
        return
    if recipe.refused is not None:
        assert recipe.launch is None
        return
    assert recipe.launch is not None
    assert len(recipe.launch.ranks) == recipe.plan.rack.nodes
    assert recipe.plan.verdict not in (PlanVerdict.DOES_NOT_FIT, PlanVerdict.UNSUPPORTED)
    assert all(rank.argv == recipe.argv[rank.rank] for rank in recipe.launch.ranks)
