"""What one token and one sequence cost on a rank: a family's caches and states, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from heavylift.checkpoint.formats import SAFETENSORS_TYPES
from heavylift.errors import HeavyliftError
from heavylift.facts.expressions import evaluate
from heavylift.facts.schema import CachePattern, StatePattern
from heavylift.plan.arithmetic import ceil_div
from heavylift.plan.subject import Subject
from heavylift.records.plan import Layout


@dataclass(frozen=True, kw_only=True, slots=True)
class StatePart:
    """One state of the family on one rank: bytes of one layer and one sequence."""

    id: str
    layers: tuple[int, ...]
    layer_bytes: int
    formula: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenPart:
    """One cache of the family on one rank: bytes of one layer and one entry.

    An entry holds `tokens_per_entry` tokens. `window` tokens at most are kept; 0 = all. `attends`
    are the channels of a query that meet each entry, on all ranks together.
    """

    id: str
    layers: tuple[int, ...]
    layer_bytes: int
    formula: str
    window: int = 0
    tokens_per_entry: int = 1
    attends: int = 0

    def kept(self, tokens: int) -> int:
        """How many of a sequence's tokens are kept."""
        return min(tokens, self.window) if self.window else tokens

    @property
    def layer_bytes_per_token(self) -> Fraction:
        """Bytes of one layer that each further token adds, for ever: none behind a window."""
        return Fraction(0 if self.window else self.layer_bytes, self.tokens_per_entry)


def bytes_per_token(parts: tuple[TokenPart, ...]) -> int:
    """Bytes per further token over all layers of the model."""
    return int(sum(part.layer_bytes_per_token * len(part.layers) for part in parts))


def token_parts(subject: Subject, layout: Layout) -> tuple[TokenPart, ...]:
    """What one token costs on a rank, by cache of the family; a cache without layers is left out.

    Formula: elements × dtype bytes + scales; heads are split over tensor-parallel ranks as far as
    there are heads, latents are held whole by each. Where the engine stores a cache in its own
    way, its rule counts instead.
    """
    return tuple(
        _token_part(subject, layout, pattern, layers)
        for pattern in subject.family.caches
        if (layers := _layers_of(subject, pattern))
    )


def _layers_of(subject: Subject, pattern: CachePattern) -> tuple[int, ...]:
    """The layers that keep a cache, those of loaded prediction heads too."""
    layers = subject.model.layer_set(pattern.layers)
    if subject.draft and pattern.draft_layers is not None:
        return (*layers, *subject.model.layer_set(pattern.draft_layers))
    return layers


def _token_part(
    subject: Subject, layout: Layout, pattern: CachePattern, layers: tuple[int, ...]
) -> TokenPart:
    dims = subject.dims
    elements = evaluate(pattern.elements, dims)
    heads = evaluate(pattern.heads, dims)
    local = heads
    if pattern.split == "heads":
        local = ceil_div(heads, layout.tensor_parallel_size)
    own = _own_bytes(subject, pattern.id)
    if own is None:
        elements = elements * local // heads
        width = subject.kv_dtype_bytes
        # A key and a value of each head keep a scale of their own.
        scales = 2 * local * subject.kv_scale_bytes if pattern.split == "heads" else 0.0
        each = int(elements * width + scales)
        formula = f"{elements} × {width:g} B" + (f" + {scales:g} B" if scales else "")
    else:
        each = own * local // heads
        formula = f"{each:,} B"
    return TokenPart(
        id=pattern.id,
        layers=layers,
        layer_bytes=each,
        formula=formula,
        window=evaluate(pattern.window, dims),
        tokens_per_entry=evaluate(pattern.tokens_per_entry, dims),
        attends=evaluate(pattern.attends, dims),
    )


def _own_bytes(subject: Subject, cache: str) -> int | None:
    """Bytes of an entry by the engine's own rule for the cache; None where it has none."""
    rules = [
        rule
        for rule in subject.engine.cache_bytes
        if rule.cache == cache and rule.dtype in (None, subject.kv_dtype)
    ]
    rule = subject.scope.first(rules)
    return None if rule is None else evaluate(rule.bytes, subject.dims)


def state_parts_of(subject: Subject, layout: Layout) -> tuple[StatePart, ...]:
    """What one sequence costs in state on a rank, by state of the family that has layers.

    Formula: elements / heads × ceil(heads / tensor_parallel) × dtype bytes. Raises PLAN020 when the
    engine's facts do not say in which dtype it keeps a state.
    """
    return tuple(
        _state_part(subject, layout, pattern)
        for pattern in subject.family.states
        if subject.model.layer_set(pattern.layers)
    )


def _state_part(subject: Subject, layout: Layout, pattern: StatePattern) -> StatePart:
    rule = subject.scope.first(
        [r for r in subject.engine.state_dtypes if r.dtype_class == pattern.dtype_class]
    )
    if rule is None:
        raise HeavyliftError("PLAN020", {"engine": subject.engine.title, "state": pattern.id})
    heads = evaluate(pattern.heads, subject.dims)
    per_head = evaluate(pattern.elements, subject.dims) // heads
    local = ceil_div(heads, layout.tensor_parallel_size)
    asked = subject.model.recurrent_state_dtype
    dtype = asked.value if asked is not None and rule.by_model else rule.dtype
    width = SAFETENSORS_TYPES[dtype.upper()].bytes
    return StatePart(
        id=pattern.id,
        layers=subject.model.layer_set(pattern.layers),
        layer_bytes=per_head * local * width,
        formula=f"{local} heads × {per_head:,} × {width} B",
    )
