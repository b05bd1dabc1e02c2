"""The checks: read from TOML files, shipped and the user's own, and laid out for one run. Pure but
for the reading.
"""

from __future__ import annotations

import difflib
import importlib.util
import tomllib
from collections.abc import Container, Iterable, Mapping
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import Golden
from heavylift.units import format_tokens
from heavylift.verify.probes import against, basics, context, declared, images, reasoning, tools
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
    "recalled": basics.recalled,
    "remembered": basics.remembered,
    "ask": basics.own_question,
    "needle": context.needle,
    "over_long": context.over_long,
    "just_over": context.just_over,
    "forced": tools.forced,
    "triggered": tools.triggered,
    "abstained": tools.abstained,
    "parallel": tools.parallel,
    "round_trip": tools.round_trip,
    "in_pieces": tools.in_pieces,
    "structured": tools.structured,
    "declared_later": declared.callable_later,
    "declared_wrongly": declared.senseless,
    "golden": declared.golden,
    "separate": reasoning.separate,
    "cut_short": reasoning.cut_short,
    "given_back": reasoning.given_back,
    "effort": reasoning.effort,
    "injected": reasoning.injected,
    "shape": images.shape,
    "number": images.number,
    "broken": images.broken,
    "oversize": images.oversize,
    "film": images.film,
    "sound": images.sound,
    "remote_picture": images.remote,
    "same": against.same,
    "together": against.together,
}
"""Name of a probe in a check file -> the probe."""


_FIELDS: Final = frozenset(field.name for field in fields(Check))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    check: tuple[Check, ...] = ()


def shipped() -> tuple[Check, ...]:
    """The checks that come with heavylift, in the order they are run."""
    folder = resources.files("heavylift.verify").joinpath("checks")
    names = ("basics", "reasoning", "tools", "responses", "context", "images", "against")
    return tuple(
        check
        for name in names
        for check in decode(folder.joinpath(f"{name}.toml").read_text("utf-8"), f"{name}.toml")
    )


def own(folder: Path) -> tuple[tuple[Check, ...], dict[str, MakeProbe]]:
    """The user's checks, every TOML file of a folder, and the probes of its Python files.

    A Python file is run: it is the user's own code, from a folder they named. Its `PROBES` maps
    names to probes (see `MakeProbe`). Raises USE066 and USE067.
    """
    probes: dict[str, MakeProbe] = {}
    for path in sorted(folder.glob("*.py")):
        probes |= _own_probes(path)
    checks: list[Check] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            checks += decode(path.read_text("utf-8"), str(path), known=probes)
        except (OSError, UnicodeDecodeError) as problem:
            raise HeavyliftError("USE066", {"path": str(path), "detail": str(problem)}) from problem
    if not checks:
        raise HeavyliftError("USE067", {"path": str(folder)})
    return tuple(checks), probes


def _own_probes(path: Path) -> dict[str, MakeProbe]:
    spec = importlib.util.spec_from_file_location(f"heavylift_checks_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise HeavyliftError("USE066", {"path": str(path), "detail": "not_a_python_file"})
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        # The user's own code may fail in any way; what it said is what helps.
        detail = f"{type(problem).__name__}: {problem}"
        raise HeavyliftError("USE066", {"path": str(path), "detail": detail}) from problem
    probes = getattr(module, "PROBES", None)
    if not isinstance(probes, dict) or not all(map(callable, probes.values())):
        raise HeavyliftError("USE066", {"path": str(path), "detail": "PROBES"})
    return probes


def golden_checks(goldens: Iterable[Golden]) -> tuple[Check, ...]:
    """A check per known request of the model."""
    return tuple(
        Check(
            id=f"goldens.{each.name}",
            probe="golden",
            trials=dict.fromkeys(Profile, 1),
            needs=("goldens",),
            params={
                "content": each.content,
                "body": each.body,
                "prompt_tokens": each.prompt_tokens,
            },
        )
        for each in goldens
    )


def decode(text: str, path: str, known: Container[str] = frozenset()) -> tuple[Check, ...]:
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
        if check.probe not in PROBES and check.probe not in known:
            raise HeavyliftError("USE068", {"path": path, "check": check.id, "probe": check.probe})
    return checks


def require_known(checks: Iterable[Check], names: Iterable[str]) -> None:
    """Raises USE070 for a name that is neither a check nor a group, with those near it."""
    checks = tuple(checks)
    groups = sorted({check.group for check in checks} | {"memory"})
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
