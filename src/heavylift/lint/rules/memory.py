"""Whether the rack holds what the command asks for: planned for real where the model and the card
have facts, added up where only their sizes are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from heavylift.errors import HeavyliftError
from heavylift.lint.case import Case, PlanWish
from heavylift.lint.command import FALSE
from heavylift.lint.conditions import number
from heavylift.lint.finding import LintFinding
from heavylift.lint.hardware import NamedRack
from heavylift.records.finding import Severity
from heavylift.records.plan import Layout, Plan, PlanVerdict, Status
from heavylift.units import GIB

TIGHT_FRACTION = 0.96
"""From here on what lives outside the pool has little room."""
MOST_UNASKED = 0.95
"""SGLang's fraction where it cannot ask the card, more than it leaves itself on any."""
_DOMINATES = 4
"""How many times the KV tokens another layout of the same rack must hold to be pointed out."""


def memory(case: Case) -> Iterator[LintFinding]:
    """Every finding on memory and layout, planned on each rack that is named."""
    if not case.serves or case.is_partial:
        return
    seen: set[str] = set()
    for rack in case.racks:
        for finding in _rack(case, rack):
            if finding.rule not in seen:
                seen.add(finding.rule)
                yield finding


def _rack(case: Case, rack: NamedRack) -> Iterator[LintFinding]:
    wish = wish_of(case, rack)
    if wish is None:
        return
    yield from _beyond_rack(case, rack)
    plan, refused = planned(case, wish)
    if refused is not None:
        yield refused
    if plan is not None:
        yield from _judged(case, wish, plan)


# --- a plan --------------------------------------------------------------------------------------


def wish_of(case: Case, rack: NamedRack, *, any_form: bool = False) -> PlanWish | None:
    """What to plan; None when the model, the engine, the card or the layout is not known.

    `any_form`: the weights do not matter to what is asked, only the model's shape.
    """
    facts, engine = case.model, case.engine
    if engine is None or engine.plans_as is None:
        return None
    if not any_form and (moves_weights(case) or not _is_told(case)):
        return None
    named = case.known.name if case.known is not None else facts.plans_as if facts else None
    if named is None:
        return None
    known = case.known is not None or (
        not case.is_foreign_checkpoint and case.weights_bytes is not None
    )
    if not rack.card.planned or not (known or any_form):
        return None
    # An engine without ranks puts layers where there is room: its weights are added up instead.
    if not engine.settings.get("tensor") or not (case.states_layout or rack.gpus == 1):
        return None
    gpus = case.layout.world_size
    fraction = case.setting("memory_fraction")
    if case.setting("kv_bytes") is not None:
        # A pinned cache is not held to the fraction: only the card limits it.
        fraction = "1"
    return PlanWish(
        model=named,
        engine=engine.plans_as,
        version=case.version.number or case.version.text,
        card=rack.card.id,
        gpus=gpus,
        nodes=rack.nodes if rack.gpus == gpus else None,
        variant=case.checkpoint.variant
        if case.checkpoint and case.known is None and known
        else None,
        layout=case.layout,
        context_tokens=case.number_of("context"),
        sequences=case.number_of("sequences"),
        batched_tokens=case.number_of("batched_tokens"),
        memory_fraction=number(fraction) if fraction is not None else _default_fraction(case),
        kv_dtype=case.setting("kv_dtype"),
        moe_backend=case.setting("moe_backend"),
        text_only=case.setting("text_only") is not None,
    )


def _is_told(case: Case) -> bool:
    """False for what the rules of memory do not tell: a fork's own ways, data parallel attention
    inside the tensor ranks.
    """
    inner = case.setting("inner_data") not in (None, FALSE)
    return not (case.version.is_fork or inner)


def moves_weights(case: Case) -> bool:
    """True when weights lie in host memory too, so that the cards need not hold them."""
    offload = case.setting("offload")
    return offload is not None and number(offload) != 0


def _default_fraction(case: Case) -> float | None:
    """The engine's own default, where its table states one; else the most an engine takes unasked:
    what it works out at its start depends on more than the command says.
    """
    found = case.table.flag(case.flag_of("memory_fraction")) if case.table is not None else None
    if found is None:
        return None
    return number(found.facts.default or "") or MOST_UNASKED


def planned(case: Case, wish: PlanWish) -> tuple[Plan | None, LintFinding | None]:
    """The plan of a wish, or the finding when the engine refuses the layout."""
    try:
        return case.library.plan(wish), None
    except HeavyliftError as error:
        refusal = str(error.params.get("refusal", ""))
        if refusal not in (
            "heads",
            "vocabulary",
            "experts",
            "expert_ranks",
            "tensor_size",
            "decode_context",
            "not_offered",
            "pipeline",
        ):
            return None, None
        return None, LintFinding(
            rule="layout_not_possible",
            severity=Severity.FAIL,
            subject=case.layout.label,
            detail=refusal,
            text=f"refused_{refusal}",
            params=dict(error.params),
            source=case.model.source if case.model else None,
        )


def _sureness(case: Case) -> Severity:
    """How sure a plan's cache is: what a release sets aside is known of those that were read."""
    number = case.version.number
    if number is None or case.table is None or case.table.is_read(number):
        return Severity.FAIL
    return Severity.INFO if case.version.precedes(case.table.facts.read[0]) else Severity.WARN


def _judged(case: Case, wish: PlanWish, plan: Plan) -> Iterator[LintFinding]:
    limit = max(plan.limits, key=lambda each: each.short_bytes)
    weights = plan.per_gpu.weights_bytes.low
    if plan.verdict is PlanVerdict.DOES_NOT_FIT and weights > limit.have_bytes:
        yield _memory_finding(
            case,
            "weights_do_not_fit",
            Severity.FAIL,
            plan,
            need=_gib(weights),
            have=_gib(limit.have_bytes),
            short=_gib(weights - limit.have_bytes),
        )
        if weights <= _visible(plan):
            # The card itself would hold them: the engine loads, then finds no room for its cache.
            yield _memory_finding(
                case,
                "weights_leave_no_kv",
                Severity.FAIL,
                plan,
                need=_gib(limit.need_bytes),
                have=_gib(limit.have_bytes),
                short=_gib(limit.short_bytes),
            )
        return
    if case.known is not None and case.known.is_assumed:
        # What such a copy keeps of a token, its files may say otherwise.
        return
    pool = _pool(case, plan)
    if pool.tokens == 0:
        yield _memory_finding(
            case,
            "weights_leave_no_kv",
            _sureness(case),
            plan,
            need=_gib(limit.need_bytes),
            have=_gib(limit.have_bytes),
            short=_gib(limit.short_bytes),
        )
        return
    likely = _likely(case, plan, pool)
    if weights + _overhead(case, plan) > _visible(plan):
        ran = plan.support.status in (Status.VERIFIED, Status.REPORTED)
        yield _memory_finding(
            case,
            "oom_in_profile",
            Severity.INFO if ran else Severity.WARN,
            plan,
            text="likely_oom_in_profile",
            subject=case.flag_of("batched_tokens"),
            need=_gib(weights),
            other=_gib(_overhead(case, plan)),
            have=_gib(_visible(plan)),
        )
    if likely is not None and likely.tokens == 0:
        # Where the source of a recipe says it ran, two statements stand against each other.
        ran = plan.support.status in (Status.VERIFIED, Status.REPORTED)
        yield _memory_finding(
            case,
            "weights_leave_no_kv",
            Severity.INFO if ran else Severity.WARN,
            plan,
            text="likely_no_kv",
            value=f"{pool.tokens * plan.kv_bytes_per_token / GIB:.1f}",
            other=f"{_overhead(case, plan) / GIB:.1f}",
        )
        return
    yield from _context(case, plan, pool, likely or pool)
    yield from _state_blocks(case, plan, pool, likely or pool)
    yield from _concurrency(case, wish, plan, pool)


@dataclass(frozen=True, slots=True)
class _Pool:
    """What a replica's pool holds at the most: tokens and, where KV and state share pages, pages
    of `page_tokens` with `state_pages` of them for each sequence.
    """

    tokens: int
    pages: int | None = None
    page_tokens: int = 1
    state_pages: int = 0

    def holds(self, sequences: int, context: int) -> bool:
        """True when so many sequences of that length are held at once."""
        if self.pages is None:
            return sequences * context <= self.tokens
        return sequences * (-(-context // self.page_tokens) + self.state_pages) <= self.pages


def _pool(case: Case, plan: Plan) -> _Pool:
    """The pool of one replica: the pinned bytes, or what the plan leaves at its most hopeful."""
    replicas = plan.layout.data_parallel_size
    tokens = (plan.capacity.kv_tokens.high or 0) // replicas
    pinned = case.number_of("kv_bytes")
    if pinned is not None and plan.kv_bytes_per_token:
        tokens = pinned // plan.kv_bytes_per_token
    if not _shares_pages(case, plan):
        return _Pool(tokens)
    # With decode context parallelism a page id stands for a page on every rank of the group.
    page_tokens = (plan.page_tokens or 1) * plan.layout.decode_context_parallel_size
    page_bytes = page_tokens * plan.kv_bytes_per_token
    state_pages = -(-plan.state_bytes_per_sequence // max(1, page_bytes))
    pages = tokens // page_tokens + (0 if pinned is not None else state_pages)
    return _Pool(tokens, pages, page_tokens, state_pages)


def _shares_pages(case: Case, plan: Plan) -> bool:
    """True for an engine that keeps KV and state of a hybrid model in pages of one pool."""
    return case.is_hybrid and _checks_context(case) and (plan.page_tokens or 0) > 1


def _checks_context(case: Case) -> bool:
    """True for an engine that refuses to start when one full request does not fit."""
    return case.engine is not None and "kv_bytes" in case.engine.settings


def _overhead(case: Case, plan: Plan) -> int:
    """Bytes a start was seen to take beside weights and KV; 0 where nobody reported one."""
    facts = case.model
    cards = {rack.card.id: rack.card.vendor for rack in case.racks}
    return next(
        (
            each.bytes
            for each in case.library.overheads
            if case.engine is not None
            and each.engine == case.engine.id
            and facts is not None
            and facts.plans_as in each.families
            and cards.get(plan.rack.gpu) in each.vendors
        ),
        0,
    )


def _likely(case: Case, plan: Plan, pool: _Pool) -> _Pool | None:
    """The pool when the start takes as much as the worst logged one; None where none is known or
    the pool is pinned.
    """
    overhead = _overhead(case, plan)
    if not overhead or case.number_of("kv_bytes") is not None:
        return None
    tokens = max(0, pool.tokens - overhead // plan.kv_bytes_per_token)
    if pool.pages is None:
        return replace(pool, tokens=tokens)
    pages = max(0, pool.pages - overhead // (plan.kv_bytes_per_token * pool.page_tokens))
    return replace(pool, tokens=tokens, pages=pages)


def _context(case: Case, plan: Plan, pool: _Pool, likely: _Pool) -> Iterator[LintFinding]:
    """One request of the maximum length must fit; only engines that check it refuse to start."""
    context = case.number_of("context") or case.context_tokens
    if context is None or not _checks_context(case) or likely.holds(1, context):
        return
    certain = not pool.holds(1, context)
    yield _memory_finding(
        case,
        "max_model_len_exceeds_kv",
        _sureness(case) if certain else Severity.WARN,
        plan,
        text=None if certain else "likely_context",
        subject=case.flag_of("context"),
        value=f"{context:,}",
        other=f"{(pool if certain else likely).tokens:,}",
        mend=(f"set {case.flag_of('context')} {_rounded(likely.tokens)}",),
    )


def _state_blocks(case: Case, plan: Plan, pool: _Pool, likely: _Pool) -> Iterator[LintFinding]:
    """Every allowed sequence takes a block for its state; blocks are shared with KV."""
    sequences = case.number_of("sequences")
    if sequences is None or likely.pages is None or pool.pages is None:
        return
    if sequences <= likely.pages:
        return
    certain = sequences > pool.pages
    blocks = pool.pages if certain else likely.pages
    yield _memory_finding(
        case,
        "mamba_blocks_too_few",
        _sureness(case) if certain else Severity.WARN,
        plan,
        text=None if certain else "likely_blocks",
        subject=case.flag_of("sequences"),
        value=sequences,
        other=blocks,
        mend=(f"set {case.flag_of('sequences')} {max(1, likely.pages)}",),
    )


def _concurrency(case: Case, wish: PlanWish, plan: Plan, pool: _Pool) -> Iterator[LintFinding]:
    """As many full requests as are allowed at once, against the tokens held."""
    sequences, context = case.number_of("sequences"), case.number_of("context")
    tight = bool(sequences and context) and not pool.holds(sequences or 0, context or 0)
    if tight:
        yield _memory_finding(
            case,
            "kv_small_for_concurrency",
            Severity.INFO,
            plan,
            subject=case.flag_of("sequences"),
            value=f"{sequences} × {context:,}",
            other=f"{pool.tokens:,}",
        )
    if tight or (wish.memory_fraction or 0) >= TIGHT_FRACTION:
        yield from _dominated(case, wish, plan)


def _dominated(case: Case, wish: PlanWish, plan: Plan) -> Iterator[LintFinding]:
    """Another layout of the same rack holds far more."""
    best, _ = planned(case, replace(wish, layout=None))
    if best is None:
        return
    layout, there = max(_rooms(best), key=lambda pair: pair[1])
    here = plan.capacity.kv_tokens.high or 0
    if there >= _DOMINATES * max(here, 1) and layout != plan.layout:
        yield _memory_finding(
            case,
            "dominated_layout",
            Severity.INFO,
            plan,
            subject=plan.layout.label,
            other=layout.label,
            value=f"{here:,}",
            more=f"{there:,}",
        )


def _rooms(best: Plan) -> Iterator[tuple[Layout, int]]:
    """KV tokens that each layout which fits holds at the most: the best one and those it beat."""
    yield best.layout, best.capacity.kv_tokens.high or 0
    for lost in best.rejected:
        tokens = lost.params.get("kv_tokens")
        if isinstance(tokens, int) and PlanVerdict(str(lost.params["verdict"])).is_positive:
            yield lost.layout, tokens


def _beyond_rack(case: Case, rack: NamedRack) -> Iterator[LintFinding]:
    """More ranks than GPUs. A rack may also have been meant per node."""
    gpus, ranks = rack.gpus, case.layout.world_size
    if gpus is None or ranks <= gpus:
        return
    if case.setting("nodes") is not None or case.setting("nodes_by_data") is not None:
        # The rack may have been named per node.
        return
    yield LintFinding(
        rule="layout_not_possible",
        severity=Severity.FAIL,
        subject=case.layout.label,
        detail="world_size",
        text="refused_world_size",
        params={"layout": case.layout.label, "needs": ranks, "has": gpus},
    )


# --- helpers -------------------------------------------------------------------------------------


def _memory_finding(
    case: Case,
    rule: str,
    severity: Severity,
    plan: Plan,
    *,
    subject: str | None = None,
    text: str | None = None,
    mend: tuple[str, ...] = (),
    **params: str | int,
) -> LintFinding:
    return LintFinding(
        rule=rule,
        severity=severity,
        subject=subject or _layout_text(case.layout),
        text=text or rule,
        detail=plan.rack.gpu_title if rule == "weights_do_not_fit" else None,
        params={"rack": plan.rack.label, "layout": plan.layout.label, **params},
        mend=mend,
        source=plan.support.source or None,
    )


def _visible(plan: Plan) -> int:
    """Bytes of one card that the driver shows."""
    return next(each.bytes for each in plan.budgets if each.name == "driver_visible")


def _layout_text(layout: Layout) -> str:
    return layout.label


def _gib(value: int) -> str:
    return f"{value / GIB:,.2f} GiB"


def _rounded(tokens: int) -> int:
    """The largest power of two, at most."""
    return 1 << max(0, tokens.bit_length() - 1)
