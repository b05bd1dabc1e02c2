"""Options of the commands that talk to a served model: its key, its name, what is known of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from heavylift.cli.text import text
from heavylift.errors import HeavyliftError
from heavylift.wire.client import Endpoint, is_address

KEY_VARIABLE: Final = "HEAVYLIFT_API_KEY"
_OPTIONS: Final = ("model", "key_env", "variant", "release", "quantised")


class OutputFile(click.Path):
    """A file to be written at the end: whether it can be is found before the work, not after."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path, in a folder that exists and takes new files."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.exists() and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            self.fail(text("usage.output_file", path=str(path)), param, ctx)
        return path


F = TypeVar("F", bound=Callable[..., Any])


def served_options(function: F) -> F:
    """Adds `--model`, `--key-env`, `--variant`, `--release` and `--quantised`."""
    options = (
        click.option("--model", default="", help=text("served.model")),
        click.option(
            "--key-env",
            default=KEY_VARIABLE,
            show_default=True,
            metavar="NAME",
            help=text("served.key_env"),
        ),
        click.option("--variant", help=text("served.variant")),
        click.option("--release", help=text("served.release")),
        click.option("--quantised/--original", default=None, help=text("served.quantised")),
    )
    for option in reversed(options):
        function = option(function)
    return function


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What the options say of the served model."""

    model: str
    key_env: str
    variant: str | None
    release: str | None
    quantised: bool | None
    key: str | None = field(default=None, repr=False)
    """The key of a deployment that was named; None = it is in the environment, if anywhere."""

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> Served:
        """Takes its options out of all options given."""
        return cls(**{name: given.pop(name) for name in _OPTIONS})

    def at(self, where: str) -> tuple[str, Served]:
        """The address of what was named, and what is known of it: a URL stays one, the name of a
        deployment becomes where it answers, with its key, model and release.

        Raises OPS009 for a deployment that does not serve.
        """
        if "://" in where or is_address(where):
            return where, self
        from heavylift.operate.reporting import reach

        found = reach(where)
        if found is None:
            return where, self
        return found.url, replace(
            self,
            model=self.model or found.model,
            release=self.release or str(found.release),
            key=os.environ.get(self.key_env) or found.key,
        )

    def is_copy(self) -> bool | None:
        """Whether a quantised copy stands for the model: as stated, else by the facts, which know
        the bytes of a published variant and of the model's own checkpoint. None = nobody knows.
        """
        if self.quantised is not None or not (self.model and self.variant):
            return self.quantised
        from heavylift.facts.catalog import Catalog

        try:
            model = Catalog().model(self.model)
        except HeavyliftError:
            return None
        sizes = {each.id: each.bytes_total for each in model.variants}
        size = sizes.get(self.variant)
        return None if size is None or model.totals is None else size < model.totals.bytes

    def endpoint(self, url: str) -> Endpoint:
        """The endpoint of a URL; the key is read from the environment, never from the arguments."""
        return Endpoint.parse(url, self.key or os.environ.get(self.key_env) or None)
