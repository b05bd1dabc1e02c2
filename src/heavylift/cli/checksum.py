"""`heavylift checksum`: whether a checkpoint's files are what was published, byte for byte."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heavylift.cli.kept import keep
from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError, reason

if TYPE_CHECKING:
    from heavylift.checkpoint.listing import ListedFile
    from heavylift.records.integrity import Integrity
    from heavylift.records.sink import Sink


@click.command(help=text("help.checksum"))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--against",
    "lists",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="LIST",
    help=text("option.against"),
)
@click.option("--write", "written", type=click.Path(path_type=Path), help=text("option.write_sums"))
@click.option("--reread", is_flag=True, help=text("option.reread"))
@click.option("--workers", type=click.IntRange(1, 32), help=text("option.hash_workers"))
@json_option
def command(folder: Path, lists: tuple[Path, ...], as_json: bool, **options: Any) -> int:
    """Check and show; 1 when a file is not what it should be."""
    from dataclasses import replace

    out = sink(as_json)
    listed = tuple(file for path in lists for file in read_list(path))
    written = options.pop("written")
    found = check_folder(folder, listed, out, **options)
    if written is not None:
        write_sums(found, written)
    out.record("checksum", found)
    keep(out, "checksum", replace(found, where=str(folder.absolute())))
    return Exit.OK if found.sound else Exit.NEGATIVE


def read_list(path: Path) -> tuple[ListedFile, ...]:
    """The files that a list names. Raises CKPT030 for what is none, CKPT025 when unreadable."""
    from heavylift.checkpoint.listing import LIST_LIMIT_BYTES, parse_list

    try:
        with path.open("rb") as file:
            raw = file.read(LIST_LIMIT_BYTES + 1)
    except OSError as error:
        raise HeavyliftError("CKPT025", {"path": str(path), "reason": reason(error)}) from error
    if len(raw) > LIST_LIMIT_BYTES:
        raise HeavyliftError("CKPT030", {"path": str(path)})
    return parse_list(raw, str(path))


def check_folder(
    folder: Path,
    listed: tuple[ListedFile, ...],
    out: Sink,
    *,
    reread: bool = False,
    workers: int | None = None,
) -> Integrity:
    """The check with its progress shown, and its digests kept for the next time."""
    import time

    from heavylift.checkpoint.integrity import Digests, NoDigests, Progress, check
    from heavylift.state.digests import DigestStore

    shown_at = [time.monotonic()]

    def show(progress: Progress) -> None:
        if time.monotonic() - shown_at[0] < _EVERY_S or progress.seconds_left is None:
            return
        shown_at[0] = time.monotonic()
        out.step(
            "checksum.progress",
            done=f"{progress.done_bytes / 1e9:,.1f}",
            total=f"{progress.total_bytes / 1e9:,.1f}",
            speed=f"{progress.done_bytes / progress.seconds / 1e9:,.2f}",
            left=duration(progress.seconds_left),
        )

    with ExitStack() as stack:
        digests: Digests = NoDigests()
        if not reread:
            try:
                digests = stack.enter_context(DigestStore())
            except HeavyliftError as error:
                out.note("checksum.not_kept", reason=str(error.params.get("detail", error.code)))
        return check(folder, listed, digests, clock=time.monotonic, progress=show, workers=workers)


_EVERY_S = 5.0


def duration(seconds: float) -> str:
    """`9 min 58 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004 - seconds of a minute
        return f"{whole} s"
    if whole < 3600:  # noqa: PLR2004 - seconds of an hour
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def write_sums(found: Integrity, path: Path) -> None:
    """The digests as sha256sum writes them. Raises ENV030 when the file cannot be written."""
    lines = [
        f"{file.sha256}  {file.path}\n"
        if "\n" not in file.path and "\\" not in file.path
        else "\\{}  {}\n".format(file.sha256, file.path.replace("\\", "\\\\").replace("\n", "\\n"))
        for file in found.files
        if file.sha256 is not None
    ]
    content = "".join(lines)
    try:
        path.write_text(content, "utf-8", "surrogateescape")
    except OSError as error:
        raise HeavyliftError(
            "ENV030", {"path": str(path), "bytes": len(content), "reason": reason(error)}
        ) from error
