"""Releases of a deployment side by side: what one start had that another had not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from heavylift.errors import HeavyliftError
from heavylift.operate import recipes, truth
from heavylift.records.deployment import Difference
from heavylift.records.launch import LaunchSpec
from heavylift.records.release import Release
from heavylift.state.deployments import Deployments, is_verified

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRelease:
    """A release, whether it is the one that is to run, and whether its verification passed."""

    release: Release
    is_current: bool
    is_verified: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseList:
    """The releases of a deployment, newest first."""

    deployment: str
    releases: tuple[ListedRelease, ...]
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseDiff:
    """Two releases, and every field in which they differ."""

    deployment: str
    before: int
    after: int
    differences: tuple[Difference, ...]
    schema: int = SCHEMA


def listed(store: Deployments, name: str) -> ReleaseList:
    """The releases of a deployment. Raises OPS001."""
    current = truth.require(store, name).release
    return ReleaseList(
        deployment=name,
        releases=tuple(
            ListedRelease(
                release=each,
                is_current=each.number == current,
                is_verified=is_verified(each),
            )
            for each in store.releases(name)
        ),
    )


def compared(store: Deployments, name: str, before: int, after: int) -> ReleaseDiff:
    """Two releases. Raises OPS001, and STA006 for a release that is none."""
    truth.require(store, name)
    one, other = (_flat(store.release(name, number)) for number in (before, after))
    fields = sorted(one.keys() | other.keys())
    return ReleaseDiff(
        deployment=name,
        before=before,
        after=after,
        differences=tuple(
            Difference(field=field, before=one.get(field), after=other.get(field))
            for field in fields
            if one.get(field) != other.get(field)
        ),
    )


def _flat(release: Release) -> Mapping[str, str]:
    """A release and its launch as names and values. What changes with every start is left out."""
    found = {
        "engine": release.engine,
        "engine_version": release.engine_version,
        "image_digest": release.image_digest,
        "model_revision": release.model_revision,
        "driver": release.driver,
        "plan": release.plan_digest,
    }
    try:
        recipe = recipes.read(recipes.release_dir(release.deployment, release.number))
        found |= dict(_of_spec(recipe.spec))
    except HeavyliftError:
        # Its copy was removed: what the release itself says is left.
        pass
    return {name: value for name, value in found.items() if value is not None}


def _of_spec(spec: LaunchSpec) -> Iterator[tuple[str, str]]:
    yield "model", spec.model
    if spec.image is not None:
        yield "image", spec.image
    for setting in spec.settings:
        yield f"setting.{setting.name}", setting.value
    for rank in spec.ranks:
        name = rank.name or f"rank-{rank.rank}"
        yield f"{name}.host", rank.host
        for variable, value in rank.env.items():
            yield f"{name}.env.{variable}", value
        yield from _words(name, rank.argv)


def _words(name: str, argv: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """A command's flags by their names, so that one more flag is one difference."""
    position = 0
    flag = None
    for word in argv:
        if word.startswith("--"):
            flag, has_value, value = word.partition("=")
            yield f"{name}{flag and ' '}{flag}", value if has_value else ""
            flag = None if has_value else flag
        elif flag is not None:
            yield f"{name} {flag}", word
            flag = None
        else:
            yield f"{name} word {position}", word
            position += 1
