"""Whether anybody ran this: the published word on a model, engine, card and layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from heavylift.facts.schema import EngineSupportRule, RecipeFacts, VariantFacts
from heavylift.plan.registry import by_registry
from heavylift.plan.subject import UNNAMED_VENDOR, Subject
from heavylift.records.plan import Layout, Rack, Status, Support

_POSITIVE: Final = (Status.VERIFIED, Status.REPORTED, Status.UNVERIFIED)
_NEGATIVE: Final = (Status.UNSUPPORTED, Status.BROKEN)

UNPUBLISHED: Final = 2


def support(subject: Subject, layout: Layout) -> Support:
    """The status of the layout on this card and engine, with its source and date.

    Order: recipes of exactly this layout and count; else what the engine's facts say of the family;
    else `unverified` when there is a recipe for the card in another layout; else what the release
    itself lists as runnable; else unknown. A version whose rules were not read makes anything
    better than `unknown` unknown.
    """
    # Where nobody published a layout for the card, every layout has the same word.
    exact = bool(recipes_on_card(subject))
    key = (
        "support",
        subject.weights_key,
        subject.version_text,
        subject.gpu.id,
        subject.rack.parts,
        (layout, subject.rack.gpu_count) if exact else None,
    )
    return subject.knowledge.remembered(key, lambda: _support(subject, layout))


def recipes_on_card(subject: Subject) -> tuple[RecipeFacts, ...]:
    """Recipes of the subject's engine and variant that name its card."""
    return subject.knowledge.remembered(
        (
            "on_card",
            subject.engine.id,
            subject.variant.id,
            subject.version_text,
            subject.gpu.id,
            subject.rack.parts,
        ),
        lambda: tuple(
            recipe for recipe in whole_service_recipes(subject) if subject.gpu.id in recipe.gpu_ids
        ),
    )


def _support(subject: Subject, layout: Layout) -> Support:
    found = _published(subject, layout)
    if not subject.version_is_read and found.status in _POSITIVE and not _ran_this(subject, found):
        return Support(
            status=Status.UNKNOWN,
            source=found.source,
            as_of=found.as_of,
            recipe=found.recipe,
            note="version_unread",
            conflict=found.recipe,
        )
    return found


def _ran_this(subject: Subject, found: Support) -> bool:
    """True when the recipe behind the status names the very version of the plan."""
    return any(
        recipe.id == found.recipe and recipe.engine_version == subject.version_text
        for recipe in subject.knowledge.book.recipes
    )


def _published(subject: Subject, layout: Layout) -> Support:
    on_card = recipes_on_card(subject)
    exact = [recipe for recipe in on_card if is_layout_of(recipe, layout, subject.rack)]
    if exact:
        return _weighed(exact)
    key = ("elsewhere", subject.weights_key, subject.version_text, subject.gpu.id)
    return subject.knowledge.remembered(
        (*key, subject.rack.parts), lambda: _without_recipe(subject, on_card)
    )


def _without_recipe(subject: Subject, on_card: Sequence[RecipeFacts]) -> Support:
    """The word on every layout that nobody published for the card."""
    rule = subject.scope.first(subject.engine.support)
    if rule is not None:
        return _by_rule(rule)
    positive = [recipe for recipe in on_card if Status(recipe.status) in _POSITIVE]
    if positive:
        best = _weighed(positive)
        return Support(
            status=Status.UNVERIFIED,
            source=best.source,
            as_of=best.as_of,
            recipe=best.recipe,
            note="other_layout",
        )
    # That a class loads says nothing of a card that nobody named.
    listed = None if subject.gpu.vendor == UNNAMED_VENDOR else by_registry(subject)
    return listed or Support(status=Status.UNKNOWN, source="", as_of="", note="no_recipe")


def _by_rule(rule: EngineSupportRule) -> Support:
    return Support(
        status=Status(rule.status),
        source=rule.source,
        as_of=rule.as_of.isoformat(),
        note=rule.reason or None,
    )


def whole_service_recipes(subject: Subject) -> list[RecipeFacts]:
    """Recipes of the subject's engine that speak of it: of its variant and version, and not of one
    half of a service whose prefill and decode are split.

    A release that came before the first a recipe is for ran nothing of it.
    """
    if subject.cards:
        return []  # nobody published one of several kinds of card
    return subject.knowledge.remembered(
        ("recipes", subject.engine.id, subject.variant.id, subject.version_text),
        lambda: [
            recipe
            for recipe in subject.knowledge.book.recipes
            if recipe.engine == subject.engine.id
            and recipe.phase is None
            and speaks_of(recipe, subject.variant)
            and (not subject.version_is_read or subject.scope.holds(recipe))
        ],
    )


def speaks_of(recipe: RecipeFacts, variant: VariantFacts) -> bool:
    """Whether a published recipe says anything of a form of the weights: one that names no form
    ran the engine's usual ones, not one whose tensors are stored in other sizes.
    """
    if recipe.variant is None:
        return not variant.dims
    return recipe.variant == variant.id


def refused_by_engine(subject: Subject) -> Support | None:
    """The engine's own word that it does not run this model on this card, whatever the layout:
    where nobody published a run of it to the contrary.
    """
    return subject.knowledge.remembered(
        (
            "refused",
            subject.weights_key,
            subject.version_text,
            subject.gpu.id,
            subject.rack.parts,
        ),
        lambda: (_refused_by_engine(subject),),
    )[0]


def _refused_by_engine(subject: Subject) -> Support | None:
    if recipes_on_card(subject):
        return None
    rule = subject.scope.first(subject.engine.support)
    said = by_registry(subject) if rule is None else _by_rule(rule)
    return None if said is None or said.status not in _NEGATIVE else said


def publication_rank(subject: Subject, layout: Layout) -> int:
    """0 = this layout was published for this card, 1 = for another with as many to a machine, 2 =
    for none. What suits trays of four says nothing of machines of eight.
    """
    here = (subject.gpu.id, subject.rack.gpus_per_node)
    return subject.knowledge.remembered(
        (
            "published",
            subject.engine.id,
            subject.variant.id,
            subject.version_text,
            here,
            subject.rack.parts,
            layout,
        ),
        lambda: min(_publication_ranks(subject, layout), default=UNPUBLISHED),
    )


def _publication_ranks(subject: Subject, layout: Layout) -> Iterator[int]:
    for recipe in whole_service_recipes(subject):
        named = subject.gpu.id in recipe.gpu_ids
        alike = named or _per_machine(recipe) == subject.rack.gpus_per_node
        if alike and is_layout_of(recipe, layout, None):
            yield 0 if named else 1


def _per_machine(recipe: RecipeFacts) -> int | None:
    """GPUs to a machine in a recipe; None where it does not say."""
    return None if not recipe.gpus or not recipe.nodes else recipe.gpus // recipe.nodes


def is_layout_of(recipe: RecipeFacts, layout: Layout, rack: Rack | None) -> bool:
    """True when a recipe was published for this layout and, with a rack, its number of cards."""
    return (
        recipe.tensor_parallel_size == layout.tensor_parallel_size
        and recipe.pipeline_parallel_size == layout.pipeline_parallel_size
        and recipe.data_parallel_size == layout.data_parallel_size
        and recipe.expert_parallel_size == layout.expert_parallel_size
        and recipe.decode_context_parallel_size == layout.decode_context_parallel_size
        and (rack is None or recipe.gpus in (None, rack.gpu_count))
    )


def _weighed(recipes: list[RecipeFacts]) -> Support:
    """One status from several recipes; the one that differs most is named as the conflict.

    The best positive word counts, unless a newer source calls it broken or unsupported.
    """
    positive = [recipe for recipe in recipes if Status(recipe.status) in _POSITIVE]
    negative = [recipe for recipe in recipes if Status(recipe.status) not in _POSITIVE]
    newest_good = max((recipe.as_of for recipe in positive), default=None)
    newest_bad = max((recipe.as_of for recipe in negative), default=None)
    if newest_good is None or (newest_bad is not None and newest_bad > newest_good):
        taken = max(negative, key=lambda recipe: recipe.as_of)
        other = positive
    else:
        order = list(_POSITIVE)
        taken = min(
            positive,
            key=lambda recipe: (order.index(Status(recipe.status)), -recipe.as_of.toordinal()),
        )
        other = negative
    return Support(
        status=Status(taken.status),
        source=taken.source,
        as_of=taken.as_of.isoformat(),
        recipe=taken.id,
        note=taken.reason or None,
        conflict=max(other, key=lambda recipe: recipe.as_of).id if other else None,
    )


def ran_as_published(subject: Subject, layout: Layout) -> RecipeFacts | None:
    """The recipe whose source says this layout ran on these cards with at least this workload."""
    for recipe in recipes_on_card(subject):
        if (
            Status(recipe.status) in (Status.VERIFIED, Status.REPORTED)
            and is_layout_of(recipe, layout, subject.rack)
            and _covers(recipe, subject)
        ):
            return recipe
    return None


def _covers(recipe: RecipeFacts, subject: Subject) -> bool:
    """True when the plan asks for no more than the recipe states it ran with.

    A longer context, more sequences or a smaller share of the memory is another experiment. One
    that states no number of sequences vouches for the tokens of its longest one: without room for
    that its engine does not start.
    """
    stated = recipe.settings
    context, seqs = stated.get("max_model_len"), stated.get("max_num_seqs")
    share = stated.get("gpu_memory_utilization")
    tokens = subject.concurrency * subject.context_tokens
    at_once = subject.concurrency == 1 or (context is not None and tokens <= float(context))
    return (
        (context is None or subject.context_tokens <= float(context))
        and (at_once if seqs is None else subject.concurrency <= float(seqs))
        and (share is None or (subject.gpu_memory_utilization or 0.0) >= float(share))
    )
