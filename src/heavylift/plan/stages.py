"""Pipeline stages: which layers and which tables each holds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from heavylift.facts.schema import PipelineRule
from heavylift.plan.subject import Subject
from heavylift.records.plan import Layout

# Where a role without layers sits when the engine's rule does not say "everywhere".
_FIRST_STAGE_ROLES = frozenset({"embed", "vision", "projector"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One stage. Layers are `first_layer` to `last_layer`, both included, from 0."""

    index: int
    count: int
    first_layer: int
    last_layer: int
    layers_total: int
    everywhere: tuple[str, ...]
    on_host: tuple[str, ...]

    def holds(self, role: str) -> bool:
        """True when tensors of a role that has no decoder layers lie on this stage's ranks."""
        if role in self.on_host:
            return False
        if self.count == 1 or role in self.everywhere:
            return True
        if role in _FIRST_STAGE_ROLES:
            return self.index == 0
        return self.index == self.count - 1

    def layers_in(self, layers: tuple[int, ...]) -> int:
        """How many of `layers`, which are in order, lie on this stage. What follows the last layer
        (prediction heads) lies with it.
        """
        is_last = self.index == self.count - 1
        end = len(layers) if is_last else bisect_right(layers, self.last_layer)
        return end - bisect_left(layers, self.first_layer)

    @property
    def share_of_layers(self) -> Fraction:
        """This stage's part of all layers."""
        return Fraction(self.last_layer - self.first_layer + 1, self.layers_total)


def stages(subject: Subject, layout: Layout) -> tuple[Stage, ...]:
    """The stages of a layout, in order.

    Under the rule `before_last`, layers that do not divide go one each to the stages before the
    last, backwards (93 in 2: 47, 46); under `last`, to the last ones (46, 47); under
    `proportional`, layer i of n goes to the GPU at which i/(n+1) of the memory has been passed.
    """
    rule = subject.scope.first(subject.engine.pipelines)
    total = subject.dims["layers"]
    room = [card.memory_visible.value for card in subject.cards] or [1] * (
        layout.pipeline_parallel_size
    )
    sizes = _sizes(total, layout.pipeline_parallel_size, rule, room)
    found = []
    first = 0
    on_host = () if rule is None or subject.runs_on_host else rule.on_host
    for index, size in enumerate(sizes):
        found.append(
            Stage(
                index=index,
                count=len(sizes),
                first_layer=first,
                last_layer=first + size - 1,
                layers_total=total,
                everywhere=() if rule is None else rule.everywhere,
                on_host=on_host,
            )
        )
        first += size
    return tuple(found)


def _sizes(total: int, count: int, rule: PipelineRule | None, room: Sequence[int]) -> list[int]:
    remainder = "before_last" if rule is None else rule.remainder
    if remainder == "proportional":
        passed = list(accumulate(room[:count]))
        owners = [
            sum(layer * passed[-1] >= each * (total + 1) for each in passed)
            for layer in range(total)
        ]
        return [owners.count(index) for index in range(count)]
    sizes = [total // count] * count
    takers = range(count - 1, -1, -1) if remainder == "last" else range(count - 2, -1, -1)
    for _, index in zip(range(total % count), takers, strict=False):
        sizes[index] += 1
    return sizes
