"""What a bundle holds and what was taken out of it."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.text import text
from heavylift.diagnose.bundle import Bundle


def lines(bundle: Bundle) -> Iterator[str]:
    """The screen, line by line."""
    yield bundle.path
    for file in bundle.files:
        taken = ", ".join(f"{times} {kind}" for kind, times in sorted(file.redacted.items()))
        yield f"  {file.name}  {file.bytes:,} B  {taken}".rstrip()
    if not bundle.hosts_redacted:
        yield text("bundle.hosts_kept")
    yield text("bundle.look")
