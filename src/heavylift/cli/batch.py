"""`heavylift batch`: durable jobs over model endpoints."""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from heavylift.batch.policy import Budget, Patience, RetryRules
from heavylift.batch.records import Clocks, Ended, Progress, Settings, Shape
from heavylift.cli.batch_shards import Hands, refuse_shards, refuse_unshared, spread
from heavylift.cli.numbers import FiniteRange
from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError

if TYPE_CHECKING:
    from heavylift.batch.intake import InputError, Source
    from heavylift.batch.lane import MemoryOf
    from heavylift.records.sink import Sink

_SHOW_EVERY_S: Final = 5.0
_FORMATS: Final = ("openai", "jsonl", "csv", "parquet", "documents")
_URLS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")

_FOLDER: Final = click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR"
)
# A batch in shards may lie in a bucket: a Path would spoil its address.
_PLACE: Final = click.argument("place", type=click.Path(file_okay=False), metavar="DIR|URL")


@click.group(help=text("help.batch"))
def command() -> None:
    """The group."""


def _option(*names: str, **given: Any) -> Callable[..., Any]:
    """An option whose help is `option.batch.NAME`."""
    name = names[-1].lstrip("-").replace("-", "_")
    return click.option(*names, help=text(f"option.batch.{name}"), **given)


def _options(*options: Callable[..., Any]) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_WHAT: Final = _options(
    _option("--model"),
    _option("--format", type=click.Choice(_FORMATS)),
    _option("--url", type=click.Choice(_URLS), default=_URLS[0], show_default=True),
    _option("--prompt"),
    _option("--template", type=click.Path(path_type=Path, dir_okay=False, exists=True)),
    _option("--system"),
    _option("--column", multiple=True, metavar="NAME=COLUMN"),
    _option("--id-column"),
    _option("--param", multiple=True, metavar="NAME=JSON"),
    _option("--schema", type=click.Path(path_type=Path, dir_okay=False, exists=True)),
    _option("--skip-invalid", is_flag=True),
    _option("--replace-input", is_flag=True),
)

_HOW: Final = _options(
    _option("--concurrency", type=click.IntRange(1), default=256, show_default=True),
    _option("--pin", is_flag=True),
    _option("--stream", is_flag=True),
    _option("--dedupe", is_flag=True),
    _option("--keep-order", is_flag=True),
    _option("--attempts", type=click.IntRange(1), default=6, show_default=True),
    _option("--requests-per-minute", type=FiniteRange(0, min_open=True)),
    _option("--tokens-per-minute", type=FiniteRange(0, min_open=True)),
    _option("--connect-timeout", type=FiniteRange(0), default=10.0, show_default=True, metavar="S"),
    _option(
        "--first-byte-timeout", type=FiniteRange(0), default=3600.0, show_default=True, metavar="S"
    ),
    _option("--gap-timeout", type=FiniteRange(0), default=600.0, show_default=True, metavar="S"),
    _option("--total-timeout", type=FiniteRange(0), metavar="S"),
    _option("--wait", type=FiniteRange(0), default=60.0, show_default=True, metavar="S"),
    _option("--patience", type=FiniteRange(0), default=3600.0, show_default=True, metavar="S"),
    _option("--drain", type=FiniteRange(0), default=30.0, show_default=True, metavar="S"),
    _option("--max-cost", type=FiniteRange(0), metavar="USD"),
    _option("--max-total-tokens", type=click.IntRange(1)),
    _option("--max-time", type=FiniteRange(0), metavar="S"),
    _option("--price-in", type=FiniteRange(0), metavar="USD"),
    _option("--price-out", type=FiniteRange(0), metavar="USD"),
    _option("--key-env", default="HEAVYLIFT_API_KEY", show_default=True, metavar="NAME"),
)

_SPREAD_HANDS: Final = _options(
    _option("--workers", type=click.IntRange(1)),
    _option("--ray-address", metavar="HOST:PORT"),
    _option("--work", type=click.Path(path_type=Path, file_okay=False), metavar="DIR"),
)

_SPREAD: Final = _options(
    _option("--runner", type=click.Choice(("local", "ray")), default="local", show_default=True),
    _SPREAD_HANDS,
)


@command.command("run", help=text("help.batch.run"))
@click.argument("source", metavar="INPUT")
@_option("--endpoint", multiple=True, required=True, metavar="URL")
@_option("--out", type=click.Path(file_okay=False), metavar="DIR")
@_WHAT
@_HOW
@_SPREAD
@_option("--max-failed", type=click.IntRange(0))
@_option("--dry-run", is_flag=True)
@_option("--sample", type=click.IntRange(0), default=0, show_default=True)
@_option("--quiet", is_flag=True)
@json_option
def run(
    *,
    source: str,
    endpoint: tuple[str, ...],
    out: str | None,
    runner: str,
    workers: int | None,
    ray_address: str | None,
    work: Path | None,
    max_failed: int | None,
    dry_run: bool,
    sample: int,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Take the input in and run it; 1 when the audit does not add up."""
    from heavylift.batch import intake
    from heavylift.batch.estimate import estimate

    settings = _settings(endpoint, given)
    wanted = _source(source, given)
    shown = sink(as_json)
    key = os.environ.get(settings.key_env) or None
    if dry_run:
        try:
            shown.record("batch", estimate(wanted, settings, key=key, answers=sample))
        except intake.InputError as error:
            _list_defects(shown, error)
            raise
        return Exit.OK
    place = out or str(Path("batches") / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S"))
    if runner == "ray":
        refuse_unshared(given)
        hands = Hands(workers=workers, ray_address=ray_address, work=work)
        ended = spread(place, hands, shown, (wanted, settings), quiet=quiet)
    else:
        ended = _run(Path(place), settings, shown, wanted, quiet=quiet)
    return _tell(shown, ended, max_failed)


@command.command("resume", help=text("help.batch.resume"))
@_PLACE
@_option("--endpoint", multiple=True, metavar="URL")
@_SPREAD_HANDS
@_option("--max-failed", type=click.IntRange(0))
@_option("--quiet", is_flag=True)
@json_option
def resume(
    *,
    place: str,
    endpoint: tuple[str, ...],
    max_failed: int | None,
    quiet: bool,
    as_json: bool,
    **hands: Any,
) -> int:
    """Go on with what is left, as it was last run."""
    from heavylift.batch import shards

    shown = sink(as_json)
    if not shards.is_sharded(place):
        return _tell(shown, _resume(Path(place), endpoint, shown, quiet=quiet), max_failed)
    manifest = shards.manifest_of(place)
    settings = manifest.settings
    if endpoint:
        settings = replace(settings, endpoints=_checked(endpoint))
    asked = (manifest.source, settings)
    return _tell(shown, spread(place, Hands(**hands), shown, asked, quiet=quiet), max_failed)


def _resume(folder: Path, endpoint: tuple[str, ...], shown: Sink, *, quiet: bool) -> Ended:
    from heavylift.batch.store import open_journal

    with open_journal(folder, must_exist=True) as journal:
        settings = journal.get("settings", Settings)
    if settings is None:
        raise HeavyliftError("BAT003", {"path": str(folder)})
    if endpoint:
        settings = replace(settings, endpoints=_checked(endpoint))
    return _run(folder, settings, shown, None, quiet=quiet)


def _run(
    folder: Path, settings: Settings, shown: Sink, source: Source | None, *, quiet: bool
) -> Ended:
    from heavylift.batch import intake, job

    # What is loaded by now stays: the collector need not look at it again with every row.
    gc.freeze()

    def waiting() -> None:
        if not quiet:
            shown.step("batch.waiting_first")

    try:
        return job.run_whole(
            folder,
            settings,
            source,
            key=os.environ.get(settings.key_env) or None,
            signals=(signal.SIGTERM, signal.SIGINT),
            on_progress=None if quiet else _progress(shown),
            on_wait=waiting,
            memory_of=_memory_of(),
        )
    except intake.InputError as error:
        _list_defects(shown, error)
        raise


def _memory_of() -> MemoryOf | None:
    """Asks for the GPUs of deployments of ours, where there are any."""
    from heavylift.state.deployments import deployments_path

    if not deployments_path().exists():
        return None
    from heavylift.operate.watching import gpu_memory

    return gpu_memory


def _tell(shown: Sink, ended: Ended, max_failed: int | None) -> int:
    shown.record("batch", ended)
    here = shlex.quote(ended.folder)
    if ended.stopped is not None:
        shown.next_command(f"heavylift batch resume {here}")
    elif "://" in ended.folder or (Path(ended.folder) / "batch.json").is_file():
        shown.next_command(f"heavylift batch audit {here}")
    elif ended.audit.failed and not ended.all_failed:
        shown.next_command(f"heavylift batch retry-failed {here}")
    elif not ended.all_failed:
        shown.next_command(f"heavylift batch export {here} answers.csv")
    return _exit(ended, max_failed)


def _exit(ended: Ended, max_failed: int | None) -> Exit:
    if ended.audit.sound:
        too_many = max_failed is not None and ended.audit.failed > max_failed
        return Exit.NEGATIVE if too_many or ended.all_failed else Exit.OK
    if ended.stopped is None:
        return Exit.NEGATIVE
    # Stopped by a signal there is work left; stopped otherwise, no endpoint answered.
    return Exit.PENDING if ended.stopped == "signal" else Exit.ENGINE


@command.command("status", help=text("help.batch.status"))
@_PLACE
@json_option
def status(place: str, as_json: bool) -> int:
    """Where a batch stands; 8 while rows are left."""
    from heavylift.batch import job, shards

    found = shards.status(place) if shards.is_sharded(place) else job.status(Path(place))
    sink(as_json).record("batch", found)
    return Exit.PENDING if found.counts.left or found.shards_left else Exit.OK


@command.command("audit", help=text("help.batch.audit"))
@_PLACE
@json_option
def audit(place: str, as_json: bool) -> int:
    """Whether every row is accounted for; 1 when not."""
    from heavylift.batch import job, shards

    found = shards.audited(place) if shards.is_sharded(place) else job.audited(Path(place))
    sink(as_json).record("batch", found)
    return Exit.OK if found.sound else Exit.NEGATIVE


@command.command("cancel", help=text("help.batch.cancel"))
@_FOLDER
@json_option
def cancel(folder: Path, as_json: bool) -> None:
    """Stop a run at once and skip what is left."""
    from heavylift.batch import job

    refuse_shards(folder)
    sink(as_json).record("batch", job.cancel(folder))


@command.command("retry-failed", help=text("help.batch.retry_failed"))
@_FOLDER
@_option("--endpoint", multiple=True, metavar="URL")
@_option("--max-failed", type=click.IntRange(0))
@_option("--quiet", is_flag=True)
@json_option
def retry_failed(
    folder: Path, endpoint: tuple[str, ...], max_failed: int | None, quiet: bool, as_json: bool
) -> int:
    """Run the failed rows once more."""
    from heavylift.batch import job

    _checked(endpoint)
    refuse_shards(folder)
    count = job.retry_failed(folder)
    shown = sink(as_json)
    shown.note("batch.reopened", count=count)
    return _tell(shown, _resume(folder, endpoint, shown, quiet=quiet), max_failed)


@command.command("export", help=text("help.batch.export"))
@_FOLDER
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
def export(folder: Path, target: Path) -> None:
    """Write the outcomes as a table."""
    from heavylift.batch.export import export as write

    refuse_shards(folder)
    count = write(folder, target)
    sink(as_json=False).note("batch.exported", count=count, path=target)


@command.command("serve", help=text("help.batch.serve"))
@_FOLDER
@_option("--endpoint", multiple=True, required=True, metavar="URL")
@_option("--model")
@_option("--port", type=click.IntRange(0, 65535), default=8081, show_default=True)
@_option("--client-key-env", default="HEAVYLIFT_BATCH_KEY", show_default=True, metavar="NAME")
@_HOW
def serve(
    *,
    folder: Path,
    endpoint: tuple[str, ...],
    model: str | None,
    port: int,
    client_key_env: str,
    **given: Any,
) -> None:
    """Serve the files and batches routes until stopped."""
    import asyncio

    from heavylift.batch import api

    settings = _settings(endpoint, given)
    server = api.Server(
        folder,
        settings,
        model=model,
        key=os.environ.get(settings.key_env) or None,
        client_key=os.environ.get(client_key_env) or None,
    )
    shown = sink(as_json=False)

    async def until_stopped() -> None:
        task = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            if task is not None:
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await api.serve(server, port, lambda url: shown.note("batch.listening", url=url))

    asyncio.run(until_stopped())


# --- from options to records ---------------------------------------------------------------------


def _checked(endpoints: tuple[str, ...]) -> tuple[str, ...]:
    """The endpoints. Raises USE021 for one that is no URL of a server."""
    from heavylift.wire.client import Endpoint

    for url in endpoints:
        Endpoint.parse(url)
    return endpoints


def _settings(endpoints: tuple[str, ...], given: dict[str, Any]) -> Settings:
    if given["max_cost"] is not None and None in (given["price_in"], given["price_out"]):
        raise click.UsageError(text("usage.batch.prices"))
    return Settings(
        endpoints=_checked(endpoints),
        key_env=given["key_env"],
        concurrency=given["concurrency"],
        pinned=given["pin"],
        stream=given["stream"],
        dedupe=given["dedupe"],
        keep_order=given["keep_order"],
        requests_per_minute=given["requests_per_minute"],
        tokens_per_minute=given["tokens_per_minute"],
        drain_s=given["drain"],
        clocks=Clocks(
            connect_s=given["connect_timeout"],
            first_byte_s=given["first_byte_timeout"],
            gap_s=given["gap_timeout"],
            total_s=given["total_timeout"],
        ),
        retry=RetryRules(attempts=given["attempts"]),
        patience=Patience(first_s=given["wait"], later_s=given["patience"]),
        budget=Budget(
            tokens=given["max_total_tokens"],
            usd=given["max_cost"],
            seconds=given["max_time"],
            usd_per_million_in=given["price_in"],
            usd_per_million_out=given["price_out"],
        ),
    )


def _source(path: str, given: dict[str, Any]) -> Source:
    from heavylift.batch import schema
    from heavylift.batch.inputs import Format
    from heavylift.batch.intake import Source

    if given["prompt"] is not None and given["template"] is not None:
        raise click.UsageError(text("usage.batch.prompt_or_template"))
    template = given["prompt"]
    if given["template"] is not None:
        template = schema.text_of(given["template"])
    wanted = None if given["schema"] is None else schema.load(given["schema"])
    return Source(
        path=path,
        format=None if given["format"] is None else Format(given["format"]),
        shape=Shape(
            model=given["model"],
            url=given["url"],
            template=template,
            system=given["system"],
            columns=dict(_pair(entry) for entry in given["column"]),
            id_column=given["id_column"],
            fields={name: _json(value) for name, value in map(_pair, given["param"])},
            schema=wanted,
        ),
        skip_invalid=given["skip_invalid"],
        replace=given["replace_input"],
    )


def _pair(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not equals or not name:
        raise click.UsageError(text("usage.batch.pair", value=entry))
    return name, value


def _json(value: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as problem:
        raise click.UsageError(text("usage.batch.json", value=value[:60])) from problem


# --- while it runs -------------------------------------------------------------------------------


def _list_defects(shown: Sink, error: InputError) -> None:
    """Every defect, a line each, on standard error."""
    for defect in error.problems:
        problem = text(f"batch.defect.{defect.problem}", detail=defect.detail)
        shown.note("batch.defect", line=defect.line, problem=problem)


def _progress(shown: Sink) -> Callable[[Progress], None]:
    """A line now and then on standard error."""
    last = -_SHOW_EVERY_S
    told = False

    def show(now: Progress) -> None:
        nonlocal last, told
        if now.waiting_for is not None and not now.answered and not told:
            told = True
            shown.step("batch.waiting_first")
        if time.monotonic() - last < _SHOW_EVERY_S:
            return
        last = time.monotonic()
        counts = now.counts
        shown.step(
            "batch.progress",
            done=counts.ok + counts.failed,
            input=counts.input,
            failed=counts.failed,
            in_flight=now.in_flight,
            limit=now.limit,
            rows_per_s=_number(now.rows_per_s),
            tokens_per_s=_number(now.tokens_per_s),
            eta=_duration(now.eta_s),
        )
        if now.waiting_for is not None:
            shown.step("batch.waiting", failure=now.waiting_for)

    return show


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    hours, rest = divmod(round(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
