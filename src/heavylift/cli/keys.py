"""`heavylift keys`: makes, lists, revokes and rotates the keys of the gateway."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text

if TYPE_CHECKING:
    from heavylift.gateway.store import Store

F = TypeVar("F", bound=Callable[..., Any])

_MOST_COUNT = 2**53
_LIMITS = ("requests_per_minute", "tokens_per_minute", "tokens_per_day", "concurrent")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MOST_S = 36_525 * 86_400
"""A hundred years: what is longer is a slip of the finger."""


class Duration(click.ParamType[float]):
    """A time with its unit, such as 30d, up to a hundred years; arrives as seconds."""

    name = "duration"

    def __init__(self, least_s: float) -> None:
        self.least_s = least_s

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        unit = str(value)[-1:]
        number = str(value)[:-1]
        if unit not in _UNITS or not number.isdecimal():
            self.fail(text("usage.duration", value=value), param, ctx)
        seconds = float(number) * _UNITS[unit]
        if not self.least_s <= seconds <= _MOST_S:
            least = f"{self.least_s:g}s"
            self.fail(text("usage.duration_range", value=value, least=least), param, ctx)
        return seconds


class Count(click.ParamType[int]):
    """A whole number, also written as volumes are elsewhere: `2000000`, `2M`."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        from heavylift.cli.workload import Volume

        written = str(value)
        plain = written.isdecimal()
        count = int(written) if plain else Volume().convert(written, param, ctx)
        if count != int(count) or count > _MOST_COUNT:
            self.fail(text("usage.count", value=value, most=_MOST_COUNT), param, ctx)
        return int(count)


def state_option(function: F) -> F:
    """Adds `--state`; it arrives as `state`."""
    option = click.option(
        "--state", type=click.Path(path_type=Path, file_okay=False), help=text("help.gateway.state")
    )
    decorated: F = option(function)
    return decorated


def opened_store(state: Path | None, *, must_exist: bool = False) -> AbstractContextManager[Store]:
    """Keys and usage: in the database that the environment names, else in the state folder."""
    import os

    from heavylift.gateway.config import DATABASE_URL
    from heavylift.gateway.postgres import open_remote_store
    from heavylift.gateway.store import default_folder, open_store

    url = os.environ.get(DATABASE_URL)
    if url:
        return open_remote_store(url)
    return open_store(state or default_folder(), must_exist=must_exist)


def limit_options(function: F) -> F:
    """Adds the options of the limits."""
    for name in reversed(_LIMITS):
        flag = f"--{name.replace('_', '-')}"
        function = click.option(flag, type=Count(), help=text(f"help.keys.{name}"))(function)
    return function


@click.group(help=text("help.keys.long"))
def command() -> None:
    """The group."""


@command.command("create", help=text("help.keys.create"))
@click.argument("name")
@limit_options
@click.option(
    "--max-output-tokens", type=click.IntRange(1, 2**31), help=text("help.keys.max_output_tokens")
)
@click.option("--team", help=text("help.keys.team"))
@click.option("--model", "models", multiple=True, help=text("help.keys.model"))
@click.option("--allow-ip", "networks", multiple=True, help=text("help.keys.allow_ip"))
@click.option("--expires", type=Duration(1), help=text("help.keys.expires"))
@click.option("--batches", is_flag=True, help=text("help.keys.batches"))
@click.option("--admin", is_flag=True, help=text("help.keys.admin"))
@state_option
@json_option
def create(
    *,
    name: str,
    max_output_tokens: int | None,
    team: str | None,
    models: tuple[str, ...],
    networks: tuple[str, ...],
    expires: float | None,
    batches: bool,
    admin: bool,
    state: Path | None,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Make a key and show it, once."""
    import time

    from heavylift.gateway.keys import DEFAULT_MAX_OUTPUT_TOKENS, Scope
    from heavylift.gateway.quota import Limits

    now = time.time()
    with opened_store(state) as store:
        created = store.create_key(
            name,
            now_epoch_s=now,
            scope=Scope.ADMIN if admin else Scope.INFER,
            team=team,
            models=models,
            networks=networks,
            limits=Limits(**limits),
            max_output_tokens=max_output_tokens or DEFAULT_MAX_OUTPUT_TOKENS,
            expires_at=None if expires is None else now + expires,
            batches=batches,
            unique=True,
        )
    out = sink(as_json)
    out.record("keys", created)
    out.note("keys.shown_once")


@command.command("list", help=text("help.keys.list"))
@state_option
@json_option
def list_(state: Path | None, as_json: bool) -> None:
    """List the keys, without secrets."""
    from heavylift.gateway.admin import view

    with opened_store(state, must_exist=True) as store:
        keys = tuple(map(view, store.keys()))
    out = sink(as_json)
    out.record("keys", keys)
    if not keys:
        out.next_command("heavylift keys create NAME")


@command.command("revoke", help=text("help.keys.revoke"))
@click.argument("key")
@state_option
@json_option
def revoke(key: str, state: Path | None, as_json: bool) -> None:
    """Revoke a key, at once."""
    import time

    from heavylift.gateway.admin import view

    with opened_store(state, must_exist=True) as store:
        revoked = store.revoke_key(key, now_epoch_s=time.time())
    sink(as_json).record("keys", (view(revoked),))


@command.command("rotate", help=text("help.keys.rotate"))
@click.argument("key")
@click.option(
    "--grace", type=Duration(0), default="0s", show_default=True, help=text("help.keys.grace")
)
@state_option
@json_option
def rotate(key: str, grace: float, state: Path | None, as_json: bool) -> None:
    """Give a key a new secret."""
    import time

    with opened_store(state, must_exist=True) as store:
        rotated = store.rotate_key(key, now_epoch_s=time.time(), grace_s=grace)
    out = sink(as_json)
    out.record("keys", rotated)
    out.note("keys.shown_once")


@command.command("team", help=text("help.keys.set_team"))
@click.argument("name")
@limit_options
@state_option
def team(name: str, state: Path | None, **limits: int | None) -> None:
    """Set the limits that the keys of a team share."""
    from heavylift.gateway.quota import Limits

    with opened_store(state) as store:
        store.set_team(name, Limits(**limits))
    sink(as_json=False).note("keys.team_set", team=name)
