"""What every engine's command has: settings of the plan, parsers, rules, the published recipe."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.recipe.deadline import Deadline
from heavylift.recipe.flags import Found
from heavylift.recipe.job import Job
from heavylift.recipe.published import Followed, followed
from heavylift.recipe.sheet import (
    COMPUTED,
    DEFAULT,
    ENGINE_RULE,
    EXPOSURE,
    PUBLISHED,
    USER,
    Reason,
    SettingValue,
    Sheet,
)
from heavylift.records.launch import RankSpec, Rendezvous

OURS: Final = "heavylift"
KEY_SECRET: Final = "api-key"  # noqa: S105 - the name of a secret, not one
API: Final = "api"

_SEQUENCES: Final = "{max_num_seqs}"
"""Stands for the sequences of the launch in a published key."""

_LAYOUT_SETTINGS: Final = (
    "tensor",
    "pipeline",
    "data",
    "expert",
    "dcp",
    "nodes",
    "nodes_by_data",
    "host",
    "model",
    "served_name",
)
"""Settings that only this launch can know: a recipe's words for them are not taken over."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """The processes of one pool."""

    ranks: tuple[RankSpec, ...]
    rendezvous: Rendezvous | None = None
    files: dict[str, str] = field(default_factory=dict)
    prepare: tuple[tuple[str, ...], ...] = ()


def computed(why: str) -> Reason:
    """The reason of a value that follows from the plan."""
    return Reason(origin=COMPUTED, source=OURS, why=why)


def engine_default(job: Job, why: str) -> Reason:
    """The reason of a value that is the engine's own, written out."""
    return Reason(origin=DEFAULT, source=job.table.facts.source, why=why)


def exposure(why: str) -> Reason:
    """The reason of a value that says where the service listens."""
    return Reason(origin=EXPOSURE, source=OURS, why=why)


def state(sheet: Sheet, setting: str, value: str | float | None, reason: Reason) -> bool:
    """State a setting by the engine's own flag for it; False when it has none."""
    flags = [name for name in sheet.job.command.settings.get(setting, ()) if name[0] == "-"]
    plain = [name for name in flags if ":" not in name and sheet.offers(name)]
    if not plain:
        return False
    sheet.flag(plain[0], value, reason)
    return True


def planned(job: Job, name: str, why: str) -> Reason:
    """Where a value of the plan is from: asked for, a published recipe, the engine, or computed."""
    # The last entry stands: `auto` of a recipe may have been resolved by the engine.
    taken = next((each for each in reversed(job.plan.defaults) if each.name == name), None)
    if taken is None:
        if name not in job.derived:
            return Reason(origin=USER, source=OURS, why=why)
        return _published(job, job.derived[name], why) if job.derived[name] else computed(why)
    if taken.origin == "recipe":
        return _published(job, taken.source, why)
    if taken.origin == "engine":
        return Reason(origin=DEFAULT, source=str(taken.source), why=why)
    return computed(why)


def _published(job: Job, identifier: str, why: str) -> Reason:
    recipe = next((each for each in job.recipes if each.id == identifier), None)
    day = None if recipe is None else recipe.as_of.isoformat()
    return Reason(origin=PUBLISHED, source=identifier, why=why, as_of=day)


def plan_settings(sheet: Sheet) -> None:
    """Context, sequences, batch, KV dtype, memory, MoE backend: as the plan has them."""
    job, plan = sheet.job, sheet.job.plan
    state(sheet, "context", plan.context_tokens, planned(job, "context_tokens", "context"))
    if plan.max_num_seqs is not None:
        state(sheet, "sequences", plan.max_num_seqs, planned(job, "max_num_seqs", "sequences"))
    if plan.max_num_batched_tokens is not None:
        reason = planned(job, "max_num_batched_tokens", "batched_tokens")
        state(sheet, "batched_tokens", plan.max_num_batched_tokens, reason)
    word = job.serving.kv_dtype_words.get(plan.kv_cache_dtype, plan.kv_cache_dtype)
    state(sheet, "kv_dtype", word, planned(job, "kv_cache_dtype", "kv_dtype"))
    budget = next((each for each in plan.budgets if each.fraction is not None), None)
    if budget is not None and budget.fraction is not None:
        reason = planned(job, budget.name, "memory_fraction")
        state(sheet, "memory_fraction", round(budget.fraction, 3), reason)
    moe_backend(sheet)


def moe_backend(sheet: Sheet) -> None:
    """The MoE backend, where somebody chose one; the engine's own choice is left to it."""
    job, plan = sheet.job, sheet.job.plan
    reason = planned(job, "moe_backend", "moe_backend")
    flags = job.command.settings.get("moe_backend", ())
    if plan.moe_backend is None or not flags or reason.origin == DEFAULT:
        return
    found = job.table.flag(flags[0])
    if found is None:
        return
    if not found.facts.choices or plan.moe_backend in _choices(job, found):
        sheet.flag(flags[0], plan.moe_backend, reason)


def parsers(sheet: Sheet) -> None:
    """Foreign code, and the parsers of the model's tool calls and thinking."""
    job = sheet.job
    naming = job.naming
    if naming is None:
        return
    reason = Reason(
        origin=ENGINE_RULE, source=naming.source, why="trust", as_of=naming.as_of.isoformat()
    )
    if naming.trust_remote_code and state(sheet, "trust", None, reason) and not job.is_local:
        pin_revision(sheet)
    for setting, names, why in (
        ("tool_parser", naming.tool_parsers, "tool_parser"),
        ("reasoning_parser", naming.reasoning_parsers, "reasoning_parser"),
    ):
        parser = _offered(job, setting, names)
        if parser is None:
            if names and job.table.facts.partial:
                sheet.note("parser_unread", setting=setting, engine=job.serving.title)
            continue
        reason = Reason(origin=ENGINE_RULE, source=job.table.facts.source, why=why)
        state(sheet, setting, parser, reason)
        if setting == "tool_parser":
            state(sheet, "auto_tools", None, reason)


def pin_revision(sheet: Sheet) -> None:
    """Foreign code is pinned to the revision stated; without one that is said."""
    revision = sheet.job.start.revision
    if revision is None:
        sheet.note("pin_revision", model=sheet.job.model_path)
        return
    for flag in ("--revision", "--code-revision"):
        if sheet.offers(flag):
            sheet.flag(flag, revision, Reason(origin=USER, source=OURS, why="revision"))


def _offered(job: Job, setting: str, names: tuple[str, ...]) -> str | None:
    """The first of the model's parsers that this engine lists. Where the whole table was read and
    lists none, any name goes.
    """
    flags = job.command.settings.get(setting, ())
    found = job.table.flag(flags[0]) if flags else None
    if found is None:
        return None
    listed = _choices(job, found)
    free = not found.facts.choices and not job.table.facts.partial
    return next((name for name in names if name in listed or free), None)


def _choices(job: Job, found: Found) -> tuple[str, ...]:
    """What the version planned takes as a flag's value; empty where any goes."""
    return job.table.choices(found.facts, job.table_version)


def engine_rules(sheet: Sheet) -> None:
    """Flags and variables that the facts name for this version, card and layout.

    Raises REC012 for a setting that they forbid, REC029 for a draft that they do not name.
    """
    job = sheet.job
    rules = job.rules()
    wanted = f"draft:{job.start.draft}"
    if job.start.draft is not None and not any(wanted in rule.when for rule in rules):
        raise HeavyliftError("REC029", {"draft": job.start.draft, "engine": job.serving.title})
    for rule in rules:
        reason = Reason(
            origin=ENGINE_RULE, source=rule.source, why=rule.why, as_of=rule.as_of.isoformat()
        )
        for setting, pattern in rule.forbids.items():
            value = _asked(job, setting)
            if value is not None and fnmatch.fnmatchcase(value, pattern):
                raise HeavyliftError(
                    "REC012",
                    {
                        "setting": setting,
                        "value": value,
                        "model": job.model.title,
                        "engine": job.serving.title,
                        "gpu": job.gpu.title,
                        "why": rule.why,
                        "source": rule.source,
                    },
                )
        for flag, value in rule.flags.items():
            sheet.offer(flag, value or None, reason)
        for path, key_value in rule.keys.items():
            sheet.offer_key(path, key_value, reason)
        for name, value in rule.environment.items():
            sheet.env(name, value, reason)
        if rule.remark is not None:
            sheet.note(rule.remark, engine=job.serving.title, version=job.plan.engine_version)


def _asked(job: Job, setting: str) -> str | None:
    return {
        "kv_dtype": job.plan.kv_cache_dtype,
        "draft": job.start.draft,
        "model": job.plan.model,
    }.get(setting)


def follow(sheet: Sheet) -> Followed | None:
    """The published recipe's own flags and variables, where nothing else was stated."""
    job = sheet.job
    found = followed(job)
    if found is None:
        return None
    recipe = found.recipe
    reason = Reason(
        origin=PUBLISHED, source=recipe.id, why="published", as_of=recipe.as_of.isoformat()
    )
    own = {flag for setting in _LAYOUT_SETTINGS for flag in job.command.settings.get(setting, ())}
    for argument in recipe.arguments:
        name, _, value = argument.partition(" ")
        spelt = job.table.flag(name)
        if spelt is not None and spelt.name in own:
            continue
        sheet.offer(name, value or None, reason)
    for path, key_value in recipe.keys.items():
        filled = _filled(job, key_value)
        if filled is not None:
            sheet.offer_key(path, filled, reason)
    for name, value in recipe.environment.items():
        if name not in job.serving.deadline_variables:
            sheet.env(name, value, reason)
    if not found.exact:
        sheet.note("followed_other", recipe=recipe.id, layout=job.plan.layout.label)
    if recipe.image is not None and recipe.engine_version != job.plan.engine_version:
        sheet.note(
            "published_image",
            image=recipe.image,
            recipe=recipe.id,
            version=job.plan.engine_version,
        )
    return found


def _filled(job: Job, value: SettingValue) -> SettingValue | None:
    """A published key's value with the launch's own in place of what stands for it; None where the
    launch says nothing of it.
    """
    return job.plan.max_num_seqs if value == _SEQUENCES else value


def deadline(sheet: Sheet) -> None:
    """The time a start may take, in the engine's own words; never less than what it takes."""
    job = sheet.job
    seconds = Deadline.of(job).seconds
    for name in job.serving.deadline_variables:
        sheet.env(name, str(seconds), computed("deadline"))
    for flag in job.serving.deadline_flags:
        if sheet.offers(flag):
            sheet.flag(flag, seconds, computed("deadline"))


def rank_name(job: Job, node: int, replica: int = 0) -> str:
    """The name of a process: `serve-0`, `prefill-1`; replicas count on."""
    return f"{job.role}-{replica * job.nodes + node}"


def finish(sheet: Sheet) -> None:
    """Everything after the layout, in order of precedence."""
    deadline(sheet)
    plan_settings(sheet)
    parsers(sheet)
    engine_rules(sheet)
    follow(sheet)


def secrets(sheet: Sheet) -> dict[str, str]:
    """The variable that carries the key, where one is asked for and the engine reads one."""
    job = sheet.job
    if not job.start.key or job.is_behind_router:
        return {}
    if job.serving.key_variable is None:
        sheet.note("key_needs_gateway", engine=job.serving.title)
        return {}
    return {job.serving.key_variable: KEY_SECRET}
