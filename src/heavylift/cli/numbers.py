"""Numbers as options take them."""

from __future__ import annotations

import math
from typing import Any

import click

from heavylift.cli.text import text


class FiniteRange(click.FloatRange):
    """A range of numbers; `nan`, which passes any range, and `inf` are refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(text("usage.finite", value=value), param, ctx)
        return number
