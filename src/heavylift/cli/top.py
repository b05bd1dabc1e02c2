"""`heavylift top`: GPUs, engine and host as they are now, planned against observed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import click

from heavylift.cli.numbers import FiniteRange
from heavylift.cli.output import json_option, sink
from heavylift.cli.served import KEY_VARIABLE, OutputFile
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError

if TYPE_CHECKING:
    from heavylift.records.watch import WatchReport

_FILE: Final = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_RUNNABLE: Final = click.Path(exists=True, dir_okay=False, executable=True, path_type=Path)
_FIRST_S: Final = 1.0
"""Between the two looks of `--once`: rates need two."""


@click.command(help=text("help.top.long"), short_help=text("help.top"))
@click.argument("what", metavar="[NAME|URL]", required=False)
@click.option("--once", is_flag=True, help=text("top.once"))
@click.option(
    "--interval",
    type=FiniteRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help=text("top.interval"),
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help=text("top.count"))
@click.option("--record", type=OutputFile(), metavar="FILE", help=text("top.record"))
@click.option("--replay", type=_FILE, metavar="FILE", help=text("top.replay"))
@click.option(
    "--speed",
    type=FiniteRange(min=0.0),
    default=1.0,
    show_default=True,
    metavar="N",
    help=text("top.speed"),
)
@click.option("--curve", is_flag=True, help=text("top.curve"))
@click.option(
    "--key-env",
    default=KEY_VARIABLE,
    show_default=True,
    metavar="NAME",
    help=text("served.key_env"),
)
@click.option("--gpu-tool", type=_RUNNABLE, help=text("served.gpu_tool"))
@json_option
def command(
    what: str | None, record: Path | None, replay: Path | None, as_json: bool, **given: Any
) -> int:
    """Show looks until it is told to stop; with `--once` 5 when a named engine does not answer."""
    from heavylift.observe.recording import recording

    if replay is not None and (what is not None or record is not None):
        raise HeavyliftError("USE099", {})
    shown = _Shown(once=given["once"], as_json=as_json, is_live=_is_live(as_json, **given))
    looks = _replayed(replay, shown, **given) if replay else _looks(what, shown, **given)
    with contextlib.ExitStack() as stack:
        write = stack.enter_context(recording(record)) if record is not None else None
        stack.enter_context(shown)
        last = None
        for look in looks:
            last = look
            if write is not None:
                write(look)
            if not shown.show(look):
                break
    return _ended(shown, last, what)


def _is_live(as_json: bool, *, once: bool, **_: Any) -> bool:
    return not as_json and not once and sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _ended(shown: _Shown, last: WatchReport | None, what: str | None) -> int:
    from heavylift.records.watch import Sight

    if last is None:
        return Exit.OK
    if shown.once:
        shown.last(last)
        if what is not None and last.engine.sight is Sight.NO_ANSWER:
            return Exit.ENGINE
    return Exit.OK


def _looks(
    what: str | None,
    shown: _Shown,
    *,
    once: bool,
    interval: float,
    count: int | None,
    curve: bool,
    key_env: str,
    gpu_tool: Path | None,
    **_: Any,
) -> Iterator[WatchReport]:
    import time

    from heavylift.operate import watching

    tool = None if gpu_tool is None else (str(gpu_tool),)
    target = watching.find(what, key=os.environ.get(key_env) or None, tool=tool)
    if curve:
        target = watching.with_curve(target)
    watch = watching.Watching(target)
    if once:
        if target.url is not None:
            watch.look()
            time.sleep(min(_FIRST_S, interval))
        yield watch.look()
        return
    done = 0
    while count is None or done < count:
        yield watch.look()
        done += 1
        if count is not None and done >= count:
            return
        if shown.wait(interval):
            return


def _replayed(
    path: Path, shown: _Shown, *, once: bool, speed: float, count: int | None, **_: Any
) -> Iterator[WatchReport]:
    from itertools import islice

    from heavylift.observe import recording

    def pause(seconds: float) -> None:
        shown.wait(seconds)

    if once:
        last = None
        for last in recording.read(path):  # noqa: B007 - the last is wanted
            pass
        if last is not None:
            yield last
        return
    # Who reads a pipe does not want to wait.
    looks = recording.replay(path, speed=speed if shown.is_live else 0.0, sleep=pause)
    yield from islice(looks, count)


class _Shown:
    """Where looks go: a screen that is drawn again, screens one after another, lines of JSON."""

    def __init__(self, *, once: bool, as_json: bool, is_live: bool) -> None:
        self.once = once
        self.is_live = is_live
        self._as_json = as_json
        self._screen: Any = None
        self._quit = False
        self._undo: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        if self.is_live:
            from rich.live import Live

            from heavylift.cli.output import terminal

            self._undo = _raw_keys()
            self._screen = Live(
                console=terminal(), screen=True, auto_refresh=False, transient=False
            )
            self._screen.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._screen is not None:
            self._screen.__exit__(None, None, None)
        if self._undo is not None:
            self._undo()

    def show(self, look: WatchReport) -> bool:
        """Show a look; False when somebody has asked to quit."""
        if self.once:
            return True
        if self._screen is not None:
            from heavylift.cli.output import drawn

            self._screen.update(drawn("top", look), refresh=True)
        elif self._as_json:
            import msgspec

            sys.stdout.write(msgspec.json.encode(look).decode() + "\n")
            sys.stdout.flush()
        else:
            sink(as_json=False).record("top", look)
            click.echo()
        return not self._quit

    def last(self, look: WatchReport) -> None:
        """The one look of `--once`."""
        out = sink(self._as_json)
        out.record("top", look)
        out.next_command(f"heavylift status {look.name}" if look.name else "heavylift status")

    def wait(self, seconds: float) -> bool:
        """Wait; True at once when somebody types q."""
        import select
        import time

        if self._undo is None:
            time.sleep(seconds)
            return False
        until = time.monotonic() + seconds
        while not self._quit and (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([sys.stdin], [], [], left)
            if ready and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
                self._quit = True
        return self._quit


def _raw_keys() -> Callable[[], None] | None:
    """Keys one by one and unseen; what puts the terminal back. None where there are no keys."""
    import termios
    import tty

    if not sys.stdin.isatty():
        return None
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    return lambda: termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
