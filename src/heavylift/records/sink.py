"""Sink: where a record goes to be shown. The one door between results and people."""

from __future__ import annotations

from typing import Any, Protocol


class Sink(Protocol):
    """Renders records: text for a person, JSON for a program, HTML for a page.

    Data goes to standard output, everything else to standard error. `key` names the record's kind
    (`plan`, `compare`, `receipt`, `finding`, …); the sink chooses how that kind looks.
    """

    def record(self, key: str, record: Any) -> None:
        """Show one record: the command's result."""

    def note(self, key: str, **params: Any) -> None:
        """Show a remark beside the result, from the catalogue."""

    def step(self, key: str, **params: Any) -> None:
        """Show progress: one finished step."""

    def next_command(self, command: str) -> None:
        """Show what to type next; always the last line."""
