"""The licence of a model: what the facts know of it, and whether somebody here acknowledged it.

One place for `fetch`, `up` and go-live reports: a licence is asked about once.
"""

from __future__ import annotations

from heavylift.checkpoint.hub_settings import HubId
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import ModelFacts
from heavylift.records.golive import LicenceState, LicenceTerm
from heavylift.state.digests import DigestStore, accepted_at


def licence_of(catalog: Catalog, model: str) -> LicenceState:
    """The licence of a model by its id or name, with the time of its acknowledgement. A model that
    nobody described has none that is known.
    """
    try:
        facts = catalog.model(model)
    except HeavyliftError:
        return LicenceState(acknowledged_at=_acknowledged_at((model,)))
    stated = facts.licence
    return LicenceState(
        name=None if stated is None else stated.value,
        source=None if stated is None else stated.source,
        as_of=None if stated is None else stated.as_of.isoformat(),
        note=None if stated is None else stated.note,
        terms=tuple(
            LicenceTerm(
                id=each.id, text=each.text, source=each.source, as_of=each.as_of.isoformat()
            )
            for each in facts.licence_terms
        ),
        acknowledged_at=_acknowledged_at(_names(facts)),
    )


def acknowledge(catalog: Catalog, model: str) -> LicenceState:
    """Keep that the licence of a model was read; the licence. Raises OPS011 where none is known:
    nobody can have read it.
    """
    found = licence_of(catalog, model)
    if found.name is None:
        raise HeavyliftError("OPS011", {"model": model})
    with DigestStore() as store:
        for name in _names(catalog.model(model)):
            store.accept(name, found.name)
    return licence_of(catalog, model)


def _acknowledged_at(names: tuple[str, ...]) -> str | None:
    return accepted_at(names)


def _names(facts: ModelFacts) -> tuple[str, ...]:
    """The model's id, and where its published forms lie: `fetch` keeps those."""
    repositories = (HubId.parse(each.repo) for each in facts.variants if each.repo is not None)
    return (facts.id, *(each.id for each in repositories if each is not None))
