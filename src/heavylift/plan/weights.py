"""Weights on one rank: each tensor group's bytes under the engine's shard or replicate rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import Final

from heavylift.checkpoint.adoption import UNSAID
from heavylift.checkpoint.inventory import TensorGroup
from heavylift.checkpoint.quantisation import matches
from heavylift.facts.schema import ExpertPaddingRule, ShardOverrideRule
from heavylift.plan.arithmetic import ceil_div, round_up
from heavylift.plan.stages import Stage, stages
from heavylift.plan.subject import Same, Subject
from heavylift.records.plan import Layout, Part

# Scales that are powers of two, as their own type or as plain bytes.
_POWER_SCALES: Final = frozenset({"U8", "F8_E8M0"})
# Tables of one row per token, and the rows they are filled up to a multiple of.
_TABLE_ROLES: Final = frozenset({"embed", "lm_head"})
_TABLE_ROWS: Final = 64
# Split over the tensor ranks of all data parallel ranks.
_ALL_RANKS: Final = "all_ranks"


@dataclass(frozen=True, slots=True)
class Split:
    """How a group meets the ranks: a code and its numbers."""

    code: str
    params: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertSplit:
    """How routed experts meet a rank.

    `width` is the part of the inner dimension a rank holds of each of its experts, after padding;
    `inner` the whole dimension; `experts` how many experts a rank holds. `padded_hidden` is what
    `hidden`, the dimension that experts read and write, is filled up to.
    """

    inner: int
    width: int
    experts: int
    padded_inner: int
    ranks: int
    multiple: int
    hidden: int = 1
    padded_hidden: int = 1

    def bytes_of(self, group: TensorGroup, experts: int) -> int:
        """A layer's bytes of a group on a rank, of `experts` in all."""
        share = group.bytes_each * group.per_layer * self.experts * self.width
        parts = experts * self.inner
        # Biases along the inner dimension do not have the other.
        if len(group.shape) - (group.shape[:1] == (experts,)) > 1:
            share, parts = share * self.padded_hidden, parts * self.hidden
        return ceil_div(share, parts)

    @property
    def is_padded(self) -> bool:
        """True when the ranks together hold more columns than the checkpoint has."""
        return self.width * self.ranks > self.inner

    @property
    def rule(self) -> Split:
        """How it is named in a derivation."""
        if self.ranks == 1 and not self.is_padded:
            return Split("expert_whole", {"experts": self.experts})
        code = "expert_padded" if self.is_padded else "expert"
        padded = self.width * self.ranks
        return Split(code, {"inner": self.inner, "padded": padded, "ways": self.ranks})


def expert_split(subject: Subject, layout: Layout) -> ExpertSplit | None:
    """How the engine splits routed experts in this layout; None for a model without experts.

    Formula: inner, raised to floor × tp by the model class when inner // tp < floor; divided over
    the ranks that share an expert (all of them over those it is spread to); each part rounded up to
    the MoE backend's multiple.
    """
    dims = subject.dims
    if "experts" not in dims or "moe_intermediate_size" not in dims:
        return None
    inner, experts = dims["moe_intermediate_size"], dims["experts"]
    tensor, spread = layout.tensor_parallel_size, layout.expert_parallel_size > 1
    padding = subject.scope.first(subject.engine.expert_padding)
    padded = inner
    if padding is not None and _pads(padding, tensor, inner, spread=spread):
        padded = padding.floor * tensor
    ranks = ceil_div(tensor * layout.data_parallel_size, layout.expert_parallel_size)
    mxfp4 = _experts_are_mxfp4(subject)
    multiple = (subject.moe_backend_multiple or 1) if mxfp4 else 1
    hidden = dims.get("expert_latent_size", dims["hidden_size"])
    width = ceil_div(padded, ranks)
    if ranks > 1 or not spread:
        width = ceil_div(width, multiple) * multiple
    return ExpertSplit(
        inner=inner,
        width=width,
        experts=ceil_div(experts, layout.expert_parallel_size),
        padded_inner=padded,
        ranks=ranks,
        multiple=multiple,
        hidden=hidden,
        padded_hidden=round_up(hidden, (subject.moe_backend_hidden_multiple or 1) if mxfp4 else 1),
    )


def _experts_are_mxfp4(subject: Subject) -> bool:
    """True for experts of 4 bits with a power of two as scale: what the backends' rules were read
    for. Others are not known to be rounded up.
    """
    if subject.inventory is None:
        return False
    experts = [group for group in subject.inventory.groups if group.shard == "expert"]
    scales = {group.dtype for group in experts if not group.params_each}
    return bool(scales & _POWER_SCALES)


def _pads(rule: ExpertPaddingRule, tensor: int, inner: int, *, spread: bool) -> bool:
    return tensor > 1 and inner // tensor < rule.floor and (rule.under_ep or not spread)


def stage_parts(subject: Subject, layout: Layout, stage: Stage) -> tuple[Part, ...]:
    """The weights of a stage's ranks, a part per tensor group that is present there."""
    inventory = subject.inventory
    if inventory is None:
        return (_published_size(subject, layout, stage),)
    experts = expert_split(subject, layout)
    parts = []
    for share, copies in zip(_shares(subject, layout), _all_copies(subject, stage), strict=True):
        if copies == 0:
            continue
        group, each, rule = share.group, share.bytes_each, share.rule
        tensors = copies * group.per_layer
        if group.shard == "expert" and group.per_layer > 1 and experts is not None:
            tensors = copies * group.per_layer * experts.experts // subject.dims["experts"]
        parts.append(
            Part(
                id=group.name,
                bytes=copies * each,
                formula=f"{copies} × {each:,} B",
                rule=rule.code,
                params=rule.params,
                tensors=tensors,
                source=inventory.source,
            )
        )
    return tuple(parts)


def unsplit_bytes(subject: Subject, layout: Layout, stage: Stage) -> int:
    """How much more a rank holds when tensors that nobody said how to split are on every one."""
    inventory = subject.inventory
    if inventory is None:
        return 0
    return sum(
        _copies(subject, group, stage)
        * (group.bytes_each - ceil_div(group.bytes_each, layout.tensor_parallel_size))
        * group.per_layer
        for group in inventory.groups
        if group.shard == UNSAID
    )


def stage_bytes(subject: Subject, layout: Layout, stage: Stage) -> tuple[int, int]:
    """What `stage_parts` come to, in bytes, and how many they are: without writing them out."""
    if subject.inventory is None:
        return _published_size(subject, layout, stage).bytes, 1
    copies = _all_copies(subject, stage)
    return sum(map(mul, copies, _sizes(subject, layout))), len(copies) - copies.count(0)


def least_stage_bytes(subject: Subject, layout: Layout) -> int:
    """The least that the heaviest stage of a layout holds: all its weights, dealt evenly."""
    if subject.inventory is None:
        return ceil_div(subject.variant.bytes_total or 0, layout.pipeline_parallel_size)
    (whole,) = stages(subject, Layout())
    total = sum(map(mul, _all_copies(subject, whole), _sizes(subject, layout)))
    return ceil_div(total, layout.pipeline_parallel_size)


@dataclass(frozen=True, slots=True)
class _Share:
    """One layer's share of a group on a rank."""

    group: TensorGroup
    bytes_each: int
    rule: Split


def _shares(subject: Subject, layout: Layout) -> tuple[_Share, ...]:
    """Every group's share: what it depends on is the tensor size, how experts are split, and which
    roles the engine treats otherwise.
    """
    layout_key = ("shares of", subject.weights_key, layout.without_stages)
    return subject.knowledge.remembered(layout_key, lambda: _alike_shares(subject, layout))


def _sizes(subject: Subject, layout: Layout) -> tuple[int, ...]:
    """Bytes of every group's share."""
    return subject.knowledge.remembered(
        ("sizes", subject.weights_key, layout.without_stages),
        lambda: tuple(share.bytes_each for share in _shares(subject, layout)),
    )


def _alike_shares(subject: Subject, layout: Layout) -> tuple[_Share, ...]:
    experts = expert_split(subject, layout)
    overrides = _overrides(subject, layout)
    groups = () if subject.inventory is None else subject.inventory.groups
    key = (
        # What engines and cards have in common here, they share.
        "shares",
        (Same(subject.variant), _pads_tables(subject)),
        layout.tensor_parallel_size,
        layout.data_parallel_size if any(rule.shard == _ALL_RANKS for rule in overrides) else 1,
        experts,
        tuple((rule.role, rule.shard, rule.tensors) for rule in overrides),
    )
    return subject.knowledge.remembered(
        key,
        lambda: tuple(
            _Share(
                group,
                *_on_rank(subject, group, _shard(group, overrides), layout, experts),
            )
            for group in groups
        ),
    )


def _all_copies(subject: Subject, stage: Stage) -> tuple[int, ...]:
    """How many of every group's layers lie on a stage."""
    groups = () if subject.inventory is None else subject.inventory.groups
    return subject.knowledge.remembered(
        ("copies", Same(subject.variant), subject.draft, subject.vision, stage),
        lambda: tuple(_copies(subject, group, stage) for group in groups),
    )


def is_sequence_parallel(subject: Subject, layout: Layout) -> bool:
    """True when the engine spreads tokens over tensor ranks around the experts, so that what other
    layouts split is held whole.
    """
    return any(
        rule.when == "sequence_parallel" and _in_sequence(rule, subject, layout)
        for rule in subject.scope.all(subject.engine.shard_overrides)
    )


def _in_sequence(rule: ShardOverrideRule, subject: Subject, layout: Layout) -> bool:
    return (
        layout.expert_parallel_size > 1
        and layout.tensor_parallel_size > 1
        and layout.pipeline_parallel_size == 1
        and (layout.data_parallel_size > 1 or subject.moe_backend in rule.backends)
    )


def _applies(rule: ShardOverrideRule, subject: Subject, layout: Layout) -> bool:
    match rule.when:
        case "always":
            return True
        case "data_parallel":
            return layout.data_parallel_size > 1
        case "no_data_parallel":
            return layout.data_parallel_size == 1
    return _in_sequence(rule, subject, layout)


def _overrides(subject: Subject, layout: Layout) -> tuple[ShardOverrideRule, ...]:
    """The engine's own rules that hold in a layout."""
    return tuple(
        rule
        for rule in subject.scope.all(subject.engine.shard_overrides)
        if _applies(rule, subject, layout) and _divides(rule, subject, layout)
    )


def _divides(rule: ShardOverrideRule, subject: Subject, layout: Layout) -> bool:
    if rule.divides is None:
        return True
    size = subject.dims.get(rule.divides, 0)
    return size > 0 and size % layout.tensor_parallel_size == 0


def _shard(group: TensorGroup, overrides: Sequence[ShardOverrideRule]) -> str:
    """How a group meets the ranks: by the first rule that takes it, else by its family."""
    for rule in overrides:
        if rule.role == group.role and (
            not rule.tensors or any(matches(name, group.name) for name in rule.tensors)
        ):
            return rule.shard
    return group.shard


def seen_parts(subject: Subject, layout: Layout, stage: Stage) -> tuple[Part, ...]:
    """Tables that the sources keep off this stage and logs show on it."""
    rule = subject.scope.first(subject.engine.pipelines)
    if subject.inventory is None or rule is None or rule.seen_source is None:
        return ()
    parts = []
    for group in subject.inventory.groups:
        if group.role not in rule.seen_everywhere or stage.holds(group.role):
            continue
        each, split = _on_rank(subject, group, group.shard, layout, None)
        parts.append(
            Part(
                id=group.name,
                bytes=each,
                formula=f"1 × {each:,} B",
                rule=split.code,
                params=split.params,
                tensors=group.per_layer,
                source=rule.seen_source,
            )
        )
    return tuple(parts)


def _published_size(subject: Subject, layout: Layout, stage: Stage) -> Part:
    total = subject.variant.bytes_total or 0
    ranks = layout.pipeline_parallel_size
    return Part(
        id=subject.variant.id,
        bytes=ceil_div(total * stage.share_of_layers.numerator, stage.share_of_layers.denominator),
        formula=f"{total:,} B / {ranks}",
        rule="by_layers",
        params={"ways": ranks},
        source=subject.variant.source,
    )


def _copies(subject: Subject, group: TensorGroup, stage: Stage) -> int:
    """How many of the group's layers (or 1 for a group outside the layers) lie on the stage."""
    whole = 1 if group.layers is None else len(group.layers)
    if group.shard == "on_disk":
        return 0
    if group.is_draft:
        # Prediction heads follow the last layer, on its stage.
        return whole if subject.draft and stage.index == stage.count - 1 else 0
    if group.is_vision:
        return whole if subject.vision and stage.holds(group.role) else 0
    if group.layers is None:
        return int(stage.holds(group.role) or _is_head_too(subject, group, stage))
    return stage.layers_in(group.layers)


def _is_head_too(subject: Subject, group: TensorGroup, stage: Stage) -> bool:
    """True for a table that stays with the host and is the head as well: the last stage has a copy.

    Source: llama.cpp makes the output of a model without one a duplicate of its token table.
    """
    return (
        group.role in _TABLE_ROLES
        and group.role in stage.on_host
        and stage.index == stage.count - 1
        and subject.inventory is not None
        and all(each.role != "lm_head" for each in subject.inventory.groups)
    )


def _on_rank(
    subject: Subject,
    group: TensorGroup,
    shard: str,
    layout: Layout,
    experts: ExpertSplit | None,
) -> tuple[int, Split]:
    """Bytes of one layer's share of the group on a rank, and how that came about."""
    whole = group.bytes_each * group.per_layer
    if shard == "expert" and experts is not None:
        return experts.bytes_of(group, subject.dims["experts"]), experts.rule
    if shard == "vision":
        return whole, Split("copy")
    tensor = layout.tensor_parallel_size
    if shard == _ALL_RANKS:
        shard, tensor = "tensor", tensor * layout.data_parallel_size
    if shard == "tensor" and group.role in _TABLE_ROLES and _pads_tables(subject):
        rows = round_up(group.split_size, _TABLE_ROWS)
        whole = group.bytes_each * rows // group.split_size
        return ceil_div(whole, tensor), _ways("tensor", tensor)
    ways = {"tensor": tensor, "kv_heads": min(tensor, group.heads), UNSAID: tensor}.get(shard, 1)
    if shard == UNSAID:
        return ceil_div(group.bytes_each, ways) * group.per_layer, _ways(shard, ways)
    if tensor > 1 and shard in ("tensor", "kv_heads"):
        return _split(group, ways) * group.per_layer, Split(shard, {"ways": ways})
    return whole, Split("replicated" if shard == "replicated" and tensor > 1 else "whole")


def _ways(shard: str, ways: int) -> Split:
    """A cut into `ways`; a whole one where there is a single rank."""
    return Split(shard, {"ways": ways}) if ways > 1 else Split("whole")


def _pads_tables(subject: Subject) -> bool:
    """Engines that split tensors over ranks fill the token tables up to whole blocks of rows."""
    rule = subject.scope.first(subject.engine.layouts)
    return rule is not None and rule.splits == "ranks"


def _split(group: TensorGroup, ways: int) -> int:
    # A config may state a width of nought: the tensor is there and holds nothing.
    size = max(group.split_size, 1)
    return ceil_div(group.bytes_each * ceil_div(size, ways), size)
