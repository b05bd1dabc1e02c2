"""Which published recipe a launch follows, and what of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heavylift.facts.schema import RecipeFacts
from heavylift.plan.support import is_layout_of, speaks_of
from heavylift.recipe.job import Job
from heavylift.records.plan import Status

_POSITIVE = (Status.VERIFIED, Status.REPORTED, Status.UNVERIFIED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """The recipe followed. `exact`: it is of this very layout, card and count; else its flags that
    do not speak of the layout are taken, and nothing of its status.
    """

    recipe: RecipeFacts
    exact: bool


def followed(job: Job) -> Followed | None:
    """The published recipe that says most of this launch, or None.

    Of this layout and count before others of the card, before those for any card; then by status
    and day. A split service follows recipes of its own half only.
    """
    fitting = list(_fitting(job))
    if not fitting:
        return None
    recipe = min(fitting, key=lambda each: _order(job, each))
    return Followed(recipe=recipe, exact=_is_exact(job, recipe))


def _fitting(job: Job) -> Iterator[RecipeFacts]:
    phase = job.role if job.is_split else None
    for recipe in job.recipes:
        if (
            Status(recipe.status) in _POSITIVE
            and (recipe.phase.value if recipe.phase else None) == phase
            and recipe.variant in (None, job.plan.variant)
            and (job.gpu.id in recipe.gpu_ids or recipe.for_any_gpu)
        ):
            yield recipe


def _is_exact(job: Job, recipe: RecipeFacts) -> bool:
    return (
        job.gpu.id in recipe.gpu_ids
        and is_layout_of(recipe, job.plan.layout, job.plan.rack)
        and job.variant is not None
        and speaks_of(recipe, job.variant)
    )


def _order(job: Job, recipe: RecipeFacts) -> tuple[int, ...]:
    return (
        0 if _is_exact(job, recipe) else 1,
        0 if job.gpu.id in recipe.gpu_ids else 1,
        0 if recipe.engine_version in (None, job.plan.engine_version) else 1,
        _POSITIVE.index(Status(recipe.status)),
        0 if recipe.gpus == job.plan.rack.gpu_count else 1,
        -recipe.as_of.toordinal(),
    )
