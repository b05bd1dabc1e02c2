"""From graded answers to contrasts and a verdict. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from heavylift.quality import stats
from heavylift.quality.records import Answer, Contrast, Verdict
from heavylift.stats import Chance, mean, rate_interval

ALL: Final = "all"
PRESUMED_DISCORDANCE: Final = 0.1
"""Share of items that differ, presumed before there are answers: what two honest vendors of one
model differ in at most, by the published spreads."""

Items = Mapping[str, Sequence[Answer]]
"""Question id -> its answers: one, or one per sample."""


def by_item(answers: Sequence[Answer]) -> dict[str, list[Answer]]:
    """Answers by question."""
    items: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        items[answer.question].append(answer)
    return dict(items)


def contrasts(
    reference: Items, candidate: Items, *, margin: float, chance: Chance
) -> tuple[Contrast, ...]:
    """All items first, then each group, p-values of the groups adjusted by Holm's method.

    Items that only one side answered are left out: a pair needs both.
    """
    shared = [name for name in reference if name in candidate]
    groups = sorted({reference[name][0].group for name in shared})
    named = [(ALL, shared)] + [
        (group, [name for name in shared if reference[name][0].group == group]) for group in groups
    ]
    found = [
        _contrast(group, names, reference, candidate, margin=margin, chance=chance)
        for group, names in named
        if names
    ]
    adjusted = stats.holm([contrast.p_value for contrast in found[1:]])
    whole = found[:1]
    parts = [
        _judged(replace(contrast, adjusted_p_value=p_value), margin)
        for contrast, p_value in zip(found[1:], adjusted, strict=True)
    ]
    return (*[_judged(contrast, margin) for contrast in whole], *parts)


def same_text(reference: Items, candidate: Items) -> float | None:
    """Share of items whose first answers are word for word the same; None without items."""
    shared = [name for name in reference if name in candidate]
    if not shared:
        return None
    return mean([reference[name][0].text == candidate[name][0].text for name in shared])


def overall_verdict(found: Sequence[Contrast]) -> Verdict:
    """The verdict over all items, unless a group is worse by itself: an average can hide one."""
    if any(contrast.verdict is Verdict.WORSE for contrast in found):
        return Verdict.WORSE
    return found[0].verdict


def _contrast(
    group: str,
    names: Sequence[str],
    reference: Items,
    candidate: Items,
    *,
    margin: float,
    chance: Chance,
) -> Contrast:
    of_reference = [reference[name] for name in names]
    of_candidate = [candidate[name] for name in names]
    once = all(len(answers) == 1 for answers in (*of_reference, *of_candidate))
    table = stats.pairs(
        [answers[0].right for answers in of_reference],
        [answers[0].right for answers in of_candidate],
    )
    rates = [
        [mean([answer.right for answer in answers]) for answers in side]
        for side in (of_reference, of_candidate)
    ]
    differences = [cand - ref for ref, cand in zip(*rates, strict=True)]
    if once:
        interval = stats.paired_interval(table)
        equivalence = stats.paired_interval(table, 1 - 2 * stats.ALPHA)
        discordance = table.discordance
        p_value = stats.mcnemar(table)
    else:
        interval = stats.clustered_interval(differences, chance)
        equivalence = stats.clustered_interval(differences, chance, 1 - 2 * stats.ALPHA)
        discordance = mean([value * value for value in differences])
        p_value = stats.sign_flip(differences, chance)
    return Contrast(
        group=group,
        items=len(names),
        reference_rate=mean(rates[0]),
        candidate_rate=mean(rates[1]),
        difference=mean(differences),
        interval=interval,
        equivalence_interval=equivalence,
        discordance=discordance,
        p_value=p_value,
        adjusted_p_value=p_value,
        minimum_detectable_effect=stats.minimum_detectable_effect(len(names), discordance),
        verdict=Verdict.NOT_ENOUGH_DATA,
        more_items=max(0, stats.items_for_equivalence(margin, discordance) - len(names)),
        reference_failures=_failures(of_reference),
        candidate_failures=_failures(of_candidate),
    )


def _judged(contrast: Contrast, margin: float) -> Contrast:
    """The contrast with its verdict.

    Equivalence comes first: a difference may be certain and still too small to matter. But a
    reference that gets hardly anything right cannot be fallen short of, so nothing is proven.
    """
    right = round(contrast.reference_rate * contrast.items)
    can_be_missed = rate_interval(right, contrast.items).low > margin
    if stats.is_equivalent(contrast.equivalence_interval, margin) and can_be_missed:
        verdict = Verdict.EQUIVALENT
    elif contrast.adjusted_p_value >= stats.ALPHA:
        verdict = Verdict.NOT_ENOUGH_DATA
    else:
        verdict = Verdict.WORSE if contrast.difference < 0 else Verdict.BETTER
    return replace(contrast, verdict=verdict)


def _failures(side: Sequence[Sequence[Answer]]) -> dict[str, int]:
    named = Counter(answer.failure for answers in side for answer in answers if answer.failure)
    return {str(name): count for name, count in sorted(named.items())}
