"""The checks: read from TOML files, shipped and the user's own, and laid out for one run. Pure but
for the reading.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.units import format_tokens
from heavylift.verify.probes import basics, context, images, reasoning, tools
from heavylift.verify.probes.base import MakeProbe
from heavylift.verify.records import Check, Profile

PROBES: Final[Mapping[str, MakeProbe]] = {
    "listed": basics.listed,
    "answer": basics.answer,
    "healthy_text": basics.healthy_text,
    "parity": basics.parity,
    "usage": basics.usage,
    "length": basics.length,
    "stop": basics.stop,
    "seed": basics.seed,
    "echo": basics.echo,
    "refusal": basics.refusal,
    "concurrency": basics.concurrency,
    "cancel": basics.cancel,
    "other_route": basics.other_route,
    "same_answers": basics.same_answers,
    "ask": basics.own_question,
    "needle": context.needle,
    "over_long": context.over_long,
    "forced": tools.forced,
    "triggered": tools.triggered,
    "abstained": tools.abstained,
    "parallel": tools.parallel,
    "round_trip": tools.round_trip,
    "in_pieces": tools.in_pieces,
    "structured": tools.structured,
    "separate": reasoning.separate,
    "cut_short": reasoning.cut_short,
    "given_back": reasoning.given_back,
    "effort": reasoning.effort,
    "injected": reasoning.injected,
    "shape": images.shape,
    "number": images.number,
    "broken": images.broken,
    "offered": images.offered,
}
"""Name of a probe in a check file -> the probe."""


_FIELDS: Final = frozenset(field.name for field in fields(Check))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    check: tuple[Check, ...] = ()


def shipped() -> tuple[Check, ...]:
    """The checks that come with heavylift, in the order they are run."""
    folder = resources.files("heavylift.verify").joinpath("checks")
    names = ("basics", "reasoning", "tools", "context", "images")
    return tuple(
        check
        for name in names
        for check in decode(folder.joinpath(f"{name}.toml").read_text("utf-8"), f"{name}.toml")
    )


def own(folder: Path) -> tuple[Check, ...]:
    """The user's checks: every TOML file of a folder. Raises USE066 and USE067."""
    checks: list[Check] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            checks += decode(path.read_text("utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as problem:
            raise HeavyliftError("USE066", {"path": str(path), "detail": str(problem)}) from problem
    if not checks:
        raise HeavyliftError("USE067", {"path": str(folder)})
    return tuple(checks)


def decode(text: str, path: str) -> tuple[Check, ...]:
    """The checks in a TOML text. Raises USE066 when it is none, or names no known probe."""
    try:
        document = tomllib.loads(text)
        checks = msgspec.convert(document, _File).check
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as problem:
        raise HeavyliftError("USE066", {"path": path, "detail": str(problem)}) from problem
    unknown = {key for row in document.get("check", ()) for key in row} - _FIELDS
    if unknown:
        # A misspelt key would be a silent default.
        raise HeavyliftError("USE066", {"path": path, "detail": ", ".join(sorted(unknown))})
    for check in checks:
        if check.probe not in PROBES:
            raise HeavyliftError("USE068", {"path": path, "check": check.id, "probe": check.probe})
    return checks


def require_known(checks: Iterable[Check], names: Iterable[str]) -> None:
    """Raises USE070 for a name that is neither a check nor a group, with those near it."""
    checks = tuple(checks)
    groups = sorted({check.group for check in checks})
    known = {*groups, *(check.id for check in checks)}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=3)
            raise HeavyliftError(
                "USE070",
                {
                    "name": name,
                    "suggestion": "' or '".join(near),
                    "known": ", ".join(groups),
                },
            )


def chosen(
    checks: Iterable[Check],
    profile: Profile,
    *,
    context_tokens: int | None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
) -> tuple[Check, ...]:
    """The checks of a profile, with a ladder laid out in rungs up to the server's limit.

    `only` and `skip` are ids or groups. A rung leaves room for the answer; of a limit that is not
    known only the first is taken.
    """
    wanted, unwanted = frozenset(only), frozenset(skip)

    def named(check: Check, names: frozenset[str]) -> bool:
        return check.id in names or check.group in names

    return tuple(
        rung
        for check in checks
        if profile in check.trials
        and (not wanted or named(check, wanted))
        and not named(check, unwanted)
        for rung in _rungs(check, profile, context_tokens)
    )


def _rungs(check: Check, profile: Profile, context_tokens: int | None) -> tuple[Check, ...]:
    rungs = check.params.get("rungs")
    if rungs is None:
        return (check,)
    listed: list[int] = rungs[profile]
    if context_tokens is None:
        allowed = listed[:1]
    else:
        # The highest rung is the limit itself: where it lies between two, it is a rung too.
        top = min(listed[-1], context_tokens)
        allowed = [tokens for tokens in listed if tokens < top] + [top]
    return tuple(_rung(check, tokens) for tokens in allowed)


def _rung(check: Check, tokens: int) -> Check:
    params: dict[str, Any] = {**check.params, "tokens": tokens}
    del params["rungs"]
    name = format_tokens(tokens).replace(",", "")
    return replace(check, id=f"{check.group}.{name}", params=params, title=None)
