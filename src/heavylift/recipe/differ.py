"""What differs between two launches: settings, images, ranks. Words, not prose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heavylift.records.launch import LaunchSpec
from heavylift.records.recipe import Difference, LaunchDiff

_FACTS = (
    "engine",
    "engine_version",
    "image",
    "image_digest",
    "model",
    "model_revision",
    "model_path",
    "topology",
    "nodes",
    "gpus_per_node",
    "gpu_vendor",
    "bind_host",
    "served_port",
    "deadline_s",
    "shm_bytes",
)


def difference(old: LaunchSpec, new: LaunchSpec, names: tuple[str, str]) -> LaunchDiff:
    """Everything that is not the same, in the order of the launch: facts, then settings by role."""
    found = [*_facts(old, new), *_settings(old, new)]
    before = {rank.name for rank in old.ranks}
    after = {rank.name for rank in new.ranks}
    found += [Difference(subject="rank", name=name, old=name) for name in sorted(before - after)]
    found += [Difference(subject="rank", name=name, new=name) for name in sorted(after - before)]
    return LaunchDiff(old=names[0], new=names[1], differences=tuple(found))


def _facts(old: LaunchSpec, new: LaunchSpec) -> Iterator[Difference]:
    for name in _FACTS:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield Difference(subject="launch", name=name, old=_shown(before), new=_shown(after))


def _settings(old: LaunchSpec, new: LaunchSpec) -> Iterator[Difference]:
    before, after = _by_name(old), _by_name(new)
    for key in dict.fromkeys((*before, *after)):
        role, name = key
        mine, theirs = before.get(key), after.get(key)
        if mine is not None and theirs is not None and mine == theirs:
            continue
        subject = "flag" if name.startswith("-") else "variable"
        yield Difference(subject=subject, name=name, role=role, old=mine, new=theirs)


def _by_name(spec: LaunchSpec) -> Mapping[tuple[str | None, str], str]:
    return {(setting.role, setting.name): setting.value for setting in spec.settings}


def _shown(value: object) -> str | None:
    return None if value is None else str(value)
