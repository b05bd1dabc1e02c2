"""What came of checking a checkpoint's files: a verdict, what is wrong, how it was compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from heavylift.cli.output import glyphs
from heavylift.cli.screens.inspect import defect_lines
from heavylift.cli.text import listed, text
from heavylift.records.integrity import GOOD, CheckedFile, FileState, Integrity
from heavylift.units import format_gb

_LISTED: Final = 40
# Why a file was not opened, where it is no reason of the system.
_PROBLEMS: Final = frozenset({"link_outside", "not_a_file"})


def lines(found: Integrity) -> Iterator[Text | str]:
    """The screen, line by line."""
    word, style = ("sound", "bold green") if found.sound else ("unsound", "bold red")
    glyph = glyphs()["ok" if found.sound else "fail"]
    yield Text.assemble((f"{glyph} {text(f'checksum.{word}')}", style), f"  {found.where}")
    hashed = sum(file.sha256 is not None for file in found.files)
    yield text(
        "checksum.files",
        files=f"{len(found.files):,}",
        hashed=f"{hashed:,}",
        gb=format_gb(found.bytes_read + found.bytes_kept, 3),
    )
    yield from _compared(found)
    if found.bytes_kept:
        kept = sum(file.kept for file in found.files)
        yield text("checksum.kept", count=f"{kept:,}", gb=format_gb(found.bytes_kept, 3))
    if found.bytes_per_s is not None:
        yield text(
            "checksum.speed",
            gb=format_gb(found.bytes_read, 3),
            seconds=f"{found.seconds:,.1f}",
            speed=f"{found.bytes_per_s / 1e9:,.2f}",
        )
    wrong = [file for file in found.files if file.state not in GOOD]
    if wrong or found.defects:
        yield ""
    for file in wrong[:_LISTED]:
        yield from _file(file)
    if len(wrong) > _LISTED:
        yield text("inspect.more_defects", count=len(wrong) - _LISTED)
    for defect in found.defects[:_LISTED]:
        yield from defect_lines(defect)


def _compared(found: Integrity) -> Iterator[str]:
    if found.compared:
        origins = listed([text(f"checksum.origin.{each}") for each in found.compared_with])
        yield text("checksum.compared", count=f"{found.compared:,}", origins=origins)
    else:
        yield text("checksum.not_compared")


def _file(file: CheckedFile) -> Iterator[Text | str]:
    word = text(f"checksum.state.{file.state}")
    yield Text.assemble((f"{glyphs()['fail']} {word}", "bold red"), f"  {file.path}")
    if file.state is FileState.SWAPPED:
        yield "    " + text("checksum.swapped", owner=file.detail)
    elif file.state in (FileState.TRUNCATED, FileState.TOO_LONG):
        yield "    " + text(
            "checksum.length", found=f"{file.bytes:,}", expected=f"{file.expected_bytes:,}"
        )
    elif file.state is FileState.DIFFERS:
        yield "    " + text("checksum.digest", found=file.sha256)
        yield "    " + text("checksum.digest_expected", expected=file.expected)
    elif file.detail in _PROBLEMS:
        yield "    " + text(f"defect.{file.detail}", detail=file.path)
    elif file.detail is not None:
        yield f"    {file.detail}"
