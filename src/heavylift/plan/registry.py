"""What an engine's own lists say of a model, its form and a card, where nobody is known to have run
it: that a release declares a class is not that anybody served it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from heavylift.facts.registry_schema import RegistryFacts
from heavylift.plan.subject import Subject
from heavylift.records.plan import Status, Support

_CAPABILITY: Final = "sm_"
"""What an architecture that is told by its compute capability begins with."""


def by_registry(subject: Subject) -> Support | None:
    """`unverified` where the plan's version lists the model, `unsupported` where it lists neither
    the model nor the form of its weights; None where its lists were not read or the model's class
    is not known.
    """
    registry = registry_of(subject)
    stated = subject.model.hf_architecture
    if registry is None or stated is None:
        return None
    name = _name_in(registry, stated.value)
    if name is None:
        return None
    if not registry.lists(registry.architectures, name, subject.version_text):
        if registry.partial:
            return None
        return _unlisted(subject, registry, stated.value)
    reason = _form_refused(subject, registry)
    if reason is not None:
        return _support(subject, registry, Status.UNSUPPORTED, reason)
    return _support(subject, registry, Status.UNVERIFIED, "in_registry")


def _name_in(registry: RegistryFacts, stated: str) -> str | None:
    """What the engine's lists call a class. Lists in the engine's own words say nothing of a class
    whose name there nobody gave; a GGUF header speaks those words itself.
    """
    if not registry.known_as or stated in registry.architectures.names:
        return stated
    return registry.known_as.get(stated)


def registry_of(subject: Subject) -> RegistryFacts | None:
    """The lists of the plan's engine, where those of the plan's version were read."""
    identifier = subject.engine.registry
    if identifier is None:
        return None
    registry = subject.knowledge.registries[identifier]
    return registry if subject.version_text in registry.read else None


def _unlisted(subject: Subject, registry: RegistryFacts, name: str) -> Support:
    if registry.fallback is not None:
        library = subject.knowledge.registries[registry.fallback]
        if name in library.architectures.names:
            return _support(subject, registry, Status.UNKNOWN, "library_class")
    return _support(subject, registry, Status.UNSUPPORTED, "not_in_registry")


def _form_refused(subject: Subject, registry: RegistryFacts) -> str | None:
    """Why the version does not read the form of the weights on the card, or None.

    A form that nobody named a method for is not judged.
    """
    table = registry.quantisations
    if table is None:
        return None
    method = subject.variant.method
    if method is not None and not registry.lists(table, method, subject.version_text):
        return "form_not_in_registry"
    for scheme in dict.fromkeys(rule.scheme for rule in subject.variant.quantised):
        methods = subject.knowledge.methods.get(scheme)
        if not methods:
            continue
        known = [each for each in methods if registry.lists(table, each, subject.version_text)]
        if not known:
            return "form_not_in_registry"
        allowed = table.vendors.get(subject.gpu.vendor)
        on_card = [each for each in known if allowed is None or each in allowed]
        if not on_card:
            return "form_not_on_card"
        if not _new_enough(subject, (table.capability.get(each, 0) for each in on_card)):
            return "form_needs_newer_card"
    return None


def _new_enough(subject: Subject, needed: Iterable[int]) -> bool:
    architecture = subject.gpu.architecture
    if not architecture.startswith(_CAPABILITY):
        return True
    return min(needed) <= int(architecture.removeprefix(_CAPABILITY))


def _support(subject: Subject, registry: RegistryFacts, status: Status, note: str) -> Support:
    release = next(
        (each for each in subject.engine.versions if each.id == subject.version_text), None
    )
    return Support(
        status=status,
        source=registry.source if release is None else release.source,
        as_of=registry.as_of.isoformat(),
        note=note,
    )
