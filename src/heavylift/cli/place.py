"""Options of `heavylift recipe` that say where the files are for: images, a cluster's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from heavylift.cli.text import text
from heavylift.recipe.targets.records import Runtime, TargetOptions
from heavylift.recipe.targets.view import ENGINES

F = TypeVar("F", bound=Callable[..., Any])

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/:-]*[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"[A-Za-z0-9._/:@-]+")
_FIELDS: Final = {
    "namespace": "namespace",
    "secret": "secret",
    "claim": "model_claim",
    "cache_claim": "cache_claim",
    "storage_class": "storage_class",
    "partition": "partition",
    "account": "account",
    "time_limit": "time_limit",
}
"""Option -> field of the target's options; each is a name, or not given."""


class Name(click.ParamType[str]):
    """A name in a cluster: nothing that a manifest or a batch script could read otherwise."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, or a usage error."""
        if not _NAME.fullmatch(str(value)):
            self.fail(text("usage.place_name", value=repr(value)), param, ctx)
        return str(value)


class Pair(click.ParamType[tuple[str, str]]):
    """`NAME=VALUE`; without a name where `default` is one."""

    name = "name=value"

    def __init__(self, default: str | None) -> None:
        self.default = default

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Name and value, or a usage error."""
        if isinstance(value, tuple):
            return value
        words = str(value)
        name, equals, rest = words.partition("=")
        if not equals and self.default is not None:
            name, rest = self.default, words
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(rest)):
            self.fail(text("usage.place_pair", value=repr(value)), param, ctx)
        return name, rest


def place_options(command: F) -> F:
    """Add the options."""
    for option in reversed(
        [
            click.option(
                "--image",
                "images",
                type=Pair(ENGINES),
                multiple=True,
                metavar="[ROLE=]IMAGE",
                help=text("place.option.image"),
            ),
            click.option(
                "--runtime",
                type=click.Choice([each.value for each in Runtime]),
                help=text("place.option.runtime"),
            ),
            click.option("--rdma", is_flag=True, help=text("place.option.rdma")),
            click.option(
                "--resource",
                "resources",
                type=Pair(None),
                multiple=True,
                metavar="NAME=COUNT",
                help=text("place.option.resource"),
            ),
            *(
                click.option(
                    f"--{name.replace('_', '-')}",
                    type=Name(),
                    help=text(f"place.option.{name}"),
                )
                for name in _FIELDS
            ),
        ]
    ):
        command = option(command)
    return command


def target_options(
    given: Mapping[str, Any], *, name: str, header: tuple[str, ...], model_bytes: int | None
) -> TargetOptions:
    """The options of a target, from those that were typed."""
    return TargetOptions(
        name=name,
        header=header,
        model_bytes=model_bytes,
        runtime=None if given["runtime"] is None else Runtime(given["runtime"]),
        rdma=given["rdma"],
        extra_resources=dict(given["resources"]),
        **{field: given[option] for option, field in _FIELDS.items()},
    )
