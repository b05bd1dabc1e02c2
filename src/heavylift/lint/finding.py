"""What the linter finds, and how the command is changed for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from heavylift.errors import Scalar
from heavylift.records.finding import Severity

RANK: Final = {Severity.FAIL: 0, Severity.WARN: 1, Severity.UNKNOWN: 2, Severity.INFO: 3}


@dataclass(frozen=True, kw_only=True, slots=True)
class LintFinding:
    """One finding. `rule` is its public name; `detail` tells it from others of that name.

    `text` is the catalogue key of its message, `params` fill it. `subject` is the flag, variable,
    image or layout as written. `mend` lists edits of the command. `source` is a source id; `as_of`
    the day it held.
    """

    rule: str
    severity: Severity
    subject: str
    text: str
    detail: str | None = None
    params: dict[str, Scalar] = field(default_factory=dict)
    mend: tuple[str, ...] = ()
    source: str | None = None
    as_of: str | None = None

    @property
    def code(self) -> str:
        """`rule`, or `rule:detail`."""
        return self.rule if self.detail is None else f"{self.rule}:{self.detail}"
