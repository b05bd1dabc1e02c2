"""`heavylift gateway`: keys, quotas and routing in front of model servers."""

from __future__ import annotations

from pathlib import Path

import click

from heavylift.cli.output import sink
from heavylift.cli.text import keys, text

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(help=text("help.gateway.long"))
@click.option(
    "--upstream", "upstreams", multiple=True, metavar="URL", help=text("help.gateway.upstream")
)
@click.option("--config", type=_FILE, help=text("help.gateway.config"))
@click.option("--host", default="127.0.0.1", show_default=True, help=text("help.gateway.host"))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help=text("help.gateway.port"),
)
@click.option("--state", type=_FOLDER, help=text("help.gateway.state"))
@click.option("--tls-cert", type=_FILE, help=text("help.gateway.tls_cert"))
@click.option("--tls-key", type=_FILE, help=text("help.gateway.tls_key"))
@click.option("--reuse-port", is_flag=True, help=text("help.gateway.reuse_port"))
@click.option("--audit-bodies", is_flag=True, help=text("help.gateway.audit_bodies"))
@click.option("--redact", "rules", type=_FILE, help=text("help.gateway.redact"))
@click.option("--batches", metavar="URL", help=text("help.gateway.batches"))
@click.option("--pd-prefill", multiple=True, metavar="URL", help=text("help.gateway.pd_prefill"))
@click.option("--pd-decode", multiple=True, metavar="URL", help=text("help.gateway.pd_decode"))
@click.option("--router", metavar="NAME", help=text("help.gateway.router"))
def command(
    *,
    upstreams: tuple[str, ...],
    config: Path | None,
    host: str,
    port: int,
    state: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    reuse_port: bool,
    audit_bodies: bool,
    rules: Path | None,
    batches: str | None,
    pd_prefill: tuple[str, ...],
    pd_decode: tuple[str, ...],
    router: str | None,
) -> int:
    """Serve until SIGTERM."""
    import contextlib
    import os

    from heavylift.cli.errors import sentence
    from heavylift.cli.keys import opened_store
    from heavylift.gateway import told
    from heavylift.gateway.config import (
        BATCH_KEY,
        DATABASE_URL,
        UPSTREAM_KEY,
        Settings,
        Tls,
        read_file,
        routes,
    )
    from heavylift.gateway.redaction import read_rules, redaction
    from heavylift.gateway.request import Policy
    from heavylift.gateway.router import plan_router
    from heavylift.gateway.routing import State, Worker
    from heavylift.gateway.serve import serve
    from heavylift.gateway.store import default_folder
    from heavylift.wire.client import Endpoint

    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError(text("usage.gateway.tls"))
    if rules is not None and not audit_bodies:
        raise click.UsageError(text("usage.gateway.redact"))
    if (pd_prefill or pd_decode) and router is None:
        raise click.UsageError(text("usage.gateway.router"))
    file = read_file(config)
    plan = None if router is None else plan_router(router, pd_prefill, pd_decode)
    if plan is not None:
        upstreams = (*upstreams, plan.url)
    folder = state or default_folder()
    settings = Settings(
        folder=folder,
        routes=routes(upstreams, file),
        host=host,
        port=port,
        worker_key=os.environ.get(UPSTREAM_KEY),
        policy=Policy(image_tokens=file.image_tokens, fetch_hosts=file.fetch_hosts),
        times=file.times,
        body_bytes=file.body_bytes,
        tls=None if tls_cert is None or tls_key is None else Tls(certificate=tls_cert, key=tls_key),
        reuse_port=reuse_port,
        redact=redaction(read_rules(rules)) if audit_bodies else None,
        batches=None if batches is None else Endpoint.parse(batches).base_url,
        batch_key=os.environ.get(BATCH_KEY) or None,
        router=plan,
        database=os.environ.get(DATABASE_URL) or None,
    )
    out = sink(as_json=False)

    def on_worker(worker: Worker, before: State) -> None:
        url = worker.upstream.url
        with contextlib.suppress(OSError):  # whoever read standard error may have gone
            if worker.state is State.OUT:
                out.note("gateway.worker_out", url=url, reason=_reason(worker.reason or ""))
            elif before is State.OUT:
                out.note("gateway.worker_back", url=url)

    with opened_store(folder) as store:
        if not store.keys():
            out.note("gateway.no_keys")

    def on_listening(url: str) -> None:
        out.note("gateway.listening", url=url)
        with contextlib.suppress(OSError):  # it serves from a folder that takes no more files
            told.keep(settings, url, own_rules=rules is not None)

    return serve(settings, sentence, on_listening, on_worker)


def _reason(code: str) -> str:
    """Why a worker is out, in words; a code without a sentence of its own as it stands."""
    key = f"gateway.reason.{code}"
    return text(key) if key in keys() else code.replace("_", " ")
